package volume

import (
	"cmp"
	"context"
	"fmt"
)

// Resize increases the size of a volume, which may be in use, and its inode limit.
// bytesPerInode, if not 0, replaces the volume's. Its errors are ErrShrink,
// ErrNotFound, and *NoSpaceError if there is too little space for the increase.
func (s *Store) Resize(ctx context.Context, name string, size, bytesPerInode int64) (Volume, error) {
	v, raised, err := s.resize(ctx, name, size, bytesPerInode)
	if raised || err != nil {
		s.count(&s.activity.resize, name, err)
	}
	return v, err
}

// resize is Resize. raised is whether this call increased the size.
func (s *Store) resize(ctx context.Context, name string, size, bytesPerInode int64) (v Volume, raised bool, err error) {
	if err := checkBytesPerInode(bytesPerInode); err != nil {
		return Volume{}, false, err
	}
	space, err := s.Space()
	if err != nil {
		return Volume{}, false, err
	}
	// Held until the limits are set: another Resize must not set its limits in
	// between.
	unlock, err := s.names.lock(ctx, name)
	if err != nil {
		return Volume{}, false, err
	}
	defer unlock()
	v, err = s.changeLocked(name, func(v *Volume) error {
		more := size - v.Size
		switch {
		case v.View && (more > 0 || bytesPerInode != 0):
			return fmt.Errorf("volume %s: %w, so it can't be expanded: for more room make a copy of the snapshot, a claim of it with ReadWriteMany", name, ErrView)
		case more < 0:
			return fmt.Errorf("%w: volume %s has %s, and %s is requested", ErrShrink, name, FormatSize(v.Size), FormatSize(size))
		case more > space.Free:
			return &NoSpaceError{Requested: more, Free: space.Free}
		}
		v.Size, v.BytesPerInode = size, cmp.Or(bytesPerInode, v.BytesPerInode)
		if v.Inodes != 0 { // otherwise they are still being counted
			inodes := space.inodesFor(size, v.BytesPerInode, s.overcommit)
			if bytesPerInode != 0 && inodes < v.Inodes {
				return fmt.Errorf("%w: volume %s may have %d inodes, and one for each %s would be %d", ErrShrink, name, v.Inodes, FormatSize(bytesPerInode), inodes)
			}
			raised = inodes > v.Inodes
			v.Inodes = max(v.Inodes, inodes)
		}
		raised = raised || more > 0
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.promiseLocked(more, space.Size, s.overcommit)
	})
	if err != nil {
		return Volume{}, false, err
	}
	// Set the limits after the record, whose size the next Open enforces; even if
	// nothing changed, because an earlier call may have written the record only. While
	// the files are still being assigned to the project, or the volume is restored, the limit is set after that.
	if !s.beingMarked(name) && !s.beingRestored(name) {
		if err := s.limit(v, v.limit()); err != nil {
			return Volume{}, false, err
		}
	}
	if s.counter != nil {
		s.counter.SetLimit(v)
	}
	return v, raised, nil
}

// Claim assigns a volume to a claim.
func (s *Store) Claim(ctx context.Context, name string, claim *Claim) (Volume, error) {
	return s.change(ctx, name, func(v *Volume) error {
		v.Claim = claim
		return nil
	})
}

// Release removes a volume's claim: the volume is served without a claim until it
// is deleted.
func (s *Store) Release(ctx context.Context, name string) error {
	_, err := s.Claim(ctx, name, nil)
	return err
}

// SetManifest sets the manifest in the volume's record.
func (s *Store) SetManifest(ctx context.Context, name string, manifest []byte) (Volume, error) {
	return s.change(ctx, name, func(v *Volume) error {
		v.Manifest = manifest
		return nil
	})
}

// change changes the record of a served volume.
func (s *Store) change(ctx context.Context, name string, f func(*Volume) error) (Volume, error) {
	unlock, err := s.names.lock(ctx, name)
	if err != nil {
		return Volume{}, err
	}
	defer unlock()
	return s.changeLocked(name, f)
}

// changeLocked is change for callers that hold the name's lock.
func (s *Store) changeLocked(name string, f func(*Volume) error) (Volume, error) {
	v, err := s.Get(name)
	if err == nil {
		err = s.mayChange(name)
	}
	if err != nil {
		return Volume{}, err
	}
	if err := f(&v); err != nil {
		return Volume{}, err
	}
	s.mu.Lock()
	was := s.records[name]
	r := &record{
		State: ready, Volume: v, unknown: was.unknown, unserved: was.unserved, Restoring: was.Restoring, RestoreSafety: was.RestoreSafety,
	}
	s.mu.Unlock()
	if err := s.write(r); err != nil {
		return Volume{}, fmt.Errorf("change volume %s: %w", name, err)
	}
	s.step("record is changed")
	s.mu.Lock()
	s.records[name] = r
	s.mu.Unlock()
	return v, nil
}
