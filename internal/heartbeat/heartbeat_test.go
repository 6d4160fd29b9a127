package heartbeat_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/podnas/podnas/internal/heartbeat"
	"github.com/podnas/podnas/internal/statedir"
)

func mustDo(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Times that a test can wait for.
const (
	every   = 10 * time.Millisecond
	hold    = 500 * time.Millisecond
	closing = 3 * time.Second
	long    = time.Minute // no beat is late
)

// log keeps what is logged.
type log struct {
	mu sync.Mutex
	// +checklocks:mu
	text bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// open opens a heartbeat in a folder until the test ends. Times that cfg lacks are short.
func open(t testing.TB, disk string, cfg heartbeat.Config) *heartbeat.Heartbeat {
	t.Helper()
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	dir, err := statedir.Open(filepath.Join(disk, "state"), cfg.Reserve, cfg.Log)
	mustDo(t, err)
	cfg.Dir = dir
	if cfg.Mounted.IsZero() {
		cfg.Mounted = time.Now()
	}
	if cfg.Every == 0 {
		cfg.Every, cfg.Hold, cfg.Close = every, hold, closing
	}
	h, err := heartbeat.Open(cfg)
	mustDo(t, err)
	t.Cleanup(h.Close)
	return h
}

// fault is a disk that fails as a test wants.
type fault struct {
	mu sync.Mutex
	// +checklocks:mu
	err  error
	hang chan struct{} // beats wait until it is closed; nil: they don't
}

func (f *fault) overwrite([]byte) error {
	f.mu.Lock()
	err, hang := f.err, f.hang
	f.mu.Unlock()
	if hang != nil {
		<-hang
	}
	return err
}

func (f *fault) set(err error, hang chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err, f.hang = err, hang
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// waits reports how a reply fares that is to be sent now.
func waits(h *heartbeat.Heartbeat) <-chan error {
	sent := make(chan error, 1)
	go func() { sent <- h.Wait(nil) }()
	return sent
}

func TestFaults(t *testing.T) {
	for _, tt := range []struct {
		name string
		err  error
		says string // of Err, while it lasts; empty: replies leave
	}{
		{"an I/O error", syscall.EIO, "input/output error"},
		{"read-only", &fs.PathError{Op: "open", Path: "x", Err: syscall.EROFS}, "read-only file system"},
		{"a lost reservation", syscall.EBADE, "invalid exchange"},
		{"no right", syscall.EACCES, "permission denied"},
		{"full", fmt.Errorf("write: %w", syscall.ENOSPC), ""},
		{"over a quota", syscall.EDQUOT, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var f fault
			logged := &log{}
			h := open(t, t.TempDir(), heartbeat.Config{Overwrite: f.overwrite, Log: slog.New(slog.NewTextHandler(logged, nil))})
			mustDo(t, h.Wait(nil))
			f.set(tt.err, nil)
			if tt.says == "" {
				eventually(t, "it is known", h.Full)
				time.Sleep(2 * hold)
				mustDo(t, h.Wait(nil))
				f.set(nil, nil)
				eventually(t, "there is room", func() bool { return !h.Full() })
				return
			}
			eventually(t, "replies are held", func() bool { return !h.Passes() })
			if err := h.Err(); err == nil || !strings.Contains(strings.ToLower(err.Error()), tt.says) {
				t.Errorf("%v, want %q", err, tt.says)
			}
			sent := waits(h)
			time.Sleep(2 * hold)
			if len(sent) > 0 {
				t.Errorf("sent: %v", <-sent)
			}
			f.set(nil, nil)
			mustDo(t, <-sent)
			mustDo(t, h.Err())
			eventually(t, "the end is logged", func() bool { return strings.Contains(logged.String(), "can be written to again") })
			if n := strings.Count(logged.String(), "\n"); n != 2 {
				t.Errorf("%d lines, want one for the beginning and one for the end:\n%s", n, logged)
			}
		})
	}
}

// Who waits for a beat is not held up for long by a disk that is well, and waits for one that is lost, though other replies leave
// yet: the beats of that are far apart.
func TestWaitBeat(t *testing.T) {
	var f fault
	h := open(t, t.TempDir(), heartbeat.Config{Overwrite: f.overwrite, Every: long, Hold: long, Close: long})
	began := time.Now()
	const waiters = 50
	sent := make(chan error, waiters)
	for range waiters {
		go func() { sent <- h.WaitBeat(nil) }()
	}
	for range waiters {
		mustDo(t, <-sent)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %s", took)
	}
	f.set(syscall.EIO, nil)
	if !h.Passes() {
		t.Fatal("the disk is known to be lost")
	}
	go func() { sent <- h.WaitBeat(nil) }()
	eventually(t, "it is known that the disk is lost", func() bool { return !h.Passes() })
	done := make(chan struct{})
	gone := make(chan error, 1)
	go func() { gone <- h.WaitBeat(done) }()
	close(done)
	if err := <-gone; err == nil {
		t.Error("the reply of a connection that has ended is sent")
	}
	if len(sent) > 0 {
		t.Fatalf("sent: %v", <-sent)
	}
	f.set(nil, nil)
	mustDo(t, h.WaitBeat(nil))
	mustDo(t, <-sent)
	var none *heartbeat.Heartbeat
	mustDo(t, none.WaitBeat(nil))
}

// Whoever asks for beats again and again has no more than some of them made.
func TestWaitBeatIsBounded(t *testing.T) {
	var beats atomic.Int32
	h := open(t, t.TempDir(), heartbeat.Config{Every: long, Hold: long, Close: long, Overwrite: func([]byte) error {
		beats.Add(1)
		return nil
	}})
	began := time.Now()
	for time.Since(began) < time.Second {
		mustDo(t, h.WaitBeat(nil))
	}
	if n := beats.Load(); n > 60 {
		t.Errorf("%d beats in a second", n)
	}
}

// What is wrong with the process says nothing of the disk, unless it lasts.
func TestOwnFault(t *testing.T) {
	var f fault
	h := open(t, t.TempDir(), heartbeat.Config{Overwrite: f.overwrite, Every: every, Hold: 2 * time.Second, Close: closing})
	f.set(syscall.EMFILE, nil)
	for range 20 {
		if time.Sleep(every); !h.Passes() {
			t.Fatal("held at once")
		}
	}
	eventually(t, "replies are held", func() bool { return !h.Passes() })
	if err := h.Err(); !errors.Is(err, syscall.EMFILE) {
		t.Error(err)
	}
}

func TestHang(t *testing.T) {
	var f fault
	logged := &log{}
	h := open(t, t.TempDir(), heartbeat.Config{Overwrite: f.overwrite, Log: slog.New(slog.NewTextHandler(logged, nil))})
	hang, since := make(chan struct{}), h.Since()
	if time.Sleep(3 * every); h.Since() != since || time.Since(since) < 3*every {
		t.Errorf("replies leave since %s, and then %s", since, h.Since())
	}
	f.set(nil, hang)
	eventually(t, "replies are held", func() bool { return !h.Passes() })
	if held := h.Since(); time.Since(held) > hold || held.Sub(since) < hold {
		t.Errorf("while they are held, they leave since %s", held)
	}
	if err := h.Err(); err == nil || !strings.Contains(err.Error(), "no answer for ") {
		t.Error(err)
	}
	early := waits(h)
	done := make(chan struct{})
	gone := make(chan error, 1)
	go func() { gone <- h.Wait(done) }()
	close(done)
	if err := <-gone; err == nil || errors.Is(err, heartbeat.ErrLost) {
		t.Errorf("of a connection that has ended: %v", err)
	}
	if h.Lost() {
		t.Error("lost already")
	}
	if err := <-early; !errors.Is(err, heartbeat.ErrLost) {
		t.Errorf("after too long: %v", err)
	}
	if age := h.Age(); age < closing || !h.Lost() {
		t.Errorf("lost after %s", age)
	}
	if err := h.Wait(nil); !errors.Is(err, heartbeat.ErrLost) { // of a new connection
		t.Error(err)
	}
	f.set(nil, nil)
	close(hang)
	eventually(t, "replies are sent again", h.Passes)
	if h.Lost() {
		t.Error("lost yet")
	}
	mustDo(t, h.Wait(nil))
	if again := h.Since(); again.Sub(since) < closing {
		t.Errorf("after %s replies leave since %s", since, again)
	}
	eventually(t, "the end is logged", func() bool { return strings.Contains(logged.String(), "can be written to again") })
	if n := strings.Count(logged.String(), "\n"); n != 2 || !strings.Contains(logged.String(), "no answer for ") {
		t.Errorf("%d lines:\n%s", n, logged)
	}
}

// A disk that comes and goes all the time is told of once.
func TestFlakyIsToldOnce(t *testing.T) {
	var f fault
	logged := &log{}
	h := open(t, t.TempDir(), heartbeat.Config{Overwrite: f.overwrite, Every: every, Hold: long, Close: long, Log: slog.New(slog.NewTextHandler(logged, nil))})
	for range 5 {
		f.set(syscall.EIO, nil)
		eventually(t, "held", func() bool { return !h.Passes() })
		f.set(nil, nil)
		eventually(t, "sent", h.Passes)
	}
	if n := strings.Count(logged.String(), "can't be written to"); n != 1 {
		t.Errorf("told %d times:\n%s", n, logged)
	}
}

// A disk that hangs at the end does not keep the process.
func TestCloseWhileItHangs(t *testing.T) {
	var f fault
	h := open(t, t.TempDir(), heartbeat.Config{Overwrite: f.overwrite})
	hang := make(chan struct{})
	f.set(nil, hang)
	eventually(t, "it hangs", func() bool { return !h.Passes() })
	began := time.Now()
	h.Close()
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("took %s", took)
	}
	close(hang)
}

// state is what the file says.
type state struct {
	Boot            string
	Device          uint64
	Beat            uint64
	Ended, Takeover bool
}

func read(t *testing.T, disk string) (s state) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(disk, "state", heartbeat.File))
	mustDo(t, err)
	if len(b) != 4096 {
		t.Errorf("%d bytes", len(b))
	}
	mustDo(t, json.Unmarshal(b, &s))
	return s
}

