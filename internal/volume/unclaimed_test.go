package volume

import (
	"errors"
	"testing"
)

// What nobody has claimed is known in the next process, and what somebody has, too.
func TestUnclaimed(t *testing.T) {
	root := t.TempDir()
	s, c := openWith(t, root)
	mustCreate(t, s, "v")
	names := func(want ...string) {
		t.Helper()
		found := map[string]bool{}
		for _, u := range s.Unclaimed() {
			found[u.Name] = true
		}
		ok := len(found) == len(want)
		for _, name := range want {
			ok = ok && found[name]
		}
		if !ok {
			t.Errorf("unclaimed are %v, want %v", found, want)
		}
	}
	ended := func() bool { return len(s.SnapshotsUnderWay()) == 0 }
	start := func(name string) (letGo func()) {
		t.Helper()
		reached, letGo := c.hold()
		_, err := s.StartUnclaimed(t.Context(), "v", name)
		mustDo(t, err)
		<-reached
		return letGo
	}
	letGo := start("early")
	names("early")
	mustDo(t, s.ClaimSnapshot("v", "early")) // while it is taken
	names()
	letGo()
	eventually(t, "it is complete", ended)
	names()
	for _, name := range []string{"late", "never"} {
		letGo = start(name)
		letGo()
		eventually(t, "it is complete", ended)
	}
	mustSnapshot(t, s, "v", "plain")
	names("late", "never")
	mustDo(t, s.Close())

	s, c = openWith(t, root)
	names("late", "never")
	for range 2 {
		mustDo(t, s.ClaimSnapshot("v", "late"))
	}
	names("never")
	if err := s.ClaimSnapshot("v", "nothing"); !errors.Is(err, ErrNoSnapshot) {
		t.Errorf("claim of nothing: %v", err)
	}
	mustDo(t, s.Delete(t.Context(), "v")) // whose snapshots stay
	mustDo(t, s.Close())

	s, _ = openWith(t, root)
	names("never")
	u := s.Unclaimed()[0]
	mustDo(t, s.DeleteSnapshot(t.Context(), u.Volume, u.Name))
	names()
}
