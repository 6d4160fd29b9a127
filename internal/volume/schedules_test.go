package volume

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// clockOf has schedules go by a clock that the test sets.
type clockOf struct {
	s *Store
	c *copier
}

func (c clockOf) set(when string) {
	now := at(when)
	c.s.schedules.now = func() time.Time { return now }
	c.c.now = func() time.Time { return now }
}

// look sets the clock, and has what is due be done.
func (c clockOf) look(t *testing.T, when string) {
	t.Helper()
	c.set(when)
	c.s.keepSchedules(t.Context())
}

// withSchedule opens a Store with a volume "v" of long ago that has a schedule.
func withSchedule(t *testing.T, root string, schedule Schedule) (*Store, *copier, clockOf) {
	t.Helper()
	s, c := openWith(t, root)
	_, err := s.Create(t.Context(), Spec{Name: "v", Size: 1 << 20, Schedule: schedule})
	mustDo(t, err)
	s.mu.Lock()
	s.records["v"].Created = at("2026-01-01 00:00:00")
	s.records["v"].ID -= s.records["v"].ID % 60 // its turn is at the full hour
	mustDo(t, s.write(s.records["v"]))
	s.mu.Unlock()
	return s, c, clockOf{s, c}
}

func hasSnapshots(t *testing.T, s *Store, what string, want ...string) {
	t.Helper()
	got := snapshotNames(t, s, "v")
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func TestSchedule(t *testing.T) {
	root := t.TempDir()
	s, _, clock := withSchedule(t, root, Schedule{Hourly: 3, Daily: 2})
	clock.look(t, "2026-11-28 21:08:00")
	clock.look(t, "2026-11-28 21:09:00")
	hasSnapshots(t, s, "the first", "v/daily-2026-11-28-2108")
	for hour := 22; hour < 24; hour++ {
		clock.look(t, fmt.Sprintf("2026-11-28 %d:00:00", hour))
	}
	mustSnapshot(t, s, "v", "hourly-2026-11-28-0000") // a person's
	hasSnapshots(t, s, "of three hours", "v/daily-2026-11-28-2108", "v/hourly-2026-11-28-0000", "v/hourly-2026-11-28-2200", "v/hourly-2026-11-28-2300")
	for hour := range 6 {
		clock.look(t, fmt.Sprintf("2026-11-29 %02d:00:00", hour))
	}
	hasSnapshots(t, s, "the next day", "v/daily-2026-11-28-2108", "v/hourly-2026-11-28-0000", "v/daily-2026-11-29-0000",
		"v/hourly-2026-11-29-0300", "v/hourly-2026-11-29-0400", "v/hourly-2026-11-29-0500")
	states := s.Schedules()
	if len(states) != 1 || !states[0].Last.Equal(at("2026-11-29 05:00:00")) || !states[0].Next.Equal(at("2026-11-29 06:00:00")) || states[0].Problem() != "" {
		t.Errorf("its state: %+v", states)
	}
	mustDo(t, s.Close())

	// After a restart, what was missed is made up for once.
	s, c := openWith(t, root)
	clock = clockOf{s, c}
	clock.look(t, "2026-11-29 20:17:00")
	clock.look(t, "2026-11-29 20:18:00")
	hasSnapshots(t, s, "after a restart", "v/daily-2026-11-28-2108", "v/hourly-2026-11-28-0000", "v/daily-2026-11-29-0000",
		"v/hourly-2026-11-29-0400", "v/hourly-2026-11-29-0500", "v/hourly-2026-11-29-2017")
	// A schedule that keeps less.
	_, err := s.SetSchedule(t.Context(), "v", Schedule{Hourly: 1})
	mustDo(t, err)
	clock.look(t, "2026-11-29 20:19:00")
	hasSnapshots(t, s, "with a smaller one", "v/daily-2026-11-28-2108", "v/hourly-2026-11-28-0000", "v/daily-2026-11-29-0000", "v/hourly-2026-11-29-2017")
	_, err = s.SetSchedule(t.Context(), "v", Schedule{})
	mustDo(t, err)
	clock.look(t, "2026-12-29 20:19:00")
	hasSnapshots(t, s, "without one", "v/daily-2026-11-28-2108", "v/hourly-2026-11-28-0000", "v/daily-2026-11-29-0000", "v/hourly-2026-11-29-2017")
	if states := s.Schedules(); len(states) != 0 {
		t.Errorf("without one: %+v", states)
	}
}

// A clock that was wrong makes no storm, and has nothing deleted that a right one keeps.
func TestScheduleAndTheClock(t *testing.T) {
	s, _, clock := withSchedule(t, t.TempDir(), Schedule{Hourly: 4})
	for hour := 18; hour < 22; hour++ {
		clock.look(t, fmt.Sprintf("2026-11-28 %d:00:00", hour))
	}
	right := []string{"v/hourly-2026-11-28-1800", "v/hourly-2026-11-28-1900", "v/hourly-2026-11-28-2000", "v/hourly-2026-11-28-2100"}
	hasSnapshots(t, s, "at first", right...)
	for minute := range 30 { // two hours back
		clock.look(t, fmt.Sprintf("2026-11-28 19:%02d:00", minute))
	}
	hasSnapshots(t, s, "two hours back", right...)
	for minute := range 30 {
		clock.look(t, fmt.Sprintf("1970-01-01 05:%02d:00", minute))
	}
	hasSnapshots(t, s, "at the beginning of time", append([]string{"v/hourly-1970-01-01-0500"}, right[1:]...)...)
	clock.look(t, "2036-11-28 21:30:00")
	clock.look(t, "2036-11-28 21:50:00")
	clock.look(t, "2026-11-28 22:00:00")
	clock.look(t, "2026-11-28 23:00:00")
	hasSnapshots(t, s, "right again", "v/hourly-2026-11-28-2000", "v/hourly-2026-11-28-2100", "v/hourly-2026-11-28-2200", "v/hourly-2026-11-28-2300")
}

// When a clock that was ahead is set back, the hours that come have snapshots already, and new ones are taken all the same; also
// when podnas starts then.
func TestScheduleWhenTheClockIsSetBack(t *testing.T) {
	for _, restart := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			root := t.TempDir()
			s, c, _ := withSchedule(t, root, Schedule{Hourly: 6, Daily: 2})
			ahead := time.Until(at("2026-11-28 06:00:00"))
			keep := func(s *Store, c *copier, minutes int) (longest time.Duration) {
				c.now = func() time.Time { return time.Now().Add(ahead) }
				s.schedules.now = c.now
				last := time.Now()
				for range minutes {
					taken := s.activity.snapshot.done.Load()
					s.keepSchedules(t.Context())
					if s.activity.snapshot.done.Load() > taken {
						last = time.Now()
					}
					longest = max(longest, time.Since(last))
					time.Sleep(time.Minute)
				}
				return longest
			}
			keep(s, c, 7*60)
			ahead -= 210 * time.Minute
			if restart {
				mustDo(t, s.Close())
				s, c = openWith(t, root)
			}
			if longest := keep(s, c, 8*60); longest > time.Hour+behindAfter+time.Minute {
				t.Errorf("restarted: %v: %s without a snapshot", restart, longest)
			}
			last := at("2026-11-28 17:00:00") // by the clock it is 17:30
			if states := s.Schedules(); states[0].Last.Before(last) || states[0].Last.After(last.Add(time.Hour)) {
				t.Errorf("restarted: %v: the last one is of %s", restart, states[0].Last)
			}
		})
	}
}