func TestPredecessor(t *testing.T) {
	was := func(change func(s *state)) func(t *testing.T, disk string) {
		return func(t *testing.T, disk string) {
			t.Helper()
			s := read(t, disk)
			change(&s)
			b, err := json.Marshal(s)
			mustDo(t, err)
			mustDo(t, os.WriteFile(filepath.Join(disk, "state", heartbeat.File), append(b, bytes.Repeat([]byte("\n"), 4096-len(b))...), 0o600))
		}
	}
	file := func(do func(file string) error) func(t *testing.T, disk string) {
		return func(t *testing.T, disk string) {
			t.Helper()
			name := filepath.Join(disk, "state", heartbeat.File)
			mustDo(t, os.Remove(name))
			mustDo(t, do(name))
		}
	}
	for _, tt := range []struct {
		name   string
		before func(t *testing.T, disk string)
		waits  bool
	}{
		{"ended", was(func(*state) {}), false},
		{"ended, on another machine", was(func(s *state) { s.Boot = "another" }), false},
		{"killed, on this one", was(func(s *state) { s.Ended = false }), false},
		{"killed, on another", was(func(s *state) { s.Ended, s.Boot = false, "another" }), true},
		{"killed, of an unknown one", was(func(s *state) { s.Ended, s.Boot = false, "" }), true},
		{"killed, with another device", was(func(s *state) { s.Ended = false; s.Device++ }), true},
		{"killed while it waited itself", was(func(s *state) { s.Ended, s.Takeover = false, true }), true},
		{"ended while it waited itself", was(func(s *state) { s.Takeover = true }), true},
		{"none", file(func(string) error { return nil }), false},
		{"nothing in it", file(func(name string) error { return os.WriteFile(name, nil, 0o600) }), true},
		{"nonsense in it", file(func(name string) error { return os.WriteFile(name, []byte("{\"ended\": tr"), 0o600) }), true},
		{"a folder", file(func(name string) error { return os.Mkdir(name, 0o700) }), true},
		{"a fifo", file(func(name string) error { return syscall.Mkfifo(name, 0o600) }), true},
		{"a link", file(func(name string) error { return os.Symlink("/dev/zero", name) }), true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			disk := t.TempDir()
			h := open(t, disk, heartbeat.Config{})
			h.Close()
			if s := read(t, disk); !s.Ended || s.Takeover {
				t.Errorf("a process that has ended says %+v", s)
			}
			if h.Passes() {
				t.Error("a reply leaves after the end")
			}
			tt.before(t, disk)
			mounted := time.Now()
			h = open(t, disk, heartbeat.Config{Mounted: mounted, Every: every, Hold: 2 * time.Second, Close: long})
			if h.Passes() == tt.waits {
				t.Errorf("answers at once: %v", !tt.waits)
			}
			if tt.waits {
				var takeover *heartbeat.TakeoverError
				if err := h.Err(); !errors.As(err, &takeover) || !strings.Contains(err.Error(), "another node") {
					t.Error(err)
				}
				if s := read(t, disk); !s.Takeover {
					t.Errorf("while it waits it says %+v", s)
				}
			}
			mustDo(t, h.Wait(nil))
			if waited := time.Since(mounted); tt.waits && waited < 3*time.Second {
				t.Errorf("waited %s", waited)
			}
			mustDo(t, h.Err())
			eventually(t, "it answers and says so", func() bool { s := read(t, disk); return !s.Takeover && !s.Ended })
		})
	}
}

