package volume

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"time"

	"golang.org/x/sys/unix"
)

// The pace of emptying. At 100 removals per 20 ms an fsync of a neighbour takes
// as long as without them; unpaced it takes several times as long.
const (
	trashBatch = 100
	trashPause = 20 * time.Millisecond
)

// trashRetry is how long a volume that could not be emptied is left alone.
const trashRetry = time.Minute

// emptyTrash removes what is in s.trashed, one volume after the other, until
// ctx ends.
func (s *Store) emptyTrash(ctx context.Context) {
	for ctx.Err() == nil {
		s.mu.Lock()
		var next *record
		if len(s.trashed) > 0 {
			next = &s.trashed[0]
			s.trashed = s.trashed[1:]
		}
		s.mu.Unlock()
		if next == nil {
			select {
			case <-s.wake:
			case <-ctx.Done():
			}
			continue
		}
		if err := s.destroy(ctx, next); err != nil && ctx.Err() == nil {
			s.log.Error("volume: can't remove its files, will try again", "volume", next.Name, "in", trashRetry, "err", err)
			time.AfterFunc(trashRetry, func() { s.enqueueTrash(*next) })
		}
	}
}

// enqueueTrash hands a volume in the trash to the emptier.
func (s *Store) enqueueTrash(r record) {
	s.mu.Lock()
	s.trashed = append(s.trashed, r)
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default: // it is told already
	}
}

// destroy removes a volume's files, its limit, and at last its record.
func (s *Store) destroy(ctx context.Context, r *record) error {
	tree := path.Join(trashDir, r.trashName())
	removed, err := s.destroyTree(ctx, tree)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the files of volume %s: %w", r.Name, err)
	}
	if r.Project != 0 && s.quota != nil {
		if err := s.quota.SetLimit(r.Project, 0); err != nil {
			return err
		}
	}
	if err := s.root.Remove(tree + ".json"); err != nil {
		return err
	}
	s.releaseProject(r.Project)
	s.log.Info("volume: its files are removed", "volume", r.Name, "files", removed)
	return syncDir(s.root, trashDir)
}

// destroyTree removes a directory of the trash and everything below it, and
// returns how many files that was.
func (s *Store) destroyTree(ctx context.Context, tree string) (int, error) {
	// Whatever a person put in the place of the directory, only that goes.
	if info, err := s.root.Lstat(tree); err != nil || !info.IsDir() {
		return 0, errors.Join(err, s.root.Remove(tree))
	}
	if err := s.root.Chmod(tree, 0o700); err != nil {
		return 0, err
	}
	top, err := s.root.Open(tree)
	if err != nil {
		return 0, err
	}
	defer top.Close()
	e := emptier{top: top}
	if err := e.run(ctx); err != nil {
		return e.removed, err
	}
	return e.removed, s.root.Remove(tree)
}

// emptier removes everything below a directory. It never follows a symbolic
// link, and needs two descriptors and no long path however deep the tree is: a
// directory that is not empty is moved up into top, and so comes to its turn.
type emptier struct {
	top     *os.File
	removed int
	moved   int // numbers the directories that were moved up
}

func (e *emptier) run(ctx context.Context) error {
	for {
		n, err := e.removeBatch(ctx, e.top, func(name string) error { return e.removeDir(ctx, name) })
		if n == 0 || err != nil {
			return err
		}
	}
}

// removeDir removes a directory in top that is not empty: its files, and by
// moving them up, its directories.
func (e *emptier) removeDir(ctx context.Context, name string) error {
	top := int(e.top.Fd())
	fd, err := unix.Openat(top, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.EACCES) {
		// Without CAP_DAC_OVERRIDE the mode holds for its owner too.
		if err := unix.Fchmodat(top, name, 0o700, 0); err != nil {
			return fmt.Errorf("chmod %q: %w", name, err)
		}
		fd, err = unix.Openat(top, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return fmt.Errorf("open %q: %w", name, err)
	}
	dir := os.NewFile(uintptr(fd), name)
	defer dir.Close()
	if err := dir.Chmod(0o700); err != nil {
		return err
	}
	for {
		n, err := e.removeBatch(ctx, dir, func(child string) error {
			e.moved++
			return e.moveUp(dir, child)
		})
		if n == 0 || err != nil {
			if err == nil {
				err = unix.Unlinkat(top, name, unix.AT_REMOVEDIR)
			}
			return err
		}
	}
}

// moveUp moves a directory into top, under a name that nothing there has.
func (e *emptier) moveUp(dir *os.File, child string) error {
	for ; ; e.moved++ {
		name := fmt.Sprintf("podnas-%d", e.moved)
		err := unix.Renameat2(int(dir.Fd()), child, int(e.top.Fd()), name, unix.RENAME_NOREPLACE)
		switch {
		case errors.Is(err, unix.EEXIST):
			continue
		case errors.Is(err, unix.EACCES):
			// To change its "..", the directory itself must be writable.
			if err = unix.Fchmodat(int(dir.Fd()), child, 0o700, 0); err == nil {
				err = unix.Renameat(int(dir.Fd()), child, int(e.top.Fd()), name)
			}
		}
		if err != nil {
			return fmt.Errorf("move %q up: %w", child, err)
		}
		return nil
	}
}

// removeBatch removes up to trashBatch entries of a directory and calls full
// for each directory that is not empty. It returns how many entries it met.
func (e *emptier) removeBatch(ctx context.Context, dir *os.File, full func(string) error) (int, error) {
	if _, err := dir.Seek(0, io.SeekStart); err != nil {
		return 0, err
	}
	names, err := dir.Readdirnames(trashBatch)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	fd := int(dir.Fd())
	for _, name := range names {
		err := unix.Unlinkat(fd, name, 0)
		if errors.Is(err, unix.EISDIR) {
			err = unix.Unlinkat(fd, name, unix.AT_REMOVEDIR)
		}
		if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) {
			err = full(name)
		}
		if err != nil {
			return 0, fmt.Errorf("remove %q: %w", name, err)
		}
		e.removed++
	}
	if len(names) == trashBatch {
		select {
		case <-time.After(trashPause):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	return len(names), nil
}
