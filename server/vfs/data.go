package vfs

import (
	"cmp"
	"math"
	"syscall"

	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/inode"
)

// MaxOffset is where a file ends at the latest, off_t's maximum.
const MaxOffset = math.MaxInt64

// Data is what was read.
type Data struct {
	Bytes []byte
	EOF   bool
	Attr  Attrs // after it
}

// Read reads from a file that is open with UseRead into p. If all of the data is in the kernel's
// cache, and the caller is known to have the right, it does not block.
func (c *Call) Read(f *inode.File, p []byte, offset uint64) (d Data, err error) {
	if err := c.denied(f, false); err != nil {
		return d, err
	}
	if d, ok := c.readCached(f, p, offset); ok {
		return d, nil
	}
	if err := c.blocks(f); err != nil {
		return d, err
	}
	return c.read(f, p, offset)
}

func (c *Call) readCached(f *inode.File, p []byte, offset uint64) (d Data, ok bool) {
	if len(p) == 0 || offset > MaxOffset-uint64(len(p)) {
		return d, false
	}
	n, err := f.ReadCached(p, int64(offset))
	if err != nil {
		return d, false
	}
	// The data is sent only if the caller is known to have the right.
	end := offset + uint64(n)
	attr, err := f.Recent(int64(end))
	switch {
	case err != nil || c.id.UID != 0 && !c.service.users.Only() && !c.isKnown(f, &attr, inode.MayRead):
		return d, false
	case n < len(p) && end < uint64(attr.Size): // only so much was in the cache
		return d, false
	}
	return c.wasRead(f, p[:n], offset, &attr), true
}

func (c *Call) read(f *inode.File, p []byte, offset uint64) (d Data, err error) {
	attr, err := f.Stat()
	if err != nil {
		return d, err
	}
	d.Attr = known(attr)
	if err := c.mayUse(f, &attr, inode.MayRead); err != nil {
		return d, err
	}
	if offset > MaxOffset { // past any end
		d.EOF = true
		return d, nil
	}
	if room := MaxOffset - offset; uint64(len(p)) > room { // pread(2) refuses what goes past it
		p = p[:room]
	}
	n, err := f.ReadAt(p, int64(offset))
	if err != nil {
		return d, err
	}
	if attr, err = f.Stat(); err != nil {
		return d, err
	}
	return c.wasRead(f, p[:n], offset, &attr), nil
}

// wasRead is what was read from an offset on, with the attributes after it.
func (c *Call) wasRead(f *inode.File, p []byte, offset uint64, attr *disk.Attr) Data {
	f.WasRead(attr)
	c.Served.Read = len(p)
	return Data{p, offset+uint64(len(p)) >= uint64(attr.Size), known(*attr)}
}

// Written is the result of a WRITE.
type Written struct {
	Count         int
	Verifier      uint64 // from before the data was accepted, so that a failed sync of the data changes it
	Before, After Attrs
}

// Write writes to a file that is open with UseWrite.
//
// If some of p was written before an error, there is no error: the client gets it when it
// writes the rest.
func (c *Call) Write(f *inode.File, p []byte, offset uint64) (w Written, err error) {
	w.Verifier = f.Volume.Durable.WriteVerifier()
	attr, err := f.Stat()
	if err != nil {
		return w, err
	}
	w.Before = known(attr)
	w.After = w.Before
	if err := cmp.Or(c.denied(f, true), c.mayUse(f, &attr, inode.MayWrite)); err != nil {
		return w, err
	}
	if offset > MaxOffset-uint64(len(p)) {
		return w, syscall.EFBIG
	}
	if err := c.settleToChange(f, false); err != nil {
		return w, err
	}
	n, attr, err := c.writeAt(f, p, offset, &attr)
	if n == 0 && err != nil {
		w.After = known(attr)
		return w, err
	}
	c.Served.Written = n
	w.Count, w.After = n, known(attr)
	return w, nil
}

// writeAt writes as root, which is faster than as the caller, unless the file has setuid or setgid
// bits, which a write of root would not clear, or the disk is nearly full, because ext4 reserves its last
// blocks for root.
func (c *Call) writeAt(f *inode.File, p []byte, offset uint64, before *disk.Attr) (n int, after disk.Attr, err error) {
	if c.isProcess() || before.Mode&(syscall.S_ISUID|syscall.S_ISGID) == 0 && f.Volume.HasRoom(len(p)) {
		return f.WriteAt(p, int64(offset))
	}
	err = c.AsCaller(func(actas.Thread) error {
		n, after, err = f.WriteAt(p, int64(offset))
		return err
	})
	return n, after, err
}

// Commit syncs a file that is open with UseWrite; attr is from before the sync.
func (c *Call) Commit(f *inode.File) (attr Attrs, err error) {
	a, err := f.Stat()
	if err != nil {
		return attr, err
	}
	if err := c.mayUse(f, &a, inode.MayWrite); err != nil {
		return known(a), err
	}
	return known(a), c.Sync(f, false)
}
