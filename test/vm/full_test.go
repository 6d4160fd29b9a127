//go:build vm

package vm_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestFullByEachCall: whatever enforces the sizes, a program on the mount hears that
// the volume is full from the call that it makes: write, fsync, close, mkdir, and
// open of what is not there. What it has it may write again, and what it removes it
// gets back.
func TestFullByEachCall(t *testing.T) {
	for _, disk := range []struct {
		name, quota string
		root        func() string // empty: on the guest's XFS
	}{
		{"kernel, XFS", "kernel", func() string { return "" }},
		{"kernel, ext4", "kernel", func() string {
			root, _ := loopDisk(t, "ext4", "prjquota", "-O", "quota,project", "-E", "quotatype=prjquota")
			return root
		}},
		{"server, ext4", "server", func() string { root, _ := loopDisk(t, "ext4", ""); return root }},
		{"server, XFS", "server", func() string { root, _ := loopDisk(t, "xfs", ""); return root }},
	} {
		t.Run(disk.name, func(t *testing.T) {
			a := newAppliance(t, settings{root: disk.root(), quota: disk.quota})
			a.start()
			mnt, beside := mount(t, a.volume("full", "16Mi")), mount(t, a.volume("beside", "16Mi"))
			fullByEachCall(t, mnt)
			mustWrite(t, filepath.Join(beside, "f"), data(9, 4<<20))
		})
	}
}

func fullByEachCall(t *testing.T, mnt string) {
	keep := data(1, 1<<20)
	mustWrite(t, filepath.Join(mnt, "keep"), keep)
	much := data(2, 24<<20)

	// A write that the client may keep for later is answered well, so that the
	// error comes with what makes it send: fsync or close, once.
	f := openTo(t, filepath.Join(mnt, "fsync"), 0)
	if _, err := f.Write(much); err != nil && !noSpace(err) {
		t.Errorf("write: %v", err)
	} else if err := f.Sync(); err == nil || !noSpace(err) {
		t.Errorf("fsync of 24 MiB in a volume of 16 MiB: %v", err)
	}
	_ = f.Close() // it may say so again
	roomAgain(t, mnt, "fsync")

	f = openTo(t, filepath.Join(mnt, "close"), 0)
	_, err := f.Write(much)
	if err == nil {
		err = f.Close()
	}
	if !noSpace(err) {
		t.Errorf("close of 24 MiB in a volume of 16 MiB: %v", err)
	}
	_ = f.Close() // closed already, unless write said it
	roomAgain(t, mnt, "close")

	// One that may not be kept says so itself. It goes on, smaller and smaller,
	// until there is no room for a block.
	f = openTo(t, filepath.Join(mnt, "write"), unix.O_SYNC|unix.O_APPEND)
	defer f.Close()
	for n := 1 << 20; n >= 4096; {
		if _, err := f.Write(much[:n]); err == nil {
			continue
		} else if !noSpace(err) {
			t.Fatalf("write of %d bytes: %v", n, err)
		}
		n /= 4
	}

	// A name takes room only when its directory grows: that is soon, with long
	// ones. On XFS and where the server counts, it is at once.
	t.Run("names", func(t *testing.T) {
		nativeOnly(t, "the library answers every error of mkdir and open as one of permissions")
		namesRefused(t, mnt)
	})
	overwrite(t, filepath.Join(mnt, "keep"), keep)
	if err := f.Close(); err != nil && !noSpace(err) {
		t.Errorf("close: %v", err)
	}
	roomAgain(t, mnt, "write")
	if err := os.Mkdir(filepath.Join(mnt, "after"), 0o755); err != nil {
		t.Error(err)
	}
	dropCaches(t)
	holds(t, filepath.Join(mnt, "keep"), keep)
}

// namesRefused makes directories and files until there is no room for one more.
func namesRefused(t *testing.T, mnt string) {
	t.Helper()
	refused(t, "mkdir", func(name string) error { return os.Mkdir(filepath.Join(mnt, name), 0o755) })
	refused(t, "open", func(name string) error {
		f, err := os.OpenFile(filepath.Join(mnt, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		return f.Close()
	})
}

func openTo(t *testing.T, name string, flags int) *os.File {
	t.Helper()
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|flags, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// refused makes names until there is no room for one more.
func refused(t *testing.T, what string, do func(name string) error) {
	t.Helper()
	for i := range 500 {
		err := do(fmt.Sprint(what, "-", strings.Repeat("n", 200), "-", i))
		if noSpace(err) {
			t.Logf("%s: %v, after %d", what, errors.Unwrap(err), i)
			return
		}
		if err != nil {
			t.Errorf("%s: %v", what, err)
			return
		}
	}
	t.Errorf("%s went on without end in a full volume", what)
}

// roomAgain removes a file, and waits until what it took can be taken again: XFS
// gives it back a moment later.
func roomAgain(t *testing.T, mnt, name string) {
	t.Helper()
	if err := os.Remove(filepath.Join(mnt, name)); err != nil {
		t.Fatal(err)
	}
	b := data(3, 10<<20)
	eventually(t, "10 MiB can be written where more were removed", func() bool {
		return write(filepath.Join(mnt, "again"), b) == nil
	})
	if err := os.Remove(filepath.Join(mnt, "again")); err != nil {
		t.Fatal(err)
	}
}
