package nfsv41_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/podnas/podnas/server/locate"
	"github.com/podnas/podnas/server/nfsv41"
	"github.com/podnas/podnas/server/nfsv41/state"
)

// What is handed over is of use for the next process alone, and has all that clients have: also where the
// list of clients was damaged.
func TestHandover(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(l *life, file func(string) string, older []byte)
		opens  int  // that clients go on with
		grace  bool // whether clients have to reclaim
		aside  string
	}{
		{name: "as it was", change: func(*life, func(string) string, []byte) {}, opens: 2},
		{name: "of an older run", change: func(l *life, file func(string) string, older []byte) {
			l.do(os.WriteFile(file(nfsv41.HandoverFile), older, 0o600))
		}, grace: true},
		{name: "without the number of the run", change: func(l *life, file func(string) string, _ []byte) {
			l.do(os.Remove(filepath.Join(file(".."), nfsv41.RunFile)))
		}, grace: true},
		{name: "with a damaged number", change: func(l *life, file func(string) string, _ []byte) {
			l.do(os.WriteFile(filepath.Join(file(".."), nfsv41.RunFile), nil, 0o600))
		}, grace: true},
		{name: "a client is not on the list", change: func(l *life, file func(string) string, _ []byte) {
			l.do(os.Remove(file(entries(l)[0])))
		}, opens: 2},
		{name: "a client's entry is damaged", change: func(l *life, file func(string) string, _ []byte) {
			l.do(os.WriteFile(file(entries(l)[0]), []byte("{"), 0o600))
		}, opens: 2, aside: ".json.damaged-1"},
		{name: "a client's entry is another's", change: func(l *life, file func(string) string, _ []byte) {
			b, err := os.ReadFile(file(entries(l)[1]))
			l.do(err)
			l.do(os.WriteFile(file(entries(l)[0]), b, 0o600))
		}, opens: 2},
		{name: "damaged", change: func(l *life, file func(string) string, _ []byte) {
			b, err := os.ReadFile(file(nfsv41.HandoverFile))
			l.do(err)
			l.do(os.WriteFile(file(nfsv41.HandoverFile), bytes.Replace(b, []byte(`"access":1`), []byte(`"access":3`), 1), 0o600))
		}, grace: true, aside: nfsv41.HandoverFile + ".damaged-1"},
		{name: "with something after it", change: func(l *life, file func(string) string, _ []byte) {
			b, err := os.ReadFile(file(nfsv41.HandoverFile))
			l.do(err)
			l.do(os.WriteFile(file(nfsv41.HandoverFile), append(b, 0), 0o600))
		}, grace: true, aside: nfsv41.HandoverFile + ".damaged-1"},
		{name: "it contradicts itself", change: func(l *life, file func(string) string, _ []byte) {
			b, err := os.ReadFile(file(nfsv41.HandoverFile))
			l.do(err)
			head, _, _ := state.CutFrame(b)
			l.do(os.WriteFile(file(nfsv41.HandoverFile), state.AppendFrame(state.AppendFrame(nil, head), []byte(`{"open":{"client":1}}`)), 0o600))
		}, grace: true},
		{name: "a log", change: func(l *life, file func(string) string, _ []byte) {
			s := l.start() // goes on, and dies
			name, _ := s.LogFile()
			b, err := os.ReadFile(filepath.Join(l.cfg.StateLog, name))
			l.do(errors.Join(err, os.Remove(filepath.Join(l.cfg.StateLog, name))))
			l.do(os.WriteFile(file(nfsv41.HandoverFile), b, 0o600))
		}, grace: true},
		{name: "another disk's", change: func(l *life, _ func(string) string, _ []byte) {
			l.cfg.Key = locate.NewKey([]byte("another key"))
		}, grace: true},
		{name: "a folder", change: func(l *life, file func(string) string, _ []byte) {
			l.do(errors.Join(os.Remove(file(nfsv41.HandoverFile)), os.MkdirAll(filepath.Join(file(nfsv41.HandoverFile), "x"), 0o700)))
		}, grace: true, aside: nfsv41.HandoverFile + ".damaged-1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newLife(t)
			file := func(name string) string { return filepath.Join(l.cfg.Tracking, name) }
			s := l.start()
			l.open(s, "one")
			l.open(s, "two")
			s.Stop()
			older, err := os.ReadFile(file(nfsv41.HandoverFile))
			l.do(err)
			l.start().Stop() // the list is the same
			tt.change(l, file, older)

			s = l.start()
			if n := s.State().Counts(); n.Opens != tt.opens || s.State().InGrace() != tt.grace {
				t.Errorf("%d open files, want %d; grace %v, want %v\n%s", n.Opens, tt.opens, s.State().InGrace(), tt.grace, l.said)
			}
			aside, _ := filepath.Glob(file("*.damaged-*"))
			if tt.aside == "" && len(aside) > 0 || tt.aside != "" && (len(aside) != 1 || !strings.HasSuffix(aside[0], tt.aside)) {
				t.Errorf("put aside: %v, want %q", aside, tt.aside)
			}
			if tt.opens > 0 && len(entries(l)) != 2 {
				t.Errorf("the list has %v", entries(l))
			}
			if _, err := os.Lstat(file(nfsv41.HandoverFile)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("it is there still: %v", err)
			}
			s.Stop()
		})
	}
}

