package volume

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestParseSchedule(t *testing.T) {
	for _, tt := range []struct {
		text string
		want Schedule
		err  string
	}{
		{"none", Schedule{}, ""},
		{" none ", Schedule{}, ""},
		{"hourly=24,daily=7,weekly=4", Schedule{Hourly: 24, Daily: 7, Weekly: 4}, ""},
		{" yearly = 1 , monthly=1000 ,", Schedule{Monthly: 1000, Yearly: 1}, ""},
		{"", Schedule{}, "it is empty"},
		{" , ", Schedule{}, "it is empty"},
		{"hourly", Schedule{}, "how many to keep"},
		{"hourly=", Schedule{}, "how many to keep"},
		{"hourly=0", Schedule{}, "leave hourly out"},
		{"hourly=-1", Schedule{}, "from 1 to 1000"},
		{"hourly=1001", Schedule{}, "from 1 to 1000"},
		{"hourly=99999999999999999999", Schedule{}, "from 1 to 1000"},
		{"hourly=1,hourly=2", Schedule{}, "twice"},
		{"none,hourly=1", Schedule{}, `"none" is no kind`},
		{"Hourly=1", Schedule{}, `"Hourly" is no kind of snapshot: use hourly, daily, weekly, monthly, yearly`},
		{"minutely=1", Schedule{}, "no kind"},
	} {
		got, err := ParseSchedule(tt.text)
		if got != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%q: %+v, %v; want %+v, %q", tt.text, got, err, tt.want, tt.err)
		}
	}
}

func FuzzParseSchedule(f *testing.F) {
	for _, text := range []string{"none", "hourly=24,daily=7", "weekly=1, monthly=2,yearly=3", "hourly=+1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseSchedule(text)
		if err != nil {
			return
		}
		if again, err := ParseSchedule(s.String()); again != s || err != nil || s.check() != nil {
			t.Errorf("%q is %+v, which is %q: %+v, %v", text, s, s, again, err)
		}
	})
}

// at is a time in UTC.
func at(text string) time.Time {
	when, err := time.Parse("2006-01-02 15:04:05", text)
	if err != nil {
		panic(err)
	}
	return when
}

func TestPeriods(t *testing.T) {
	for _, tt := range []struct{ now, hour, day, week, month, year, nextMonth, nextYear string }{
		{"2026-11-28 21:08:59", "2026-11-28 21", "2026-11-28", "2026-11-23", "2026-11-01", "2026-01-01", "2026-12-01", "2027-01-01"},
		{"2026-11-23 00:00:00", "2026-11-23 00", "2026-11-23", "2026-11-23", "2026-11-01", "2026-01-01", "2026-12-01", "2027-01-01"},
		{"2026-11-22 23:59:59", "2026-11-22 23", "2026-11-22", "2026-11-16", "2026-11-01", "2026-01-01", "2026-12-01", "2027-01-01"},
		{"2028-02-29 12:00:00", "2028-02-29 12", "2028-02-29", "2028-02-28", "2028-02-01", "2028-01-01", "2028-03-01", "2029-01-01"},
		{"2027-01-01 00:30:00", "2027-01-01 00", "2027-01-01", "2026-12-28", "2027-01-01", "2027-01-01", "2027-02-01", "2028-01-01"},
	} {
		now, all := at(tt.now), kinds()
		for i, want := range []string{tt.hour + ":00:00", tt.day + " 00:00:00", tt.week + " 00:00:00", tt.month + " 00:00:00", tt.year + " 00:00:00"} {
			if got := all[i].start(now.In(time.FixedZone("", 5*3600))); !got.Equal(at(want)) {
				t.Errorf("%s at %s: %s, want %s", all[i].name, tt.now, got, want)
			}
		}
		if got := all[3].next(now); !got.Equal(at(tt.nextMonth + " 00:00:00")) {
			t.Errorf("the month after %s: %s", tt.now, got)
		}
		if got := all[4].next(now); !got.Equal(at(tt.nextYear + " 00:00:00")) {
			t.Errorf("the year after %s: %s", tt.now, got)
		}
	}
}

// scheduled is a snapshot of some kinds.
func scheduled(when string, of ...string) *snapshotRecord {
	return &snapshotRecord{Snapshot: Snapshot{Name: when, Created: at(when), Scheduled: of}}
}