func TestScheduleOfVolumesThatCan(t *testing.T) {
	root := t.TempDir()
	s, c, clock := withSchedule(t, root, Schedule{Hourly: 4})
	c.refuse = errors.New("ext4 can't share blocks")
	if _, err := s.Create(t.Context(), Spec{Name: "w", Size: 1 << 20, Schedule: Schedule{Daily: 1}}); !errors.Is(err, ErrUnsupported) || !errors.Is(err, c.refuse) {
		t.Errorf("on a disk that can't: %v", err)
	}
	if _, err := s.SetSchedule(t.Context(), "v", Schedule{Daily: 1}); !errors.Is(err, ErrUnsupported) {
		t.Errorf("on a disk that can't: %v", err)
	}
	if v, err := s.SetSchedule(t.Context(), "v", Schedule{Hourly: scheduleMax + 1}); !errors.Is(err, ErrInvalid) {
		t.Errorf("too many: %v, %v", v, err)
	}
	if _, err := s.SetSchedule(t.Context(), "none", Schedule{Daily: 1}); !errors.Is(err, ErrNotFound) {
		t.Errorf("of no volume: %v", err)
	}
	c.refuse = nil

	// While a person takes one, it waits.
	reached, letGo := c.hold()
	done := make(chan error)
	go func() {
		_, err := s.CreateSnapshot(context.WithoutCancel(t.Context()), "v", "by-hand")
		done <- err
	}()
	<-reached
	clock.look(t, "2026-11-28 21:00:00")
	if states := s.Schedules(); states[0].Problem() != "" {
		t.Errorf("while it waits: %+v", states)
	}
	letGo()
	mustDo(t, <-done)
	clock.look(t, "2026-11-28 21:00:30")
	hasSnapshots(t, s, "too early again", "v/by-hand")
	clock.look(t, "2026-11-28 21:01:00")
	hasSnapshots(t, s, "after that", "v/by-hand", "v/hourly-2026-11-28-2101")

	// What fails is tried again, and told.
	broken := errors.New("the disk is broken")
	c.middle = func(context.Context) error { return broken }
	clock.look(t, "2026-11-28 22:00:00")
	if states := s.Schedules(); !errors.Is(states[0].Err, broken) || !strings.Contains(states[0].Problem(), "could not be taken") {
		t.Errorf("when it has failed: %+v", states)
	}
	failed := s.activity.snapshot.failed.Load()
	clock.look(t, "2026-11-28 22:00:59")
	clock.look(t, "2026-11-28 22:01:00")
	clock.look(t, "2026-11-28 22:02:59")
	if tries := s.activity.snapshot.failed.Load() - failed; tries != 1 {
		t.Errorf("tried again %d times within 3 minutes", tries)
	}
	c.middle = nil
	clock.look(t, "2026-11-28 22:02:59")
	hasSnapshots(t, s, "before it is tried again", "v/by-hand", "v/hourly-2026-11-28-2101")
	_, err := s.SetSchedule(t.Context(), "v", Schedule{Hourly: 5}) // then it is tried at once
	mustDo(t, err)
	clock.look(t, "2026-11-28 22:02:59")
	hasSnapshots(t, s, "when it works again", "v/by-hand", "v/hourly-2026-11-28-2101", "v/hourly-2026-11-28-2202")
	if states := s.Schedules(); states[0].Problem() != "" {
		t.Errorf("when it works again: %+v", states)
	}
	s.mu.Lock()
	s.schedules.attempts[s.records["v"].ID] = &attempt{since: time.Now().Add(-2 * lateAfter)}
	s.mu.Unlock()
	if states := s.Schedules(); !states[0].Late || !strings.Contains(states[0].Problem(), "due") {
		t.Errorf("when it is late: %+v", states)
	}
	mustDo(t, s.Archive(t.Context(), "v"))
	clock.look(t, "2026-11-29 22:00:00")
	hasSnapshots(t, s, "of an archived volume", "v/by-hand", "v/hourly-2026-11-28-2101", "v/hourly-2026-11-28-2202")
}

