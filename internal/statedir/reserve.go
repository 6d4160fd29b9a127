package statedir

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Reserve is room on a disk that is podnas's own, for when clients have taken all other: volumes can be deleted then,
// and clients get what takes a file of podnas. It is a folder of files with blocks, and there are two ways to use them:
//
//   - Write writes into one of the files and exchanges it for the one that is to be replaced. That takes neither blocks
//     nor an inode, so no client can come first; and the old file is in the reserve then.
//   - Do gives back one large file after another, and then more and more small ones at once, until the disk has what an
//     operation needs, as a block for a folder's names or the inode of a socket. A client may come first, but each time it
//     must come in between two tries.
//
// What was used is made again as soon as there is room. A nil Reserve is none.
type Reserve struct {
	dir *os.File
	log *slog.Logger
	// used wakes Run.
	used chan struct{}

	mu sync.Mutex
	// files are those of one block first. Names and sizes never change.
	// +checklocks:mu
	files []spare

	told bool // that it is not whole; of Run
}

// spare is a file of the reserve.
type spare struct {
	name string
	size int64
	// here is whether it is whole, and busy whether it belongs to who has set that. The others are to be made.
	here, busy bool
}

const (
	// Most files of podnas fit into a block. Each client that opens its first file on a full disk takes one.
	smallSize  = 4096
	smallCount = 64
	// The larger ones are what Do gives back. A XFS wants up to 300 KiB free before it makes a file or a name.
	largeSize  = 1 << 20
	largeCount = 16
	largeMin   = 64 << 10
	// part of the disk is what all of one kind take at most.
	part = 64

	refillFirst, refillLast = 100 * time.Millisecond, 10 * time.Second
	// freed is how long a disk may take to give the inode of a removed file to others: XFS does so in the background, after
	// a tick of the kernel's clock. Who asks for it all the while gets it as often as each of those who fill the disk. With one
	// try after 2 ms, 4 of 6 runs of TestReserveOnFullDisk/inodes/XFS lost the whole reserve to them; now none of 60.
	freed = 10 * time.Millisecond
)

// OpenReserve opens the reserve in a folder, which is made if it is not there, and finds out how much of it there is. Run
// makes the rest.
func OpenReserve(path string, log *slog.Logger) (*Reserve, error) {
	d, err := Open(path, nil, log)
	if err != nil {
		return nil, fmt.Errorf("reserve for a full disk: %w", err)
	}
	r := &Reserve{dir: d.f, log: log, used: make(chan struct{}, 1)}
	var st unix.Statfs_t
	if err := unix.Fstatfs(d.Fd(), &st); err != nil {
		return nil, errors.Join(fmt.Errorf("reserve for a full disk: %w", err), d.Close())
	}
	most := int64(st.Blocks) * st.Bsize / part
	for i := range min(smallCount, most/smallSize) {
		r.files = append(r.files, spare{name: fmt.Sprintf("small-%02d", i), size: smallSize})
	}
	if size := min(largeSize, most/largeCount/smallSize*smallSize); size >= largeMin {
		for i := range largeCount {
			r.files = append(r.files, spare{name: fmt.Sprintf("large-%02d", i), size: size})
		}
	}
	for i := range r.files {
		r.files[i].here = r.whole(&r.files[i])
	}
	return r, nil
}

// Close closes the folder, when Run has ended.
func (r *Reserve) Close() error {
	if r == nil {
		return nil
	}
	return r.dir.Close()
}

// whole reports whether a file is there, has its blocks, and is of no use to anybody else.
func (r *Reserve) whole(s *spare) bool {
	var st unix.Stat_t
	err := unix.Fstatat(int(r.dir.Fd()), s.name, &st, unix.AT_SYMLINK_NOFOLLOW)
	return err == nil && st.Mode&unix.S_IFMT == unix.S_IFREG && st.Nlink == 1 && st.Blocks*512 >= s.size
}

// Run keeps the reserve whole until ctx ends.
func (r *Reserve) Run(ctx context.Context) {
	if r == nil {
		return
	}
	for wait := refillFirst; ; {
		var again <-chan time.Time
		if !r.refill(ctx) {
			again = time.After(wait)
			wait = min(2*wait, refillLast)
		}
		select {
		case <-ctx.Done():
			return
		case <-again:
		case <-r.used:
			wait = refillFirst
			select { // so that what is being done now has it first
			case <-ctx.Done():
				return
			case <-time.After(wait):
			}
		}
	}
}

// refill makes what is missing, and reports whether all is there.
func (r *Reserve) refill(ctx context.Context) bool {
	made := false
	for ctx.Err() == nil {
		s := r.claim(func(s *spare) bool { return !s.here })
		if s == nil {
			break
		}
		made = true
		err := r.fill(s)
		r.release(s)
		if err != nil {
			if !r.told {
				r.log.Warn("disk: the reserve that podnas keeps for a full disk can't be made whole for now; it is tried again", "err", err)
			}
			r.told = true
			select { // that it is not whole is known
			case <-r.used:
			default:
			}
			return false
		}
	}
	r.told = false
	if made {
		_ = r.dir.Sync() // or the next start makes it
	}
	return true
}

// claim has the first file that is wanted belong to the caller until release, or returns nil.
func (r *Reserve) claim(wanted func(*spare) bool) *spare {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.files {
		if s := &r.files[i]; !s.busy && wanted(s) {
			s.busy = true
			return s
		}
	}
	return nil
}

// release ends a claim, and has Run make what the file lacks.
func (r *Reserve) release(s *spare) {
	whole := r.whole(s)
	r.mu.Lock()
	s.here, s.busy = whole, false
	r.mu.Unlock()
	if !whole {
		select {
		case r.used <- struct{}{}:
		default:
		}
	}
}

