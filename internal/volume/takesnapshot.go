package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/podnas/podnas/internal/statedir"
)

// snapshotSpec says which snapshot is to be taken.
type snapshotSpec struct {
	name   string // if it is empty, it becomes one by the date
	prefix string // of a name by the date
	// unclaimed is whether nobody has claimed it. That of a taking is guarded by Store.mu.
	unclaimed bool
	// kinds are those of the schedule, if it is scheduled, and at is its time.
	kinds []string
	at    time.Time
}

// byDate returns a name by the date.
func (s *snapshotSpec) byDate(now time.Time) string {
	if len(s.kinds) > 0 {
		return s.prefix + s.at.UTC().Format("2006-01-02-1504")
	}
	return s.prefix + now.Format("2006-01-02-150405")
}

// taking is a snapshot that is being taken, or the last one of a volume that could not be taken.
type taking struct {
	volume Volume
	snapshotSpec
	began    time.Time
	progress SnapshotProgress
	cancel   context.CancelCauseFunc
	// reserve is what is promised for it, guarded by Store.mu. uncounted is whether nobody knows yet what the volume uses: then it is
	// found out when the snapshot is made. capacity is the disk's.
	reserve   int64
	uncounted bool
	capacity  int64
	// coming is the snapshot when it is about to be complete; guarded by Store.mu.
	coming *Snapshot

	done    chan struct{} // closed when it has ended
	taken   Snapshot      // set before that
	err     error         // likewise
	endedAt time.Time     // likewise
}

func (t *taking) ended() bool {
	select {
	case <-t.done:
		return true
	default:
		return false
	}
}

func (t *taking) underWay() SnapshotUnderWay {
	u := SnapshotUnderWay{Began: t.began, Snapshot: Snapshot{
		Name: t.name, Scheduled: t.kinds, Volume: t.volume.Name, VolumeID: t.volume.ID, Size: t.volume.Size,
		Files: t.progress.Files.Load(), Bytes: t.progress.Bytes.Load(),
	}}
	if cut := t.progress.Cut.Load(); cut != 0 {
		u.Created = time.Unix(0, cut).UTC()
	}
	return u
}

// outcomeKept is how long it is told that a snapshot could not be taken, and how a restore has ended: to a command that waits for
// that, and to a person who asks later.
const outcomeKept = 10 * time.Minute

// outcomeLocked returns the error of GetSnapshot for the snapshot of a name that is being taken, or could not be a short time ago. It
// returns nil if nothing is known of one.
//
// +checklocks:s.mu
func (s *Store) outcomeLocked(id uint64, name string) error {
	t := s.takings[id]
	switch {
	case t == nil || t.name != name:
		return nil
	case !t.ended():
		return &TakingError{t.underWay()}
	case time.Since(t.endedAt) > outcomeKept:
		delete(s.takings, id)
		return nil
	}
	return t.err
}

// ForgetFailure has GetSnapshot tell no more why a snapshot could not be taken.
func (s *Store) ForgetFailure(volume, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.records[volume]; r != nil {
		if t := s.takings[r.ID]; t != nil && t.name == name && t.ended() {
			delete(s.takings, r.ID)
		}
	}
}

// CreateSnapshot takes a snapshot of a volume that clients may be using, and returns when it is complete. Without a name
// it gets one by the date. If ctx ends before that, or the volume is deleted, nothing is left of the snapshot. Its errors
// are those of StartSnapshot, or of the disk.
func (s *Store) CreateSnapshot(ctx context.Context, volume, name string) (Snapshot, error) {
	t, err := s.startSnapshot(ctx, volume, snapshotSpec{name: name})
	if err != nil {
		return Snapshot{}, err
	}
	err = s.awaitTaking(ctx, t)
	return t.taken, err
}