// The scheduled snapshots of a deleted volume go when its schedule would have them deleted, and no others.
func TestScheduleOfADeletedVolume(t *testing.T) {
	root := t.TempDir()
	s, _, clock := withSchedule(t, root, Schedule{Hourly: 2})
	clock.look(t, "2026-11-28 21:00:00")
	mustSnapshot(t, s, "v", "by-hand")
	hour := time.Now()
	mustDo(t, s.Delete(t.Context(), "v"))
	both := []string{"v/by-hand", "v/hourly-2026-11-28-2100"}
	aged := func() { // an hour of the process's clock passes
		hour = hour.Add(-expiredFor)
		s.mu.Lock()
		for _, of := range s.snapshots {
			for _, r := range of {
				if !r.expired.IsZero() {
					r.expired = hour
				}
			}
		}
		s.mu.Unlock()
	}
	clock.look(t, "2026-11-28 22:59:00")
	aged()
	clock.look(t, "2026-11-28 22:59:30")
	hasSnapshots(t, s, "before the end", both...)
	clock.look(t, "2036-11-28 22:59:00") // of a clock that is wrong for a while
	clock.look(t, "2026-11-28 22:59:40")
	aged()
	clock.look(t, "2026-11-28 23:00:00")
	hasSnapshots(t, s, "after a clock that was wrong", both...)
	s.mu.Lock()
	s.refused = append(s.refused, refused{})
	s.mu.Unlock()
	aged()
	clock.look(t, "2026-11-28 23:01:00")
	hasSnapshots(t, s, "beside a record that can't be read", both...)
	s.mu.Lock()
	s.refused = nil
	s.mu.Unlock()
	clock.look(t, "2026-11-28 23:02:00")
	aged()
	clock.look(t, "2026-11-28 23:03:00")
	hasSnapshots(t, s, "at the end", both[:1]...)
}

// stuckExports has Unexport wait for clients' calls.
type stuckExports struct {
	*exports
	reached, hold chan struct{}
}

func (e stuckExports) Unexport(v Volume) {
	close(e.reached)
	<-e.hold
	e.exports.Unexport(v)
}

