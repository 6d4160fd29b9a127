// Package testdisk mounts small disks for tests that must pass on each file system that
// podnas supports, and says how many rounds a long test should run.
package testdisk

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// Each runs a test on each file system that can be made and mounted here, and on the
// one that the tests' folders are on. A short run has it on an ext4 and an XFS.
func Each(t *testing.T, test func(t *testing.T, disk string)) {
	t.Helper()
	t.Run("here", func(t *testing.T) {
		NotInShort(t, "an ext4 and an XFS have it")
		test(t, t.TempDir())
	})
	Ext4(t, test)
	XFS(t, test)
	t.Run("btrfs", func(t *testing.T) {
		NotInShort(t, "an ext4 and an XFS have it")
		test(t, btrfs(t))
	})
}

// Sharing runs a test on each file system whose files can share blocks.
func Sharing(t *testing.T, test func(t *testing.T, disk string)) {
	t.Helper()
	XFS(t, test)
	Btrfs(t, test)
}

// Btrfs runs a test of what only btrfs has on one.
func Btrfs(t *testing.T, test func(t *testing.T, disk string)) {
	t.Run("btrfs", func(t *testing.T) { test(t, btrfs(t)) })
}

func btrfs(t *testing.T) string {
	t.Helper()
	return mount(t, 256<<20, "mkfs.btrfs", "-q")
}

// Ext4 runs a test on an ext4.
func Ext4(t *testing.T, test func(t *testing.T, disk string)) {
	t.Helper()
	t.Run("ext4", func(t *testing.T) { test(t, mount(t, 256<<20, "mkfs.ext4", "-q", "-F", "-N", "65536")) })
}

// XFS runs a test on an XFS.
func XFS(t *testing.T, test func(t *testing.T, disk string)) {
	t.Helper()
	t.Run("XFS", func(t *testing.T) { test(t, OneXFS(t)) })
}

// OneXFS is a folder on an XFS.
func OneXFS(t *testing.T) string {
	t.Helper()
	return mount(t, 512<<20, "mkfs.xfs", "-q")
}

// Small runs a test on an ext4 and an XFS that are full soon, of blocks or of inodes.
func Small(t *testing.T, test func(t *testing.T, disk string)) {
	t.Helper()
	t.Run("ext4", func(t *testing.T) { test(t, mount(t, 128<<20, "mkfs.ext4", "-q", "-F", "-b", "4096", "-N", "4096")) })
	t.Run("XFS", func(t *testing.T) { test(t, mount(t, 300<<20, "mkfs.xfs", "-q", "-i", "maxpct=1")) })
}

// mount makes a file system in a file of so many bytes by a command, and mounts it
// until the test ends.
func mount(t *testing.T, size int64, mkfs ...string) (target string) {
	t.Helper()
	if _, err := exec.LookPath(mkfs[0]); err != nil {
		t.Skipf("it can't be made here: %v", err)
	}
	if os.Getuid() != 0 {
		t.Skip("mounting a disk needs root")
	}
	image := imageFile(t, size)
	if out, err := exec.Command(mkfs[0], append(mkfs[1:], image)...).CombinedOutput(); err != nil {
		t.Fatalf("%q: %v\n%s", mkfs, err, out)
	}
	return mountAt(t, "-o", "loop", image)
}

// Memory is a directory on an ext4 in memory, where that is possible, for a test that changes much, and
// need not do so on the disk of the machine.
func Memory(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	t.Cleanup(mountMemory(t, dir))
	return dir
}

// mountMemory mounts an ext4 in memory, where that is possible: whoever syncs there need not wait for the
// disk of the machine. The result ends it.
func mountMemory(t *testing.T, target string) (end func()) {
	t.Helper()
	image := imageFile(t, 1<<30)
	for _, command := range [][]string{{"mkfs.ext4", "-q", "-F", image}, {"mount", "-o", "loop", image, target}} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Logf("%s is on the disk of the machine: %q: %v %s", target, command, err, out)
			return func() {}
		}
	}
	return func() { unmount(t, target) }
}