func TestDue(t *testing.T) {
	const hour = "2026-11-28 21:"
	for _, tt := range []struct {
		name, created, now string
		has                []*snapshotRecord
		want               string // the kinds that are due, or when the next one is
	}{
		{"a new volume", hour + "07:00", hour + "08:00", nil, "2026-11-28 22:00:10"},
		{"one of yesterday", "2026-11-27 10:00:00", hour + "08:00", nil, "hourly daily"},
		{"one of the last hour", "2026-11-28 20:59:59", hour + "08:00", nil, "hourly"},
		{"before its turn", "2026-11-28 20:59:59", hour + "00:09", nil, "2026-11-28 21:00:10"},
		{"at its turn", "2026-11-28 20:59:59", hour + "00:10", nil, "hourly"},
		{"it is there", "2026-11-28 20:00:00", hour + "10:00", []*snapshotRecord{scheduled(hour+"00:10", "hourly")}, "2026-11-28 22:00:10"},
		{"of another kind", "2026-11-27 20:00:00", hour + "10:00", []*snapshotRecord{scheduled(hour+"00:10", "hourly")}, "daily"},
		{"of both", "2026-11-27 20:00:00", hour + "10:00", []*snapshotRecord{scheduled(hour+"00:10", "hourly", "daily")}, "2026-11-28 22:00:10"},
		{"long ago", "2026-10-01 20:00:00", hour + "10:00", []*snapshotRecord{scheduled("2026-11-01 00:00:10", "hourly", "daily")}, "hourly daily"},
		{"in the future alone", "2026-11-27 20:00:00", hour + "10:00", []*snapshotRecord{scheduled("2036-11-28 21:00:10", "hourly", "daily")}, "hourly daily"},
		{"after midnight", "2026-11-27 20:00:00", "2026-11-29 00:00:10", []*snapshotRecord{scheduled("2026-11-28 23:00:10", "hourly", "daily")}, "hourly daily"},
	} {
		v := Volume{ID: 60*1000 + 10, Created: at(tt.created), Schedule: Schedule{Hourly: 24, Daily: 7}}
		due, next := v.due(tt.has, at(tt.now))
		got := strings.Join(due, " ")
		if len(due) == 0 {
			got = next.Format("2006-01-02 15:04:05")
		}
		if got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
	v := Volume{ID: 7}
	if due, next := v.due(nil, time.Now()); due != nil || !next.IsZero() {
		t.Errorf("without a schedule: %v, %s", due, next)
	}
}

// Volumes of one class have their turns spread over a minute.
func TestSpread(t *testing.T) {
	turns := map[time.Duration]int{}
	for range 600 {
		v := Volume{ID: newID()}
		turns[v.spread()]++
		if v.spread() < 0 || v.spread() >= spreadMax {
			t.Errorf("volume %d has its turn after %s", v.ID, v.spread())
		}
	}
	if len(turns) < 50 {
		t.Errorf("600 volumes have their turns in %d seconds of a minute", len(turns))
	}
}

func TestSurplus(t *testing.T) {
	now := "2026-11-28 21:08:00"
	var hours []*snapshotRecord
	for i := range 6 {
		hours = append(hours, scheduled(fmt.Sprintf("2026-11-28 %02d:00:00", 16+i), "hourly"))
	}
	midnight := scheduled("2026-11-28 00:00:00", "hourly", "daily")
	future := scheduled("2036-01-01 00:00:00", "hourly")
	for _, tt := range []struct {
		name     string
		schedule Schedule
		has      []*snapshotRecord
		want     []*snapshotRecord
	}{
		{"as many as it says", Schedule{Hourly: 6}, hours, nil},
		{"too many", Schedule{Hourly: 4}, hours, hours[:2]},
		{"a kind that is not in it", Schedule{Daily: 1}, hours, nil},
		{"one that another kind keeps", Schedule{Hourly: 4, Daily: 1}, append([]*snapshotRecord{midnight}, hours...), hours[:2]},
		{"one that no kind keeps", Schedule{Hourly: 6, Daily: 1}, append([]*snapshotRecord{scheduled("2026-11-27 00:00:00", "daily"), midnight}, hours...), []*snapshotRecord{scheduled("2026-11-27 00:00:00", "daily")}},
		{"of a clock that was wrong", Schedule{Hourly: 6}, append([]*snapshotRecord{future}, hours...), []*snapshotRecord{future}},
		{"the clock is a bit back", Schedule{Hourly: 6}, append([]*snapshotRecord{scheduled("2026-11-28 22:00:00", "hourly")}, hours...), hours[:1]},
	} {
		names := func(list []*snapshotRecord) (all []string) {
			for _, r := range list {
				all = append(all, r.Name)
			}
			return all
		}
		if got := tt.schedule.surplus(tt.has, at(now)); !slices.Equal(names(got), names(tt.want)) {
			t.Errorf("%s: %v, want %v", tt.name, names(got), names(tt.want))
		}
	}
}