// awaitTaking waits for the end of a snapshot that is being taken, which it ends with ctx, and returns its error.
func (s *Store) awaitTaking(ctx context.Context, t *taking) error {
	defer context.AfterFunc(ctx, func() { t.cancel(context.Cause(ctx)) })()
	<-t.done
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.takings[t.volume.ID] == t {
		delete(s.takings, t.volume.ID)
	}
	return t.err
}

// StartSnapshot begins to take a snapshot in the background. GetSnapshot returns a *TakingError until the snapshot is
// complete, and DeleteSnapshot ends the taking. Its errors are ErrSnapshotName, ErrUnsupported, ErrNotFound, ErrExists, and
// ErrBusy if a snapshot of the volume is being taken, or the volume is in no state for one.
func (s *Store) StartSnapshot(ctx context.Context, volume, name string) (SnapshotUnderWay, error) {
	t, err := s.startSnapshot(ctx, volume, snapshotSpec{name: name})
	if err != nil {
		return SnapshotUnderWay{}, err
	}
	return t.underWay(), nil
}

// startSnapshot is StartSnapshot for everybody who has one be taken. ctx ends the wait for another request that changes the volume, and
// not the taking.
func (s *Store) startSnapshot(ctx context.Context, volume string, spec snapshotSpec) (*taking, error) {
	if spec.name != "" {
		if err := checkSnapshotName(spec.name); err != nil {
			return nil, err
		}
	}
	// A deletion holds the name until clients' calls have ended, and nothing can be taken after it.
	if s.beingDeleted(volume) {
		return nil, fmt.Errorf("volume %s: %w: it is being deleted", volume, ErrBusy)
	}
	// Delete and Archive hold this lock, and so find what begins here.
	unlock, err := s.names.lock(ctx, volume)
	if err != nil {
		return nil, err
	}
	defer unlock()
	v, err := s.forSnapshot(volume)
	if err != nil {
		return nil, err
	}
	if s.snapshotter == nil {
		return nil, fmt.Errorf("%w: this podnas does not take any", ErrUnsupported)
	}
	if err := s.snapshotter.CheckSnapshots(v); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	background, cancel := context.WithCancelCause(s.background)
	t := &taking{volume: v, snapshotSpec: spec, began: time.Now().UTC(), cancel: cancel, done: make(chan struct{}), err: context.Canceled}
	if err := s.findRoom(t); err != nil {
		cancel(err)
		return nil, err
	}
	if err := s.reserveSnapshot(t); err != nil {
		cancel(err)
		return nil, err
	}
	s.log.Info("snapshot: taking it", "volume", v.Name, "snapshot", t.name)
	s.working.Go(func() {
		defer close(t.done)
		defer cancel(nil)
		t.taken, t.err = s.takeSnapshot(background, t)
		t.endedAt = time.Now()
		if t.err == nil || background.Err() == nil { // else somebody has ended it
			s.count(&s.activity.snapshot, v.Name, t.err)
		}
		s.mu.Lock()
		if t.err == nil && s.takings[v.ID] == t {
			delete(s.takings, v.ID)
		}
		s.mu.Unlock()
	})
	return t, nil
}

