package snapshot

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strconv"
	"syscall"
	"time"

	"github.com/podnas/podnas/internal/tree"
	"github.com/podnas/podnas/server/disk"
)

// filling is a directory whose files are being made.
type filling struct {
	block

	at   int         // in walk.queue
	live int         // the directory as it is now, -1 if it is gone
	into *os.File    // that of the snapshot
	last *earlierDir // that of the earlier snapshot, nil: none
	dirs []place     // what was found in it
}

// fill makes the files of a directory, and returns the directories in it.
func (w *walker) fill(at int, p place) (found []place, err error) {
	name, err := w.nameOf(p)
	if err != nil {
		return nil, err
	}
	names, err := openNames(w.work, namesOf(p.inode))
	if err != nil {
		return nil, err
	}
	defer names.close()
	live, err := w.open(&names.id) // unless it is gone: then all that was in it was captured, or moved
	if err != nil && !errors.Is(err, syscall.ESTALE) {
		return nil, err
	}
	defer live.Close()
	d := filling{block: block{inode: p.inode, above: p.above, name: name}, at: at, live: live.FD(), last: w.last.directory(p.inode)}
	defer d.last.close()
	err = tree.Fill(w.objects, strconv.FormatUint(p.inode, 10), func(into *os.File) error {
		d.into = into
		for {
			e, err := names.next()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			if err := w.entry(&d, &e); err != nil {
				return fmt.Errorf("%q: %w", e.name, err)
			}
			w.progress.Files.Add(1)
			if err := w.pacer.Pause(w.ctx); err != nil {
				return err
			}
		}
	})
	if err != nil {
		return nil, err
	}
	return d.dirs, w.list.add(&d.block)
}

// entry makes a file of a directory.
func (w *walker) entry(d *filling, e *entry) error {
	made, r := false, record{inode: e.inode, kind: e.kind, name: e.name, changed: unknownChange}
	began := time.Now()
	if w.claim(e.inode) {
		var err error
		made, err = w.fromLive(d, e, &r)
		w.release(e.inode)
		if err != nil {
			return err
		}
	}
	w.found(e.inode, time.Since(began), slowPlace{d.at, e.name})
	d.keep(r)
	if made {
		return nil
	}
	info, err := w.work.Lstat(object(e.inode))
	switch {
	case errors.Is(err, fs.ErrNotExist) && (e.kind == kindChr || e.kind == kindBlk):
		return nil // see clone
	case errors.Is(err, fs.ErrNotExist):
		return errBehind
	case err != nil:
		return err
	case info.IsDir():
		d.dirs = append(d.dirs, place{e.inode, d.inode, e.at})
		return nil
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && info.Mode().IsRegular() && w.counts(e.inode) {
		w.progress.Bytes.Add(min(st.Size, st.Blocks*512))
	}
	return w.work.Link(object(e.inode), path.Join(objectsDir, strconv.FormatUint(d.inode, 10), e.name))
}

// errBehind means that the disk was changed by others than podnas.
var errBehind = errors.New("it was moved or removed on the disk itself while the snapshot was taken; try again")

// fromLive makes what has not changed since the cut: in its directory, or, if it is a directory or has several names, as an object. It
// sets what the catalogue has of it. The caller has claimed it.
func (w *walker) fromLive(d *filling, e *entry, r *record) (made bool, err error) {
	if made, linked := w.fromLast(d, e, r); linked {
		return made, nil
	}
	file, st, err := w.find(d, e)
	if err != nil {
		return false, err
	}
	defer file.Close()
	if !st.IsDir() {
		r.sees(&st, time.Now())
	}
	switch {
	case st.IsDir() && st.IsOn(&w.root):
		id, err := w.files.Identify(file.FD(), nil)
		if err != nil {
			return false, err
		}
		return false, w.capture(e.inode, &id, file.FD(), &st)
	case st.Nlink > 1 && !st.IsDir(): // a directory is the root of another disk here: an empty one stands for it
		return false, w.capture(e.inode, nil, file.FD(), &st)
	case st.IsRegular():
		w.progress.Bytes.Add(int64(min(st.Size, st.Blocks*512)))
	}
	return true, w.clone(d.into, e.name, file.FD(), &st)
}

// fromLast is fromLive for a file that has not changed since the earlier snapshot either. linked is whether that is so.
func (w *walker) fromLast(d *filling, e *entry, r *record) (made, linked bool) {
	if d.live < 0 || !d.last.has(e.inode) {
		return false, false
	}
	st, err := tree.StatIn(d.live, e.name)
	if err != nil || st.Ino != e.inode || !st.IsOn(&w.root) || st.IsDir() || st.IsDevice() {
		return false, false
	}
	to, name := d.into, e.name
	if st.Nlink > 1 {
		to, name = w.objects, strconv.FormatUint(e.inode, 10)
	}
	if !d.last.link(e.inode, &st, to, name) {
		return false, false
	}
	r.sees(&st, time.Now())
	w.progress.Linked.Add(1)
	if st.Nlink > 1 {
		return false, true
	}
	if st.IsRegular() {
		w.progress.Bytes.Add(int64(min(st.Size, st.Blocks*512)))
	}
	return true, true
}

// find opens a file that has not changed, by the name that it had at the cut, or where it was moved. The index gets to know a
// directory: it may be in one that can't be listed.
func (w *walker) find(d *filling, e *entry) (file disk.Descriptor, st tree.Statx, err error) {
	if live := d.live; live >= 0 {
		seen := w.files.Observe()
		err = w.reads(live, func() error {
			file, err = disk.OpenEntry(live, e.name)
			return err
		})
		switch {
		case err == nil:
			st, err = w.stat(file.FD())
			if err != nil || st.Ino == e.inode || !st.IsOn(&w.root) {
				if err == nil && st.IsDir() && st.IsOn(&w.root) {
					seen.Saw(live, d.inode, []byte(e.name), st.Ino, true)
				}
				return file, st, err
			}
			file.Close()
		case !errors.Is(err, syscall.ENOENT):
			file.Close()
			return disk.Descriptor{}, st, err
		}
	}
	return w.findMoved(e.inode)
}

// findMoved opens a file that was moved.
func (w *walker) findMoved(inode uint64) (file disk.Descriptor, st tree.Statx, err error) {
	for _, id := range w.movedFiles(inode) {
		file, err = w.open(&id)
		if errors.Is(err, syscall.ESTALE) {
			continue // it is another subvolume's, or errBehind says what is wrong
		}
		if err == nil {
			st, err = w.stat(file.FD())
		}
		if err == nil && st.IsOn(&w.root) {
			return file, st, nil
		}
		file.Close()
		if err != nil {
			return disk.Descriptor{}, st, err
		}
	}
	return disk.Descriptor{}, st, errBehind
}
