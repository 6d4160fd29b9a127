package volume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/podnas/podnas/quota"
)

// Kept lists the deleted volumes whose files were kept, oldest first.
func (s *Store) Kept() ([]Kept, error) {
	s.mu.Lock()
	var kept []Kept
	for _, r := range s.archived {
		kept = append(kept, r.kept())
	}
	for _, r := range s.records {
		if r.State == retained {
			kept = append(kept, r.kept())
		}
	}
	s.mu.Unlock()
	slices.SortFunc(kept, Kept.compare)
	return kept, nil
}

func (r *record) kept() Kept { return Kept{r.Volume, string(r.State), r.Deleted} }

// compare orders kept volumes by when they were deleted. The order is the same after a restart, so Adopt and Discard take as the latest
// of a name the one that was shown as that.
func (k Kept) compare(other Kept) int {
	return cmp.Or(k.Since.Compare(other.Since), cmp.Compare(k.ID, other.ID))
}

// Discard removes the files of an archived or retained volume (the latest of that
// name) in the background. The error is ErrNotFound if there is none.
func (s *Store) Discard(ctx context.Context, name string) error {
	unlock, err := s.names.lock(ctx, name)
	if err != nil {
		return err
	}
	defer unlock()
	_, kept := s.keptRecord(name)
	switch {
	case kept == nil:
		return fmt.Errorf("%s, archived or retained: %w", name, ErrNotFound)
	case kept.State == retained:
		gone := *kept
		err = s.trash(&gone)
	default:
		err = s.unarchiveToTrash(kept)
	}
	if err != nil {
		return fmt.Errorf("discard volume %s: %w", name, err)
	}
	return nil
}

// keptRecord returns the record with a name, and the latest one that is kept with it, which may be the same.
func (s *Store) keptRecord(name string) (r, kept *record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept = s.records[name]
	if kept != nil && kept.State != retained {
		kept = nil
	}
	for _, a := range s.archived {
		if a.Name == name && (kept == nil || kept.kept().compare(a.kept()) < 0) {
			kept = a
		}
	}
	return s.records[name], kept
}

// unarchiveToTrash hands an archived volume to the emptier, which moves its
// directory.
func (s *Store) unarchiveToTrash(r *record) error {
	if err := s.moveDir(r.keptIn(archiveDir), r.keptIn(trashDir)); err != nil {
		return err
	}
	s.step("directory is in the trash")
	if err := s.rename(r.keptIn(archiveDir)+".json", r.keptIn(trashDir)+".json"); err != nil {
		if _, moved := s.root.Lstat(r.keptIn(trashDir) + ".json"); moved != nil { // by an earlier call, which could not sync that
			return err
		}
	}
	s.step("record is in the trash")
	if err := errors.Join(syncDir(s.root, trashDir), syncDir(s.root, archiveDir)); err != nil {
		return err
	}
	s.mu.Lock()
	s.archived = slices.DeleteFunc(s.archived, func(a *record) bool { return a == r })
	s.trashed = append(s.trashed, r)
	s.mu.Unlock()
	s.volumesEmptier.wakeUp()
	return nil
}

// adoptAtOnce is how long an Adopt assigns files before it leaves the rest to the background.
const adoptAtOnce = 10 * time.Second

// Adopt makes a volume from existing files: a retained or archived volume of that
// name (the latest one), or the directory Spec.Path, if it has no record. Files
// do not change, but see quota.AssignTree. For a kept volume only the spec's claim
// and manifest are used, or its Restore, and its size if that is larger.
//
// If the files of a directory take more than the size, the error is ErrInvalid. But
// where there are so many that they can't be assigned to the volume's project within
// adoptAtOnce, the volume is served, and they are assigned in the background (see
// Marking): if they take more than the size, clients can add nothing until it is raised.
func (s *Store) Adopt(ctx context.Context, spec Spec) (Volume, error) {
	if spec.Path == "" {
		spec.Path = spec.Name
	}
	unlock, err := s.names.lock(ctx, spec.Name)
	if err != nil {
		return Volume{}, err
	}
	v, err := s.adoptLocked(ctx, &spec)
	unlock()
	if err == nil && spec.Size > v.Size {
		return s.Resize(ctx, v.Name, spec.Size, 0)
	}
	return v, err
}

