package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"
	"sync/atomic"
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
	Paused atomic.Int64 // how long all changes waited for the cut, in nanoseconds: the longest time

	// Waited is how long a change has waited for a file to be captured, in nanoseconds: the longest time. WaitedFor is
	// the path of the file, nil if that was not long. They are set at the end.
	Waited    atomic.Int64
	WaitedFor atomic.Pointer[string]
}

// ErrBusy means that a snapshot of the volume is being taken, or somebody holds it.
var ErrBusy = errors.New("a snapshot of the volume is being taken, or it is being restored")

// Take makes Tree in the folder work, which is empty: the files of a volume at one moment, which Progress.Cut says; and Catalogue. When
// it returns nil, all of it is on the disk. The volume must not end before. last may be nil, and removed meanwhile. The error is ErrBusy if
// one is being taken already, ErrNoCut, or context.Cause of ctx.
func (v *Volume) Take(ctx context.Context, files *locate.Volume, own *Own, work *os.Root, last *Earlier, p *Progress) error {
	if !v.busy.CompareAndSwap(false, true) {
		return ErrBusy
	}
	defer v.busy.Store(false)
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	t := &taking{
		files: files, own: own, work: work, failed: fail,
		captured: tree.Inodes{}, counted: tree.Inodes{}, claims: map[uint64]chan struct{}{}, moved: map[uint64][]disk.FileID{},
	}
	if err := t.begin(); err != nil {
		return err
	}
	defer t.objects.Close() // only read from
	defer t.end()
	if err := v.Syncs.before(files.Root); err != nil {
		return err
	}
	at, err := v.cut(ctx, t, &p.Paused)
	if err != nil {
		return err
	}
	p.Cut.Store(at.UnixNano())
	w := walk{taking: t, ctx: ctx, progress: p, last: last.open(at)}
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
	return v.Syncs.sync(t.objects)
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

// walk makes the tree of a snapshot. It goes through the directories in the order in which it finds them, and makes each of them
// with its files as an object. Then it puts them into each other, from the last one to the first. So it needs few descriptors at any
// depth, and no directory is changed after it is in its place.
type walk struct {
	*taking
	ctx      context.Context // of Take, which waits for the walk
	progress *Progress
	queue    queue
	last     *earlier // nil: none
	list     *catalogueWriter
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
	if err := w.fillAll(root); err != nil {
		return err
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
	if inode == 0 {
		return 0, disk.ErrNoFileID
	}
	if w.claim(inode) {
		_, err = w.captureFile(inode, id)
		w.release(inode)
	}
	return inode, err
}

// join puts the directories into each other.
func (w *walk) join() error {
	pacer := tree.Pacer{Part: pausePart}
	dirs := w.queue.all()
	for end := dirs.len(); end > 1; {
		begin := end - 1
		for begin > 1 && dirs.at(begin-1).above == dirs.at(end-1).above {
			begin--
		}
		if err := w.joinOne(&pacer, dirs, begin, end); err != nil {
			return fmt.Errorf("%s: %w", w.pathOf(begin), err)
		}
		end = begin
	}
	return nil
}

// joinOne puts directories into the one that they all belong in.
func (w *walk) joinOne(pacer *tree.Pacer, dirs places, begin, end int) error {
	above := dirs.at(begin).above
	names, err := openNames(w.work, namesOf(above))
	if err != nil {
		return err
	}
	defer names.close()
	return tree.Fill(w.objects, strconv.FormatUint(above, 10), func(into *os.File) error {
		for i := begin; i < end; i++ {
			name, err := names.nameAt(dirs.at(i).nameAt)
			if err != nil {
				return err
			}
			if err := tree.MoveDir(w.objects, strconv.FormatUint(dirs.at(i).inode, 10), into, name); err != nil {
				return fmt.Errorf("%q: %w", name, err)
			}
			if err := pacer.Pause(w.ctx); err != nil {
				return err
			}
		}
		return nil
	})
}

// sweep removes what has another name in the tree now, or none because it was made after the cut.
func (w *walk) sweep() error {
	pacer := tree.Pacer{Part: pausePart}
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
			if err := pacer.Pause(w.ctx); err != nil {
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

// nameOf is the name of a directory, and "" for the root.
func (w *walk) nameOf(p place) (string, error) {
	if p.above == 0 {
		return "", nil
	}
	names, err := openNames(w.work, namesOf(p.above))
	if err != nil {
		return "", err
	}
	defer names.close()
	return names.nameAt(p.nameAt)
}

// pathMost is how much of a path is told.
const pathMost = 4096

// pathOf is the path of a directory, for people: the beginning of a long one is "...".
func (w *walk) pathOf(dir int) string {
	dirs := w.queue.all()
	at, inode := "", dirs.at(dir).inode
	for ; dir > 0; dir-- { // each is after the one above it
		p := dirs.at(dir)
		if p.inode != inode {
			continue
		}
		if len(at) > pathMost {
			return "/" + path.Join("...", at)
		}
		name, err := w.nameOf(p)
		if err != nil {
			name = "?"
		}
		at, inode = path.Join(name, at), p.above
	}
	return "/" + at
}
