package exports_test

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/quota"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/space"
)

// hanging is a directory that can't be opened, as on a disk that does not answer, until it is let go.
type hanging struct {
	t      *testing.T
	events *os.File // fanotify(7)
}

func newHanging(t *testing.T, dir string) *hanging {
	t.Helper()
	fd, err := unix.FanotifyInit(unix.FAN_CLASS_CONTENT|unix.FAN_CLOEXEC, unix.O_RDONLY|unix.O_CLOEXEC)
	if err != nil {
		t.Skipf("nothing here says when a directory is opened: %v", err)
	}
	h := &hanging{t, os.NewFile(uintptr(fd), "fanotify")}
	t.Cleanup(func() { h.events.Close() }) // all go on then
	if err := unix.FanotifyMark(fd, unix.FAN_MARK_ADD, unix.FAN_OPEN_PERM|unix.FAN_ONDIR, unix.AT_FDCWD, dir); err != nil {
		t.Skipf("nothing here says when a directory is opened: %v", err)
	}
	return h
}

// wait returns when the directory is being opened, and what lets that go on.
func (h *hanging) wait() (letGo func()) {
	h.t.Helper()
	var event unix.FanotifyEventMetadata
	if err := binary.Read(h.events, binary.NativeEndian, &event); err != nil {
		h.t.Fatal(err)
	}
	return func() {
		h.t.Helper()
		answer := unix.FanotifyResponse{Fd: event.Fd, Response: unix.FAN_ALLOW}
		if err := binary.Write(h.events, binary.NativeEndian, &answer); err != nil {
			h.t.Error(err)
		}
		_ = unix.Close(int(event.Fd)) // the kernel's own, of the directory
	}
}

// finds fails the test unless a volume is found soon.
func finds(t *testing.T, table *exports.Table, id uint64) {
	t.Helper()
	found := make(chan bool, 1)
	go func() {
		_, ok := table.ByID(id)
		found <- ok
	}()
	select {
	case ok := <-found:
		if !ok {
			t.Errorf("volume %d is not there", id)
		}
	case <-time.After(10 * time.Second):
		t.Fatalf("a call in volume %d waits for the disk of another", id)
	}
}

// A volume whose directory takes long to be opened keeps no call of another waiting, and is ended if its path or number is
// taken meanwhile.
func TestSlowDisk(t *testing.T) {
	for name, meanwhile := range map[string]struct {
		e    exports.Exported
		want error
	}{
		"":            {exports.Exported{ID: 9, Path: "/other"}, nil},
		"same path":   {exports.Exported{ID: 9, Path: "/slow"}, exports.ErrExists},
		"same number": {exports.Exported{ID: 8, Path: "/other"}, exports.ErrExists},
	} {
		t.Run(name, func(t *testing.T) {
			table, dir, marks := &exports.Table{}, t.TempDir(), t.TempDir()
			table.KeepMarks(marks)
			if err := table.Export(exports.Exported{ID: 7, Path: "/v", Dir: t.TempDir()}); err != nil {
				t.Fatal(err)
			}
			mark := filepath.Join(marks, "8")
			if err := os.WriteFile(mark, []byte("1 1\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			before := readFile(t, mark)
			h := newHanging(t, dir)
			added := make(chan error, 1)
			go func() {
				added <- table.Export(exports.Exported{ID: 8, Path: "/slow", Dir: dir, Account: space.NewAccount(quota.Limit{Bytes: 1 << 30})})
			}()
			letGo := h.wait()
			finds(t, table, 7)
			meanwhile.e.Dir = t.TempDir()
			if err := table.Export(meanwhile.e); err != nil {
				t.Error(err)
			}
			letGo()
			h.events.Close()
			if err := <-added; !errors.Is(err, meanwhile.want) {
				t.Errorf("%v, want %v", err, meanwhile.want)
			}
			if meanwhile.want != nil && readFile(t, mark) != before {
				t.Errorf("the mark of the other is %q, was %q", readFile(t, mark), before)
			}
			if meanwhile.want != nil && isOpen(t, dir) {
				t.Error("the directory is open still")
			}
			for id := range uint64(10) {
				table.Remove(id)
			}
		})
	}
}

// The same holds for a volume's snapshots.
func TestSlowSnapshots(t *testing.T) {
	for name, tt := range map[string]struct {
		meanwhile func(table *exports.Table)
		want      error
	}{
		"": {func(*exports.Table) {}, nil},
		"the volume ends": {func(table *exports.Table) {
			table.Remove(7)
			table.Forget(7)
		}, unix.ESTALE},
	} {
		t.Run(name, func(t *testing.T) {
			table, dir := &exports.Table{}, t.TempDir()
			for id, path := range map[uint64]string{7: "/v", 8: "/other"} {
				if err := table.Export(exports.Exported{ID: id, Path: path, Dir: t.TempDir()}); err != nil {
					t.Fatal(err)
				}
			}
			of, _ := table.ByID(7)
			if err := os.Mkdir(filepath.Join(dir, "first"), 0o755); err != nil {
				t.Fatal(err)
			}
			h := newHanging(t, dir)
			shown := make(chan error, 1)
			go func() { shown <- table.ShowSnapshots(7, dir, []exports.Snapshot{{Name: "first", At: time.Unix(1, 0)}}) }()
			letGo := h.wait()
			finds(t, table, 8)
			tt.meanwhile(table)
			letGo()
			h.events.Close()
			if err := <-shown; !errors.Is(err, tt.want) {
				t.Errorf("%v, want %v", err, tt.want)
			}
			if in := of.Shown(); (in == nil) != (tt.want != nil) {
				t.Errorf("clients see %v", in)
			} else if in != nil {
				if _, err := in.SnapshotNamed("first"); err != nil {
					t.Error(err)
				}
			}
			table.Remove(7)
			table.Remove(8)
			if isOpen(t, dir) {
				t.Error("the directory is open still")
			}
		})
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// isOpen reports whether this process has a directory open.
func isOpen(t *testing.T, dir string) bool {
	t.Helper()
	links, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && target == dir {
			return true
		}
	}
	return false
}
