package volume

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Schedule is how many of the snapshots of each kind that podnas takes by itself a volume keeps. None of a kind that is 0 are
// taken, and those that there are stay.
type Schedule struct {
	Hourly  int `json:"hourly,omitempty"`
	Daily   int `json:"daily,omitempty"`
	Weekly  int `json:"weekly,omitempty"`
	Monthly int `json:"monthly,omitempty"`
	Yearly  int `json:"yearly,omitempty"`
}

// scheduleMax is how many of a kind a volume can keep.
const scheduleMax = 1000

// noSchedule is the text of the zero Schedule.
const noSchedule = "none"

// kind is a kind of scheduled snapshots. There is one in each of its periods.
type kind struct {
	name string
	// start returns the beginning of the period that a time is in, in UTC.
	start func(time.Time) time.Time
	// long is the length of the longest period.
	long time.Duration
	kept func(*Schedule) *int
}

// kinds returns all kinds, the most frequent first.
func kinds() []kind {
	const day = 24 * time.Hour
	return []kind{
		{"hourly", func(t time.Time) time.Time { return t.UTC().Truncate(time.Hour) }, time.Hour, func(s *Schedule) *int { return &s.Hourly }},
		{"daily", startOfDay, day, func(s *Schedule) *int { return &s.Daily }},
		{"weekly", func(t time.Time) time.Time {
			d := startOfDay(t)
			return d.AddDate(0, 0, -(int(d.Weekday())+6)%7) // Monday, as in ISO 8601
		}, 7 * day, func(s *Schedule) *int { return &s.Weekly }},
		{"monthly", func(t time.Time) time.Time {
			t = t.UTC()
			return time.Date(t.Year(), t.Month(), 1, 0, 0, 0, 0, time.UTC)
		}, 31 * day, func(s *Schedule) *int { return &s.Monthly }},
		{"yearly", func(t time.Time) time.Time {
			return time.Date(t.UTC().Year(), time.January, 1, 0, 0, 0, 0, time.UTC)
		}, 366 * day, func(s *Schedule) *int { return &s.Yearly }},
	}
}

func startOfDay(t time.Time) time.Time {
	t = t.UTC()
	return time.Date(t.Year(), t.Month(), t.Day(), 0, 0, 0, 0, time.UTC)
}

// next returns the beginning of the period after that of a time.
func (k *kind) next(t time.Time) time.Time { return k.start(k.start(t).Add(k.long)) }

// ParseSchedule parses what String returns, such as "hourly=24,daily=7". There may be spaces.
func ParseSchedule(text string) (Schedule, error) {
	var s Schedule
	if strings.TrimSpace(text) == noSchedule {
		return s, nil
	}
	var given []string
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		name, number, _ := strings.Cut(part, "=")
		name, number = strings.TrimSpace(name), strings.TrimSpace(number)
		all := kinds()
		at := slices.IndexFunc(all, func(k kind) bool { return k.name == name })
		n, err := strconv.Atoi(number)
		switch {
		case at < 0:
			return Schedule{}, fmt.Errorf(`%q is no kind of snapshot: use %s, as in "hourly=24,daily=7,weekly=4", or "none"`, name, kindNames())
		case slices.Contains(given, name):
			return Schedule{}, fmt.Errorf("%s is set twice", name)
		case err != nil || n < 1 || n > scheduleMax:
			return Schedule{}, fmt.Errorf("%s=%s: use how many to keep, from 1 to %d; for none leave %s out", name, number, scheduleMax, name)
		}
		given = append(given, name)
		*all[at].kept(&s) = n
	}
	if len(given) == 0 {
		return s, errors.New(`it is empty: use how many snapshots to keep, as in "hourly=24,daily=7,weekly=4", or "none"`)
	}
	return s, nil
}

func kindNames() string {
	var names []string
	for _, k := range kinds() {
		names = append(names, k.name)
	}
	return strings.Join(names, ", ")
}

// String returns "none" or, for example, "hourly=24,daily=7".
func (s Schedule) String() string {
	var parts []string
	for _, k := range kinds() {
		if n := *k.kept(&s); n > 0 {
			parts = append(parts, fmt.Sprintf("%s=%d", k.name, n))
		}
	}
	if len(parts) == 0 {
		return noSchedule
	}
	return strings.Join(parts, ",")
}

// IsZero reports whether there is no schedule.
func (s Schedule) IsZero() bool { return s == Schedule{} }

