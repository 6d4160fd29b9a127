package volume

import (
	"context"
	"log/slog"
	"time"

	"github.com/podnas/podnas/quota"
)

// A disk that was copied file by file (tar, rsync, cp -a) has lost the project of
// each file: the kernel then silently enforces no size. So Open checks the project
// of each volume's directory. If it is wrong, the volume is served all the same,
// and its files are assigned to the project in the background. So are those of a
// directory that is adopted, if they are many.
//
// The limit records the progress, also for the next Open. It is removed before the
// directory is assigned, and set when everything below it is: so a volume without
// a limit, or with an unassigned directory, still needs to be marked.

// markRetry is the pause before marking a volume is retried.
const markRetry = time.Minute

// marking is a volume whose files are being assigned to its project.
type marking struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when marking has stopped
	err    error         // of the last attempt; guarded by Store.mu
}

// Marking returns, by name, the volumes whose files are being assigned to their projects, with the error of the last
// attempt, nil if it goes on. Until that is done their sizes are not enforced.
func (s *Store) Marking() map[string]error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.markingLocked()
}

// +checklocks:s.mu
func (s *Store) markingLocked() map[string]error {
	marked := make(map[string]error, len(s.markings))
	for name, m := range s.markings {
		marked[name] = m.err
	}
	return marked
}

// restoreLimit sets the kernel's limit to the record's, if u shows that it
// differs. If it can't be set yet, marked is false: then call startMarking when
// the volume is served.
func (s *Store) restoreLimit(r *record, u quota.Usage, log *slog.Logger) (marked bool, err error) {
	switch {
	case s.quota != nil && r.Project != 0:
		assigned, err := s.assigned(r)
		if err != nil {
			return false, err
		}
		if !assigned || u.Limit.Bytes == 0 {
			return s.beginMarking(r, !assigned && u.Inodes > 0, log)
		}
		// The kernel counts in units of up to 4 KiB.
		switch drift := u.Limit.Bytes - r.Size; {
		case r.Restoring != "": // it may be lifted
		case drift < 0 || drift >= 4096:
			log.Warn("volume: wrong limit on the disk, correcting it", "found", FormatSize(u.Limit.Bytes), "size", FormatSize(r.Size))
		}
		if r.Inodes != 0 && u.Limit.Inodes != r.Inodes && r.Restoring == "" {
			log.Warn("volume: wrong inode limit on the disk, correcting it", "found", u.Limit.Inodes, "limit", r.Inodes)
		}
		if r.Inodes == 0 && r.State != copyingState {
			if err := s.limitInodes(&r.Volume, u.Inodes, log); err != nil {
				return false, err
			}
			if err := s.write(r); err != nil { // serve it even if the disk is full
				log.Warn("volume: can't record its inode limit, the next start computes it again", "err", err)
			}
			s.step("record has an inode limit")
		}
		return true, s.quota.SetLimit(r.Project, r.limit())
	case s.quota != nil && s.counter != nil:
		log.Info("volume: created without a project, so the server enforces its size")
	case s.quota != nil:
		log.Warn("volume: created without a project, so it has no limit")
	case r.Project != 0:
		log.Warn("volume: can't check its quota while quotas are off", "project", r.Project)
	}
	return true, nil
}

// assigned reports whether the volume's directory has its project.
func (s *Store) assigned(r *record) (bool, error) {
	dir, err := openDir(s.root, r.Path)
	if err != nil {
		return false, err
	}
	defer dir.Close()
	return s.quota.Assigned(dir, r.Project)
}

// beginMarking prepares a volume for startMarking, if necessary. taken is whether
// files elsewhere have its project, such as the directory that this one replaces.
// They keep the project and its limit, and the volume gets a new one.
func (s *Store) beginMarking(r *record, taken bool, log *slog.Logger) (marked bool, err error) {
	if taken {
		project, err := s.newProject()
		s.mu.Lock()
		r.Project = project
		s.mu.Unlock()
		if err == nil {
			err = s.write(r)
		}
		if err != nil {
			return false, err
		}
		s.step("record has another project")
	}
	if r.State == copyingState {
		log.Warn("volume: the files of its incomplete copy are not assigned to its project, as after a copy of the disk by tar or rsync; copying it again")
		return true, s.copyAnew(r)
	}
	log.Warn("volume: not all files are assigned to its project, as after a copy of the disk by tar or rsync, or when an adoption was not done; assigning them now, and its size is not enforced until then", "project", r.Project)
	return false, nil
}

