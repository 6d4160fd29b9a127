// Package restore makes the files of a volume those of one of its snapshots, in place. It changes them as clients' calls do, by
// package inode. So handles stay valid where a name has a file of the same type as before, what clients have open
// stays until they close it, and indexes and counts go along.
package restore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/podnas/podnas/internal/tree"
	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/inode"
)

// Progress is how far a restore is. It may be read at any time.
type Progress struct {
	Files   atomic.Int64 // entries of the snapshot that are in place, of any type
	Removed atomic.Int64 // entries that the snapshot does not have
	Changed atomic.Bool  // the volume may have a part of the snapshot
}

// Run makes the files of a volume those of the snapshot with a name. The caller holds the volume, see
// snapshot.Volume.Hold, and has lifted its limit: for a while there may be what was there, and what comes. Run waits for what is not known
// yet, and for room that the disk gives. When Run returns nil, all is on the disk. After an error, a part is done if the progress says
// Changed, and Run can be called again. The error is fs.ErrNotExist if there is no such snapshot, ctx's if it has ended, and tree.ErrTooDeep,
// before anything is changed, for a snapshot that a copy refuses, too.
func Run(ctx context.Context, o *inode.Opener, v *exports.Volume, name string, p *Progress) error {
	shown := v.Shown()
	if shown == nil {
		return fmt.Errorf("snapshot %s: %w", name, os.ErrNotExist)
	}
	from, err := shown.SnapshotNamed(name)
	if errors.Is(err, syscall.ESTALE) {
		err = os.ErrNotExist
	}
	if err != nil {
		return fmt.Errorf("open snapshot %s: %w", name, err)
	}
	r := run{
		ctx: ctx, opener: o, from: from, to: v, progress: p, as: actas.AsProcess(), linked: map[uint64]disk.FileID{},
	}
	if r.several, err = severalIn(ctx, shown.Files.Root, name); err != nil {
		return fmt.Errorf("read snapshot %s: %w", name, err)
	}
	if err := findOthers(ctx, v.Files.Root); err != nil {
		return fmt.Errorf("look through the volume: %w", err)
	}
	p.Changed.Store(true)
	r.dirs = []dir{{from: *from.Files.RootID(), to: *v.Files.RootID()}}
	// Each directory twice: first what is in it, and when that is done, its own attributes, the times last.
	for len(r.dirs) > 0 {
		at := len(r.dirs) - 1
		d := r.dirs[at]
		if !d.filled {
			r.dirs[at].filled = true
			err = r.fill(&d, at)
		} else {
			r.dirs = r.dirs[:at]
			err = r.despiteFlags(d.to, "", func() error { return r.finish(&d) })
		}
		if err != nil {
			return fmt.Errorf("%s: %w", r.pathOf(&d), err)
		}
	}
	return tree.SyncAll(v.Files.Root)
}

// severalIn finds the files with several names in a snapshot. The number of links does not say it, as they have names in other
// snapshots, too.
func severalIn(ctx context.Context, all *os.File, name string) (tree.Inodes, error) {
	dir, err := tree.OpenDir(all, name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }() // only read from
	return tree.WithSeveralNames(ctx, dir)
}

// run is one Run.
type run struct {
	ctx      context.Context // of Run
	opener   *inode.Opener
	from, to *exports.Volume // the snapshot, and the volume
	progress *Progress
	as       actas.Thread
	dirs     []dir                  // under way; the last is the next
	several  tree.Inodes            // the files of the snapshot with several names
	linked   map[uint64]disk.FileID // files with several names that are in place, by their number in the snapshot
}

// dir is a directory of the snapshot, and that of the volume.
type dir struct {
	from, to disk.FileID
	name     string
	above    int // in run.dirs, where it stays until all that is in it is done
	filled   bool
}

// pathOf is the path of a directory, for people: a long one is truncated. No directory has its path while it waits: as many
// that are nested would take memory by the square of their number.
func (r *run) pathOf(d *dir) string {
	const most = 20
	at := ""
	for n := 0; d.name != ""; n++ {
		if n == most {
			return path.Join("...", at)
		}
		at = path.Join(d.name, at)
		d = &r.dirs[d.above]
	}
	return "/" + at
}

// patience is the time between two tries.
const patience = 50 * time.Millisecond

// patiently calls do until that fails for good, or ctx ends. After a start it is not known for a while where files are, and on a full disk
// scheduled snapshots give room.
func (r *run) patiently(do func() error) error {
	for {
		err := do()
		if !errors.Is(err, syscall.EAGAIN) && (!errors.Is(err, syscall.ENOSPC) || !r.to.GivesRoom()) {
			return err
		}
		select {
		case <-time.After(patience):
		case <-r.ctx.Done():
			return context.Cause(r.ctx)
		}
	}
}