// adoptLocked is Adopt for callers that hold the name's lock.
func (s *Store) adoptLocked(ctx context.Context, spec *Spec) (Volume, error) {
	if err := s.mayChange(spec.Name); err != nil {
		return Volume{}, err
	}
	if err := s.undoAgain(spec.Name); err != nil {
		return Volume{}, err
	}
	if err := s.archiveAgain(spec.Name); err != nil {
		return Volume{}, err
	}
	r, kept := s.keptRecord(spec.Name)
	if r != nil && r.State != retained {
		return Volume{}, fmt.Errorf("volume %s: %w: there is nothing to adopt", r.Name, ErrExists)
	}
	if kept != nil {
		return s.adoptKept(kept, spec)
	}
	if err := validPath(spec.Path); err != nil {
		return Volume{}, err
	}
	if err := s.plainDir(spec.Path); err != nil {
		return Volume{}, fmt.Errorf("%s: %w: it is neither archived nor retained, and there is no directory %s to adopt: %w", spec.Name, ErrNotFound, spec.Path, err)
	}
	if spec.Size == 0 {
		return Volume{}, fmt.Errorf("%w: an adopted directory needs a size", ErrInvalid)
	}
	if err := spec.validate(); err != nil {
		return Volume{}, err
	}
	if err := s.exports.Check(spec.Options); err != nil {
		return Volume{}, err
	}
	if err := s.servable(spec.Path); err != nil {
		return Volume{}, fmt.Errorf("adopt %s: %w", spec.Path, err)
	}
	r = newRecord(adopting, spec)
	if err := s.reserve(r, spec); err != nil {
		return Volume{}, err
	}
	err := s.write(r)
	if err == nil {
		s.step("record is adopting")
		err = s.adopt(ctx, r)
	}
	if err != nil {
		return Volume{}, errors.Join(fmt.Errorf("adopt %s: %w", spec.Path, err), s.forget(r))
	}
	return r.Volume, nil
}

// adopt assigns the files of a volume to its project and serves it.
func (s *Store) adopt(ctx context.Context, r *record) error {
	marked, err := s.assignAdopted(ctx, r)
	if err != nil {
		return err
	}
	if err := s.enter(r, ready); err != nil {
		return err
	}
	if !marked {
		s.startMarking(r.Volume)
	}
	s.log.Info("volume: adopted", "volume", r.Name, "path", r.Path, "size", FormatSize(r.Size))
	return nil
}

// assignAdopted assigns the files of a directory to the project of its new volume, and sets the limit. If there are too many for
// that, marked is false: then call startMarking when the volume is served.
func (s *Store) assignAdopted(ctx context.Context, r *record) (marked bool, err error) {
	if r.Project == 0 || s.quota == nil {
		return true, nil
	}
	dir, err := openDir(s.root, r.Path)
	if err != nil {
		return false, err
	}
	defer dir.Close()
	ctx, cancel := context.WithTimeout(ctx, s.adoptAtOnce)
	defer cancel()
	files, err := s.quota.AssignTree(ctx, dir, r.Project)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		s.step("project is assigned to some files")
		s.log.Info("volume: adopting a directory of many files, which are assigned to its project in the background; its size is not enforced until then", "volume", r.Name, "project", r.Project)
		return false, nil
	}
	if err != nil {
		return false, err
	}
	s.step("project is assigned")
	// Only now, because the existing files may exceed it.
	u, err := s.quota.Usage(r.Project)
	if err != nil {
		return false, err
	}
	if u.Bytes > r.Size {
		return false, fmt.Errorf("%w: its files take %s, more than %s", ErrInvalid, FormatSize(u.Bytes), FormatSize(r.Size))
	}
	if err := s.limitInodes(&r.Volume, u.Inodes, s.log.With("volume", r.Name)); err != nil {
		return false, err
	}
	if err := s.quota.SetLimit(r.Project, r.limit()); err != nil {
		return false, err
	}
	s.step("limit is set")
	s.log.Info("volume: files assigned to its project", "volume", r.Name, "files", files, "project", r.Project)
	return true, nil
}

