package inode_test

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/server/locate"
	"github.com/podnas/podnas/test/testdisk"
)

// asUser runs the test as an ordinary user, for whom openOwn is, and reports whether it is that already.
func asUser(t *testing.T, keeps ...uintptr) bool {
	t.Helper()
	if os.Getuid() != 0 {
		return true
	}
	testdisk.Child(t, testdisk.User{ID: testdisk.Nobody, Keeps: keeps}, "^"+t.Name()+"$")
	return false
}

// process is an Opener as a process of the only user has one.
type process struct {
	*inode.Opener

	volume *exports.Volume
}

// begin begins one after another. restores is whether it puts right by itself what is left.
func beginProcess(t *testing.T, disk, records string, byIndex, restores bool) *process {
	t.Helper()
	table := &exports.Table{ByIndex: byIndex, Only: actas.TryRights(disk).Only, Modes: records}
	mustDo(t, table.Export(exports.Exported{ID: 7, Path: "/v", Dir: disk}))
	if !restores {
		table.Modes = ""
	}
	o := inode.NewOpener(table, locate.NewKey(make([]byte, 32)), slog.New(slog.DiscardHandler))
	if !restores {
		o.OpenModes(records)
	}
	v, _ := table.ByID(7)
	return &process{o, v}
}

func (p *process) end() {
	p.Close()
	p.Table().Remove(7)
}

// use opens a file of the volume, and closes it.
func (p *process) use(t *testing.T, name string, use inode.Use) error {
	t.Helper()
	root := p.Root(p.volume)
	f, err := p.Open(netip.Addr{}, handleOf(t, p.Opener, root, name), use)
	if err == nil {
		f.Close()
	}
	return err
}

// killed uses a file, and is killed after a step. It is false if there are fewer.
func (p *process) killed(t *testing.T, name string, use inode.Use, step int) (was bool) {
	t.Helper()
	done := make(chan struct{})
	p.StepsOfModes(func(string) {
		if step--; step == 0 {
			was = true
			runtime.Goexit() // no way back: what would be undone stays
		}
	})
	go func() {
		defer close(done)
		if err := p.use(t, name, use); err != nil {
			t.Errorf("open: %v", err)
		}
	}()
	<-done
	return was
}

// died closes what a process that was killed had open, as the kernel does.
func (p *process) died(t *testing.T, disk string) {
	t.Helper()
	p.Close() // the volume stays: it has a call that does not end
	fds, err := os.ReadDir("/proc/self/fd")
	mustDo(t, err)
	for _, e := range fds {
		to, err := os.Readlink(filepath.Join("/proc/self/fd", e.Name()))
		fd, numErr := strconv.Atoi(e.Name())
		if err == nil && numErr == nil && strings.HasPrefix(to, disk+"/") {
			mustDo(t, unix.Close(fd))
		}
	}
}

func modeOf(t *testing.T, path string) uint32 {
	t.Helper()
	var st unix.Stat_t
	mustDo(t, unix.Stat(path, &st))
	return st.Mode & 0o7777
}

func recordsIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	mustDo(t, err)
	for _, e := range entries {
		if e.Name() != inode.SpareRecord {
			names = append(names, e.Name())
		}
	}
	return names
}

// TestKilledAtEveryStep: whichever step of openOwn was the last, the mode is what it was after the next start.
func TestKilledAtEveryStep(t *testing.T) {
	if asUser(t) {
		killedAtEveryStep(t, true)
	}
}

// TestKilledAtEveryStepByHandle is the same for files that are found by the kernel's handles, which takes a right to
// read all of them.
func TestKilledAtEveryStepByHandle(t *testing.T) {
	if asUser(t, unix.CAP_DAC_READ_SEARCH) {
		killedAtEveryStep(t, false)
	}
}

func killedAtEveryStep(t *testing.T, byIndex bool) {
	t.Helper()
	if err := disk.ProbeHandles(t.TempDir()); err != nil && !byIndex {
		t.Skip(err)
	}
	for _, tt := range []struct {
		name string
		mode uint32
		use  inode.Use
		read bool // it takes only a right to read
	}{
		{"file", 0, inode.UseWrite, false},
		{"file", 0o400, inode.UseWrite, false},
		{"file", 0o4070, inode.UseWrite, false},
		{"file", 0, inode.UseRead, true},
		{"file", 0o200, inode.UseRead, true},
		{"dir", 0o300, inode.UseNames, true},
		{"dir", 0o3311, inode.UseNames, true},
	} {
		if tt.read && !byIndex {
			continue
		}
		t.Run(fmt.Sprintf("%s with mode %o, use %d", tt.name, tt.mode, tt.use), func(t *testing.T) {
			for step := 1; killedAt(t, byIndex, tt.name, tt.mode, tt.use, step); step++ {
				if t.Failed() {
					t.Fatalf("killed after step %d", step)
				}
			}
		})
	}
}

