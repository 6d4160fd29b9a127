package volume

import (
	"context"
	"errors"
	"fmt"
)

// Somebody may have a snapshot taken, and be gone before it is known that the snapshot is there: a VolumeSnapshot that is deleted
// meanwhile. Its record says that until the snapshot is claimed, so that the next process knows it, too. Of a snapshot that
// was claimed once, only who has it knows whether it is needed.

// UnclaimedSnapshot names a snapshot for DeleteSnapshot.
type UnclaimedSnapshot struct{ Volume, Name string }

// StartUnclaimed is StartSnapshot for somebody who calls ClaimSnapshot when it is known that the snapshot is there.
func (s *Store) StartUnclaimed(ctx context.Context, volume, name string) (SnapshotUnderWay, error) {
	t, err := s.startSnapshot(ctx, volume, snapshotSpec{name: name, unclaimed: true})
	if err != nil {
		return SnapshotUnderWay{}, err
	}
	return t.underWay(), nil
}

// Unclaimed lists the snapshots that nobody has claimed, also those that are being taken.
func (s *Store) Unclaimed() (all []UnclaimedSnapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.takings {
		if t.unclaimed && !t.ended() {
			all = append(all, UnclaimedSnapshot{t.volume.Name, t.name})
		}
	}
	for _, of := range s.snapshots {
		for _, r := range of {
			if r.Unclaimed && !r.deleting {
				all = append(all, UnclaimedSnapshot{r.volume(), r.Name})
			}
		}
	}
	return all
}

// ClaimSnapshot claims a snapshot, which may have been claimed already, or is being taken. The error is ErrNoSnapshot if there is
// none.
func (s *Store) ClaimSnapshot(volume, name string) error {
	s.mu.Lock()
	r := s.findSnapshotLocked(volume, name)
	taken := false
	if v := s.records[volume]; v != nil {
		if t := s.takings[v.ID]; t != nil && t.name == name && !t.ended() {
			t.unclaimed, taken = false, true
		}
	}
	claimed := r != nil && !r.Unclaimed
	s.mu.Unlock()
	switch {
	case claimed, r == nil && taken:
		return nil
	case r == nil:
		return fmt.Errorf("snapshot %s of volume %s: %w", name, volume, ErrNoSnapshot)
	}
	return s.claim(r)
}

// claim claims a complete snapshot.
func (s *Store) claim(r *snapshotRecord) error {
	s.mu.Lock()
	next, deleting := *r, r.deleting
	s.mu.Unlock()
	if deleting {
		return errors.Join(ErrNoSnapshot, errors.New("it is being deleted"))
	}
	next.Unclaimed = false
	if err := writeJSON(s.root, s.room, r.file(), &next); err != nil {
		return fmt.Errorf("claim snapshot %s of volume %s: %w", r.Name, r.Volume, err)
	}
	s.mu.Lock()
	r.Unclaimed = false
	s.mu.Unlock()
	return nil
}
