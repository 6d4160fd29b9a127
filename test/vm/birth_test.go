//go:build vm

package vm_test

import (
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestBirth compares the time of birth of a file on a mount of version 4.2 with that on the server's disk. Older clients do not
// ask for it, and then statx(2) has none.
func TestBirth(t *testing.T) {
	nativeOnly(t, "go-nfs serves version 3 alone")
	a := newAppliance(t, settings{})
	a.start()
	pv := a.volume("birth", "8Mi")
	mnt := mountWith(t, pv, version42Options())
	mustWrite(t, filepath.Join(mnt, "file"), data(1, 100))
	born := func(dir string) (st unix.Statx_t) {
		t.Helper()
		if err := unix.Statx(unix.AT_FDCWD, filepath.Join(dir, "file"), 0, unix.STATX_BTIME, &st); err != nil {
			t.Fatal(err)
		}
		return st
	}
	for _, when := range []string{"at once", "later"} {
		onMount, onDisk := born(mnt), born(a.dir(pv))
		t.Logf("%s: the client asks: %v", when, onMount.Mask&unix.STATX_BTIME != 0)
		if onMount.Mask&unix.STATX_BTIME != 0 && onMount.Btime != onDisk.Btime {
			t.Errorf("%s: %v on the mount, %v on the disk", when, onMount.Btime, onDisk.Btime)
		}
		mustWrite(t, filepath.Join(mnt, "file"), data(2, 200))
		dropCaches(t)
	}
}
