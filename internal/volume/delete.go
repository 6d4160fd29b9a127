package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// unexportWarning is how long ending an export may take before a warning: longer
// than a call should take.
const unexportWarning = 10 * time.Second

// FateOfFiles says for people what happens to the volume's files when it is deleted. root is the
// directory of the disk.
func (v *Volume) FateOfFiles(root string) string {
	switch {
	case v.View:
		return "the snapshot that it shows stays"
	case v.OnDelete == ArchiveFiles:
		return v.Archived()
	case v.OnDelete == RetainFiles:
		return "its files stay in " + filepath.Join(root, v.Path) + v.restored()
	default:
		return "its files are removed in the background"
	}
}

// Archived says for people where the volume's files are when it is archived.
func (v *Volume) Archived() string { return "its files are in the archive" + v.restored() }

func (v *Volume) restored() string { return ", 'podnas volume adopt " + v.Name + "' restores it" }

// Delete deletes a volume: afterwards no client can access it. OnDelete determines
// what happens to its files; they are removed in the background, also after a
// restart. Its errors are ErrNotFound if there is no such volume, ErrRecord if its record
// can't be relied on, and ErrBusy while it is being copied, or a snapshot of it taken that somebody has asked for.
func (s *Store) Delete(ctx context.Context, name string) error { return s.remove(ctx, name, false) }

// Archive is Delete with ArchiveFiles as the OnDelete, which the volume has from then on, also when it is
// restored. It refuses an incomplete copy with ErrBusy.
func (s *Store) Archive(ctx context.Context, name string) error { return s.remove(ctx, name, true) }

func (s *Store) remove(ctx context.Context, name string, archive bool) error {
	unlock, err := s.names.lock(ctx, name)
	if err != nil {
		return err
	}
	defer unlock()
	if err := s.undoAgain(name); err != nil {
		return err
	}
	r, err := s.deleting(name, archive)
	if err != nil {
		return err
	}
	err = s.delete(r, archive)
	s.count(&s.activity.remove, name, err)
	s.mu.Lock()
	r.deleting = false
	s.mu.Unlock()
	if err != nil {
		return fmt.Errorf("delete volume %s: %w", name, err)
	}
	return nil
}

// deleting finds a volume that may be deleted, or archived. From then on it can't be copied.
func (s *Store) deleting(name string, archive bool) (r *record, err error) {
	defer s.explain(name, &err)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.failed, name)
	r = s.records[name]
	if r == nil || r.State != ready && r.State != copyingState && r.State != archived {
		return nil, notFound(name)
	}
	if archive && r.View {
		return nil, fmt.Errorf("volume %s: %w: delete it, which deletes no file", name, ErrView)
	}
	if archive && r.State == copyingState {
		return nil, fmt.Errorf("%w: %s is still being copied from %s; archive it after that", ErrBusy, name, r.source())
	}
	if target := s.copiedToLocked(name); target != nil {
		return nil, fmt.Errorf("%w: %s is being copied to %s; delete it after that", ErrBusy, name, target.Name)
	}
	// Whoever asked for a snapshot may delete the volume for it. What a schedule takes, or a restore, ends with the volume.
	if t := s.takings[r.ID]; t != nil && !t.ended() && len(t.kinds) == 0 && s.restorings[r.ID].busy() == nil {
		return nil, fmt.Errorf("%w: the snapshot %s of %s is being taken; delete it after that, or delete the snapshot", ErrBusy, t.name, name)
	}
	r.deleting = true
	return r, nil
}

// copiedToLocked returns a volume that another one is being copied to, or nil.
//
// +checklocks:s.mu
func (s *Store) copiedToLocked(name string) *record {
	for _, target := range s.records {
		if target.Source == name && target.SourceSnapshot == "" && (target.State == creating || target.State == copyingState) {
			return target
		}
	}
	return nil
}

// beingDeleted reports whether a volume is being deleted or archived.
func (s *Store) beingDeleted(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.records[name]
	return r != nil && r.deleting
}

