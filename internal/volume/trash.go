package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/podnas/podnas/internal/tree"
	"github.com/podnas/podnas/quota"
)

// trashRetry is the pause before emptying a volume is retried.
const trashRetry = time.Minute

// emptyTrash removes the volumes in s.trashed, and what is in s.trashedTrees, one after
// the other, until ctx ends.
func (s *Store) emptyTrash(ctx context.Context) {
	for ctx.Err() == nil {
		next := s.nextTrashed()
		if next == nil {
			if s.emptyTree(ctx) {
				continue
			}
			select {
			case <-s.wake:
			case <-ctx.Done():
			}
			continue
		}
		err := s.destroy(ctx, next)
		if ctx.Err() != nil {
			return
		}
		s.count(&s.activity.empty, next.Name, err)
		s.mu.Lock()
		if err == nil {
			s.trashed = slices.DeleteFunc(s.trashed, func(r *record) bool { return r == next })
		} else {
			next.retry = time.Now().Add(trashRetry)
		}
		s.mu.Unlock()
		if err != nil {
			s.log.Error("volume: can't remove its files, will try again", "volume", next.Name, "in", trashRetry, "err", err)
			time.AfterFunc(trashRetry, s.wakeEmptier)
		}
	}
}

// nextTrashed returns the oldest volume that may be tried now, or nil.
func (s *Store) nextTrashed() *record {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.trashed {
		if !time.Now().Before(r.retry) {
			return r
		}
	}
	return nil
}

func (s *Store) wakeEmptier() {
	select {
	case s.wake <- struct{}{}:
	default: // it is awake already
	}
}

// destroy removes a volume's files, its limit, and finally its record.
func (s *Store) destroy(ctx context.Context, r *record) error {
	dir := r.keptIn(trashDir)
	if err := s.moveToTrash(r); err != nil {
		return fmt.Errorf("move volume %s to the trash: %w", r.Name, err)
	}
	s.mu.Lock()
	r.inPlace = false
	s.mu.Unlock()
	removed, err := s.destroyTree(ctx, dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the files of volume %s: %w", r.Name, err)
	}
	if r.Project != 0 && s.quota != nil {
		if err := s.quota.SetLimit(r.Project, quota.Limit{}); err != nil {
			return err
		}
	}
	s.step("limit is lifted")
	if err := s.root.Remove(dir + ".json"); err != nil {
		return err
	}
	s.mu.Lock()
	delete(s.projects, r.Project)
	s.mu.Unlock()
	s.log.Info("volume: removed its files", "volume", r.Name, "files", removed)
	return syncDir(s.root, trashDir)
}

// destroyTree removes a directory in the trash and everything below it, and
// returns the number of files.
func (s *Store) destroyTree(ctx context.Context, dir string) (int, error) {
	// If somebody replaced the directory by something else, only that is removed.
	if info, err := s.root.Lstat(dir); err != nil || !info.IsDir() {
		return 0, errors.Join(err, s.root.Remove(dir))
	}
	if err := s.root.Chmod(dir, 0o700); err != nil {
		return 0, err
	}
	top, err := openDir(s.root, dir)
	if err != nil {
		return 0, err
	}
	defer top.Close()
	removed, err := tree.Empty(ctx, top)
	if err != nil {
		return removed, err
	}
	return removed, s.root.Remove(dir)
}
