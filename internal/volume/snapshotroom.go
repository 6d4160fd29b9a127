package volume

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A snapshot shares its blocks with its volume, so it takes room as the volume's files change: at worst, as much as they had. For
// one that somebody has asked for, that much is promised, so that a volume within its size does not meet a full disk because of it: the
// disk must have it free, and with an overcommit it counts in the sum of what is promised. Volume.SnapshotReserve is which part of it. One
// that a schedule has taken needs no promise, as it goes when the disk fills up (giveroom.go).

// snapshotReserveDefault is Volume.SnapshotReserve in percent, if it has none: all of it.
const snapshotReserveDefault = 100

// ParseSnapshotReserve parses a percentage, such as "20%" or "0".
func ParseSnapshotReserve(text string) (percent int, err error) {
	number, isPercent := strings.CutSuffix(strings.TrimSpace(text), "%")
	percent, err = strconv.Atoi(strings.TrimSpace(number))
	if err != nil || !isPercent && percent != 0 || checkSnapshotReserve(percent) != nil {
		return 0, fmt.Errorf(`%q is no part of what a volume uses: use "100%%", a smaller percentage, or "0" to promise nothing`, text)
	}
	return percent, nil
}

func checkSnapshotReserve(percent int) error {
	if percent < 0 || percent > 100 {
		return fmt.Errorf("%w: a reserve for snapshots of %d%%; it must be from 0%% to 100%%", ErrInvalid, percent)
	}
	return nil
}

// ReservePercent is the part of what the volume uses that is promised for each snapshot, in percent.
func (v *Volume) ReservePercent() int {
	if v.SnapshotReserve == nil {
		return snapshotReserveDefault
	}
	return *v.SnapshotReserve
}

// reserveFor is what is promised for a snapshot of so many bytes.
func (v *Volume) reserveFor(bytes int64) int64 {
	percent := int64(v.ReservePercent())
	return bytes/100*percent + bytes%100*percent/100
}

// SnapshotSpaceError means that there is too little space for what a snapshot may come to take.
type SnapshotSpaceError struct {
	Volume string
	Space  NoSpaceError
}

func (e *SnapshotSpaceError) Error() string {
	return fmt.Sprintf("a snapshot of volume %s may come to take as much as the volume uses, when all of that changes: %s. "+
		"Delete snapshots or files, make the disk larger, or promise less: 'podnas volume set %[1]s --snapshot-reserve 20%%', or 0", e.Volume, e.Space.Error())
}

// Unwrap makes it a *NoSpaceError.
func (e *SnapshotSpaceError) Unwrap() error { return &e.Space }

// findRoom checks that there is room for a snapshot that is to be taken, and says how much is to be promised for it: nothing, if it is
// scheduled.
func (s *Store) findRoom(t *taking) error {
	space, err := s.Space()
	if err != nil {
		return err
	}
	if len(t.kinds) > 0 {
		return space.enough()
	}
	u, err := s.Usage(t.volume.Name)
	if err != nil {
		return err
	}
	t.reserve, t.capacity = t.volume.reserveFor(u.Bytes), space.Size
	t.uncounted = u.Limit.Bytes == 0 || u.Partial
	if t.reserve > space.Free {
		return &SnapshotSpaceError{t.volume.Name, NoSpaceError{Requested: t.reserve, Free: space.Free}}
	}
	return nil
}

// promise sets what is promised for a snapshot whose files are known now. If nobody had counted the volume, it is checked only here
// whether there is room for that.
func (s *Store) promise(t *taking, r *snapshotRecord) error {
	if len(t.kinds) > 0 {
		return nil
	}
	r.Reserve = t.volume.reserveFor(r.Bytes)
	if !t.uncounted || r.Reserve <= t.reserve {
		return nil
	}
	space, err := s.Space()
	if err != nil {
		return err
	}
	if r.Reserve > space.Free {
		return &SnapshotSpaceError{t.volume.Name, NoSpaceError{Requested: r.Reserve, Free: space.Free}}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var noSpace *NoSpaceError
	if err := s.promiseLocked(r.Reserve-t.reserve, t.capacity, s.overcommit); errors.As(err, &noSpace) {
		return &SnapshotSpaceError{t.volume.Name, *noSpace}
	}
	t.reserve = r.Reserve
	return nil
}

// promisedToSnapshotsLocked is the sum of what is promised for snapshots, also for those that are being taken.
//
// +checklocks:s.mu
func (s *Store) promisedToSnapshotsLocked() (sum int64) {
	for _, of := range s.snapshots {
		for _, r := range of {
			sum += r.Reserve
		}
	}
	for _, t := range s.takings {
		if !t.ended() {
			sum += t.reserve
		}
	}
	return sum
}

// SnapshotUse is what the snapshots of a volume are, and take.
type SnapshotUse struct {
	Count, Scheduled int
	Newest           time.Time // the latest moment
	// Bytes is what they hold at most: the sum of what their files have, as if nothing were shared.
	Bytes int64
	// Reserve is what is promised for them.
	Reserve int64
}

// SnapshotUses returns what the snapshots of volumes take, by the volumes' IDs.
func (s *Store) SnapshotUses() map[uint64]SnapshotUse {
	s.mu.Lock()
	defer s.mu.Unlock()
	uses := make(map[uint64]SnapshotUse, len(s.snapshots))
	for id, of := range s.snapshots {
		var u SnapshotUse
		for _, r := range of {
			u.Count++
			u.Bytes += r.Bytes
			u.Reserve += r.Reserve
			if len(r.Scheduled) > 0 {
				u.Scheduled++
			}
			if r.Created.After(u.Newest) {
				u.Newest = r.Created
			}
		}
		uses[id] = u
	}
	return uses
}

// SetSnapshotReserve changes which part of what a volume uses is promised for each further snapshot, in percent. Its errors are
// ErrInvalid and ErrNotFound.
func (s *Store) SetSnapshotReserve(ctx context.Context, name string, percent int) (Volume, error) {
	if err := checkSnapshotReserve(percent); err != nil {
		return Volume{}, err
	}
	return s.change(ctx, name, func(v *Volume) error {
		if v.View {
			return fmt.Errorf("volume %s: %w: there are no snapshots of it", name, ErrView)
		}
		v.SnapshotReserve = &percent
		return nil
	})
}
