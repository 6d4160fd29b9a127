package nfsv41_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/podnas/podnas/internal/statedir"
	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/server/locate"
	"github.com/podnas/podnas/server/nfsv41"
	"github.com/podnas/podnas/server/nfsv41/state"
	"github.com/podnas/podnas/server/vfs"
	"github.com/podnas/podnas/test/testdisk"
)

// life is a disk, and a folder in memory, that servers die over.
type life struct {
	t    *testing.T
	cfg  nfsv41.Config
	said *bytes.Buffer
}

func newLife(t *testing.T) *life {
	t.Helper()
	l := &life{t: t, said: &bytes.Buffer{}}
	table, key := &exports.Table{ByIndex: testdisk.ByIndex()}, locate.NewKey(make([]byte, 32))
	log := slog.New(slog.NewTextHandler(l.said, nil))
	opener := inode.NewOpener(table, key, log)
	t.Cleanup(opener.Close)
	l.cfg = nfsv41.Config{
		Files: vfs.New(vfs.Config{Opener: opener, Log: log}), Opener: opener, Table: table, Key: key, Log: log,
		Tracking: filepath.Join(t.TempDir(), "clients"), StateLog: filepath.Join(t.TempDir(), "log"),
	}
	return l
}

// start starts a server, when the one before has died.
func (l *life) start() *nfsv41.Server {
	l.t.Helper()
	l.said.Reset()
	s, err := nfsv41.New(l.cfg)
	if err == nil {
		err = s.Begin()
	}
	if err != nil {
		l.t.Fatal(err)
	}
	return s
}

// open has a client with a file open.
func (l *life) open(s *nfsv41.Server, name string) {
	l.t.Helper()
	l.openFrom(s, name, "", name)
}

// openFrom has a client from an address with a file open.
func (l *life) openFrom(s *nfsv41.Server, client, address, name string) {
	l.t.Helper()
	args := state.ExchangeIDArgs{Owner: []byte(client)}
	if address != "" {
		conn := comesFrom(address)
		args.Conn = &conn
	}
	id, status := s.State().ExchangeID(args)
	l.ok(status)
	channel := state.Channel{MaxRequest: 1 << 16, MaxResponse: 1 << 16, MaxOps: 8, MaxSlots: 1}
	session, status := s.State().CreateSession(state.CreateSessionArgs{ClientID: id.ClientID, Seq: id.Seq, Fore: channel, Back: channel})
	l.ok(status)
	request, status := s.State().Sequence(state.SequenceArgs{Session: session.ID, Seq: 1, Ops: 3, Size: 100})
	l.ok(status)
	l.ok(s.State().ReclaimComplete(request.Slot.Client(), false))
	_, _, status = s.State().Open(request.Slot.Client(), state.OpenArgs{Owner: []byte(name), File: state.FileKey{Volume: 1, Len: 1}, Access: state.Read})
	l.ok(status)
	request.Slot.Done(nil, false)
}

func (l *life) ok(e nfs4.Status) {
	l.t.Helper()
	if e != nfs4.OK {
		l.t.Fatal(e)
	}
}