// forSnapshot returns the volume of a name, if a snapshot of it can be taken now.
func (s *Store) forSnapshot(name string) (Volume, error) {
	v, err := s.forRestore(name)
	if err != nil {
		return Volume{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return v, s.restorings[v.ID].busy()
}

// forRestore is forSnapshot also for a volume that is being restored, or half restored.
func (s *Store) forRestore(name string) (v Volume, err error) {
	defer s.explain(name, &err)
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.records[name]
	switch {
	case r == nil:
		return Volume{}, notFound(name)
	case r.State == copyingState:
		return Volume{}, fmt.Errorf("volume %s: %w: it is still being copied from %s; take the snapshot after that", name, ErrBusy, r.source())
	case r.State == retained, r.State == archived:
		return Volume{}, fmt.Errorf("%s: %w: it is deleted, and its files were kept; 'podnas volume adopt %s' restores it", name, ErrNotFound, name)
	case r.State != ready, r.deleting:
		return Volume{}, fmt.Errorf("volume %s: %w: another request is changing it", name, ErrBusy)
	case r.View:
		return Volume{}, fmt.Errorf("volume %s: %w: it is the %s, so there are no others of it", name, ErrView, r.source())
	case r.unserved != nil:
		return Volume{}, fmt.Errorf("volume %s: %w: it is not served: %w", name, ErrBusy, r.unserved)
	case s.markings[name] != nil:
		return Volume{}, fmt.Errorf("volume %s: %w: its files are being assigned to its project; take the snapshot after that", name, ErrBusy)
	}
	return r.Volume, nil
}

// reserveSnapshot reserves the name of a snapshot, and chooses it if there is none yet.
func (s *Store) reserveSnapshot(t *taking) error {
	if t.name != "" {
		return s.reserveNamed(t)
	}
	byDate := t.byDate(t.began)
	for n := 1; ; n++ {
		if t.name = byDate; n > 1 {
			t.name = fmt.Sprintf("%s-%d", byDate, n)
		}
		if err := s.reserveNamed(t); !errors.Is(err, ErrExists) {
			return err
		}
	}
}

// reserveNamed is reserveSnapshot with a name. It looks at the disk while no snapshot of the volume is being taken, as what has that
// name may be that one's for a while. The caller holds the volume's name, or has it restored, so that none begins and ends meanwhile.
func (s *Store) reserveNamed(t *taking) error {
	s.mu.Lock()
	err := s.takingLocked(t.volume)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	there, err := s.isSnapshotThere(t.volume.ID, t.name)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.takingLocked(t.volume); err != nil {
		return err
	}
	if there || s.snapshotLocked(t.volume.ID, t.name) != nil || s.views[snapshotID{t.volume.ID, t.name}] != nil {
		return fmt.Errorf("snapshot %s of volume %s: %w", t.name, t.volume.Name, ErrExists)
	}
	var noSpace *NoSpaceError
	if err := s.promiseLocked(t.reserve, t.capacity, s.overcommit); t.reserve > 0 && errors.As(err, &noSpace) {
		return &SnapshotSpaceError{t.volume.Name, *noSpace}
	}
	s.takings[t.volume.ID] = t
	return nil
}

// takingLocked returns an error if a snapshot of a volume is being taken.
//
// +checklocks:s.mu
func (s *Store) takingLocked(v Volume) error {
	if other := s.takings[v.ID]; other != nil && !other.ended() {
		return fmt.Errorf("volume %s: %w: its snapshot %s is being taken, since %s; take another one after that",
			v.Name, ErrBusy, other.name, other.began.Format(time.RFC3339))
	}
	return nil
}

// isSnapshotThere reports whether the disk has something of a snapshot's name, which podnas may not know.
//
// +checklocksexclude:s.mu
func (s *Store) isSnapshotThere(id uint64, name string) (bool, error) {
	r := Snapshot{VolumeID: id, Name: name}
	for _, p := range []string{r.file(), r.tree()} {
		if _, err := s.root.Lstat(p); !errors.Is(err, os.ErrNotExist) {
			return err == nil, err
		}
	}
	return false, nil
}

// takeSnapshot does the steps of create.
func (s *Store) takeSnapshot(ctx context.Context, t *taking) (Snapshot, error) {
	r := &snapshotRecord{Disk: s.instance.Identity, Snapshot: Snapshot{
		Name: t.name, Volume: t.volume.Name, VolumeID: t.volume.ID, Size: t.volume.Size, Manifest: t.volume.Manifest,
		Scheduled: t.kinds,
	}}
	err := s.makeSnapshotTree(ctx, t, r)
	if err == nil {
		s.setComing(t, &r.Snapshot) // first, so that its files have no other handles for a moment
		err = s.commitSnapshot(r)
	}
	if err != nil {
		err = fmt.Errorf("take snapshot %s of volume %s: %w", r.Name, r.Volume, err)
		if undo := s.undoSnapshot(r); undo != nil {
			err = fmt.Errorf("%w; what is left of it can't be removed, and the next start tries again: %w", err, undo)
		}
		s.setComing(t, nil)
		s.log.Warn("snapshot: not taken", "err", err)
		return Snapshot{}, err
	}
	if err := s.discardWork(r.VolumeID); err != nil {
		s.log.Warn("snapshot: can't remove what it was made with; the next start tries again", "folder", snapshotsOf(r.VolumeID), "err", err)
	}
	r.known = time.Now()
	s.mu.Lock()
	s.snapshots[r.VolumeID] = append(s.snapshots[r.VolumeID], r)
	t.coming = nil
	claimed := r.Unclaimed && !t.unclaimed
	taken := s.describeLocked(r)
	s.mu.Unlock()
	s.showSnapshots(t.volume)
	if claimed { // while the last steps were done
		if err := s.claim(r); err != nil {
			s.log.Warn("snapshot: it may be removed with what it was taken for", "volume", r.Volume, "snapshot", r.Name, "err", err)
		}
	}
	if len(r.Scheduled) > 0 {
		s.wakeRoom()
	}
	if taken.waitedLong() {
		s.log.Warn("snapshot: a change of the volume has waited long for it: 'podnas doctor' says what to do", "volume", r.Volume, "snapshot", r.Name,
			"waited", time.Duration(r.LongestWait)*time.Millisecond, "file", r.WaitedFor, "all waited", time.Duration(r.Paused)*time.Millisecond)
	}
	s.log.Info("snapshot: taken", "volume", r.Volume, "snapshot", r.Name, "files", r.Files, "bytes", FormatSize(r.Bytes),
		"linked", r.Linked, "at", r.Created, "took", r.Completed.Sub(t.began).Round(time.Millisecond))
	return taken, nil
}

// setComing says which snapshot is about to be complete, nil: none is after all.
func (s *Store) setComing(t *taking, coming *Snapshot) {
	s.mu.Lock()
	was := t.coming
	t.coming = coming
	s.mu.Unlock()
	if was != coming {
		s.showSnapshots(t.volume)
	}
}

// makeSnapshotTree has the server make the tree, and completes the record.
func (s *Store) makeSnapshotTree(ctx context.Context, t *taking, r *snapshotRecord) error {
	if err := s.discardWork(r.VolumeID); err != nil {
		return err
	}
	work, err := s.makeSnapshotDirs(r.VolumeID)
	if err != nil {
		return err
	}
	defer work.Close()
	s.step("snapshot's folders are made")
	taken, err := s.snapshotter.TakeSnapshot(ctx, t.volume, work, s.lastSnapshot(r.VolumeID), &t.progress)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return err
	}
	s.step("snapshot's tree is made")
	r.Created, r.Completed = taken.Cut.UTC(), time.Now().UTC().Truncate(time.Millisecond)
	r.Files, r.Bytes, r.Linked = taken.Files, taken.Bytes, taken.Linked
	if err := s.promise(t, r); err != nil {
		return err
	}
	s.mu.Lock()
	r.Unclaimed = t.unclaimed
	s.mu.Unlock()
	r.Expires = t.volume.Schedule.expiry(t.kinds, r.Created)
	r.Paused = t.progress.Paused.Load() / int64(time.Millisecond)
	r.LongestWait = t.progress.Waited.Load() / int64(time.Millisecond)
	if file := t.progress.WaitedFor.Load(); file != nil {
		r.WaitedFor = forRecord(*file)
	}
	return nil
}

// pathKept is how much of a path is in a record.
const pathKept = 1000

// forRecord is a path of a client as a record has it: JSON has no bytes that are not UTF-8.
func forRecord(path string) string {
	if len(path) > pathKept {
		path = "..." + path[len(path)-pathKept:]
	}
	return strings.ToValidUTF8(path, "\ufffd")
}

// lastSnapshot returns the latest snapshot of a volume, or nil.
func (s *Store) lastSnapshot(id uint64) *EarlierSnapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.lastSnapshotLocked(id)
	if last == nil {
		return nil
	}
	return &EarlierSnapshot{
		Tree: filepath.Join(s.root.Name(), last.tree()), Catalogue: filepath.Join(s.root.Name(), last.Catalogue()), Cut: last.Created,
	}
}