// fill makes a file, or makes it whole.
func (r *Reserve) fill(s *spare) error {
	if r.whole(s) {
		return nil
	}
	d := &Dir{r.dir, nil, r.log}
	f, err := d.OpenFile(s.name, os.O_WRONLY, 0)
	var st unix.Stat_t
	if err == nil && unix.Fstat(int(f.Fd()), &st) == nil && st.Nlink > 1 { // another name has it, too
		_ = f.Close()
		err = ErrIrregular
	}
	if errors.Is(err, ErrIrregular) {
		if err := d.Remove(s.name); err != nil {
			return err
		}
	}
	if err != nil {
		if f, err = d.OpenFile(s.name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
			return err
		}
	}
	err = give(int(f.Fd()), int(r.dir.Fd()))
	if err == nil {
		err = unix.Fallocate(int(f.Fd()), 0, 0, s.size)
	}
	if errors.Is(err, unix.EOPNOTSUPP) {
		_, err = f.WriteAt(make([]byte, s.size), 0)
	}
	if err == nil && !r.whole(s) { // blocks are counted when they are written
		if err = f.Sync(); err == nil && !r.whole(s) { // ZFS, for one: no file of zeros has blocks
			err = errors.New("the file system gives a file no blocks before it has data")
		}
	}
	return errors.Join(err, f.Close())
}

// giveBack gives the disk a large file of the reserve, which is room for many names. Without one it gives back n small files,
// for their inodes: those who fill the disk don't take so many at once. It returns how many small ones to give back the
// next time, 0 if nothing was left.
func (r *Reserve) giveBack(n int) (next int) {
	if r.giveBackOne(func(s *spare) bool { return s.here && s.size > smallSize }) {
		return n
	}
	for range n {
		if r.giveBackOne(func(s *spare) bool { return s.here }) {
			next = 2 * n
		}
	}
	return next
}

func (r *Reserve) giveBackOne(which func(*spare) bool) bool {
	s := r.claim(which)
	if s == nil {
		return false
	}
	defer r.release(s)
	// XFS frees the blocks of a removed file later, and those of a shorter one at once.
	if f, err := openFile(r.dir, s.name, os.O_WRONLY|os.O_TRUNC, 0); err == nil {
		_ = f.Close()
	}
	_ = unix.Unlinkat(int(r.dir.Fd()), s.name, 0)
	return true
}

// IsFull reports whether something has failed because the disk has no blocks or no inodes.
func IsFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// Do does something that may take blocks or an inode. While it fails as the disk is full, Do gives back some of the
// reserve, and tries again.
func (r *Reserve) Do(op func() error) error {
	err := op()
	if r == nil {
		return err
	}
	for n := 1; IsFull(err); {
		if n = r.giveBack(n); n == 0 {
			break
		}
		for began := time.Now(); IsFull(err) && time.Since(began) < freed; {
			err = op()
		}
		if IsFull(err) { // a goroutine that had no processor meanwhile has not tried since
			err = op()
		}
	}
	return err
}

// Write writes a file of a folder as a whole or not at all, and syncs it. The folder needs to be on the disk of the
// reserve.
func (r *Reserve) Write(dir *os.File, name string, b []byte) error {
	err := writeNew(dir, name, b)
	if IsFull(err) && r != nil {
		if s := r.claim(func(s *spare) bool { return s.here && s.size >= int64(len(b)) }); s != nil {
			err = r.writeSpare(s, dir, name, b)
		} else {
			err = r.Do(func() error { return writeNew(dir, name, b) })
		}
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", filepath.Join(dir.Name(), name), err)
	}
	return nil
}

// temporary is the end of names of files that are half written.
const temporary = ".tmp"

func writeNew(dir *os.File, name string, b []byte) error {
	// A name of its own: others may write at the same time.
	half := rand.Text() + temporary
	f, err := openFile(dir, half, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = errors.Join(fillFile(f, dir, b), f.Close())
	if err == nil {
		err = replace(dir, half, dir, name)
	}
	if err != nil {
		return errors.Join(err, unix.Unlinkat(int(dir.Fd()), half, 0))
	}
	return dir.Sync()
}

// writeSpare writes into a file of the reserve, and puts it in the place of another.
func (r *Reserve) writeSpare(s *spare, dir *os.File, name string, b []byte) error {
	defer r.release(s)
	f, err := openFile(r.dir, s.name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	err = errors.Join(fillFile(f, dir, b), f.Close())
	if err != nil {
		return err
	}
	var st unix.Stat_t
	if unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG {
		err = rename(r.dir, s.name, dir, name, unix.RENAME_EXCHANGE)
		if err == nil {
			return errors.Join(dir.Sync(), r.dir.Sync())
		}
	}
	err = r.Do(func() error { return replace(r.dir, s.name, dir, name) })
	return errors.Join(err, dir.Sync())
}

// fillFile has a file have these bytes.
func fillFile(f, dir *os.File, b []byte) error {
	_, err := f.WriteAt(b, 0)
	if err == nil {
		err = errors.Join(f.Truncate(int64(len(b))), give(int(f.Fd()), int(dir.Fd())))
	}
	if err == nil {
		err = f.Sync()
	}
	return err
}

// replace renames a file.
func replace(from *os.File, name string, to *os.File, as string) error {
	if err := unix.Renameat(int(from.Fd()), name, int(to.Fd()), as); err != nil {
		return &fs.PathError{Op: "rename", Path: filepath.Join(to.Name(), as), Err: err}
	}
	return nil
}
