package volume

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

func TestParseSnapshotReserve(t *testing.T) {
	for _, tt := range []struct {
		text string
		want int
		ok   bool
	}{
		{"0", 0, true},
		{"0%", 0, true},
		{" 20 % ", 20, true},
		{"100%", 100, true},
		{"101%", 0, false},
		{"-1%", 0, false},
		{"20", 0, false},
		{"10Gi", 0, false},
		{"", 0, false},
		{"%", 0, false},
		{"99999999999999999999%", 0, false},
	} {
		got, err := ParseSnapshotReserve(tt.text)
		if got != tt.want || (err == nil) != tt.ok || err != nil && !strings.Contains(err.Error(), `"100%"`) {
			t.Errorf("%q: %d, %v", tt.text, got, err)
		}
	}
}

func FuzzParseSnapshotReserve(f *testing.F) {
	for _, text := range []string{"0", "20%", "+5%"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		percent, err := ParseSnapshotReserve(text)
		if err != nil {
			return
		}
		if again, err := ParseSnapshotReserve(fmt.Sprintf("%d%%", percent)); again != percent || err != nil {
			t.Errorf("%q is %d%%: %d, %v", text, percent, again, err)
		}
	})
}

func TestReserveFor(t *testing.T) {
	for _, tt := range []struct {
		percent     *int
		bytes, want int64
	}{
		{nil, 1000, 1000},
		{ptr(100), math.MaxInt64, math.MaxInt64},
		{ptr(20), 1009, 201},
		{ptr(0), math.MaxInt64, 0},
		{ptr(99), 1, 0},
	} {
		v := Volume{SnapshotReserve: tt.percent}
		if got := v.reserveFor(tt.bytes); got != tt.want {
			t.Errorf("%d%% of %d: %d, want %d", v.ReservePercent(), tt.bytes, got, tt.want)
		}
	}
}

func ptr(n int) *int { return &n }

// What snapshots take is told, also those of deleted volumes, and what is promised outlives a restart.
func TestSnapshotUses(t *testing.T) {
	root := t.TempDir()
	s, _, clock := withSchedule(t, root, Schedule{Hourly: 2})
	writeInto(t, root, "v")
	v, err := s.Get("v")
	mustDo(t, err)
	clock.look(t, "2026-11-28 21:00:00")
	mustSnapshot(t, s, "v", "full")
	_, err = s.SetSnapshotReserve(t.Context(), "v", 0)
	mustDo(t, err)
	last := mustSnapshot(t, s, "v", "last")
	check := func(what string) {
		t.Helper()
		u, space := s.SnapshotUses()[v.ID], mustSpace(t, s)
		if u.Count != 3 || u.Scheduled != 1 || u.Bytes != 3*last.Bytes || u.Reserve != last.Bytes || !u.Newest.Equal(last.Created) || last.Bytes == 0 {
			t.Errorf("%s: %+v", what, u)
		}
		if size := space.Promised - u.Reserve; size != 1<<20 && size != 0 {
			t.Errorf("%s: %+v", what, space)
		}
	}
	check("taken")
	mustDo(t, s.Close())
	s, _ = openWith(t, root)
	check("after a restart")
	if v, err := s.Get("v"); err != nil || v.ReservePercent() != 0 {
		t.Errorf("after a restart: %d%%, %v", v.ReservePercent(), err)
	}
	mustDo(t, s.Delete(t.Context(), "v"))
	check("of a deleted volume")
}

func mustSpace(t *testing.T, s *Store) Space {
	t.Helper()
	space, err := s.Space()
	mustDo(t, err)
	return space
}

// Which snapshots are deleted for room: the oldest scheduled ones of all volumes, and no others.
func TestOldestScheduled(t *testing.T) {
	s, _, clock := withSchedule(t, t.TempDir(), Schedule{Hourly: 9})
	clock.look(t, "2026-11-28 19:00:00")
	mustSnapshot(t, s, "v", "by-hand")
	if _, err := s.Create(t.Context(), Spec{Name: "w", Size: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	clock.look(t, "2026-11-28 20:00:00")
	clock.look(t, "2026-11-28 21:00:00")
	var names []string
	for _, r := range s.oldestScheduled() {
		names = append(names, r.Name)
	}
	if want := []string{"hourly-2026-11-28-1900", "hourly-2026-11-28-2000", "hourly-2026-11-28-2100"}; !slices.Equal(names, want) {
		t.Errorf("%v, want %v", names, want)
	}
	if wait := s.giveRoom(t.Context()); wait < roomLookNear || wait > roomLook || len(s.oldestScheduled()) != 3 {
		t.Errorf("with room: looks again in %s, and there are %d", wait, len(s.oldestScheduled()))
	}
	if s.GivesRoom(0, 0) {
		t.Error("a disk with room is said to be full")
	}
	if !s.hasRoomToGive() {
		t.Error("there is nothing to give")
	}
	s.giving.stuck.Store(true)
	eventually(t, "the folders in which they were taken are removed", func() bool { return !s.emptiesTrees() })
	if s.hasRoomToGive() {
		t.Error("what can't be deleted is said to give room")
	}
	if given, all := s.Given(0); len(given) != 0 || all != 0 {
		t.Errorf("given: %v, %d", given, all)
	}
}

func TestGiven(t *testing.T) {
	s := &Store{}
	for i := range givenMax + 5 {
		s.giving.given, s.giving.givens = append(s.giving.given, Snapshot{Name: fmt.Sprint(i)}), i+1
	}
	s.giving.given = s.giving.given[5:]
	for _, tt := range []struct{ after, want int }{{0, givenMax}, {givenMax, 5}, {givenMax + 4, 1}, {givenMax + 5, 0}, {givenMax + 50, 0}} {
		given, all := s.Given(tt.after)
		if len(given) != tt.want || all != givenMax+5 || tt.want > 0 && given[tt.want-1].Name != "104" {
			t.Errorf("after %d: %d, %d", tt.after, len(given), all)
		}
	}
}

func TestLeastFree(t *testing.T) {
	for _, tt := range []struct{ size, want int64 }{{0, 0}, {1000, 50}, {100 << 30, 5 << 30}, {100 << 40, 32 << 30}} {
		if got := (&Space{Size: tt.size}).leastFree(); got > tt.want || got < tt.want-tt.want/100 {
			t.Errorf("of %d: %d, want %d", tt.size, got, tt.want)
		}
	}
}