func (l *life) do(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

// A server goes on with the log of one that has died if nobody has served the disk since, and
// nothing else is wrong with it.
func TestStateLog(t *testing.T) {
	change := func(l *life, s *nfsv41.Server, do func([]byte) []byte) error {
		name, _ := s.LogFile()
		b, err := os.ReadFile(filepath.Join(l.cfg.StateLog, name))
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(l.cfg.StateLog, name), do(b), 0o600)
	}
	for _, tt := range []struct {
		name   string
		before func(l *life, s *nfsv41.Server)
		goesOn bool
		says   string
	}{
		{"it died", func(*life, *nfsv41.Server) {}, true, "podnas had died, and clients go on"},
		{"it died while it wrote", func(l *life, s *nfsv41.Server) {
			l.do(change(l, s, func(b []byte) []byte { return append(b, state.AppendFrame(nil, []byte("{}"))[:9]...) }))
		}, true, "clients go on"},
		{"the number of the run is gone", func(l *life, _ *nfsv41.Server) {
			l.do(os.Remove(filepath.Join(l.cfg.Tracking, "..", nfsv41.RunFile)))
		}, false, "another podnas has served this disk since"},
		{"a podnas without a log was there", func(l *life, _ *nfsv41.Server) {
			other := *l
			other.cfg.StateLog = ""
			other.start()
		}, false, "another podnas has served this disk since"},
		{"a podnas elsewhere was there", func(l *life, _ *nfsv41.Server) {
			other := *l
			other.cfg.StateLog = filepath.Join(t.TempDir(), "elsewhere")
			other.start()
		}, false, "another podnas has served this disk since"},
		{"another boot", func(l *life, s *nfsv41.Server) {
			l.do(change(l, s, func(b []byte) []byte {
				records, rest, _ := state.CutFrame(b)
				return append(state.AppendFrame(nil, bytes.Replace(records, []byte(`"kernel":"`), []byte(`"kernel":"AAAA`), 1)), rest...)
			}))
		}, false, "it is of another boot"},
		{"another format", func(l *life, s *nfsv41.Server) {
			l.do(change(l, s, func(b []byte) []byte {
				records, rest, _ := state.CutFrame(b)
				return append(state.AppendFrame(nil, bytes.Replace(records, []byte(`"format":3`), []byte(`"format":4`), 1)), rest...)
			}))
		}, false, "it has the format 4"},
		{"an empty file", func(l *life, s *nfsv41.Server) {
			l.do(change(l, s, func([]byte) []byte { return nil }))
		}, false, "it is damaged"},
		{"nothing but its beginning", func(l *life, s *nfsv41.Server) {
			_, head := s.LogFile()
			l.do(change(l, s, func(b []byte) []byte { return b[:head] }))
		}, false, "it is not whole"},
		{"it contradicts itself", func(l *life, s *nfsv41.Server) {
			l.do(change(l, s, func(b []byte) []byte { return append(b, state.AppendFrame(nil, []byte(`{"open":{"client":1}}`))...) }))
		}, false, "it contradicts itself"},
		{"another list of clients", func(l *life, s *nfsv41.Server) {
			l.do(errors.Join(os.Remove(filepath.Join(l.cfg.Tracking, entries(l)[0])), s.Track(state.TrackedClient{ClientID: 1, Owner: "x", Lease: 1})))
		}, true, "clients go on"},
		{"a log of another disk", func(l *life, _ *nfsv41.Server) {
			l.cfg.Key = locate.NewKey([]byte("another key"))
		}, false, "may reclaim"},
		{"it died of the log", func(l *life, _ *nfsv41.Server) {
			for range nfsv41.TriesMax {
				if s := l.start(); !s.WentOn() {
					t.Errorf("it does not go on at once: %s", l.said)
				}
			}
		}, false, "died 3 times in a row"},
		{"it died often, and not soon", func(l *life, _ *nfsv41.Server) {
			for range nfsv41.TriesMax {
				s := l.start()
				s.BeganBefore(2 * nfsv41.StableAfter)
				s.WatchLog()
			}
		}, true, "clients go on"},
		{"it was meant to end", func(l *life, s *nfsv41.Server) {
			s.Stop()
			if files, _ := os.ReadDir(l.cfg.StateLog); len(files) > 0 {
				t.Errorf("it leaves %v", files)
			}
		}, false, "clients go on"},
		{"it died after it had handed over", func(l *life, s *nfsv41.Server) {
			l.do(s.HandOver())
		}, false, "clients go on"},
		{"what it had handed over is damaged", func(l *life, s *nfsv41.Server) {
			l.do(errors.Join(s.HandOver(), os.WriteFile(filepath.Join(l.cfg.Tracking, nfsv41.HandoverFile), nil, 0o600)))
		}, true, "podnas had died, and clients go on"},
		{"it could not hand over", func(l *life, s *nfsv41.Server) {
			closed, err := statedir.Open(filepath.Join(t.TempDir(), "closed"), nil, l.cfg.Log)
			l.do(err)
			l.do(closed.Close())
			s.StopIn(closed)
		}, true, "podnas had died, and clients go on"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newLife(t)
			s := l.start()
			l.open(s, "node")
			tt.before(l, s)
			s = l.start()
			if s.WentOn() != tt.goesOn || !strings.Contains(l.said.String(), tt.says) {
				t.Errorf("it goes on: %t; it says %s", s.WentOn(), l.said)
			}
			n := s.State().Counts()
			if handed := strings.Contains(tt.says, "clients go on"); n.InGrace == handed || handed != (n.Opens == 1) {
				t.Errorf("there are %+v", n)
			}
			// Whatever was there, the next one goes on with the log of this one.
			s = l.start()
			if again := s.State().Counts(); !s.WentOn() || again.InGrace != n.InGrace || again.Opens != n.Opens {
				t.Errorf("after %+v: goes on %t with %+v; it says %s", n, s.WentOn(), again, l.said)
			}
		})
	}
}