// A back channel without its minor version is refused: callbacks would be of none.
func TestHandoverBackChannel(t *testing.T) {
	for text, right := range map[string]bool{`{"minor":2,"seq":1,"program":5}`: true, `{"seq":1,"program":5}`: false, `[]`: false} {
		if back, err := nfsv41.RestoreBack([]byte(text)); (err == nil) != right {
			t.Errorf("%s: %v, %v", text, back, err)
		}
	}
}

// A handover that is cut anywhere is put aside, and clients reclaim what they had.
func TestHandoverCut(t *testing.T) {
	l := newLife(t)
	file := filepath.Join(l.cfg.Tracking, nfsv41.HandoverFile)
	s := l.start()
	l.open(s, "one")
	s.Stop()
	whole, err := os.ReadFile(file)
	l.do(err)
	number, err := os.ReadFile(filepath.Join(l.cfg.Tracking, "..", nfsv41.RunFile))
	l.do(err)
	for i := range whole {
		l.do(errors.Join(os.WriteFile(file, whole[:i], 0o600), os.WriteFile(filepath.Join(l.cfg.Tracking, "..", nfsv41.RunFile), number, 0o600)))
		s := l.start()
		if n := s.State().Counts(); n.Opens > 0 || !n.InGrace {
			t.Fatalf("%d of %d bytes: %+v", i, len(whole), n)
		}
		l.do(os.Remove(file + ".damaged-1"))
	}
}

// A process may die at each step of ending or of beginning: what clients had goes on, with their sessions until another process
// has begun to serve.
func TestHandoverKilled(t *testing.T) {
	l := newLife(t)
	goesOn := func(s *nfsv41.Server, when string, sessions int) {
		t.Helper()
		if n := s.State().Counts(); n.InGrace || n.Opens != 1 || n.Sessions != sessions {
			t.Errorf("%s: %+v; it says %s", when, n, l.said)
		}
	}
	// begin is what Begin does, until a step.
	begin := func(steps int) *nfsv41.Server {
		t.Helper()
		l.said.Reset()
		s, err := nfsv41.New(l.cfg)
		l.do(err)
		l.do(s.BeginUntil(steps))
		return s
	}
	s := l.start()
	l.open(s, "one")
	l.do(s.HandOver()) // and the log is there
	goesOn(begin(0), "handed over", 1)
	goesOn(begin(1), "looked at by another", 1)
	goesOn(begin(2), "which has begun a log", 1)
	goesOn(begin(3), "which has begun a run", 0)
	goesOn(l.start(), "which has forgotten the handover", 0)
	goesOn(l.start(), "which has died", 0)
}

