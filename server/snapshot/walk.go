package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/podnas/podnas/internal/tree"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/locate"
)

// Progress is how far a snapshot is. It may be read at any time.
type Progress struct {
	Cut    atomic.Int64 // the moment that it keeps, in Unix nanoseconds; 0: not yet
	Files  atomic.Int64 // entries of any type, the root not counted
	Bytes  atomic.Int64 // that regular files take on the disk
	Linked atomic.Int64 // files that are those of the earlier snapshot

	// Waited is how long a change has waited for a file to be captured, in nanoseconds: the longest time. WaitedFor is
	// the path of the file, nil if that was not long. They are set at the end.
	Waited    atomic.Int64
	WaitedFor atomic.Pointer[string]
}

// ErrBusy means that a snapshot of the volume is being taken, or somebody holds it.
var ErrBusy = errors.New("a snapshot of the volume is being taken, or it is being restored")

// pausePart has the walk work for four fifths of the time: until it ends, the first change of each file takes longer.
const pausePart = 4

// Take makes Tree in the folder work, which is empty: the files of a volume at one moment, which Progress.Cut says; and Catalogue. When
// it returns nil, all of it is on the disk. The volume must not end before. last may be nil, and removed meanwhile. The error is ErrBusy if
// one is being taken already, ErrNoCut, or context.Cause of ctx.
func (v *Volume) Take(ctx context.Context, files *locate.Volume, work *os.Root, last *Earlier, p *Progress) error {
	if !v.busy.CompareAndSwap(false, true) {
		return ErrBusy
	}
	defer v.busy.Store(false)
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	t := &taking{
		files: files, work: work, failed: fail,
		captured: tree.Inodes{}, claims: map[uint64]chan struct{}{}, moved: map[uint64]disk.FileID{},
	}
	if err := t.begin(); err != nil {
		return err
	}
	defer t.objects.Close() // only read from
	defer t.end()
	// What is dirty is written before, not by the first clone of each file, while its writer waits.
	if err := tree.SyncAll(files.Root); err != nil {
		return err
	}
	at, err := v.cut(ctx, t)
	if err != nil {
		return err
	}
	p.Cut.Store(at.UnixNano())
	w := walk{taking: t, ctx: ctx, progress: p, pacer: tree.Pacer{Part: pausePart}, counted: tree.Inodes{}, last: last.open(at)}
	defer w.last.close()
	err = w.run(at)
	v.taking.Store(nil)
	w.tellWaits()
	if err == nil {
		err = w.sweep()
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if err != nil {
		return err
	}
	return tree.SyncAll(t.objects)
}

// begin makes the folders of the work.
func (t *taking) begin() (err error) {
	for _, dir := range []string{objectsDir, namesDir} {
		if err := t.work.Mkdir(dir, 0o700); err != nil {
			return err
		}
	}
	if t.root, err = tree.Stat(int(t.files.Root.Fd())); err != nil {
		return err
	}
	t.objects, err = t.work.Open(objectsDir)
	return err
}

// walk makes the tree of a snapshot. It goes through the directories level by level, and makes each of them with its files as
// an object. Then it puts them into each other, from the last one to the first. So it needs few descriptors at any
// depth, and no directory is changed after it is in its place.
type walk struct {
	*taking
	ctx      context.Context // of Take, which waits for the walk
	progress *Progress
	dirs     []place // in the order in which they were found; the first is the root
	pacer    tree.Pacer
	last     *earlier // nil: none
	list     *catalogueWriter
	counted  tree.Inodes // the objects whose bytes are counted
}

// place is where a directory of the snapshot belongs.
type place struct {
	inode, above uint64
	name         string
}

func (w *walk) run(cut time.Time) (err error) {
	list, err := w.work.OpenFile(Catalogue, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, list.Close()) }()
	if w.list, err = newCatalogueWriter(list, cut.UnixNano()); err != nil {
		return err
	}
	root, err := w.rootInode()
	if err != nil {
		return err
	}
	w.dirs = []place{{inode: root}}
	for next := 0; next < len(w.dirs); next++ {
		if err := w.fill(next); err != nil {
			return fmt.Errorf("%s: %w", w.pathOf(next), err)
		}
	}
	if err := w.list.end(); err != nil {
		return err
	}
	if err := w.join(); err != nil {
		return err
	}
	work, err := w.work.Open(".")
	if err != nil {
		return err
	}
	defer func() { _ = work.Close() }() // only read from
	return tree.MoveDir(w.objects, strconv.FormatUint(root, 10), work, Tree)
}

// rootInode captures the volume's root.
func (w *walk) rootInode() (inode uint64, err error) {
	id := w.files.RootID()
	inode = w.files.FS.NumberIn(id)
	if id.IsZero() || inode == 0 {
		return 0, disk.ErrNoFileID
	}
	if w.claim(inode) {
		_, err = w.captureFile(inode, id)
		w.release(inode)
	}
	return inode, err
}

