package volume

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/podnas/podnas/internal/tree"
)

// copiesAtOnce limits concurrent copies.
const copiesAtOnce = 2

// copying is a running copy.
type copying struct {
	source, snapshot string
	tree             tree.Copy // its progress
	cancel           context.CancelFunc
	done             sync.WaitGroup
}

func (c *copying) progress() error {
	return &CopyingError{Source: c.source, Snapshot: c.snapshot, Files: c.tree.Files.Load(), Bytes: c.tree.Bytes.Load()}
}

// Copy is a volume whose files are being copied from another.
type Copy struct {
	Volume
	Files, Bytes int64 // copied so far
}

// Copies lists the running copies, sorted by name.
func (s *Store) Copies() []Copy {
	s.mu.Lock()
	defer s.mu.Unlock()
	var copies []Copy
	for _, name := range slices.Sorted(maps.Keys(s.copies)) {
		if r := s.records[name]; r != nil {
			done := &s.copies[name].tree
			copies = append(copies, Copy{r.Volume, done.Files.Load(), done.Bytes.Load()})
		}
	}
	return copies
}

// Copying returns a *CopyingError with the progress if the volume is being copied from
// another, else nil.
func (s *Store) Copying(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.copies[name]; c != nil {
		return c.progress()
	}
	return nil
}

// startCopy copies the source's files into a volume, in the background.
func (s *Store) startCopy(r *record) {
	ctx, cancel := context.WithCancel(s.background)
	c := &copying{source: r.Source, snapshot: r.SourceSnapshot, cancel: cancel}
	s.mu.Lock()
	s.copies[r.Name] = c
	s.mu.Unlock()
	c.done.Add(1)
	s.working.Go(func() {
		defer c.done.Done()
		defer cancel()
		err := s.copy(ctx, c, r)
		if ctx.Err() != nil {
			return // the call that stopped it continues, or the next Open does
		}
		s.count(&s.activity.copy, r.Name, err)
		if err != nil {
			// Create and Delete must not come between the steps.
			unlock, ended := s.names.lock(ctx, r.Name)
			if ended != nil {
				return
			}
			defer unlock()
			err = fmt.Errorf("copy %s to %s: %w", r.source(), r.Name, err)
			s.log.Error("volume: copy failed", "err", err)
			gone := *r
			err = errors.Join(err, s.trash(&gone))
		}
		s.mu.Lock()
		delete(s.copies, r.Name)
		if err != nil {
			s.failed[r.Name] = err
		}
		s.mu.Unlock()
	})
}

// copy copies the files, and then serves the volume.
func (s *Store) copy(ctx context.Context, c *copying, r *record) error {
	// AssignTree creates a temporary directory in the source, which must not be
	// copied.
	if r.SourceSnapshot == "" {
		if err := s.awaitMarking(ctx, r.Source); err != nil {
			return err
		}
	}
	if err := s.copySlots.Acquire(ctx, 1); err != nil {
		return err
	}
	defer s.copySlots.Release(1)
	from, err := s.openSource(r)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := openDir(s.root, r.Path)
	if err != nil {
		return err
	}
	defer to.Close()
	if boot := bootID(); r.Boot != boot {
		if err := s.startOver(ctx, to, r, boot); err != nil {
			return err
		}
	}
	c.tree.Shared = r.SourceSnapshot != "" || s.isView(r.Source)
	if err := c.tree.Run(ctx, from, to); err != nil {
		return err
	}
	s.step("files are copied")
	// Create and Delete read the volume under its name's lock.
	unlock, err := s.names.lock(ctx, r.Name)
	if err != nil {
		return err
	}
	defer unlock()
	if err := s.limitCopied(r); err != nil {
		return err
	}
	if err := s.enter(r, ready); err != nil {
		return err
	}
	s.log.Info("volume: copied", "volume", r.Name, "from", r.source(), "files", c.tree.Files.Load(), "bytes", FormatSize(c.tree.Bytes.Load()))
	return nil
}

// openSource opens the directory that a volume is copied from.
func (s *Store) openSource(r *record) (*os.File, error) {
	if r.SourceSnapshot != "" {
		return openDir(s.root, (&Snapshot{VolumeID: r.SourceID, Name: r.SourceSnapshot}).tree())
	}
	s.mu.Lock()
	source := s.records[r.Source]
	s.mu.Unlock()
	if source == nil {
		return nil, ErrNotFound
	}
	return openDir(s.root, source.Directory())
}

// hasSource returns an error if what a volume is copied from is not there, or its files can't be read.
func (s *Store) hasSource(r *record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	source := s.records[r.Source]
	switch {
	case r.SourceSnapshot != "" && s.snapshotLocked(r.SourceID, r.SourceSnapshot) != nil:
		return nil
	case r.SourceSnapshot != "", source == nil, source.State != ready, source.unserved != nil:
		return fmt.Errorf("its copy can't be completed: the %s, of which it should be a copy, is not there", r.source())
	case source.Restoring != "": // it has a part of each
		return fmt.Errorf("its copy can't be completed: the %s, of which it should be a copy, is being restored to its snapshot %s", r.source(), source.Restoring)
	}
	return nil
}

// limitCopied sets the inode limit of a copy, if the kernel counted its inodes.
func (s *Store) limitCopied(r *record) error {
	if s.quota == nil || r.Project == 0 {
		return nil
	}
	u, err := s.quota.Usage(r.Project)
	if err != nil {
		return err
	}
	if err := s.limitInodes(&r.Volume, u.Inodes, s.log.With("volume", r.Name)); err != nil {
		return err
	}
	return s.quota.SetLimit(r.Project, r.limit())
}

// startOver removes files copied before the machine was restarted: those that were
// not synced may be empty.
func (s *Store) startOver(ctx context.Context, to *os.File, r *record, boot string) error {
	if _, err := tree.Empty(ctx, to); err != nil {
		return err
	}
	s.mu.Lock()
	r.Boot = boot
	s.mu.Unlock()
	return s.write(r)
}

// bootID is different after every start of the machine, proc_sys_kernel(5).
func bootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(id))
}

// endCopy stops a running copy to a volume. Files copied so far stay.
func (s *Store) endCopy(name string) {
	s.mu.Lock()
	c := s.copies[name]
	delete(s.copies, name)
	s.mu.Unlock()
	if c != nil {
		c.cancel()
		c.done.Wait()
	}
}
