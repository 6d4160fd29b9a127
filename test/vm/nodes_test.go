//go:build vm

package vm_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Parts of TestNativeFiles: times, and files that are neither regular nor
// directories.

func times(t *testing.T, dir, disk string) {
	name := filepath.Join(dir, "f")
	mustWrite(t, name, data(1, 10))
	stat := func() (atime, mtime unix.Timespec) {
		t.Helper()
		var st, there unix.Stat_t
		if err := errors.Join(unix.Stat(name, &st), unix.Stat(filepath.Join(disk, "f"), &there)); err != nil {
			t.Fatal(err)
		}
		if st.Atim != there.Atim || st.Mtim != there.Mtim {
			t.Errorf("the client sees %v and %v, the disk has %v and %v", st.Atim, st.Mtim, there.Atim, there.Mtim)
		}
		return st.Atim, st.Mtim
	}
	set := func(atime, mtime unix.Timespec) {
		t.Helper()
		if err := unix.UtimesNanoAt(unix.AT_FDCWD, name, []unix.Timespec{atime, mtime}, 0); err != nil {
			t.Errorf("utimensat %v, %v: %v", atime, mtime, err)
		}
	}
	omit, now := unix.Timespec{Nsec: unix.UTIME_OMIT}, unix.Timespec{Nsec: unix.UTIME_NOW}
	early, late := unix.Timespec{Sec: 1, Nsec: 999_999_999}, unix.Timespec{Sec: 1<<32 - 2, Nsec: 1}

	set(early, late)
	if atime, mtime := stat(); atime != early || mtime != late {
		t.Errorf("atime %v, mtime %v; want %v and %v", atime, mtime, early, late)
	}
	set(late, omit)
	if atime, mtime := stat(); atime != late || mtime != late {
		t.Errorf("atime %v, mtime %v; want %v for both", atime, mtime, late)
	}
	set(omit, early)
	if atime, mtime := stat(); atime != late || mtime != early {
		t.Errorf("atime %v, mtime %v; want %v and %v", atime, mtime, late, early)
	}
	recent := func(ts unix.Timespec) bool { return time.Since(time.Unix(ts.Unix())).Abs() < time.Minute }
	set(now, omit)
	if atime, mtime := stat(); !recent(atime) || mtime != early {
		t.Errorf("atime %v, mtime %v; want now and %v", atime, mtime, early)
	}
	set(early, now)
	if atime, mtime := stat(); atime != early || !recent(mtime) {
		t.Errorf("atime %v, mtime %v; want %v and now", atime, mtime, early)
	}
	// Of a symbolic link itself, and of a directory.
	link := filepath.Join(dir, "link")
	if err := os.Symlink("f", link); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{link, dir} {
		if err := unix.UtimesNanoAt(unix.AT_FDCWD, name, []unix.Timespec{early, late}, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			t.Errorf("times of %s: %v", name, err)
		}
		var st unix.Stat_t
		if err := unix.Lstat(name, &st); err != nil || st.Mtim != late {
			t.Errorf("%s: mtime %v, %v", name, st.Mtim, err)
		}
	}
	if _, mtime := stat(); !recent(mtime) {
		t.Error("the times of a link went to what it points to")
	}
}

// nodes makes a fifo, a socket and devices, and uses the first two: what is
// behind them is the client's, the server only keeps the name.
func nodes(t *testing.T, dir, disk string) {
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o640); err != nil {
		t.Fatal(err)
	}
	got := make(chan string, 1)
	go func() {
		b, err := os.ReadFile(fifo)
		if err != nil {
			b = []byte(err.Error())
		}
		got <- string(b)
	}()
	if err := os.WriteFile(fifo, []byte("through the fifo"), 0); err != nil {
		t.Error(err)
	}
	if s := <-got; s != "through the fifo" {
		t.Errorf("the fifo gave %q", s)
	}
	// A socket's path is at most 107 bytes long, so by a relative name.
	t.Chdir(dir)
	l, err := net.Listen("unix", "socket")
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("unix", "socket")
	if err != nil {
		t.Errorf("connect to the socket: %v", err)
	} else {
		c.Close()
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	for name, kind := range map[string]uint32{"null": unix.S_IFCHR, "block": unix.S_IFBLK} {
		if err := unix.Mknod(filepath.Join(dir, name), kind|0o600, int(unix.Mkdev(1, 3))); err != nil {
			t.Errorf("mknod %s: %v", name, err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "null"), []byte("gone"), 0); err != nil {
		t.Errorf("write to the null device: %v", err)
	}
	for name, mode := range map[string]uint32{
		"fifo": unix.S_IFIFO | 0o640, "socket": unix.S_IFSOCK | 0o755, "null": unix.S_IFCHR | 0o600, "block": unix.S_IFBLK | 0o600,
	} {
		for _, at := range []string{dir, disk} {
			var st unix.Stat_t
			if err := unix.Lstat(filepath.Join(at, name), &st); err != nil || st.Mode != mode {
				t.Errorf("%s/%s: mode %o, want %o; %v", at, name, st.Mode, mode, err)
			}
			if device := mode&unix.S_IFMT == unix.S_IFCHR || mode&unix.S_IFMT == unix.S_IFBLK; device && st.Rdev != unix.Mkdev(1, 3) {
				t.Errorf("%s/%s: device %x", at, name, st.Rdev)
			}
		}
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
}

func notEmpty(t *testing.T, dir, disk string) {
	if err := os.MkdirAll(filepath.Join(dir, "a/b"), 0o755); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, filepath.Join(dir, "f"), nil)
	for _, step := range []struct {
		what string
		err  error
		want error
	}{
		{"rmdir of a directory with an entry", unix.Rmdir(filepath.Join(dir, "a")), syscall.ENOTEMPTY},
		{"rmdir of a file", unix.Rmdir(filepath.Join(dir, "f")), syscall.ENOTDIR},
		{"unlink of a directory", unix.Unlink(filepath.Join(dir, "a")), syscall.EISDIR},
		{"mkdir of a file's name", unix.Mkdir(filepath.Join(dir, "f"), 0o755), syscall.EEXIST},
		{"mkdir in a file", unix.Mkdir(filepath.Join(dir, "f/x"), 0o755), syscall.ENOTDIR},
		{"mkdir in nothing", unix.Mkdir(filepath.Join(dir, "x/x"), 0o755), syscall.ENOENT},
	} {
		if !errors.Is(step.err, step.want) {
			t.Errorf("%s: %v, want %v", step.what, step.err, step.want)
		}
	}
	// The number of links tells how many directories there are.
	for _, at := range []string{dir, disk} {
		var st unix.Stat_t
		if err := unix.Stat(at, &st); err != nil || st.Nlink != 3 {
			t.Errorf("%s has %d links, %v; want 3", at, st.Nlink, err)
		}
	}
}
