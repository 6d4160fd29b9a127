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

// emptier is a goroutine that empties the trash. There are two, each at its own pace: the files of deleted snapshots, whose room clients
// may be waiting for (giveroom.go), do not wait for a deleted volume with very many files.
type emptier struct{ wake chan struct{} }

func newEmptier() emptier { return emptier{make(chan struct{}, 1)} }

// run calls next, which removes one thing and reports whether there was one, until ctx ends. When there was none, it sleeps until it is
// woken.
func (e emptier) run(ctx context.Context, next func(context.Context) bool) {
	for ctx.Err() == nil {
		if next(ctx) {
			continue
		}
		select {
		case <-e.wake:
		case <-ctx.Done():
		}
	}
}

func (e emptier) wakeUp() {
	select {
	case e.wake <- struct{}{}:
	default: // it is awake already
	}
}

// emptyVolume removes a volume in the trash, and reports whether there was one.
func (s *Store) emptyVolume(ctx context.Context) bool {
	next := s.nextTrashed()
	if next == nil {
		return false
	}
	err := s.destroy(ctx, next)
	if ctx.Err() != nil {
		return true
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
		time.AfterFunc(trashRetry, s.volumesEmptier.wakeUp)
	}
	return true
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