// unmount is lazy: what a test that has failed still has open must not keep the disk.
func unmount(t *testing.T, target string) {
	t.Helper()
	if out, err := exec.Command("umount", "--lazy", target).CombinedOutput(); err != nil {
		t.Errorf("umount: %v\n%s", err, out)
	}
}

// imageFile returns an empty file of so many bytes, in memory where that is possible: a test must
// not wait for the disk of the machine at each sync.
func imageFile(t *testing.T, size int64) string {
	t.Helper()
	dir := t.TempDir()
	const memory = "/dev/shm"
	var st unix.Statfs_t
	if err := unix.Statfs(memory, &st); err == nil && st.Type == unix.TMPFS_MAGIC && int64(st.Bavail)*st.Bsize > 4*size {
		if dir, err = os.MkdirTemp(memory, "podnas-test-"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
	}
	f, err := os.Create(filepath.Join(dir, "image"))
	if err == nil {
		err = errors.Join(f.Truncate(size), f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	return f.Name()
}

// mountAt mounts something until the test ends.
func mountAt(t *testing.T, args ...string) (target string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("mounting a disk needs root")
	}
	target = t.TempDir()
	if out, err := exec.Command("mount", append(args, target)...).CombinedOutput(); err != nil {
		t.Skipf("mount %q: %v\n%s", args, err, out)
	}
	t.Cleanup(func() { unmount(t, target) })
	return target
}

// Others runs a test on file systems that podnas was not made for: one in memory, one in layers, one
// whose files have no birth times, and one with subvolumes.
func Others(t *testing.T, test func(t *testing.T, disk string)) {
	t.Helper()
	t.Run("tmpfs", func(t *testing.T) { test(t, mountAt(t, "-t", "tmpfs", "-o", "size=512m", "tmpfs")) })
	t.Run("overlayfs", func(t *testing.T) {
		on := mountAt(t, "-t", "tmpfs", "-o", "size=512m", "tmpfs")
		test(t, overlay(t, on, on))
	})
	t.Run("overlayfs on two", func(t *testing.T) { test(t, Overlay(t)) })
	t.Run("ext4 without birth times", func(t *testing.T) {
		test(t, mount(t, 256<<20, "mkfs.ext4", "-q", "-F", "-I", "128", "-N", "65536"))
	})
	// A smaller one says ENOSPC while it has room, when many write at once: it can't make a group of blocks.
	t.Run("btrfs", func(t *testing.T) { test(t, mount(t, 1<<30, "mkfs.btrfs", "-q")) })
}

// Overlay is an overlay whose layers are on two file systems: its directories have inode numbers of the overlay's own,
// and files those of their layer. The next directories have higher numbers than the next files, by some hundreds.
func Overlay(t *testing.T) string {
	t.Helper()
	lower := mountAt(t, "-t", "tmpfs", "-o", "size=16m", "tmpfs")
	upper := mountAt(t, "-t", "tmpfs", "-o", "size=512m", "tmpfs")
	for n := range 300 {
		makeDirs(t, filepath.Join(lower, "lower", "old", strconv.Itoa(n)))
	}
	target := overlay(t, lower, upper)
	if _, err := filepath.Glob(filepath.Join(target, "old", "*", "*")); err != nil { // a directory that was seen has a number
		t.Fatal(err)
	}
	return target
}

// overlay mounts one of folders in two others.
func overlay(t *testing.T, lower, upper string) string {
	t.Helper()
	lower, upper, work := filepath.Join(lower, "lower"), filepath.Join(upper, "upper"), filepath.Join(upper, "work")
	makeDirs(t, lower, upper, work)
	return mountAt(t, "-t", "overlay", "-o", "lowerdir="+lower+",upperdir="+upper+",workdir="+work, "overlay")
}

func makeDirs(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := os.MkdirAll(name, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}
