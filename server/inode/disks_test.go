package inode_test

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/test/testdisk"
)

// onEachDisk runs a test with an empty directory on each file system that can be mounted
// here. There is room for 200 MiB on all.
func onEachDisk(t *testing.T, test func(t *testing.T, dir string)) {
	t.Helper()
	needNative(t)
	on := func(t *testing.T, disk string) {
		dir := filepath.Join(disk, "volume")
		mustDo(t, os.Mkdir(dir, 0o755))
		test(t, dir)
	}
	testdisk.Each(t, on)
	t.Run("tmpfs", func(t *testing.T) {
		testdisk.NotInShort(t, "an ext4 and an XFS have it")
		target := t.TempDir()
		if err := unix.Mount("tmpfs", target, "tmpfs", 0, "size=512m"); err != nil {
			t.Skipf("nothing can be mounted here: %v", err)
		}
		t.Cleanup(func() { mustDo(t, unix.Unmount(target, unix.MNT_DETACH)) })
		on(t, target)
	})
}
