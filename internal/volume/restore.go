package volume

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// A volume becomes what one of its snapshots has, in place. The steps, and what the next Open makes of a crash after each:
//
//	changes of clients wait -> safety snapshot of what there is -> record with restoring    nothing is done
//	                        -> files -> record without it -> clients go on                  it is done to its end
//
// A restore that fails, as on a full disk, is not tried again by itself: the volume has a part of each, and the safety
// snapshot what was there.

// RestoreProgress is how far a restore is.
type RestoreProgress struct {
	Files   atomic.Int64 // entries of the snapshot that are in place, of any type
	Removed atomic.Int64 // entries that the snapshot does not have
}

// Restore is a restore of a volume.
type Restore struct {
	Volume string `json:"volume"`
	Name   string `json:"name"`
	// Safety is the name of the snapshot of what the volume had before, empty as long as there is none.
	Safety string `json:"safety,omitempty"`
	// Done is whether the volume is restored.
	Done    bool      `json:"done"`
	Began   time.Time `json:"began"`
	Files   int64     `json:"files"`   // in place so far
	Total   int64     `json:"total"`   // that the snapshot has
	Removed int64     `json:"removed"` // so far
}

// OpenFilesError means that clients have files of a volume open.
type OpenFilesError struct {
	Volume string
	Files  int
}

func (e *OpenFilesError) Error() string {
	return fmt.Sprintf("clients have %s of volume %s open, which would change while they are in use: end the programs, "+
		"see 'podnas client list', or restore it all the same with --force", FormatCount(e.Files, "file"), e.Volume)
}

// Unwrap makes it an ErrBusy.
func (e *OpenFilesError) Unwrap() error { return ErrBusy }

// restoring is a restore under way, or the last one of a volume.
type restoring struct {
	volume   Volume
	snapshot Snapshot
	began    time.Time
	progress RestoreProgress
	cancel   context.CancelCauseFunc
	held     chan struct{} // closed when clients wait, or it has ended before
	done     chan struct{} // closed when it has ended

	safety atomic.Pointer[string]
	err    error // set before done is closed
}

func (r *restoring) ended() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

func (r *restoring) describe() Restore {
	d := Restore{
		Volume: r.volume.Name, Name: r.snapshot.Name, Began: r.began, Done: r.ended(),
		Files: r.progress.Files.Load(), Total: r.snapshot.Files, Removed: r.progress.Removed.Load(),
	}
	if safety := r.safety.Load(); safety != nil {
		d.Safety = *safety
	}
	return d
}

// StartRestore begins to make a volume what its snapshot has, in the background. What the volume has is kept in a snapshot
// before. GetRestore tells how far it is, and its end. Its errors are ErrNotFound, ErrNoSnapshot, ErrUnsupported, ErrBusy, and
// *OpenFilesError without force.
func (s *Store) StartRestore(ctx context.Context, volume, name string, force bool) (Restore, error) {
	unlock, err := s.names.lock(ctx, volume)
	if err != nil {
		return Restore{}, err
	}
	defer unlock()
	v, err := s.forSnapshot(volume)
	if err != nil {
		return Restore{}, err
	}
	if s.snapshotter == nil {
		return Restore{}, fmt.Errorf("%w: this podnas does not take any", ErrUnsupported)
	}
	s.mu.Lock()
	r := s.snapshotLocked(v.ID, name)
	busy := r != nil && r.deleting
	none := s.noSnapshotLocked(volume, name)
	s.mu.Unlock()
	switch {
	case r == nil:
		return Restore{}, none
	case busy:
		return Restore{}, fmt.Errorf("snapshot %s of volume %s: %w: another request is deleting it", name, volume, ErrBusy)
	}
	if n := s.snapshotter.OpenFiles(v); n > 0 && !force {
		return Restore{}, &OpenFilesError{volume, n}
	}
	going, err := s.startRestore(v, r.Snapshot, true)
	if err != nil {
		return Restore{}, err
	}
	return going.describe(), nil
}

// startRestore begins a restore. safely is whether a snapshot is taken before.
func (s *Store) startRestore(v Volume, of Snapshot, safely bool) (*restoring, error) {
	s.mu.Lock()
	if t := s.takings[v.ID]; t != nil && !t.ended() {
		s.mu.Unlock()
		return nil, fmt.Errorf("volume %s: %w: its snapshot %s is being taken; restore it after that", v.Name, ErrBusy, t.name)
	}
	if other := s.restorings[v.ID]; other != nil && !other.ended() {
		s.mu.Unlock()
		return nil, fmt.Errorf("volume %s: %w: it is being restored to its snapshot %s", v.Name, ErrBusy, other.snapshot.Name)
	}
	ctx, cancel := context.WithCancelCause(s.background)
	r := &restoring{volume: v, snapshot: of, began: time.Now().UTC(), cancel: cancel, held: make(chan struct{}), done: make(chan struct{})}
	s.restorings[v.ID] = r
	s.mu.Unlock()
	s.log.Info("snapshot: restoring a volume, whose clients wait", "volume", v.Name, "snapshot", of.Name)
	s.working.Go(func() {
		defer cancel(nil)
		err := s.restore(ctx, r, safely)
		switch {
		case err == nil:
			s.log.Info("snapshot: restored a volume", "volume", v.Name, "snapshot", of.Name, "files", r.progress.Files.Load(),
				"removed", r.progress.Removed.Load(), "took", time.Since(r.began).Round(time.Millisecond))
		case s.background.Err() != nil: // the next start goes on
		default:
			s.log.Error("snapshot: can't restore a volume", "volume", v.Name, "snapshot", of.Name, "err", err)
		}
		r.err = err
		close(r.done)
	})
	return r, nil
}