// copyAnew restarts a copy with an empty directory that has its project.
func (s *Store) copyAnew(r *record) error {
	r.Boot = "" // see copy
	if err := s.write(r); err != nil {
		return err
	}
	dir, err := openDir(s.root, r.Path)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := s.quota.Assign(dir, r.Project); err != nil {
		return err
	}
	return s.quota.SetLimit(r.Project, r.limit())
}

// startMarking assigns a volume's files to its project and then sets its limit, in
// the background.
func (s *Store) startMarking(v Volume) {
	ctx, cancel := context.WithCancel(s.background)
	m := &marking{cancel: cancel, done: make(chan struct{})}
	s.mu.Lock()
	s.markings[v.Name] = m
	s.mu.Unlock()
	s.working.Go(func() {
		defer close(m.done)
		defer cancel()
		for {
			err := s.mark(ctx, v)
			if err == nil || ctx.Err() != nil {
				return // it is done, or the call that stopped it continues, or the next Open does
			}
			s.log.Error("volume: can't assign its files to its project, will try again", "volume", v.Name, "in", markRetry, "err", err)
			s.mu.Lock()
			m.err = err
			s.mu.Unlock()
			select {
			case <-time.After(markRetry):
			case <-ctx.Done():
				return
			}
		}
	})
}

// mark is one attempt of startMarking. It marks one volume at a time.
func (s *Store) mark(ctx context.Context, v Volume) error {
	if err := s.markSlot.Acquire(ctx, 1); err != nil {
		return err
	}
	defer s.markSlot.Release(1)
	dir, err := openDir(s.root, v.Path)
	if err != nil {
		return err
	}
	defer dir.Close()
	// Files can't be assigned to a project beyond its limit.
	if err := s.quota.SetLimit(v.Project, quota.Limit{}); err != nil {
		return err
	}
	s.step("limit is lifted")
	files, err := s.quota.AssignTree(ctx, dir, v.Project)
	if err != nil {
		return err
	}
	s.step("project is assigned")
	// With the lock of Delete and Resize: a limit must not outlive its volume, and the
	// size may have changed.
	unlock, err := s.names.lock(ctx, v.Name)
	if err != nil {
		return err
	}
	defer unlock()
	if v, err = s.limitMarked(v.Name); err != nil {
		return err
	}
	if err := s.quota.SetLimit(v.Project, v.limit()); err != nil {
		return err
	}
	s.step("limit is set")
	s.mu.Lock()
	delete(s.markings, v.Name)
	s.mu.Unlock()
	s.log.Info("volume: all files are assigned to its project, and its size is enforced", "volume", v.Name, "files", files, "size", FormatSize(v.Size))
	if u, err := s.quota.Usage(v.Project); err == nil && u.Bytes > v.Size {
		s.log.Warn("volume: its files take more than its size, so clients can add nothing: raise it, or remove files", "volume", v.Name, "used", FormatSize(u.Bytes), "size", FormatSize(v.Size))
	}
	return nil
}

// limitMarked sets the volume's inode limit, because the kernel has now counted
// its inodes, and returns the volume. The caller has locked its name.
func (s *Store) limitMarked(name string) (Volume, error) {
	v, err := s.Get(name)
	if err != nil || v.Inodes != 0 {
		return v, err
	}
	u, err := s.quota.Usage(v.Project)
	if err != nil {
		return v, err
	}
	return s.changeLocked(name, func(v *Volume) error {
		return s.limitInodes(v, u.Inodes, s.log.With("volume", name))
	})
}

// endMarking stops marking a volume, and reports whether it was being marked. The
// caller has locked its name.
func (s *Store) endMarking(name string) bool {
	s.mu.Lock()
	m := s.markings[name]
	delete(s.markings, name)
	s.mu.Unlock()
	if m == nil {
		return false
	}
	m.cancel()
	<-m.done
	return true
}

// awaitMarking waits until a volume's files are assigned to its project.
func (s *Store) awaitMarking(ctx context.Context, name string) error {
	s.mu.Lock()
	m := s.markings[name]
	s.mu.Unlock()
	if m == nil {
		return nil
	}
	select {
	case <-m.done:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// beingMarked reports whether a volume is being marked.
func (s *Store) beingMarked(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.markings[name] != nil
}