// The time since the mount counts, however long the start took.
func TestTakeoverIsOver(t *testing.T) {
	disk := t.TempDir()
	mustDo(t, os.Mkdir(filepath.Join(disk, "state"), 0o700))
	mustDo(t, os.WriteFile(filepath.Join(disk, "state", heartbeat.File), nil, 0o600))
	h := open(t, disk, heartbeat.Config{Mounted: time.Now().Add(-long - time.Second), Every: every, Hold: long, Close: long})
	if !h.Passes() {
		t.Error(h.Err())
	}
}

// Whoever does what to the file, the beats go on, and nothing else is changed.
func TestFileIsHurt(t *testing.T) {
	disk := t.TempDir()
	h := open(t, disk, heartbeat.Config{})
	name := filepath.Join(disk, "state", heartbeat.File)
	other := filepath.Join(disk, "other")
	mustDo(t, os.WriteFile(other, []byte("precious"), 0o600))
	for _, hurt := range []struct {
		name string
		do   func() error
	}{
		{"removed", func() error { return os.Remove(name) }},
		{"a folder", func() error { return errors.Join(os.Remove(name), os.MkdirAll(filepath.Join(name, "x"), 0o700)) }},
		{"a symbolic link", func() error { return errors.Join(os.Remove(name), os.Symlink(other, name)) }},
		{"a hard link", func() error { return errors.Join(os.Remove(name), os.Link(other, name)) }},
		{"huge", func() error { return os.Truncate(name, 1<<40) }},
		{"empty", func() error { return os.Truncate(name, 0) }},
		{"unwritable", func() error { return os.Chmod(name, 0) }},
	} {
		err := hurt.do()
		for errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrNotExist) { // a beat came first
			err = hurt.do()
		}
		mustDo(t, err)
		if hurt.name == "unwritable" && os.Getuid() != 0 {
			eventually(t, "replies are held", func() bool { return !h.Passes() })
			mustDo(t, os.Chmod(name, 0o600))
		}
		before := uint64(0)
		eventually(t, hurt.name+": it is a file again", func() bool {
			b := make([]byte, 4096)
			f, err := os.Open(name)
			if err != nil {
				return false
			}
			defer f.Close()
			var s state
			n, _ := f.ReadAt(b, 0)
			if json.Unmarshal(b[:n], &s) != nil || s.Beat == 0 {
				return false
			}
			if before == 0 {
				before = s.Beat
			}
			return s.Beat > before+2
		})
		eventually(t, hurt.name+": replies leave", h.Passes)
	}
	if b, err := os.ReadFile(other); err != nil || string(b) != "precious" {
		t.Errorf("another file is %q, %v", b, err)
	}
}

