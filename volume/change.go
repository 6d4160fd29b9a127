package volume

import (
	"cmp"
	"context"
	"fmt"
)

// Resize makes a volume larger, while it is in use, and its inode limit with it.
// bytesPerInode, if not 0, is what the volume has from then on. ErrShrink,
// ErrNotFound, *NoSpaceError if what it would get more does not fit.
func (s *Store) Resize(ctx context.Context, name string, size, bytesPerInode int64) (Volume, error) {
	v, raised, err := s.resize(ctx, name, size, bytesPerInode)
	if raised || err != nil {
		s.count(&s.activity.resize, name, err)
	}
	return v, err
}

// resize is Resize. It tells whether this call has made the volume larger.
func (s *Store) resize(ctx context.Context, name string, size, bytesPerInode int64) (v Volume, raised bool, err error) {
	if err := checkBytesPerInode(bytesPerInode); err != nil {
		return Volume{}, false, err
	}
	space, err := s.Space()
	if err != nil {
		return Volume{}, false, err
	}
	// Until the limits are set: another Resize must not set its own before.
	unlock, err := s.names.lock(ctx, name)
	if err != nil {
		return Volume{}, false, err
	}
	defer unlock()
	v, err = s.changeLocked(name, func(v *Volume) error {
		more := size - v.Size
		switch {
		case more < 0:
			return fmt.Errorf("%w: volume %s has %s, and %s is requested", ErrShrink, name, FormatSize(v.Size), FormatSize(size))
		case more > space.Free:
			return &NoSpaceError{Requested: more, Free: space.Free}
		}
		v.Size, v.BytesPerInode = size, cmp.Or(bytesPerInode, v.BytesPerInode)
		if v.Inodes != 0 { // else they are still to be counted
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
		return s.promise(more, space.Size, s.overcommit)
	})
	if err != nil {
		return Volume{}, false, err
	}
	// After the record, whose size the next Open makes hold. Also when nothing
	// was changed: an earlier call may have come as far as the record. Where the
	// files are still to be put under the project, the limit is set after that.
	if s.quota != nil && v.Project != 0 && !s.beingMarked(name) {
		if err := s.quota.SetLimit(v.Project, v.limit()); err != nil {
			return Volume{}, false, err
		}
	}
	if s.counter != nil {
		s.counter.SetLimit(v)
	}
	return v, raised, nil
}

// Claim makes a volume belong to a claim from then on.
func (s *Store) Claim(ctx context.Context, name string, claim *Claim) (Volume, error) {
	return s.change(ctx, name, func(v *Volume) error {
		v.Claim = claim
		return nil
	})
}

// Release keeps a volume that its claim has let go: it belongs to nobody from
// then on, and stays served until it is deleted.
func (s *Store) Release(ctx context.Context, name string) error {
	_, err := s.Claim(ctx, name, nil)
	return err
}

// SetManifest keeps what the volume's maker wants to know of it.
func (s *Store) SetManifest(ctx context.Context, name string, manifest []byte) (Volume, error) {
	return s.change(ctx, name, func(v *Volume) error {
		v.Manifest = manifest
		return nil
	})
}

// change changes the record of a volume that is served.
func (s *Store) change(ctx context.Context, name string, f func(*Volume) error) (Volume, error) {
	unlock, err := s.names.lock(ctx, name)
	if err != nil {
		return Volume{}, err
	}
	defer unlock()
	return s.changeLocked(name, f)
}

// changeLocked is change for who has locked the name.
func (s *Store) changeLocked(name string, f func(*Volume) error) (Volume, error) {
	v, err := s.Get(name)
	if err != nil {
		return Volume{}, err
	}
	if err := f(&v); err != nil {
		return Volume{}, err
	}
	r := &record{State: ready, Volume: v}
	if err := s.write(r); err != nil {
		return Volume{}, fmt.Errorf("change volume %s: %w", name, err)
	}
	s.step("record is changed")
	s.mu.Lock()
	s.records[name] = r
	s.mu.Unlock()
	return v, nil
}