func (s *Store) delete(r *record, archive bool) error {
	s.endCopy(r.Name)
	s.endRestoring(r.ID)
	s.endTaking(r.ID)
	if s.endMarking(r.Name) {
		defer func() {
			if v, err := s.Get(r.Name); err == nil && s.mayChange(v.Name) == nil { // its deletion failed
				s.startMarking(v)
			}
		}()
	}
	slow := time.AfterFunc(unexportWarning, func() {
		s.log.Warn("volume: can't be deleted yet, clients' calls are in progress", "volume", r.Name)
	})
	s.exports.Unexport(r.Volume)
	slow.Stop()
	switch {
	case r.View:
		return s.deleteView(r)
	case r.State == archived: // an earlier call has failed half way
		return s.archive(r)
	}
	gone := *r
	gone.deleting = false // adopted one day, it is not
	gone.Deleted = time.Now().UTC().Truncate(time.Millisecond)
	gone.Restoring, gone.RestoreSafety = "", "" // likewise, it has its files as they are
	if archive {
		gone.OnDelete = ArchiveFiles
	}
	switch {
	case r.State == copyingState: // it is incomplete
		return s.trash(&gone)
	case gone.OnDelete == ArchiveFiles:
		return s.toArchive(&gone)
	case gone.OnDelete == RetainFiles:
		return s.retain(&gone)
	}
	return s.trash(&gone)
}

// trash hands a volume to the emptier, which also moves its directory if that
// fails here. After a failed sync nobody knows whether the disk has its record in the trash: another call writes and
// moves the record once more.
func (s *Store) trash(r *record) error {
	if err := s.write(r); err != nil { // when it was deleted
		return errors.Join(err, s.exportAgain(r))
	}
	if err := s.rename(recordFile(r.Name), r.keptIn(trashDir)+".json"); err != nil {
		return errors.Join(err, s.exportAgain(r))
	}
	s.step("record is in the trash")
	if err := errors.Join(syncDir(s.root, trashDir), syncDir(s.root, volumesDir)); err != nil {
		return s.halfDeleted(r.Name, err)
	}
	err := s.moveToTrash(r)
	s.step("directory is in the trash")
	s.mu.Lock()
	r.inPlace = err != nil
	delete(s.records, r.Name)
	s.trashed = append(s.trashed, r)
	s.mu.Unlock()
	s.volumesEmptier.wakeUp()
	if err != nil {
		s.log.Error("volume: its directory can't be moved to the trash, will try again", "volume", r.Name, "err", err)
	}
	s.log.Info("volume: deleted, removing its files in the background", "volume", r.Name)
	return nil
}

// toArchive archives a volume's files, which frees its path.
func (s *Store) toArchive(r *record) error {
	next := *r
	next.State = archived
	if err := s.write(&next); err != nil {
		return errors.Join(err, s.exportAgain(r))
	}
	s.step("record is archived")
	s.mu.Lock()
	s.records[r.Name] = &next
	s.mu.Unlock()
	return s.archive(&next)
}

// archive moves the directory, then the record, of a volume to the archive. If it
// is interrupted, the next Open continues.
func (s *Store) archive(r *record) error {
	if err := s.moveDir(r.Path, r.keptIn(archiveDir)); err != nil {
		return err
	}
	s.step("directory is in the archive")
	if err := s.rename(recordFile(r.Name), r.keptIn(archiveDir)+".json"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	s.step("record is in the archive")
	if err := errors.Join(syncDir(s.root, archiveDir), syncDir(s.root, volumesDir)); err != nil {
		return err
	}
	s.mu.Lock()
	delete(s.records, r.Name)
	s.archived = append(s.archived, r)
	s.mu.Unlock()
	s.log.Info("volume: archived", "volume", r.Name, "files", r.keptIn(archiveDir))
	return nil
}

// retain keeps a volume's files where they are.
func (s *Store) retain(r *record) error {
	if err := s.enter(r, retained); err != nil {
		return errors.Join(err, s.exportAgain(r))
	}
	s.mu.Lock()
	s.records[r.Name] = r
	s.mu.Unlock()
	s.log.Info("volume: deleted, keeping its files", "volume", r.Name, "files", r.Path)
	return nil
}

// errHalfDeleted is why a volume is not served of whose record the disk may have the deletion.
var errHalfDeleted = errors.New("its deletion may not be on the disk")

// halfDeleted keeps a volume whose deletion could not be synced, to be deleted again: err is why. Its record must not be
// written meanwhile, as there may be one in the trash, too.
func (s *Store) halfDeleted(name string, err error) error {
	err = fmt.Errorf("%w: %w", errHalfDeleted, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.records[name]; r != nil {
		r.unserved = err
	}
	return err
}

// mayChange refuses to change the record of a volume that is half deleted.
func (s *Store) mayChange(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.records[name]; r != nil && errors.Is(r.unserved, errHalfDeleted) {
		return fmt.Errorf("volume %s: %w: %w", name, ErrBusy, r.unserved)
	}
	return nil
}

// exportAgain serves a volume whose deletion failed.
func (s *Store) exportAgain(r *record) error {
	if r.State != ready || r.unserved != nil {
		return nil
	}
	err := s.export(r.Volume)
	s.resumeRestore(r.Name) // which endRestoring has ended
	return err
}