// killedAt has a process killed after a step, and another one begin. It is false if there are fewer.
func killedAt(t *testing.T, byIndex bool, name string, mode uint32, use inode.Use, step int) bool {
	t.Helper()
	disk, records := t.TempDir(), filepath.Join(t.TempDir(), "modes")
	path := filepath.Join(disk, name)
	mustDo(t, os.WriteFile(filepath.Join(disk, "file"), []byte("content"), 0o600))
	mustDo(t, os.Mkdir(filepath.Join(disk, "dir"), 0o700))
	mustDo(t, unix.Chmod(path, mode))
	defer func() { mustDo(t, os.Chmod(path, 0o700)) }() // so that it can be removed
	first := beginProcess(t, disk, records, byIndex, true)
	if !first.killed(t, name, use, step) {
		if step <= 4 {
			t.Errorf("has only %d steps", step-1)
		}
		first.end()
		return false
	}
	first.died(t, disk)
	next := beginProcess(t, disk, records, byIndex, true)
	defer next.end()
	for end := time.Now().Add(10 * time.Second); len(recordsIn(t, records)) > 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	if now, left := modeOf(t, path), recordsIn(t, records); now != mode || len(left) > 0 {
		t.Errorf("mode %o, records %q", now, left)
	}
	if err := next.use(t, name, use); err != nil {
		t.Errorf("used again: %v", err)
	}
	if now := modeOf(t, path); now != mode {
		t.Errorf("used again: mode %o", now)
	}
	return true
}

// TestLeftModes: what a process that was killed has left is not undone against what has become of the file.
func TestLeftModes(t *testing.T) {
	if !asUser(t) {
		return
	}
	chmod := func(t *testing.T, p *process, mode uint32) {
		t.Helper()
		root := p.Root(p.volume)
		f, err := p.Open(netip.Addr{}, handleOf(t, p.Opener, root, "file"), inode.UseAttr)
		mustDo(t, err)
		defer f.Close()
		mustDo(t, f.Chmod(actas.AsProcess(), mode))
	}
	for _, tt := range []struct {
		name  string
		mode  uint32
		then  func(t *testing.T, p *process, path string)
		wants uint32
	}{
		{"nothing", 0o4050, func(*testing.T, *process, string) {}, 0o4050},
		{"a client sets another mode", 0o050, func(t *testing.T, p *process, _ string) { chmod(t, p, 0o444) }, 0o444},
		{"a client sets the wider mode", 0o050, func(t *testing.T, p *process, _ string) { chmod(t, p, 0o650) }, 0o650},
		{"a client sets the mode that it had", 0o050, func(t *testing.T, p *process, _ string) { chmod(t, p, 0o050) }, 0o050},
		{"set on the disk", 0o050, func(t *testing.T, _ *process, path string) { mustDo(t, unix.Chmod(path, 0o444)) }, 0o444},
		{"a write has taken set-user-ID", 0o4050, func(t *testing.T, _ *process, path string) { mustDo(t, unix.Chmod(path, 0o650)) }, 0o050},
		{"renamed", 0o050, func(t *testing.T, _ *process, path string) {
			mustDo(t, os.Rename(path, path+".new"))
			mustDo(t, os.Symlink("file.new", path))
		}, 0o050},
		{"removed, and its name is another's", 0o050, func(t *testing.T, _ *process, path string) {
			mustDo(t, os.Rename(path, path+".old"))
			mustDo(t, os.WriteFile(path, nil, 0o600))
			mustDo(t, unix.Chmod(path, 0o650))
			mustDo(t, os.Remove(path+".old"))
		}, 0o650},
	} {
		t.Run(tt.name, func(t *testing.T) {
			disk, records := t.TempDir(), filepath.Join(t.TempDir(), "modes")
			path := filepath.Join(disk, "file")
			mustDo(t, os.WriteFile(path, []byte("content"), 0o600))
			mustDo(t, unix.Chmod(path, tt.mode))
			first := beginProcess(t, disk, records, true, true)
			if !first.killed(t, "file", inode.UseWrite, 2) || modeOf(t, path) != tt.mode|0o600 {
				t.Fatalf("the mode is not widened: %o", modeOf(t, path))
			}
			first.died(t, disk)
			next := beginProcess(t, disk, records, true, false)
			tt.then(t, next, path)
			more := next.RestoreModes()
			if mode := modeOf(t, path); mode != tt.wants {
				t.Errorf("mode %o, want %o", mode, tt.wants)
			}
			if left := recordsIn(t, records); len(left) > 0 || more {
				t.Errorf("records: %q", left)
			}
			next.end()
		})
	}
}
