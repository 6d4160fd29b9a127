package volume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Volumes with a Schedule get snapshots by themselves: RunSchedules takes one at a time on the whole disk. What a schedule
// has taken is marked in the snapshot's record, and only such snapshots are deleted because of one. A volume that is not served,
// or not for now (copied, restored, assigned to its project), has its turn when it is again. The scheduled snapshots of a deleted
// volume go at the time at which its schedule would have had them deleted; those of an archived or retained one stay with it.

const (
	// scheduleLook is how long RunSchedules sleeps at most, as the clock may be set meanwhile.
	scheduleLook = 10 * time.Minute
	// busyRetry is the pause before a volume is tried again of which no snapshot can be taken for now.
	busyRetry = time.Minute
	// failedRetry is the pause before a failed snapshot is taken again. It doubles each time, up to failedRetryMax.
	failedRetry    = time.Minute
	failedRetryMax = time.Hour
	// nameWait is how long a scheduled snapshot waits at most for another request that changes the volume: the schedules
	// of all others wait behind it.
	nameWait = 5 * time.Second
	// lateAfter is how long after its turn a scheduled snapshot is late.
	lateAfter = time.Hour
	// expiredFor is how long a snapshot of a deleted volume must have expired, by the process's clock, which nobody
	// sets.
	expiredFor = time.Hour
)

// schedules is what RunSchedules keeps in memory.
type schedules struct {
	changed  chan struct{}       // wakes it
	now      func() time.Time    // the clock, which somebody may set
	attempts map[uint64]*attempt // by volume; guarded by Store.mu
}

func newSchedules(now func() time.Time) schedules {
	if now == nil {
		now = time.Now
	}
	return schedules{changed: make(chan struct{}, 1), now: now, attempts: map[uint64]*attempt{}}
}

// attempt is a scheduled snapshot that is due.
type attempt struct {
	since time.Time // when that was first seen, by the process's clock, which nobody sets
	retry time.Time // not before, by the clock of schedules
	pause time.Duration
	err   error // why the last try failed; nil: it has not, or the volume was busy
}

// Scheduled is the state of a volume's schedule.
type Scheduled struct {
	Volume Volume
	// Last is the moment of the latest scheduled snapshot, and Next the time of the next one. Either may be zero.
	Last, Next time.Time
	// Late is whether a snapshot is overdue for long, and Err why the last try failed.
	Late bool
	Err  error
}

// Problem says for people why a snapshot is missing; empty: none is.
func (s *Scheduled) Problem() string {
	switch {
	case s.Err != nil:
		return "the last one could not be taken: " + s.Err.Error()
	case s.Late:
		return "one is due for more than an hour" // lateAfter
	}
	return ""
}

// SetSchedule has snapshots of a volume be taken by a schedule; by none, if it is zero. Its errors are ErrInvalid, ErrNotFound and
// ErrUnsupported.
func (s *Store) SetSchedule(ctx context.Context, name string, to Schedule) (Volume, error) {
	v, err := s.change(ctx, name, func(v *Volume) error {
		v.Schedule = to
		return s.checkSchedule(*v)
	})
	if err == nil {
		s.endAttempt(v.ID) // what failed is tried again at once
	}
	s.wakeSchedules()
	return v, err
}

// CheckSchedule returns why new volumes can't have a schedule, or nil.
func (s *Store) CheckSchedule(of Schedule) error { return s.checkSchedule(Volume{Schedule: of}) }

// checkSchedule refuses a schedule of a volume that can have no snapshots. A volume that is yet to be made has no ID.
func (s *Store) checkSchedule(v Volume) error {
	if v.Schedule.IsZero() {
		return nil
	}
	if v.View {
		return fmt.Errorf("volume %s: %w: what it shows never changes", v.Name, ErrView)
	}
	if err := v.Schedule.check(); err != nil {
		return err
	}
	if s.snapshotter == nil {
		return fmt.Errorf("%w: this podnas does not take any", ErrUnsupported)
	}
	if err := s.snapshotter.CheckSnapshots(v); err != nil {
		return fmt.Errorf("%w by a schedule: %w", ErrUnsupported, err)
	}
	return nil
}

func (s *Store) wakeSchedules() {
	select {
	case s.schedules.changed <- struct{}{}:
	default: // it is awake already
	}
}

// RunSchedules takes and deletes snapshots by the schedules of volumes until ctx ends. It is to be called after
// ResumeRestores.
func (s *Store) RunSchedules(ctx context.Context) {
	for {
		var again <-chan time.Time
		if wait := s.keepSchedules(ctx); wait > 0 {
			again = time.After(wait)
		}
		select {
		case <-again:
		case <-s.schedules.changed:
		case <-ctx.Done():
			return
		}
	}
}

// keepSchedules takes the snapshots that are due, and deletes those that are not kept any more. It returns how long there
// is nothing to do then; 0 if that is until a schedule changes.
func (s *Store) keepSchedules(ctx context.Context) (wait time.Duration) {
	wait = s.expire(ctx)
	for _, v := range s.Served() {
		if ctx.Err() != nil {
			return wait
		}
		if v.Schedule.IsZero() {
			s.endAttempt(v.ID)
			continue
		}
		now := s.schedules.now()
		due, next := v.due(s.scheduledOf(v.ID), now)
		if len(due) > 0 {
			next = s.takeScheduled(ctx, v, due, now)
		} else {
			s.endAttempt(v.ID)
		}
		s.deleteScheduled(ctx, v.Schedule.surplus(s.scheduledOf(v.ID), s.schedules.now()), "its schedule keeps newer ones")
		if until := max(next.Sub(s.schedules.now()), time.Second); wait == 0 || until < wait {
			wait = until
		}
	}
	return min(wait, scheduleLook)
}

