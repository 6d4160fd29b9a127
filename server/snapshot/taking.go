package snapshot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/podnas/podnas/internal/tree"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/locate"
)

// The folders of the work.
const (
	objectsDir = "objects"
	namesDir   = "names"
	// Tree is the name of the complete snapshot.
	Tree = "tree"
	// Catalogue is the name of the file that has of which files it was made.
	Catalogue = "catalogue"
)

// taking is a snapshot that is being taken.
type taking struct {
	files *locate.Volume
	own   *Own // nil: the process may read everything
	work  *os.Root
	// objects is the folder of what was captured.
	objects *os.File
	failed  context.CancelCauseFunc // ends the walk
	root    tree.Statx              // of the volume

	mu sync.Mutex
	// ended is whether nothing more is captured.
	// +checklocks:mu
	ended bool
	// captured has the inodes that need nothing more: they were captured, or made since the cut.
	// +checklocks:mu
	captured tree.Inodes
	// counted has the files with several names whose bytes are counted.
	// +checklocks:mu
	counted tree.Inodes
	// claims has the inodes that somebody captures. The channel is closed at the end; nil: nobody waits.
	// +checklocks:mu
	claims map[uint64]chan struct{}
	// waits is how long changes have waited for files to be captured.
	// +checklocks:mu
	waits waits
	// moved has the files that are to be captured, and not in the directory any more that they were in at the cut. One of another
	// subvolume may have the same number: all of a number are kept, and whoever opens them looks which one it is.
	// +checklocks:mu
	moved map[uint64][]disk.FileID
}

func object(inode uint64) string  { return objectsDir + "/" + strconv.FormatUint(inode, 10) }
func namesOf(inode uint64) string { return namesDir + "/" + strconv.FormatUint(inode, 10) }

// isCaptured reports whether a file needs nothing more.
func (t *taking) isCaptured(inode uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ended || t.captured.Has(inode)
}

// claim reports whether the caller has to capture a file, and then call release. If somebody else does, it waits.
func (t *taking) claim(inode uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for {
		if t.ended || t.captured.Has(inode) {
			return false
		}
		wait := t.claimedLocked(inode)
		if wait == nil {
			t.claims[inode] = nil
			return true
		}
		t.mu.Unlock()
		<-wait
		t.mu.Lock()
	}
}

// claimed returns a channel that is closed when the claim of a file ends, nil if there is none.
func (t *taking) claimed(inode uint64) <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.claimedLocked(inode)
}

// +checklocks:t.mu
func (t *taking) claimedLocked(inode uint64) chan struct{} {
	wait, claimed := t.claims[inode]
	if claimed && wait == nil {
		wait = make(chan struct{})
		t.claims[inode] = wait
	}
	return wait
}

// release ends a claim. From then on the file may change.
func (t *taking) release(inode uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.captured.Add(inode)
	delete(t.moved, inode)
	t.unclaimLocked(inode)
}

// unclaim ends a claim of what was not captured.
func (t *taking) unclaim(inode uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.unclaimLocked(inode)
}

// unclaimLocked wakes who waits for a claim.
//
// +checklocks:t.mu
func (t *taking) unclaimLocked(inode uint64) {
	if wait := t.claims[inode]; wait != nil {
		close(wait)
	}
	delete(t.claims, inode)
}

// end has nothing more be captured, and waits for what is under way: then the folders can be closed.
func (t *taking) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	for len(t.claims) > 0 {
		t.mu.Unlock()
		time.Sleep(time.Millisecond)
		t.mu.Lock()
	}
}

func (t *taking) made(inode uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.captured.Add(inode)
}

// counts reports whether a file is asked for the first time.
func (t *taking) counts(inode uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.counted.Has(inode) {
		return false
	}
	t.counted.Add(inode)
	return true
}

