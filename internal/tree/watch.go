package tree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// Watch tells when something in a few directories has changed, see inotify(7).
type Watch struct {
	events  *os.File
	changed chan struct{}
}

// errUnwatched is the error of what may change without a word from the kernel.
var errUnwatched = errors.New("changes may go unnoticed")

// NewWatch watches directories: the names in them, and the contents of their files, but nothing below.
// It fails for directories whose changes the kernel may not tell: on a disk that other machines
// change, too, or with a symbolic link, which may lead anywhere.
func NewWatch(dirs ...string) (w *Watch, err error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watch directories: %w", err)
	}
	w = &Watch{events: os.NewFile(uintptr(fd), "inotify"), changed: make(chan struct{})}
	for _, dir := range dirs {
		if err := watchDir(fd, dir); err != nil {
			_ = w.events.Close()
			return nil, fmt.Errorf("watch %s: %w", dir, err)
		}
	}
	go func() {
		var buf [4096]byte
		if n, _ := w.events.Read(buf[:]); n > 0 { // else it was closed
			close(w.changed)
		}
	}()
	return w, nil
}

func watchDir(fd int, dir string) error {
	var disk unix.Statfs_t
	if err := unix.Statfs(dir, &disk); err != nil {
		return err
	}
	switch disk.Type {
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.TMPFS_MAGIC, unix.OVERLAYFS_SUPER_MAGIC:
		// Only this machine changes it, and so the kernel tells. An overlay's layers must not change below it.
	default:
		return errUnwatched
	}
	const changes = unix.IN_ATTRIB | unix.IN_CREATE | unix.IN_DELETE | unix.IN_DELETE_SELF | unix.IN_MODIFY | unix.IN_MOVE | unix.IN_MOVE_SELF
	if _, err := unix.InotifyAddWatch(fd, dir, changes|unix.IN_ONLYDIR); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Type()&fs.ModeSymlink != 0 }) {
		return errUnwatched
	}
	return nil
}

// Changed returns what is closed by the first change.
func (w *Watch) Changed() <-chan struct{} { return w.changed }

// Close ends the watch. A nil Watch has nothing to end.
func (w *Watch) Close() {
	if w != nil {
		_ = w.events.Close() // nothing was written
	}
}