// lastSnapshotLocked returns the record of the latest snapshot of a volume, or nil.
//
// +checklocks:s.mu
func (s *Store) lastSnapshotLocked(id uint64) *snapshotRecord {
	var last *snapshotRecord
	for _, r := range s.snapshots[id] {
		if !r.deleting && (last == nil || last.Created.Before(r.Created)) {
			last = r
		}
	}
	return last
}

// makeSnapshotDirs makes the folders for snapshots of a volume, and opens that for work.
func (s *Store) makeSnapshotDirs(id uint64) (*os.File, error) {
	of := snapshotsOf(id)
	ready, work := path.Join(of, snapshotReady), path.Join(of, snapshotWork)
	for _, dir := range []string{snapshotsDir, of, ready, work} {
		if err := s.makeOwnDir(dir); err != nil {
			return nil, err
		}
	}
	// Clients see this one. The folders above it keep everybody else out.
	if err := s.root.Chmod(ready, 0o755); err != nil {
		return nil, err
	}
	return openDir(s.root, work)
}

// makeOwnDir makes a folder of podnas's own, unless it is there.
func (s *Store) makeOwnDir(p string) error {
	above, err := openDir(s.root, path.Dir(p))
	if err != nil {
		return err
	}
	defer above.Close()
	d, err := statedir.OpenIn(above, path.Base(p), s.room, s.log)
	if err != nil {
		return err
	}
	return d.Close()
}