// restore does the steps.
func (s *Store) restore(ctx context.Context, r *restoring, safely bool) error {
	isHeld := false
	held := func() error {
		isHeld = true
		close(r.held)
		if !safely {
			return nil
		}
		if err := s.takeSafety(ctx, r); err != nil {
			return err
		}
		return s.setRestoring(ctx, r.volume.Name, r.snapshot.Name)
	}
	err := s.snapshotter.RestoreSnapshot(ctx, r.volume, r.snapshot.Name, held, &r.progress)
	if !isHeld {
		close(r.held)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		err = fmt.Errorf("restore volume %s to its snapshot %s: %w", r.volume.Name, r.snapshot.Name, err)
	}
	s.step("files are restored")
	return errors.Join(err, s.setRestoring(ctx, r.volume.Name, ""))
}

// takeSafety takes the snapshot of what the volume has.
func (s *Store) takeSafety(ctx context.Context, r *restoring) error {
	t := &taking{
		volume: r.volume, snapshotSpec: snapshotSpec{prefix: "before-restore-"}, began: time.Now().UTC(),
		cancel: r.cancel, done: make(chan struct{}),
	}
	if err := s.reserveSnapshot(t); err != nil {
		return err
	}
	t.taken, t.err = s.takeSnapshot(ctx, t)
	close(t.done)
	s.mu.Lock()
	delete(s.takings, r.volume.ID)
	s.mu.Unlock()
	if t.err == nil {
		r.safety.Store(&t.name)
	}
	return t.err
}

// setRestoring records that a volume is being restored, or not any more.
func (s *Store) setRestoring(ctx context.Context, volume, name string) error {
	unlock, err := s.names.lock(ctx, volume)
	if err != nil {
		return err
	}
	defer unlock()
	s.mu.Lock()
	r := s.records[volume]
	if r == nil || r.deleting {
		s.mu.Unlock()
		return fmt.Errorf("volume %s: %w: it is being deleted", volume, ErrBusy)
	}
	next := *r
	s.mu.Unlock()
	next.Restoring = name
	if err := s.write(&next); err != nil {
		return err
	}
	s.step("restore is recorded")
	s.mu.Lock()
	r.Restoring = name
	s.mu.Unlock()
	return nil
}

// GetRestore returns the restore of a volume that is under way, or its end: once, with the error if it failed. The error is
// ErrNotFound if there is none.
func (s *Store) GetRestore(volume string) (Restore, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.records[volume]
	if v == nil {
		return Restore{}, s.notFoundLocked(volume)
	}
	r := s.restorings[v.ID]
	if r == nil {
		return Restore{}, fmt.Errorf("a restore of volume %s: %w", volume, ErrNoSnapshot)
	}
	if !r.ended() {
		return r.describe(), nil
	}
	delete(s.restorings, v.ID)
	return r.describe(), r.err
}

// endRestoring ends the restore of a volume that is being deleted.
func (s *Store) endRestoring(id uint64) {
	s.mu.Lock()
	r := s.restorings[id]
	delete(s.restorings, id)
	s.mu.Unlock()
	if r != nil {
		r.cancel(fmt.Errorf("%w: the volume is being deleted", ErrBusy))
		<-r.done
	}
}

// ResumeRestores goes on with the restores that the process before has not completed. When it returns, changes of these volumes wait. It is to
// be called before clients are served.
func (s *Store) ResumeRestores() {
	type left struct {
		of       Volume
		snapshot string
	}
	var all []left
	s.mu.Lock()
	for _, r := range s.records {
		if r.State == ready && r.unserved == nil && r.Restoring != "" {
			all = append(all, left{r.Volume, r.Restoring})
		}
	}
	s.mu.Unlock()
	for _, l := range all {
		found, err := s.GetSnapshot(l.of.Name, l.snapshot)
		if err == nil {
			var r *restoring
			if r, err = s.startRestore(l.of, found, false); err == nil {
				<-r.held
			}
		}
		if err != nil {
			s.log.Error("snapshot: the restore of a volume was interrupted, and can't be completed: it has a part of the snapshot, and a part of before",
				"volume", l.of.Name, "snapshot", l.snapshot, "err", err)
		}
	}
}
