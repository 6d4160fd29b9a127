package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// volumeMode lets pods of every user write, as their claims promise. The sticky
// bit is not set: whoever can reach the volume owns it.
const volumeMode = 0o777

// Create makes a volume, or returns the one that an earlier call made from the
// same spec. Its errors are ErrInvalid, ErrExists, *NoSpaceError, or what the
// disk answered; after an error nothing is left of the volume.
func (s *Store) Create(ctx context.Context, spec Spec) (Volume, error) {
	if err := spec.validate(); err != nil {
		return Volume{}, err
	}
	unlock, err := s.names.lock(ctx, spec.Name)
	if err != nil {
		return Volume{}, err
	}
	defer unlock()

	if v, err := s.Get(spec.Name); err == nil {
		if v.Size != spec.Size {
			return Volume{}, fmt.Errorf("volume %s: %w with %s, not %s", v.Name, ErrExists, FormatSize(v.Size), FormatSize(spec.Size))
		}
		return v, nil
	}
	free, err := s.Free()
	if err != nil {
		return Volume{}, err
	}
	if spec.Size > free {
		return Volume{}, &NoSpaceError{Requested: spec.Size, Free: free}
	}
	if _, err := s.root.Lstat(spec.Name); !errors.Is(err, os.ErrNotExist) {
		return Volume{}, fmt.Errorf("directory %s: %w and is no volume: move it away", spec.Name, errors.Join(ErrExists, err))
	}

	r := &record{State: creating, Volume: Volume{
		ID:      newID(),
		Name:    spec.Name,
		Path:    spec.Name,
		Size:    spec.Size,
		Claim:   spec.Claim,
		Created: time.Now().UTC().Truncate(time.Second),
	}}
	s.mu.Lock()
	r.Project, err = s.newProject()
	s.mu.Unlock()
	if err == nil {
		err = s.create(r)
	}
	if err != nil {
		return Volume{}, errors.Join(fmt.Errorf("create volume %s: %w", spec.Name, err), s.undo(r))
	}
	s.log.Info("volume: created", "volume", r.Name, "size", FormatSize(r.Size), "project", r.Project)
	return r.Volume, nil
}

// create takes the steps of the package comment.
func (s *Store) create(r *record) error {
	if err := writeJSON(s.root, recordFile(r.Name), r); err != nil {
		return err
	}
	if err := s.root.Mkdir(r.Path, 0o700); err != nil {
		return err
	}
	dir, err := s.root.Open(r.Path)
	if err != nil {
		return err
	}
	defer dir.Close()
	if r.Project != 0 {
		if err := s.quota.Assign(dir, r.Project); err != nil {
			return err
		}
		if err := s.quota.SetLimit(r.Project, uint64(r.Size)); err != nil {
			return err
		}
	}
	// After Mkdir, whose mode the umask narrows.
	if err := dir.Chmod(volumeMode); err != nil {
		return err
	}
	if err := errors.Join(dir.Sync(), syncDir(s.root, ".")); err != nil {
		return err
	}
	r.State = ready
	if err := writeJSON(s.root, recordFile(r.Name), r); err != nil {
		return err
	}
	if err := s.exports.Export(r.Volume); err != nil {
		return err
	}
	s.mu.Lock()
	s.records[r.Name] = r
	s.mu.Unlock()
	return nil
}

// undo removes what create has made. No client has seen the volume, so its
// directory is empty; should it not be, it is kept with its record, and the
// error says so.
func (s *Store) undo(r *record) error {
	err := s.root.Remove(r.Path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("undo the creation of volume %s: %w", r.Name, err)
	}
	if r.Project != 0 && s.quota != nil {
		if err := s.quota.SetLimit(r.Project, 0); err != nil {
			return err
		}
	}
	err = s.root.Remove(recordFile(r.Name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("undo the creation of volume %s: %w", r.Name, err)
	}
	s.releaseProject(r.Project)
	return errors.Join(syncDir(s.root, volumesDir), syncDir(s.root, "."))
}

// releaseProject lets newProject look at a project again. The kernel may still
// count removed files for it; newProject asks.
func (s *Store) releaseProject(id uint32) {
	s.mu.Lock()
	delete(s.projects, id)
	s.mu.Unlock()
}

// Release keeps a volume that its claim has let go: it belongs to nobody from
// then on, and stays served until it is deleted.
func (s *Store) Release(ctx context.Context, name string) error {
	unlock, err := s.names.lock(ctx, name)
	if err != nil {
		return err
	}
	defer unlock()
	v, err := s.Get(name)
	if err != nil || v.Claim == nil {
		return err
	}
	v.Claim = nil
	r := &record{State: ready, Volume: v}
	if err := writeJSON(s.root, recordFile(name), r); err != nil {
		return err
	}
	s.mu.Lock()
	s.records[name] = r
	s.mu.Unlock()
	s.log.Info("volume: released by its claim, kept", "volume", name)
	return nil
}