// mustBeDue makes volumes of which a snapshot is due.
func mustBeDue(t *testing.T, s *Store, names ...string) {
	t.Helper()
	for _, name := range names {
		_, err := s.Create(t.Context(), Spec{Name: name, Size: 1 << 20, Schedule: Schedule{Daily: 2}})
		mustDo(t, err)
		s.mu.Lock()
		s.records[name].Created = time.Now().Add(-48 * time.Hour)
		s.records[name].ID -= s.records[name].ID % 60 // its turn is at the full hour
		s.mu.Unlock()
	}
}

// A volume that is being deleted, whose clients' calls do not end, is nothing that others wait for: their schedules, and who has a
// snapshot of it be taken.
func TestScheduleBesideDelete(t *testing.T) {
	root := t.TempDir()
	e := stuckExports{&exports{}, make(chan struct{}), make(chan struct{})}
	s, err := Open(Config{Root: root, Exports: e, Snapshots: &copier{root: root}, Log: slog.New(slog.DiscardHandler)})
	mustDo(t, err)
	defer s.Close()
	mustBeDue(t, s, "a", "v")
	deleted := make(chan error)
	go func() { deleted <- s.Delete(context.WithoutCancel(t.Context()), "a") }()
	<-e.reached
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s.keepSchedules(ctx)
	if got := snapshotNames(t, s, "v"); ctx.Err() != nil || len(got) != 1 {
		t.Errorf("of another volume: %v", got)
	}
	if _, err := s.StartSnapshot(ctx, "a", "by-hand"); !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), "deleted") {
		t.Errorf("of the volume that is being deleted: %v", err)
	}
	close(e.hold)
	mustDo(t, <-deleted)
}

// A volume that another request changes for long has its turn later, and the others have theirs.
func TestScheduleBesideChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := openWith(t, t.TempDir())
		mustBeDue(t, s, "a", "v")
		unlock, err := s.names.lock(t.Context(), "a")
		mustDo(t, err)
		began := time.Now()
		s.keepSchedules(t.Context())
		if waited := time.Since(began); waited != nameWait {
			t.Errorf("it waited %s", waited)
		}
		if states := s.Schedules(); len(states) != 2 || states[0].Problem() != "" || states[0].Last != (time.Time{}) || states[1].Last.IsZero() {
			t.Errorf("%+v", states)
		}
		unlock()
		time.Sleep(busyRetry)
		s.keepSchedules(t.Context())
		if states := s.Schedules(); states[0].Last.IsZero() {
			t.Errorf("later: %+v", states)
		}
	})
}

// Whether volumes are deleted is found out in one pass over them, as each change of one asks for it with Store.mu held. By a search
// for each of them it took 90 times as long as Served; now it is a sixth.
func TestExpireOfManyVolumes(t *testing.T) {
	s, _ := openWith(t, t.TempDir())
	s.mu.Lock()
	for i := range 10_000 {
		v := Volume{ID: uint64(i) + 1, Name: fmt.Sprint("v", i), Path: fmt.Sprint("v", i), Size: 1}
		s.records[v.Name] = &record{State: ready, Volume: v}
		s.snapshots[v.ID] = []*snapshotRecord{{Snapshot: Snapshot{Name: "a", VolumeID: v.ID, Volume: v.Name, Scheduled: []string{"hourly"}}}}
	}
	s.mu.Unlock()
	quickest := func(f func()) time.Duration {
		best := time.Hour
		for range 3 {
			began := time.Now()
			f()
			best = min(best, time.Since(began))
		}
		return best
	}
	served, expire := quickest(func() { s.Served() }), quickest(func() { s.expire(t.Context()) })
	t.Logf("Served: %s, expire: %s", served, expire)
	if expire > 20*served {
		t.Errorf("expire took %s, and to list the volumes takes %s", expire, served)
	}
}

// RunSchedules sleeps as long as there is nothing to do, and wakes when a schedule changes.
func TestRunSchedules(t *testing.T) {
	s, _ := openWith(t, t.TempDir())
	mustCreate(t, s, "v")
	if wait := s.keepSchedules(t.Context()); wait != 0 {
		t.Errorf("without a schedule it looks again in %s", wait)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.RunSchedules(ctx)
	}()
	_, err := s.change(t.Context(), "v", func(v *Volume) error {
		v.Created = at("2025-12-31 00:00:00")
		return nil
	})
	mustDo(t, err)
	_, err = s.SetSchedule(t.Context(), "v", Schedule{Yearly: 1})
	mustDo(t, err)
	// At worst its turn comes in a minute, in the first minute of a year.
	eventually(t, "it is taken", func() bool { return len(snapshotNames(t, s, "v")) == 1 })
	cancel()
	<-ended
}
