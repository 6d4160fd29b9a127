package volume

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/podnas/podnas/quota"
)

// A volume becomes what one of its snapshots has, in place. The steps, and what the next Open makes of a crash after each:
//
//	changes of clients wait -> safety snapshot of what there is -> record with restoring    nothing is done
//	                        -> limit lifted -> files -> limit as in the record              it is done to its end
//	                        -> record without restoring -> clients go on
//
// The limit is lifted because for a while there is a part of what was and a part of what comes: both together may be more than the
// volume may have. What the record has is the limit, so Open sets that, and lifts it again.
//
// After a restore that has failed, as on a disk that was filled up meanwhile, the volume has a part of each. No program should go on with
// that, so changes of clients wait until it is restored again, to any snapshot, or given up. The next Open tries it again. As nothing has
// changed meanwhile, the safety snapshot of the first try is that of the next ones.

// RestoreProgress is how far a restore is.
type RestoreProgress struct {
	Files   atomic.Int64 // entries of the snapshot that are in place, of any type
	Removed atomic.Int64 // entries that the snapshot does not have
	Changed atomic.Bool  // the volume may have a part of the snapshot
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

// ErrNoRestore means that a volume is not being restored.
var ErrNoRestore = errors.New("it is not being restored")

// restoring is a restore under way, or the last one of a volume.
type restoring struct {
	volume   Volume
	snapshot Snapshot
	force    bool
	keeps    *taking // takes the safety snapshot; nil: an earlier try has
	began    time.Time
	progress RestoreProgress
	cancel   context.CancelCauseFunc
	held     chan struct{} // closed when clients wait, or it has ended before
	done     chan struct{} // closed when it has ended

	safety atomic.Pointer[string]

	// Until done is closed, these are of the goroutine that restores; then Store.mu guards them.
	half    bool   // the volume may have a part of each
	release func() // has clients go on; nil: they do
	err     error
	endedAt time.Time
}

func (r *restoring) ended() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// going is the error of what has to wait for the end of a restore.
func (r *restoring) going() error {
	return fmt.Errorf("volume %s: %w: it is being restored to its snapshot %s", r.volume.Name, ErrBusy, r.snapshot.Name)
}

// busy returns why a volume is in no state for anything but its restore, or nil. r may be nil. The caller holds Store.mu.
func (r *restoring) busy() error {
	switch {
	case r == nil:
		return nil
	case !r.ended():
		return r.going()
	case r.half:
		return fmt.Errorf("volume %s: %w: its restore to its snapshot %s has failed, and it has a part of each: restore it again before", r.volume.Name, ErrBusy, r.snapshot.Name)
	}
	return nil
}

// needs reports whether a restore that is not at its end needs a snapshot. The caller holds Store.mu.
func (r *restoring) needs(name string) bool {
	safety := r.safety.Load()
	return r.busy() != nil && (r.snapshot.Name == name || safety != nil && *safety == name)
}

func (r *restoring) describe() Restore {
	return Restore{
		Volume: r.volume.Name, Name: r.snapshot.Name, Safety: r.safetyName(), Began: r.began, Done: r.ended(),
		Files: r.progress.Files.Load(), Total: r.snapshot.Files, Removed: r.progress.Removed.Load(),
	}
}

func (r *restoring) safetyName() string {
	if safety := r.safety.Load(); safety != nil {
		return *safety
	}
	return ""
}

// StartRestore begins to make a volume what its snapshot has, in the background. What the volume has is kept in a snapshot
// before. GetRestore tells how far it is, and its end. Its errors are ErrNotFound, ErrNoSnapshot, ErrUnsupported, ErrBusy, *NoSpaceError, and
// *OpenFilesError without force. After any of them nothing has changed.
func (s *Store) StartRestore(ctx context.Context, volume, name string, force bool) (Restore, error) {
	unlock, err := s.names.lock(ctx, volume)
	if err != nil {
		return Restore{}, err
	}
	defer unlock()
	v, err := s.forRestore(volume)
	if err != nil {
		return Restore{}, err
	}
	if s.snapshotter == nil {
		return Restore{}, fmt.Errorf("%w: this podnas does not take any", ErrUnsupported)
	}
	s.mu.Lock()
	found := s.snapshotLocked(v.ID, name)
	deleting := found != nil && found.deleting
	none := s.noSnapshotLocked(volume, name)
	last := s.restorings[v.ID]
	going := last != nil && !last.ended()
	failed := !going && last.busy() != nil
	s.mu.Unlock()
	switch {
	case found == nil:
		return Restore{}, none
	case going:
		return Restore{}, last.going()
	case deleting:
		return Restore{}, fmt.Errorf("snapshot %s of volume %s: %w: another request is deleting it", name, volume, ErrBusy)
	}
	r := s.newRestoring(v, found.Snapshot)
	r.force = force
	if !failed {
		if err := s.checkUnused(r); err != nil {
			return Restore{}, err
		}
		r.keeps = &taking{volume: v, snapshotSpec: snapshotSpec{prefix: "before-restore-"}, began: r.began, done: make(chan struct{})}
		if err := s.findRoom(r.keeps); err != nil {
			return Restore{}, r.refused(err)
		}
	}
	if err := s.roomToRestore(r); err != nil {
		return Restore{}, r.refused(err)
	}
	if err := s.startRestore(r); err != nil {
		return Restore{}, err
	}
	return r.describe(), nil
}

// checkUnused refuses a volume of which clients have files open, unless the restore is forced.
func (s *Store) checkUnused(r *restoring) error {
	if n := s.snapshotter.OpenFiles(r.volume); n > 0 && !r.force {
		return &OpenFilesError{r.volume.Name, n}
	}
	return nil
}

const (
	// restoreEntry is what an entry of a snapshot may take of the disk, beside the blocks that it shares: an inode, a name and
	// where the blocks are. A file of one byte with a name of 60 took 600 bytes on XFS. On btrfs, which has two copies of all that,
	// and the byte, it took 3,700: restoreEntryTwice.
	restoreEntry      = 1 << 10
	restoreEntryTwice = 4 << 10
	// restoreLeast is what must be free in any case.
	restoreLeast = 16 << 20
)

// roomToRestore checks that the disk has the room that a restore takes, which shares the blocks of files.
func (s *Store) roomToRestore(r *restoring) error {
	space, err := s.Space()
	if err != nil {
		return err
	}
	each := int64(restoreEntry)
	if space.Inodes == 0 { // btrfs
		each = restoreEntryTwice
	}
	need := restoreLeast + r.snapshot.Files*each
	if space.Free >= need {
		return nil
	}
	return fmt.Errorf("its %s need room on the disk for their names and inodes: %w. Delete files or snapshots, or make the disk larger",
		FormatCount(r.snapshot.Files, "file"), &NoSpaceError{Requested: need, Free: space.Free})
}

// refused says that a restore does not begin.
func (r *restoring) refused(err error) error {
	is := "and nothing has changed"
	if r.keeps == nil {
		is = "and still has a part of each"
	}
	return fmt.Errorf("volume %s is not restored to its snapshot %s, %s: %w", r.volume.Name, r.snapshot.Name, is, err)
}

func (s *Store) newRestoring(v Volume, of Snapshot) *restoring {
	return &restoring{volume: v, snapshot: of, began: time.Now().UTC(), held: make(chan struct{}), done: make(chan struct{})}
}

// startRestore begins a restore. If the last one has failed, it goes on with that.
func (s *Store) startRestore(r *restoring) error {
	v := r.volume
	s.mu.Lock()
	if t := s.takings[v.ID]; t != nil && !t.ended() {
		s.mu.Unlock()
		return fmt.Errorf("volume %s: %w: its snapshot %s is being taken; restore it after that", v.Name, ErrBusy, t.name)
	}
	if found := s.snapshotLocked(v.ID, r.snapshot.Name); r.keeps != nil && (found == nil || found.deleting) {
		s.mu.Unlock()
		return fmt.Errorf("snapshot %s of volume %s: %w: another request is deleting it", r.snapshot.Name, v.Name, ErrBusy)
	}
	if last := s.restorings[v.ID]; last != nil {
		if !last.ended() {
			s.mu.Unlock()
			return last.going()
		}
		if last.half {
			r.half, r.keeps, r.release, last.release = true, nil, last.release, nil
			r.safety.Store(last.safety.Load())
		}
	}
	if target := s.copiedToLocked(v.Name); target != nil && !r.half {
		s.mu.Unlock()
		return fmt.Errorf("volume %s: %w: it is being copied to %s; restore it after that", v.Name, ErrBusy, target.Name)
	}
	ctx, cancel := context.WithCancelCause(s.background)
	r.cancel = cancel
	s.restorings[v.ID] = r
	s.mu.Unlock()
	s.log.Info("snapshot: restoring a volume, whose clients wait", "volume", v.Name, "snapshot", r.snapshot.Name)
	s.working.Go(func() {
		defer cancel(nil)
		err := s.restore(ctx, r)
		switch {
		case err != nil && r.half:
			err = r.failed(err)
		case err != nil:
			err = r.refused(err)
		}
		switch {
		case err == nil:
			s.log.Info("snapshot: restored a volume", "volume", v.Name, "snapshot", r.snapshot.Name, "files", r.progress.Files.Load(),
				"removed", r.progress.Removed.Load(), "took", time.Since(r.began).Round(time.Millisecond))
		case ctx.Err() != nil: // it is given up, or the next start goes on
		default:
			s.log.Error("snapshot: can't restore a volume", "volume", v.Name, "snapshot", r.snapshot.Name, "err", err)
		}
		if !r.half {
			r.letGo()
		}
		r.err, r.endedAt = err, time.Now()
		close(r.done)
	})
	return nil
}

// letGo has clients go on.
func (r *restoring) letGo() {
	if r.release != nil {
		r.release()
		r.release = nil
	}
}

// failed says what a volume is now that a restore has failed half way, and how to go on.
func (r *restoring) failed(err error) error {
	back := ""
	if safety := r.safetyName(); safety != "" {
		back = fmt.Sprintf(", or to %s, which has all of what it was", safety)
	}
	return fmt.Errorf("restore volume %s to its snapshot %s: %w. The volume has a part of the snapshot and a part of what it was, and changes by its clients wait: "+
		"restore it again to that snapshot%[4]s: 'podnas snapshot restore %[1]s %[2]s'. With --give-up clients go on with it as it is", r.volume.Name, r.snapshot.Name, err, back)
}

// restore does the steps.
func (s *Store) restore(ctx context.Context, r *restoring) (err error) {
	if r.release == nil {
		r.release, err = s.snapshotter.HoldVolume(ctx, r.volume)
	}
	close(r.held)
	if err == nil {
		err = s.beginRestore(ctx, r)
	}
	if err != nil {
		return err
	}
	first := !r.half
	r.half = true
	if err := s.awaitMarking(ctx, r.volume.Name); err != nil {
		return err
	}
	if err := s.limit(r.volume, quota.Limit{Bytes: lifted}); err != nil {
		if first {
			return s.endRestore(ctx, r, err)
		}
		return err
	}
	s.step("limit is lifted")
	err = s.snapshotter.RestoreSnapshot(ctx, r.volume, r.snapshot.Name, &r.progress)
	if ctx.Err() != nil { // who has ended it sees to the limit and the record, or the next start
		return context.Cause(ctx)
	}
	if first && err != nil && !r.progress.Changed.Load() {
		return errors.Join(err, s.undoBegin(ctx, r))
	}
	if err == nil {
		s.step("files are restored")
	}
	return s.finishRestore(ctx, r, err)
}

// undoBegin ends a restore that has changed no file.
func (s *Store) undoBegin(ctx context.Context, r *restoring) error {
	if err := s.finishRestore(ctx, r, nil); err != nil {
		return err
	}
	return s.discardSafety(ctx, r)
}

// beginRestore keeps what the volume has, and records that it is restored. After an error nothing has changed.
func (s *Store) beginRestore(ctx context.Context, r *restoring) error {
	if r.keeps != nil {
		if err := s.checkUnused(r); err != nil { // opened since StartRestore has looked
			return err
		}
		if err := s.takeSafety(ctx, r); err != nil {
			return err
		}
		if err := s.roomToRestore(r); err != nil {
			return errors.Join(err, s.discardSafety(ctx, r))
		}
	}
	unlock, err := s.names.lock(ctx, r.volume.Name)
	if err != nil {
		return err
	}
	defer unlock()
	return s.recordRestore(r.volume.Name, r.snapshot.Name, r.safetyName())
}

// finishRestore puts back the limit when the files are restored, or that has failed.
func (s *Store) finishRestore(ctx context.Context, r *restoring, err error) error {
	unlock, locked := s.names.lock(ctx, r.volume.Name)
	if locked != nil {
		return errors.Join(err, locked)
	}
	defer unlock()
	if err := errors.Join(err, s.limitAgain(r.volume.Name)); err != nil {
		return err
	}
	s.step("limit is set")
	return s.recordEnd(r)
}

// endRestore ends a restore that has changed nothing, for an error.
func (s *Store) endRestore(ctx context.Context, r *restoring, err error) error {
	unlock, locked := s.names.lock(ctx, r.volume.Name)
	if locked != nil {
		return errors.Join(err, locked)
	}
	defer unlock()
	return errors.Join(err, s.recordEnd(r))
}

// recordEnd records that a volume is not restored any more. The caller has locked its name.
func (s *Store) recordEnd(r *restoring) error {
	err := s.recordRestore(r.volume.Name, "", "")
	if err == nil {
		r.half = false
	}
	return err
}

// lifted is the limit in bytes of a volume that is being restored: none, but not that of a volume whose files have no project yet.
const lifted = 1 << 62

// limit sets the kernel's limit of a volume, if it has one.
func (s *Store) limit(v Volume, to quota.Limit) error {
	if s.quota == nil || v.Project == 0 {
		return nil
	}
	return s.quota.SetLimit(v.Project, to)
}

// limitAgain sets the limit to that of the record: the volume may have been resized. While the files are still being assigned to the
// project, that is done after it. The caller has locked its name.
func (s *Store) limitAgain(name string) error {
	if s.beingMarked(name) {
		return nil
	}
	v, err := s.Get(name)
	if err != nil {
		return err
	}
	return s.limit(v, v.limit())
}

// known is what the kernel says of the volume's usage, with its own limit where that is lifted.
func (v *Volume) known(u quota.Usage) quota.Usage {
	if u.Limit.Bytes >= lifted {
		u.Limit = v.limit()
	}
	return u
}

// beingRestored reports whether a volume is restored, or half restored: its limit is set at the end of that.
func (s *Store) beingRestored(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.records[name]
	return r != nil && r.Restoring != ""
}

// takeSafety takes the snapshot of what the volume has.
func (s *Store) takeSafety(ctx context.Context, r *restoring) error {
	t := r.keeps
	t.cancel = r.cancel
	if err := s.reserveSnapshot(t); err != nil {
		return err
	}
	t.taken, t.err = s.takeSnapshot(ctx, t)
	if t.err == nil {
		r.safety.Store(&t.name)
	}
	t.endedAt = time.Now()
	close(t.done)
	s.mu.Lock()
	delete(s.takings, r.volume.ID)
	s.mu.Unlock()
	return t.err
}

// discardSafety deletes the snapshot of what the volume has, which it still has.
func (s *Store) discardSafety(ctx context.Context, r *restoring) error {
	name := r.safetyName()
	r.safety.Store(nil)
	return s.DeleteSnapshot(ctx, r.snapshot.volume(), name)
}

// recordRestore records that a volume is being restored to a snapshot, or not any more, and which snapshot has what was before. The
// caller has locked its name.
func (s *Store) recordRestore(volume, to, safety string) error {
	s.mu.Lock()
	r := s.records[volume]
	if r == nil || r.deleting {
		s.mu.Unlock()
		return fmt.Errorf("volume %s: %w: it is being deleted", volume, ErrBusy)
	}
	next := *r
	s.mu.Unlock()
	next.Restoring, next.RestoreSafety = to, safety
	if err := s.write(&next); err != nil {
		return err
	}
	s.step("restore is recorded")
	s.mu.Lock()
	r.Restoring, r.RestoreSafety = to, safety
	s.mu.Unlock()
	return nil
}

// GetRestore returns the restore of a volume that is under way, or its end for some minutes, with the error if it has failed. The error
// is ErrNoRestore if there is none.
func (s *Store) GetRestore(volume string) (found Restore, err error) {
	defer s.explain(volume, &err)
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.records[volume]
	if v == nil {
		return Restore{}, notFound(volume)
	}
	r := s.restorings[v.ID]
	switch {
	case r == nil, r.busy() == nil && time.Since(r.endedAt) > outcomeKept:
		return Restore{}, fmt.Errorf("volume %s: %w", volume, ErrNoRestore)
	case !r.ended():
		return r.describe(), nil
	}
	return r.describe(), r.err
}

// errGivenUp is why a restore ends that is given up.
var errGivenUp = errors.New("it was given up, so the volume has a part of the snapshot, and a part of what it was")

// GiveUpRestore ends the restore of a volume to a snapshot that is under way, or has failed: clients go on with what the volume has
// then. Its errors are ErrNotFound and ErrNoRestore.
func (s *Store) GiveUpRestore(ctx context.Context, volume, name string) (Restore, error) {
	unlock, err := s.names.lock(ctx, volume)
	if err != nil {
		return Restore{}, err
	}
	defer unlock()
	v, err := s.Get(volume)
	if err != nil {
		return Restore{}, err
	}
	s.mu.Lock()
	r := s.restorings[v.ID]
	none := r.busy() == nil
	s.mu.Unlock()
	switch {
	case none:
		return Restore{}, fmt.Errorf("volume %s: %w", volume, ErrNoRestore)
	case r.snapshot.Name != name:
		return Restore{}, fmt.Errorf("volume %s: %w to its snapshot %s, but to %s", volume, ErrNoRestore, name, r.snapshot.Name)
	}
	r.cancel(errGivenUp)
	<-r.done
	s.mu.Lock()
	half := r.half
	s.mu.Unlock()
	if !half {
		return r.describe(), nil
	}
	s.trySetLimit(volume)
	if err := s.recordRestore(volume, "", ""); err != nil {
		return Restore{}, err
	}
	s.log.Warn("snapshot: the restore of a volume was given up, and its clients go on", "volume", volume, "snapshot", r.snapshot.Name)
	s.mu.Lock()
	defer s.mu.Unlock()
	r.half, r.err = false, fmt.Errorf("restore volume %s to its snapshot %s: %w", volume, r.snapshot.Name, errGivenUp)
	r.letGo()
	return r.describe(), nil
}

// endRestoring ends the restore of a volume that is being deleted. The caller has locked its name.
func (s *Store) endRestoring(id uint64) {
	s.mu.Lock()
	r := s.restorings[id]
	delete(s.restorings, id)
	s.mu.Unlock()
	if r == nil {
		return
	}
	r.cancel(fmt.Errorf("%w: the volume is being deleted", ErrBusy))
	<-r.done
	s.trySetLimit(r.volume.Name)
	r.letGo()
}

// trySetLimit is limitAgain where a restore ends whatever comes of it.
func (s *Store) trySetLimit(name string) {
	if err := s.limitAgain(name); err != nil {
		s.log.Warn("volume: can't set its limit again, the next start does", "volume", name, "err", err)
	}
}