// openFrom opens a file of the snapshot.
func (r *run) openFrom(id disk.FileID, use inode.Use) (f *inode.File, err error) {
	err = r.patiently(func() error {
		f, err = r.opener.OpenIn(r.from, id, use)
		return err
	})
	return f, err
}

// open opens a file of the volume, to change it.
func (r *run) open(id disk.FileID, use inode.Use) (f *inode.File, err error) {
	err = r.patiently(func() error {
		f, err = r.opener.OpenIn(r.to, id, use, inode.ToRestore)
		return err
	})
	return f, err
}

// fill makes the files of a directory, which is in dirs, and finds the directories in it.
func (r *run) fill(d *dir, at int) error {
	from, err := r.openFrom(d.from, inode.UseAttr)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := r.open(d.to, inode.UseNames)
	if err != nil {
		return err
	}
	defer to.Close()
	now, err := r.open(d.to, inode.UseAttr)
	if err != nil {
		return err
	}
	defer now.Close()
	if err := r.mustBeSame(now); err != nil {
		return err
	}
	if err := r.despiteFlags(d.to, "", func() error { return errors.Join(r.hide(from, now), r.unlock(now)) }); err != nil {
		return err
	}
	have, err := names(now)
	if err != nil {
		return err
	}
	for _, name := range have {
		if err := r.ctx.Err(); err != nil {
			return err
		}
		if from.Lacks(name) {
			if err := r.remove(to, name); err != nil {
				return fmt.Errorf("remove %q: %w", name, err)
			}
		}
	}
	want, err := names(from)
	if err != nil {
		return err
	}
	for _, name := range want {
		if err := r.ctx.Err(); err != nil {
			return err
		}
		if err := r.despiteFlags(d.to, name, func() error { return r.entry(at, from, to, name) }); err != nil {
			return fmt.Errorf("%q: %w", name, err)
		}
		r.progress.Files.Add(1)
	}
	return nil
}

// names returns the names in a directory, which is open with UseAttr.
func names(d *inode.File) (all []string, err error) {
	const size = 64 << 10
	listing, err := d.List(actas.AsProcess(), 0, size)
	if err != nil {
		return nil, err
	}
	defer listing.Close()
	for {
		e, ok, err := listing.Next()
		if err != nil || !ok {
			return all, err
		}
		if disk.ValidName(e.Name) {
			all = append(all, string(e.Name))
		}
	}
}

// change calls do while the names of a directory are locked.
func change(d *inode.File, do func() error) error {
	names := inode.LockNames(d, d)
	defer names.Unlock()
	defer func() { _, _ = d.Stat() }() // charges what the directory has grown or shrunk by
	return do()
}

// remove removes a name, and all below it.
func (r *run) remove(d *inode.File, name string) error {
	if isDir, err := r.removeFile(d, name); !isDir {
		return err
	}
	type above struct {
		id   disk.FileID
		name string
	}
	way := []above{{d.ID, name}}
	for len(way) > 0 {
		if err := r.ctx.Err(); err != nil {
			return err
		}
		last := way[len(way)-1]
		below, id, err := r.empty(last.id, last.name)
		switch {
		case err != nil:
			return err
		case below != "":
			way = append(way, above{id, below})
		default:
			way = way[:len(way)-1]
		}
	}
	return nil
}

// removeFile removes a name that is no directory.
func (r *run) removeFile(d *inode.File, name string) (isDir bool, err error) {
	err = r.despiteFlags(d.ID, name, func() error {
		return change(d, func() error { return d.Remove(r.as, name) })
	})
	if errors.Is(err, syscall.EISDIR) {
		return true, err
	}
	r.progress.Removed.Add(1)
	return false, err
}

// empty removes what is in a directory, and then the directory. At the first directory in it, it stops and returns its
// name, and the directory that it is in.
func (r *run) empty(above disk.FileID, name string) (below string, in disk.FileID, err error) {
	parent, err := r.open(above, inode.UseNames)
	if err != nil {
		return "", in, err
	}
	defer parent.Close()
	found, err := parent.Lookup([]byte(name))
	if err != nil {
		return "", in, err
	}
	defer found.Close()
	if err := r.mustBeSame(found); err != nil {
		return "", in, err
	}
	err = r.despiteFlags(above, name, func() error { return r.unlock(found) })
	if err != nil {
		return "", in, err
	}
	d, err := r.open(found.ID, inode.UseNames)
	if err != nil {
		return "", in, fmt.Errorf("open %q: %w", name, err)
	}
	defer d.Close()
	all, err := names(found)
	if err != nil {
		return "", in, err
	}
	for _, name := range all {
		isDir, err := r.removeFile(d, name)
		if isDir {
			return name, d.ID, nil
		}
		if err != nil {
			return "", in, err
		}
	}
	r.progress.Removed.Add(1)
	return "", in, r.despiteFlags(above, name, func() error {
		return change(parent, func() error { return parent.Rmdir(r.as, name) })
	})
}