// filling is a directory whose files are being made.
type filling struct {
	block

	at   int         // in walk.dirs
	live int         // the directory as it is now, -1 if it is gone
	into *os.File    // that of the snapshot
	last *earlierDir // that of the earlier snapshot, nil: none
}

// fill makes the files of a directory, and finds the directories in it.
func (w *walk) fill(at int) error {
	p := w.dirs[at]
	names, err := openNames(w.work, namesOf(p.inode))
	if err != nil {
		return err
	}
	defer names.close()
	live, err := w.open(&names.id) // unless it is gone: then all that was in it was captured, or moved
	if err != nil && !errors.Is(err, syscall.ESTALE) {
		return err
	}
	defer live.Close()
	d := filling{block: block{inode: p.inode, above: p.above, name: p.name}, at: at, live: live.FD(), last: w.last.directory(p.inode)}
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
		return err
	}
	return w.list.add(&d.block)
}

// entry makes a file of a directory.
func (w *walk) entry(d *filling, e *entry) error {
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
	d.records = append(d.records, r)
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
		w.dirs = append(w.dirs, place{e.inode, d.inode, e.name})
		return nil
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && info.Mode().IsRegular() && !w.counted.Has(e.inode) {
		w.counted.Add(e.inode)
		w.progress.Bytes.Add(min(st.Size, st.Blocks*512))
	}
	return w.work.Link(object(e.inode), path.Join(objectsDir, strconv.FormatUint(d.inode, 10), e.name))
}

// errBehind means that the disk was changed by others than podnas.
var errBehind = errors.New("it was moved or removed on the disk itself while the snapshot was taken; try again")

// fromLive makes what has not changed since the cut: in its directory, or, if it is a directory or has several names, as an object. It
// sets what the catalogue has of it. The caller has claimed it.
func (w *walk) fromLive(d *filling, e *entry, r *record) (made bool, err error) {
	if made, linked := w.fromLast(d, e, r); linked {
		return made, nil
	}
	file, st, err := w.find(d.live, e)
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
func (w *walk) fromLast(d *filling, e *entry, r *record) (made, linked bool) {
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

// find opens a file that has not changed, by the name that it had at the cut, or where it was moved.
func (w *walk) find(live int, e *entry) (file disk.Descriptor, st tree.Statx, err error) {
	if live >= 0 {
		file, err = disk.OpenEntry(live, e.name)
		switch {
		case err == nil:
			st, err = tree.Stat(file.FD())
			if err != nil || st.Ino == e.inode || !st.IsOn(&w.root) {
				return file, st, err
			}
			file.Close()
		case !errors.Is(err, syscall.ENOENT):
			return file, st, err
		}
	}
	id, ok := w.movedFile(e.inode)
	if !ok {
		return file, st, errBehind
	}
	if file, err = w.open(&id); err != nil {
		return file, st, err
	}
	st, err = tree.Stat(file.FD())
	return file, st, err
}

// join puts the directories into each other. Those in one directory are next to each other in dirs.
func (w *walk) join() error {
	for end := len(w.dirs); end > 1; {
		begin := end - 1
		for begin > 1 && w.dirs[begin-1].above == w.dirs[end-1].above {
			begin--
		}
		above := strconv.FormatUint(w.dirs[begin].above, 10)
		err := tree.Fill(w.objects, above, func(into *os.File) error {
			for _, p := range w.dirs[begin:end] {
				if err := tree.MoveDir(w.objects, strconv.FormatUint(p.inode, 10), into, p.name); err != nil {
					return fmt.Errorf("%q: %w", p.name, err)
				}
				if err := w.pacer.Pause(w.ctx); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("%s: %w", w.pathOf(begin), err)
		}
		end = begin
	}
	return nil
}

// sweep removes what has another name in the tree now, or none because it was made after the cut.
func (w *walk) sweep() error {
	objects, err := w.work.Open(objectsDir) // anew: of one that was open, btrfs lists what it had then
	if err != nil {
		return err
	}
	defer func() { _ = objects.Close() }() // only read from
	for {
		names, err := objects.Readdirnames(1000)
		for _, name := range names {
			if err := w.work.Remove(objectsDir + "/" + name); err != nil {
				return err
			}
			if err := w.pacer.Pause(w.ctx); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// pathOf is the path of a directory, for people.
func (w *walk) pathOf(dir int) string {
	above := map[uint64]place{}
	for _, p := range w.dirs[:dir+1] {
		above[p.inode] = p
	}
	at := ""
	for p := w.dirs[dir]; p.above != 0; p = above[p.above] {
		at = path.Join(p.name, at)
	}
	return "/" + at
}