// A log that does not fit into its folder is removed, and the server serves on.
func TestStateLogFull(t *testing.T) {
	l := newLife(t)
	l.do(os.Mkdir(l.cfg.StateLog, 0o700))
	if err := syscall.Mount("tmpfs", l.cfg.StateLog, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("needs a disk that can be filled: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(l.cfg.StateLog, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	s := l.start()
	for n := 0; s.StateLogFailed() == nil; n++ {
		if n > 1000 {
			t.Fatal("it has grown without an end")
		}
		l.open(s, fmt.Sprint("node", n))
	}
	if err := s.StateLogFailed(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("it fails by %v", err)
	}
	l.open(s, "one more")
	for range 2 {
		s.WatchLog()
	}
	if n := strings.Count(l.said.String(), "can't be written"); n != 1 {
		t.Errorf("it is told %d times: %s", n, l.said)
	}
	if files, err := os.ReadDir(l.cfg.StateLog); err != nil || len(files) > 0 {
		t.Errorf("it leaves %v, %v", files, err)
	}
	if s = l.start(); s.WentOn() || !s.State().InGrace() {
		t.Error("the next one does not begin with a grace period")
	}
}

// A log that has become long is replaced, also by who acts as somebody to whom the folder is closed.
func TestStateLogReplaced(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to act as another")
	}
	l := newLife(t)
	s := l.start()
	l.open(s, "node")
	s.LogIsLong()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // it ends with the goroutine
		err := syscall.Setfsuid(1000)
		defer func() { done <- err }()
		if err == nil {
			l.open(s, "another")
			err = s.State().CopyLog()
		}
	}()
	l.do(<-done)
	l.do(s.StateLogFailed())
	if s.IsLogLong() {
		t.Error("it was not replaced")
	}
	if s = l.start(); !s.WentOn() || s.State().Counts().Opens != 2 {
		t.Errorf("it says %s", l.said)
	}
}

// While a server runs its log is replaced when it has become long. Where that can't be, it goes on.
func TestStateLogGrows(t *testing.T) {
	l := newLife(t)
	s := l.start()
	name, _ := s.LogFile()
	path := filepath.Join(l.cfg.StateLog, name)
	s.LogIsLong()
	l.do(errors.Join(os.Remove(path), os.MkdirAll(filepath.Join(path, "in the way"), 0o700)))
	l.open(s, "node")
	if err := s.State().CopyLog(); err == nil {
		t.Error("a file takes the place of a folder")
	}
	l.do(s.StateLogFailed())
	l.do(os.RemoveAll(path))
	s.LogIsLong()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { s.Run(ctx); close(ended) }()
	end := sync.OnceFunc(func() { cancel(); <-ended })
	defer end()
	for i := 0; ; i++ {
		l.open(s, fmt.Sprint("node", i))
		if _, err := os.Stat(path); err == nil {
			break
		}
	}
	end()
	opens := s.State().Counts().Opens
	if s = l.start(); !s.WentOn() || s.State().Counts().Opens != opens {
		t.Errorf("it says %s", l.said)
	}
}

// A folder that can't be made is an error at the start.
func TestStateLogRefused(t *testing.T) {
	l := newLife(t)
	l.do(os.WriteFile(l.cfg.StateLog, nil, 0o600))
	if _, err := nfsv41.New(l.cfg); err == nil || !strings.Contains(err.Error(), l.cfg.StateLog) {
		t.Errorf("a file in place of the folder: %v", err)
	}
}