func (t *taking) moves(file disk.FileID) {
	inode := t.files.FS.NumberIn(&file)
	t.mu.Lock()
	defer t.mu.Unlock()
	if all := t.moved[inode]; !t.captured.Has(inode) && !slices.Contains(all, file) {
		t.moved[inode] = append(all, file)
	}
}

// movedFiles returns the files with a number that were moved.
func (t *taking) movedFiles(inode uint64) []disk.FileID {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.moved[inode]
}

// before captures a file that is about to change. If that fails, so does the snapshot, and the change is made all the same.
func (t *taking) before(file disk.FileID) {
	inode := t.files.FS.NumberIn(&file)
	if file.IsZero() || t.isCaptured(inode) {
		return
	}
	began := time.Now()
	defer func() { t.waited(inode, time.Since(began)) }()
	if !t.claim(inode) {
		return
	}
	type result struct {
		ours bool
		err  error
	}
	done := make(chan result)
	go func() { // as the process: this goroutine may act as a client's user
		ours, err := t.captureFile(inode, &file)
		done <- result{ours, err}
	}()
	r := <-done
	if r.err != nil {
		t.failed(fmt.Errorf("keep a file that a client changes: %w", r.err))
	}
	if r.ours {
		t.release(inode)
	} else {
		t.unclaim(inode)
	}
}

// captureFile captures a file by its FileID. One that is gone is no error: it had no name at the cut. ours is false for a
// file of another subvolume, whose number may be another file's here. The caller has claimed it.
func (t *taking) captureFile(inode uint64, file *disk.FileID) (ours bool, err error) {
	path, err := t.open(file)
	if errors.Is(err, syscall.ESTALE) {
		return true, nil
	}
	if err != nil {
		return true, err
	}
	defer path.Close()
	st, err := t.stat(path.FD())
	if err != nil {
		return true, err
	}
	if !st.IsOn(&t.root) {
		return false, nil
	}
	return true, t.capture(inode, file, path.FD(), &st)
}

// openWait is how long open waits for the index.
const openWait = 10 * time.Second

// open opens a file with O_PATH.
func (t *taking) open(file *disk.FileID) (disk.Descriptor, error) {
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		path, err := t.files.Open(*file, disk.PathOnly)
		if !errors.Is(err, syscall.EAGAIN) || time.Since(began) > openWait {
			return path, err
		}
	}
}

// capture makes the object of an open file, and the list of names if it is a directory. The caller has claimed it.
func (t *taking) capture(inode uint64, file *disk.FileID, path int, st *tree.Statx) error {
	if st.IsDir() {
		if err := t.captureNames(inode, file, path); err != nil {
			return err
		}
	}
	return t.clone(t.objects, strconv.FormatUint(inode, 10), path, st)
}

// clone makes a file of the snapshot. A device needs a right that podnas may not have: then the snapshot lacks it, as
// a copy would.
func (t *taking) clone(dir *os.File, name string, path int, st *tree.Statx) error {
	var source *tree.Source
	err := t.reads(path, func() (err error) {
		source, err = tree.OpenSource(path, st)
		return err
	})
	if source != nil {
		defer source.Close()
	}
	if err != nil {
		return err
	}
	err = source.Clone(dir, name)
	if st.IsDevice() && errors.Is(err, syscall.EPERM) {
		return nil
	}
	return err
}

func (t *taking) captureNames(inode uint64, file *disk.FileID, path int) (err error) {
	var dir disk.Descriptor
	err = t.reads(path, func() error {
		dir, err = disk.Reopen(path, syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOATIME)
		if errors.Is(err, syscall.EPERM) {
			dir, err = disk.Reopen(path, syscall.O_RDONLY|syscall.O_DIRECTORY)
		}
		return err
	})
	defer dir.Close()
	if err != nil {
		return fmt.Errorf("open a directory: %w", err)
	}
	names, err := t.work.OpenFile(namesOf(inode), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, names.Close()) }()
	return writeNames(names, file, dir.FD())
}