// scheduledOf returns the scheduled snapshots of a volume.
func (s *Store) scheduledOf(id uint64) []*snapshotRecord {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.snapshots[id]), func(r *snapshotRecord) bool { return len(r.Scheduled) == 0 || r.deleting })
}

// takeScheduled takes a snapshot that is due, unless the last try was a short time ago. It returns when there is something to do
// again.
func (s *Store) takeScheduled(ctx context.Context, v Volume, due []string, now time.Time) time.Time {
	s.mu.Lock()
	a := s.schedules.attempts[v.ID]
	if a == nil {
		a = &attempt{since: time.Now(), retry: now}
		s.schedules.attempts[v.ID] = a
	}
	retry := a.retry
	s.mu.Unlock()
	if now.Before(retry) && retry.Sub(now) <= failedRetryMax { // else the clock was set back
		return retry
	}
	brief, cancel := context.WithTimeout(ctx, nameWait)
	t, err := s.startSnapshot(brief, v.Name, snapshotSpec{prefix: due[len(due)-1] + "-", kinds: due, at: now})
	cancel()
	if err == nil {
		err = s.awaitTaking(ctx, t)
	}
	if err == nil {
		s.endAttempt(v.ID)
		_, next := v.due(s.scheduledOf(v.ID), s.schedules.now())
		return next
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case ctx.Err() != nil:
	case errors.Is(err, ErrBusy), errors.Is(err, context.DeadlineExceeded), // of nameWait
		errors.Is(err, ErrNotFound), errors.Is(err, ErrNoSnapshot): // a person has deleted it meanwhile
		a.retry = s.schedules.now().Add(busyRetry)
	default:
		a.err, a.pause = err, min(max(2*a.pause, failedRetry), failedRetryMax)
		a.retry = s.schedules.now().Add(a.pause)
		s.log.Warn("snapshot: the schedule of a volume can't be kept, will try again", "volume", v.Name, "in", a.pause, "err", err)
	}
	return a.retry
}

func (s *Store) endAttempt(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.schedules.attempts, id)
}

// deleteScheduled deletes scheduled snapshots. One that is in use has its turn later.
func (s *Store) deleteScheduled(ctx context.Context, list []*snapshotRecord, why string) {
	for _, r := range list {
		err := s.DeleteSnapshot(ctx, r.volume(), r.Name)
		switch {
		case err == nil:
			s.log.Info("snapshot: deleted one that was scheduled", "volume", r.Volume, "snapshot", r.Name, "because", why)
		case errors.Is(err, ErrBusy), errors.Is(err, ErrNoSnapshot), errors.Is(err, ErrNotFound), ctx.Err() != nil:
		default:
			s.log.Warn("snapshot: can't delete one that was scheduled, will try again", "err", err)
		}
	}
}

// expire deletes the scheduled snapshots of deleted volumes that their schedules would not have now. It returns how long there
// is nothing to do then; 0 if there are no such snapshots.
func (s *Store) expire(ctx context.Context) (wait time.Duration) {
	now := s.schedules.now()
	var gone []*snapshotRecord
	s.mu.Lock()
	// The volume of a record that can't be read only looks deleted.
	unsure := len(s.refused) > 0 || len(s.lost) > 0
	known := s.knownLocked()
	for id, of := range s.snapshots {
		for _, r := range of {
			switch {
			case len(r.Scheduled) == 0 || r.deleting:
				continue
			case known[id] || unsure || now.Before(r.Expires):
				r.expired = time.Time{}
			case r.expired.IsZero():
				r.expired = time.Now()
			case time.Since(r.expired) >= expiredFor:
				gone = append(gone, r)
			}
			wait = scheduleLook
		}
	}
	for id := range s.schedules.attempts {
		if !known[id] {
			delete(s.schedules.attempts, id)
		}
	}
	s.mu.Unlock()
	s.deleteScheduled(ctx, gone, "its volume is deleted")
	return wait
}

// Schedules returns the states of the schedules of all volumes that are served and have one, by the names of the volumes.
func (s *Store) Schedules() []Scheduled {
	now := s.schedules.now()
	var all []Scheduled
	for _, v := range s.Served() {
		if v.Schedule.IsZero() {
			continue
		}
		state := Scheduled{Volume: v}
		has := s.scheduledOf(v.ID)
		for _, r := range has {
			if r.Created.After(state.Last) {
				state.Last = r.Created
			}
		}
		if _, state.Next = v.due(has, now); state.Next.IsZero() {
			state.Next = now
		}
		s.mu.Lock()
		if a := s.schedules.attempts[v.ID]; a != nil {
			state.Err, state.Late = a.err, time.Since(a.since) > lateAfter
		}
		s.mu.Unlock()
		all = append(all, state)
	}
	return all
}