// check refuses the numbers of a damaged record.
func (s Schedule) check() error {
	for _, k := range kinds() {
		if n := *k.kept(&s); n < 0 || n > scheduleMax {
			return fmt.Errorf("%w: %d %s snapshots are to be kept; the maximum is %d", ErrInvalid, n, k.name, scheduleMax)
		}
	}
	return nil
}

// spreadMax is how long after the full hour a scheduled snapshot is taken at most, if nothing else delays it.
const spreadMax = time.Minute

// spread is how long after the full hour a volume's turn is, so that not all volumes have it at the same moment.
func (v *Volume) spread() time.Duration {
	return time.Duration(v.ID % uint64(spreadMax/time.Second) * uint64(time.Second))
}

// due returns the kinds of which a volume needs a snapshot now, and when it needs the next one, if that is none. has are its
// scheduled snapshots. It depends on the present period alone: podnas makes up for a missed time once, and a clock that was
// wrong for a while makes at most one snapshot of a kind. But when a clock that was ahead is set back, the periods that come have
// snapshots of before, so none of a kind is older than a period by the process's clock either.
func (v *Volume) due(has []*snapshotRecord, now time.Time) (due []string, next time.Time) {
	for _, k := range kinds() {
		if *k.kept(&v.Schedule) == 0 {
			continue
		}
		start := k.start(now)
		turn := start.Add(v.spread())
		there := slices.ContainsFunc(has, func(r *snapshotRecord) bool {
			return slices.Contains(r.Scheduled, k.name) && k.start(r.Created).Equal(start)
		})
		switch {
		case k.isBehind(has):
			due = append(due, k.name)
			continue
		case there, v.isNew(start, now):
			turn = k.next(now).Add(v.spread())
		case !now.Before(turn):
			due = append(due, k.name)
			continue
		}
		if next.IsZero() || turn.Before(next) {
			next = turn
		}
	}
	return due, next
}

// behindAfter is how much longer than a period the latest snapshot of a kind is known when its schedule is behind, whatever the
// clock says. A clock that is set back by less changes nothing.
const behindAfter = 10 * time.Minute

// isBehind reports whether there are snapshots of a kind, and all of them are known for longer than a period.
func (k *kind) isBehind(has []*snapshotRecord) bool {
	var last time.Time
	for _, r := range has {
		if slices.Contains(r.Scheduled, k.name) && r.known.After(last) {
			last = r.known
		}
	}
	return !last.IsZero() && time.Since(last) > k.long+behindAfter
}

// isNew reports whether a volume was made in the period that began at start: it needs no snapshot of that. One that was made in the
// future is not, because the clock is wrong.
func (v *Volume) isNew(start, now time.Time) bool {
	return !v.Created.Before(start) && !v.Created.After(now.Add(futureSlack))
}

// futureSlack is how much later than now a moment may be, because a clock was set back.
const futureSlack = time.Hour

// surplus returns the scheduled snapshots that a schedule does not keep any more, the oldest first. A snapshot of several kinds
// stays as long as one of them keeps it. The moments of a clock that was wrong are in the future: those snapshots count as
// the oldest.
func (s Schedule) surplus(has []*snapshotRecord, now time.Time) []*snapshotRecord {
	sorted := slices.Clone(has)
	sortByAge(sorted, now)
	kept := map[*snapshotRecord]bool{}
	for _, k := range kinds() {
		n := *k.kept(&s)
		for _, r := range slices.Backward(sorted) {
			if !slices.Contains(r.Scheduled, k.name) {
				continue
			}
			if *k.kept(&s) == 0 || n > 0 {
				kept[r] = true
			}
			n--
		}
	}
	return slices.DeleteFunc(sorted, func(r *snapshotRecord) bool { return kept[r] })
}

// sortByAge sorts snapshots, the oldest first.
func sortByAge(list []*snapshotRecord, now time.Time) {
	slices.SortStableFunc(list, func(a, b *snapshotRecord) int {
		inFuture := func(r *snapshotRecord) bool { return r.Created.After(now.Add(futureSlack)) }
		switch fa, fb := inFuture(a), inFuture(b); {
		case fa && !fb:
			return -1
		case fb && !fa:
			return 1
		}
		return a.Created.Compare(b.Created)
	})
}

// expiry is until when a snapshot of these kinds would be kept, if there was one in each period.
func (s Schedule) expiry(of []string, created time.Time) (until time.Time) {
	for _, k := range kinds() {
		if !slices.Contains(of, k.name) {
			continue
		}
		if end := created.Add(time.Duration(*k.kept(&s)) * k.long); end.After(until) {
			until = end
		}
	}
	return until
}
