package volume

import (
	"strings"
	"testing"
	"time"
)

// A snapshot that made clients wait is a finding until the next one.
func TestLongWait(t *testing.T) {
	root := t.TempDir()
	s, c := openWith(t, root)
	mustCreate(t, s, "v")
	c.waited = 1400 * time.Millisecond
	mustSnapshot(t, s, "v", "slow")
	mustDo(t, s.Close())
	s, c = openWith(t, root)
	findings, err := s.Check()
	if err != nil || len(findings) != 1 || !findings[0].Notice || findings[0].Volume != "v" ||
		!strings.Contains(findings[0].Problem, "snapshot slow was taken") || !strings.Contains(findings[0].Problem, "waited 1.4 s") {
		t.Errorf("findings: %+v, %v", findings, err)
	}
	got, err := s.GetSnapshot("v", "slow")
	if err != nil || got.LongestWait != 1400 || !strings.HasPrefix(got.WaitedFor, "...") || !strings.HasSuffix(got.WaitedFor, "/not UTF-8 \ufffd") {
		t.Errorf("%+v, %v", got, err)
	}
	c.waited, c.paused = 1200*time.Millisecond, 1300*time.Millisecond
	mustSnapshot(t, s, "v", "paused")
	if got, err := s.GetSnapshot("v", "paused"); err != nil || got.Paused != 1300 {
		t.Errorf("%+v, %v", got, err)
	}
	if findings, err := s.Check(); err != nil || len(findings) != 1 || !strings.Contains(findings[0].Problem, "all changes of the volume waited 1.3 s") {
		t.Errorf("after a pause: %+v, %v", findings, err)
	}
	c.waited, c.paused = 900*time.Millisecond, 900*time.Millisecond
	mustSnapshot(t, s, "v", "quick")
	if findings, err := s.Check(); err != nil || len(findings) != 0 {
		t.Errorf("after the next one: %+v, %v", findings, err)
	}
	mustDo(t, s.Close())
}
