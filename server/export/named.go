package export

import (
	"hash/maphash"
	"math/bits"
)

// A rename changes the file's ctime, so what is remembered of its attributes ends. A removal ends what is open of the
// file, and its charge. Which file that is the kernel tells by a system call. Most files that are renamed or removed
// were made a moment ago, by a client that replaces another file with them or that needed them for that long, and are still
// open for its WRITEs. So the cache knows open files by their name.
//
// A file has a name here from when a client makes it, if it has no other, until it gets another or is not open any more.
// Who changes the name of a file finds it here or asks the kernel, and tells the cache in both cases. So this holds on
// disks where A and a are one name, too: there a file has here the name that it was made with, or none.
//
// What somebody does to such a name directly on the disk is not known: then the file that is there now may have attributes
// that are attrsKept old after a rename, and the usage of the one that was there is not counted from its removal until
// it is looked at again.

// nameSum is a checksum of a directory and a name in it, which no client can foresee. It is not 0.
type nameSum uint64

func (c *fileCache) nameSum(dir *File, name string) nameSum {
	sum := bits.RotateLeft64(maphash.Bytes(c.seed, dir.ID.bytes[:dir.ID.n]), 32) ^ maphash.String(c.seed, name)
	return nameSum(max(sum, 1))
}

// onlyName is the name of a new file, in a directory that is locked since before it was made; the zero one is none. links
// is fileCache.links from then.
type onlyName struct {
	sum   nameSum
	links uint64
}

// onlyName is for who has locked the directory, and makes the file next.
func (c *fileCache) onlyName(dir *File, name string) onlyName {
	return onlyName{c.nameSum(dir, name), c.links.Load()}
}

// byName returns the file of a name, nil if none is known. The caller holds c.mu.
func (c *fileCache) byName(v *Volume, name nameSum) *openFile {
	f := c.named[name%filesMax]
	if f == nil || f.name != name || f.key.volume != v || f.dropped {
		return nil
	}
	return f
}

// setName changes the name of a file, 0: it is not known. The caller holds c.mu.
func (c *fileCache) setName(f *openFile, name nameSum) {
	if at := &c.named[f.name%filesMax]; *at == f {
		*at = nil
	}
	if f.name = name; name != 0 {
		c.named[name%filesMax] = f
	}
}

// getNamed is get by a name, whatever the file is open for.
func (c *fileCache) getNamed(v *Volume, name nameSum) *openFile {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.byName(v, name)
	if f != nil {
		f.users++
	}
	return f
}

// idNamed returns the FileID of a name, zero if it is not known, and whether another name is known.
func (c *fileCache) idNamed(v *Volume, name, other nameSum) (id FileID, has bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.byName(v, name); f != nil {
		id = f.key.id
	}
	return id, c.byName(v, other) != nil
}

// unname forgets a name. The caller holds c.mu.
func (c *fileCache) unname(v *Volume, name nameSum) {
	if f := c.byName(v, name); f != nil {
		c.setName(f, 0)
	}
}

// nameNew tells the name of a file that was opened as it was made. The caller holds c.mu.
func (c *fileCache) nameNew(f *openFile, name onlyName) {
	if name.sum == 0 {
		return
	}
	c.unname(f.key.volume, name.sum)
	if c.links.Load() == name.links { // else it may have got another one
		c.setName(f, name.sum)
	}
}

// isNew tells that what has a name was just made, and is not open. What had it has lost it directly on the disk.
func (c *fileCache) isNew(v *Volume, name nameSum) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unname(v, name)
}

// linking tells that a file is about to get another name.
func (c *fileCache) linking(v *Volume, id FileID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.links.Add(1)
	for _, f := range c.open(&fileKey{v, id}) {
		if f != nil {
			c.setName(f, 0)
		}
	}
}

// renamed tells that a file has another name. For a file that is open this is a use of it.
func (c *fileCache) renamed(v *Volume, id FileID, from, to nameSum) {
	c.mu.Lock()
	defer c.mu.Unlock()
	named := c.byName(v, from)
	c.unname(v, from)
	c.unname(v, to)
	for _, f := range c.open(&fileKey{v, id}) {
		if f == nil {
			continue
		}
		if c.setName(f, 0); f == named { // else the disk takes both for one name
			c.setName(f, to)
		}
		c.unused(f)
	}
}

// moving returns the FileID of a file that is about to be renamed, zero if there is none. taken is whether there is
// something with the new name, as far as is known.
func (f *File) moving(name string, to *File, newName string) (id FileID, taken bool) {
	files := f.opener.files
	id, taken = files.idNamed(f.Volume, files.nameSum(f, name), files.nameSum(to, newName))
	if id.IsZero() || f.Volume.index.Load() != nil { // an index must be told what is there now
		id, _ = f.Volume.finder.identify(f.fd, []byte(name))
	}
	return id, taken
}
