package volume

import (
	"context"
	"fmt"
)

// Resize makes a volume larger, while it is in use. ErrShrink, ErrNotFound,
// *NoSpaceError if what it would get more does not fit.
func (s *Store) Resize(ctx context.Context, name string, size int64) (Volume, error) {
	v, raised, err := s.resize(ctx, name, size)
	if raised || err != nil {
		s.activity.resize.count(err)
	}
	return v, err
}

// resize is Resize. It tells whether this call has made the volume larger.
func (s *Store) resize(ctx context.Context, name string, size int64) (v Volume, raised bool, err error) {
	free, err := s.Free()
	if err != nil {
		return Volume{}, false, err
	}
	capacity, err := s.Capacity()
	if err != nil {
		return Volume{}, false, err
	}
	v, err = s.change(ctx, name, func(v *Volume) error {
		more := size - v.Size
		switch {
		case more < 0:
			return fmt.Errorf("%w: volume %s has %s, %s are asked for", ErrShrink, name, FormatSize(v.Size), FormatSize(size))
		case more > free:
			return &NoSpaceError{Requested: more, Free: free}
		}
		v.Size, raised = size, more > 0
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.promise(more, capacity, 0)
	})
	if err != nil {
		return Volume{}, false, err
	}
	// After the record, whose size the next Open makes hold. Also when nothing
	// was changed: an earlier call may have come as far as the record. Where the
	// files are still to be put under the project, the limit is set after that.
	if s.quota != nil && v.Project != 0 && !s.beingMarked(name) {
		if err := s.quota.SetLimit(v.Project, uint64(v.Size)); err != nil {
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