// A process that ends may go on another node, where the log in memory of the one before is not: what is on the disk is enough, once.
// If it, or the next one, is killed on the way, that is used as long as nobody has begun to serve, and else clients reclaim.
func TestHandoverMoves(t *testing.T) {
	const reclaims, goes = "may reclaim", "go on with what they have open and locked"
	for _, tt := range []struct {
		name string
		// end ends a server, whose client has a file open. Then there is another server, with a log in another folder.
		end  func(l *life, s *nfsv41.Server)
		says string
	}{
		{"ended", func(_ *life, s *nfsv41.Server) { s.Stop() }, goes},
		{"killed before", func(*life, *nfsv41.Server) {}, reclaims},
		{"killed while it wrote", func(l *life, _ *nfsv41.Server) {
			l.do(os.WriteFile(filepath.Join(l.cfg.Tracking, "new-"+nfsv41.HandoverFile), []byte("half"), 0o600))
		}, reclaims},
		{"killed after", func(l *life, s *nfsv41.Server) { l.do(s.HandOver()) }, goes},
		{"the next one is killed before it begins", func(l *life, s *nfsv41.Server) {
			s.Stop()
			l.move(0)
		}, goes},
		{"the next one is killed with a log", func(l *life, s *nfsv41.Server) {
			s.Stop()
			l.move(1)
		}, goes},
		{"the next one is killed when it has begun", func(l *life, s *nfsv41.Server) {
			s.Stop()
			l.move(2)
		}, reclaims},
		{"the next one is killed when it serves", func(l *life, s *nfsv41.Server) {
			s.Stop()
			l.move(3)
		}, reclaims},
		{"the next one ends", func(l *life, s *nfsv41.Server) {
			s.Stop()
			l.move(3).Stop()
		}, goes},
		{"it comes from a copy of the disk", func(l *life, s *nfsv41.Server) {
			s.Stop()
			left, err := os.ReadFile(filepath.Join(l.cfg.Tracking, nfsv41.HandoverFile))
			l.do(err)
			l.move(3)
			l.do(os.WriteFile(filepath.Join(l.cfg.Tracking, nfsv41.HandoverFile), left, 0o600))
		}, reclaims},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newLife(t)
			s := l.start()
			l.open(s, "one")
			tt.end(l, s)
			s = l.move(3)
			if n := s.State().Counts(); n.InGrace != (tt.says == reclaims) || n.Opens == 1 == n.InGrace || s.WentOn() || !strings.Contains(l.said.String(), tt.says) {
				t.Errorf("%+v; it says %s", n, l.said)
			}
		})
	}
}

// move starts a server on another node, until a step of Begin.
func (l *life) move(steps int) *nfsv41.Server {
	l.t.Helper()
	l.cfg.StateLog = l.t.TempDir()
	l.said.Reset()
	s, err := nfsv41.New(l.cfg)
	l.do(err)
	l.do(s.BeginUntil(steps))
	return s
}

// entries are the files of the list.
func entries(l *life) (names []string) {
	paths, err := filepath.Glob(filepath.Join(l.cfg.Tracking, "*.json"))
	l.do(err)
	for _, path := range paths {
		names = append(names, filepath.Base(path))
	}
	return names
}

// On a full disk no run can begin: what the one before has left is void then, and this one's log with it.
func TestBeginOnFullDisk(t *testing.T) {
	l := newLife(t)
	dir := filepath.Join(t.TempDir(), "disk")
	l.do(os.Mkdir(dir, 0o700))
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("needs a disk that can be filled: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	l.cfg.Tracking = filepath.Join(dir, "clients")
	s := l.start()
	l.open(s, "one")
	s.Stop()
	full := filepath.Join(dir, "full")
	if err := os.WriteFile(full, make([]byte, 1<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	s = l.start()
	if n := s.State().Counts(); n.Opens != 1 || s.StateLogFailed() == nil {
		t.Errorf("%+v, the log: %v; it says %s", n, s.StateLogFailed(), l.said)
	}
	s.WatchLog()
	l.do(os.Remove(full))
	l.open(s, "two")
	died := l.start()
	if n := died.State().Counts(); !n.InGrace || died.WentOn() {
		t.Errorf("after it has died: %+v; it says %s", n, l.said)
	}
}