const (
	typeBits = syscall.S_IFMT
	allModes = 0o7777
	// privateFile and privateDir are the modes of what is not complete.
	privateFile = 0o600
	privateDir  = 0o700
)

// entry makes a name of a directory, which is in dirs.
func (r *run) entry(at int, from, to *inode.File, name string) error {
	was, err := from.Lookup([]byte(name))
	if err != nil {
		return err
	}
	defer was.Close()
	several := !was.Attr.IsDir() && r.several.Has(was.Attr.Ino)
	if first, there := r.linked[was.Attr.Ino]; several && there {
		return r.link(first, to, name)
	}
	id, err := r.reuse(was, to, name)
	if err == nil && id.IsZero() {
		id, err = r.make(was, to, name)
	}
	if err != nil {
		return err
	}
	switch {
	case was.Attr.IsDir():
		r.dirs = append(r.dirs, dir{from: was.ID, to: id, name: name, above: at})
		return nil // its attributes come last
	case was.Attr.IsRegular():
		if err := r.content(was, id); err != nil {
			return err
		}
	}
	if err := r.attributes(was, id); err != nil {
		return err
	}
	if several { // not before: another try would take this name for another one
		r.linked[was.Attr.Ino] = id
	}
	return nil
}

// reuse returns the file that has a name, if it can become that of the snapshot. If not, it is removed.
func (r *run) reuse(was, to *inode.File, name string) (id disk.FileID, err error) {
	is, err := to.Lookup([]byte(name))
	if errors.Is(err, syscall.ENOENT) {
		return id, nil
	}
	if err != nil {
		return id, err
	}
	defer is.Close()
	if reusable(was, is) {
		return is.ID, nil
	}
	return id, r.remove(to, name)
}

// reusable reports whether a file can become that of the snapshot. One with other names can't: it may be another file by each of
// them.
func reusable(was, is *inode.File) bool {
	if was.Attr.Mode&typeBits != is.Attr.Mode&typeBits || was.Attr.Major != is.Attr.Major || was.Attr.Minor != is.Attr.Minor {
		return false
	}
	if was.Attr.IsSymlink() {
		a, err := was.Readlink()
		b, otherErr := is.Readlink()
		return err == nil && otherErr == nil && bytes.Equal(a, b) && is.Attr.Nlink == 1
	}
	return is.Attr.IsDir() || is.Attr.Nlink == 1
}

// link gives a file another name.
func (r *run) link(id disk.FileID, to *inode.File, name string) error {
	if !to.Lacks(name) {
		if err := r.remove(to, name); err != nil {
			return err
		}
	}
	f, err := r.open(id, inode.UseAttr)
	if err != nil {
		return err
	}
	defer f.Close()
	return change(to, func() error { return f.Link(r.as, to, name) })
}

// make makes a file of the type of the snapshot's.
func (r *run) make(was, to *inode.File, name string) (id disk.FileID, err error) {
	var target []byte
	if was.Attr.IsSymlink() {
		if target, err = was.Readlink(); err != nil {
			return id, err
		}
	}
	var made *inode.File
	err = change(to, func() error {
		switch {
		case was.Attr.IsDir():
			made, err = to.Mkdir(r.as, name, privateDir)
		case was.Attr.IsRegular():
			made, err = to.Create(r.as, name, privateFile, false)
		case was.Attr.IsSymlink():
			made, err = to.Symlink(r.as, string(target), name)
		default:
			made, err = to.Mknod(r.as, name, was.Attr.Mode&typeBits, privateFile, was.Attr.Major, was.Attr.Minor)
		}
		return err
	})
	if err != nil {
		return id, err
	}
	defer made.Close()
	return made.ID, nil
}

// content makes the data of a file that of the snapshot's.
func (r *run) content(was *inode.File, id disk.FileID) error {
	if err := r.hideFile(was, id); err != nil {
		return err
	}
	to, err := r.open(id, inode.UseWrite)
	if err != nil {
		return err
	}
	defer to.Close()
	a, err := to.Stat()
	if err != nil {
		return err
	}
	if a.Size > was.Attr.Size { // cloning makes it no smaller
		if err := to.Truncate(r.as, uint64(was.Attr.Size)); err != nil {
			return err
		}
	}
	if was.Attr.Size == 0 {
		return nil
	}
	from, err := r.openFrom(was.ID, inode.UseRead)
	if err != nil {
		return err
	}
	defer from.Close()
	return r.cloneData(to, from)
}