func TestPassesAllocatesNothing(t *testing.T) {
	h := open(t, t.TempDir(), heartbeat.Config{Every: every, Hold: long, Close: long})
	if n := testing.AllocsPerRun(100, func() { _ = h.Wait(nil) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// Without a heartbeat nothing is held.
func TestNone(t *testing.T) {
	var h *heartbeat.Heartbeat
	if err := h.Wait(nil); err != nil || !h.Passes() || h.Lost() {
		t.Error("held")
	}
}

// A machine that has slept, or whose clock was set, answers after the next beat.
func TestClockJumps(t *testing.T) {
	for _, by := range []time.Duration{time.Hour, -time.Hour, time.Second, -time.Second} {
		h := open(t, t.TempDir(), heartbeat.Config{})
		for range 10 {
			h.Jump(by)
			mustDo(t, h.Wait(nil))
		}
	}
	var f fault
	h := open(t, t.TempDir(), heartbeat.Config{Overwrite: f.overwrite, Every: every, Hold: long, Close: long})
	h.Jump(100 * time.Millisecond) // as when the clock is slowed down
	if !h.Passes() {
		t.Error("held for a clock that is corrected")
	}
	hang := make(chan struct{})
	defer close(hang)
	f.set(nil, hang)
	time.Sleep(10 * every)
	if !h.Passes() {
		t.Fatal("held before a minute")
	}
	h.Jump(time.Second)
	if h.Passes() {
		t.Error("answers after it has slept")
	}
}