// forget undoes the adoption of a directory, which does not change, or the creation of a view.
func (s *Store) forget(r *record) error {
	if r.Project != 0 && s.quota != nil {
		if err := s.quota.SetLimit(r.Project, quota.Limit{}); err != nil {
			return err
		}
	}
	if err := s.root.Remove(recordFile(r.Name)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	s.step("record is removed")
	if err := syncDir(s.root, volumesDir); err != nil {
		return err
	}
	s.mu.Lock()
	delete(s.records, r.Name)
	delete(s.projects, r.Project)
	if r.View {
		s.forgetViewLocked(r)
	}
	s.mu.Unlock()
	return nil
}

// adoptKept serves an archived or retained volume again.
func (s *Store) adoptKept(r *record, spec *Spec) (Volume, error) {
	next, err := r.again(spec)
	if err != nil {
		return Volume{}, err
	}
	if r.State == archived {
		return s.unarchive(r, next)
	}
	return s.revive(r, next)
}

// revive serves the volume of a retained record r again, with the record next.
func (s *Store) revive(r, next *record) (Volume, error) {
	if err := s.servable(r.Path); err != nil {
		return Volume{}, fmt.Errorf("adopt %s: %w", r.Path, err)
	}
	next.Handles = cmp.Or(next.Handles, s.earlierHandles)
	var u quota.Usage
	if s.quota != nil && next.Project != 0 {
		var err error
		if u, err = s.quota.Usage(next.Project); err != nil {
			return Volume{}, err
		}
	}
	marked, err := s.restoreLimit(next, u, s.log.With("volume", r.Name))
	if err != nil {
		return Volume{}, err
	}
	next.Deleted = time.Time{}
	if err := s.enter(next, ready); err != nil {
		return Volume{}, errors.Join(fmt.Errorf("adopt %s: %w", r.Name, err), s.write(r)) // the disk may have it as ready
	}
	s.mu.Lock()
	s.records[r.Name] = next
	s.mu.Unlock()
	if !marked {
		s.startMarking(next.Volume)
	}
	s.log.Info("volume: restored", "volume", r.Name)
	return next.Volume, nil
}

// again returns the new record of a kept volume that is adopted. Until it is ready, it says
// when it was deleted.
func (r *record) again(spec *Spec) (*record, error) {
	next := *r
	next.Claim = spec.Claim
	if spec.Manifest != nil {
		next.Manifest = spec.Manifest
	}
	if spec.Restore != nil {
		manifest, err := spec.Restore(r.Volume)
		if err != nil {
			return nil, err
		}
		next.Manifest = manifest
	}
	return &next, nil
}

// unarchive moves an archived volume back to its path and serves it, with the record next. If that fails, it is in the archive
// again.
func (s *Store) unarchive(r, next *record) (Volume, error) {
	at := s.lookAt(r.Name, r.Path)
	s.mu.Lock()
	err := s.checkFreeLocked(&at)
	if err == nil {
		err = s.checkAboveLocked(&at)
	}
	if err == nil {
		err = refusal(r.Name, at.refused)
	}
	switch {
	case err != nil:
	case !errors.Is(at.noDir, os.ErrNotExist):
		err = fmt.Errorf("directory %s: %w: move it away", r.Path, errors.Join(ErrExists, at.noDir))
	case !errors.Is(at.noRecord, os.ErrNotExist):
		err = fmt.Errorf("file %s: %w: move it away", recordFile(r.Name), errors.Join(ErrExists, at.noRecord))
	default:
		s.records[r.Name] = r // reserves the path
		s.archived = slices.DeleteFunc(s.archived, func(a *record) bool { return a == r })
	}
	s.mu.Unlock()
	if err != nil {
		return Volume{}, err
	}
	if err := s.moveBack(r); err != nil {
		return Volume{}, errors.Join(fmt.Errorf("adopt %s: %w", r.Name, err), s.archive(r))
	}
	v, err := s.revive(r, next)
	if err != nil {
		return Volume{}, errors.Join(err, s.toArchive(r))
	}
	return v, nil
}

// archiveAgain completes the way of a volume to the archive, if a call before could not, as on a disk that was read-only for a
// moment.
func (s *Store) archiveAgain(name string) error {
	s.mu.Lock()
	r := s.records[name]
	s.mu.Unlock()
	if r == nil || r.State != archived {
		return nil
	}
	move := s.archive
	if _, err := s.root.Lstat(recordFile(name)); err == nil { // it may say ready
		move = s.toArchive
	}
	if err := move(r); err != nil {
		return fmt.Errorf("volume %s: %w: it can't be moved to the archive, where it belongs: %w", name, ErrBusy, err)
	}
	return nil
}

// moveBack moves the record and the directory of an archived volume to those of
// served volumes. Until its state changes, the next Open archives it again.
func (s *Store) moveBack(r *record) error {
	if err := s.rename(r.keptIn(archiveDir)+".json", recordFile(r.Name)); err != nil {
		return err
	}
	s.step("record is back")
	if err := errors.Join(syncDir(s.root, volumesDir), syncDir(s.root, archiveDir)); err != nil {
		return err
	}
	if err := s.moveDir(r.keptIn(archiveDir), r.Path); err != nil {
		return err
	}
	s.step("directory is back")
	return nil
}
