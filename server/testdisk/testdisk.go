// Package testdisk mounts small disks for tests that must hold on each file system that
// podnas runs on.
package testdisk

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// disks are the file systems and how one is made in a file. Sizes are the least that
// the programs take, and more where a test needs it.
func disks() map[string]struct {
	make []string
	size int64
} {
	return map[string]struct {
		make []string
		size int64
	}{
		"ext4":  {[]string{"mkfs.ext4", "-q", "-F", "-N", "65536"}, 256 << 20},
		"XFS":   {[]string{"mkfs.xfs", "-q"}, 512 << 20},
		"btrfs": {[]string{"mkfs.btrfs", "-q"}, 256 << 20},
	}
}

// Each runs a test on each file system that can be made and mounted here, and on the
// one that the tests' folders are on.
func Each(t *testing.T, test func(t *testing.T, disk string)) {
	t.Helper()
	t.Run("here", func(t *testing.T) { test(t, t.TempDir()) })
	for name, disk := range disks() {
		t.Run(name, func(t *testing.T) {
			if _, err := exec.LookPath(disk.make[0]); err != nil {
				t.Skipf("no %s here: %v", name, err)
			}
			if os.Getuid() != 0 {
				t.Skip("to mount a disk takes root")
			}
			image := filepath.Join(t.TempDir(), "image")
			if err := os.WriteFile(image, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(image, disk.size); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command(disk.make[0], append(disk.make[1:], image)...).CombinedOutput(); err != nil {
				t.Fatalf("%q: %v\n%s", disk.make, err, out)
			}
			target := t.TempDir()
			if out, err := exec.Command("mount", "-o", "loop", image, target).CombinedOutput(); err != nil {
				t.Skipf("no loop device can be mounted here: %v\n%s", err, out)
			}
			t.Cleanup(func() {
				if out, err := exec.Command("umount", target).CombinedOutput(); err != nil {
					t.Errorf("umount: %v\n%s", err, out)
				}
			})
			test(t, target)
		})
	}
}
