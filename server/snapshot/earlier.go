package snapshot

import (
	"os"
	"path"
	"time"

	"github.com/podnas/podnas/internal/tree"
)

// Earlier is a complete snapshot of a volume. What has not changed since is linked from it, and not cloned again: this takes
// a quarter of the time, no inode, and no blocks. Nothing changes a file of a snapshot, so it may have names in several.
type Earlier struct {
	Tree      string // the path of its files
	Catalogue string // the path of what Take has made as Catalogue
	Cut       time.Time
}

// earlier is an Earlier that is open.
type earlier struct {
	root      *os.File
	file      *os.File // the catalogue
	catalogue *catalogue
}

// open opens it for a snapshot of a moment. Without one, and if it can't be read, it returns nil.
func (e *Earlier) open(cut time.Time) *earlier {
	// If the clock went back between, the same ctime may be that of another change.
	if e == nil || !e.Cut.Before(cut) {
		return nil
	}
	file, err := os.Open(e.Catalogue)
	if err != nil {
		return nil
	}
	opened := &earlier{file: file}
	info, err := file.Stat()
	if err == nil {
		opened.catalogue, err = openCatalogue(file, info.Size(), e.Cut.UnixNano())
	}
	if err == nil {
		opened.root, err = os.Open(e.Tree)
	}
	if err != nil {
		opened.close()
		return nil
	}
	return opened
}

func (e *earlier) close() {
	if e != nil {
		_ = e.file.Close() // only read from
		_ = e.root.Close() // likewise; it may be nil
	}
}

// earlierDirs finds the directories of an earlier snapshot, for one goroutine.
type earlierDirs struct {
	of *earlier // nil: none

	above     uint64 // the last directory whose path was asked for
	pathAbove string // "": it has none that is known
}

// earlierDir is a directory of an earlier snapshot.
type earlierDir struct {
	dir   *os.File // O_PATH
	block *block
}

// directory opens what the snapshot has of a directory of the volume, wherever that was then. It returns nil if there is
// nothing, or it can't be read, or is too deep.
func (e *earlierDirs) directory(inode uint64) *earlierDir {
	if e.of == nil {
		return nil
	}
	b, err := e.of.catalogue.directory(inode)
	if err != nil {
		return nil
	}
	at := "."
	if b.above != 0 {
		if e.above != b.above {
			e.above = b.above
			e.pathAbove, _ = e.of.catalogue.path(b.above) // a directory that is not found is made without the earlier one
		}
		if e.pathAbove == "" {
			return nil
		}
		at = path.Join(e.pathAbove, b.name)
	}
	dir, err := tree.OpenDirIn(e.of.root, at)
	if err != nil {
		return nil
	}
	return &earlierDir{dir, b}
}

func (d *earlierDir) close() {
	if d != nil {
		_ = d.dir.Close() // only read from
	}
}

// link gives the clone of a file of the volume another name. It reports whether that is possible: the file is in the snapshot, in this
// directory, and has not changed since.
func (d *earlierDir) link(inode uint64, st *tree.Statx, to *os.File, name string) bool {
	if d == nil {
		return false
	}
	r, ok := d.block.find(inode)
	return ok && r.is(st) && tree.LinkClone(d.dir, r.name, to, name, st) == nil
}

// has reports whether the snapshot may have a file in this directory.
func (d *earlierDir) has(inode uint64) bool {
	if d == nil {
		return false
	}
	_, ok := d.block.find(inode)
	return ok
}