// commitSnapshot makes a complete tree a snapshot.
func (s *Store) commitSnapshot(r *snapshotRecord) error {
	if err := writeJSON(s.root, s.room, r.file(), r); err != nil {
		return err
	}
	s.step("snapshot's record is written")
	work := path.Join(snapshotsOf(r.VolumeID), snapshotWork)
	if err := s.rename(path.Join(work, snapshotCatalogue), r.Catalogue()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	s.step("snapshot's catalogue is in its place")
	if err := s.moveTree(path.Join(work, snapshotTree), r.tree()); err != nil {
		return err
	}
	s.step("snapshot's tree is in its place")
	return errors.Join(syncDir(s.root, path.Dir(r.tree())), syncDir(s.root, work))
}

// undoSnapshot removes what there is of a snapshot that could not be taken.
func (s *Store) undoSnapshot(r *snapshotRecord) error {
	err := s.trashTree(r.tree(), r.Name)
	if err == nil {
		err = s.discardWork(r.VolumeID)
	}
	if err == nil {
		err = s.removeSnapshotRecord(r)
	}
	return err
}

// discardWork empties the folder in which snapshots of a volume are taken, in the background.
func (s *Store) discardWork(id uint64) error {
	return s.trashTree(path.Join(snapshotsOf(id), snapshotWork), "that was not completed")
}

// end ends the taking of a snapshot, for a reason, and waits for that.
func (t *taking) end(why error) {
	t.cancel(why)
	<-t.done
}

// endTaking ends the taking of a snapshot of a volume that is being deleted.
func (s *Store) endTaking(id uint64) {
	s.mu.Lock()
	t := s.takings[id]
	delete(s.takings, id)
	s.mu.Unlock()
	if t != nil {
		t.end(fmt.Errorf("%w: it is being deleted", ErrBusy))
	}
}
