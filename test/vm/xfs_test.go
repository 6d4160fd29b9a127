//go:build vm

package vm_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The kernel's own view of project quotas, by raw calls: podnas's package quota
// is what these tests judge, so they don't ask it.

// fsxattr is struct fsxattr of linux/fs.h.
type fsxattr struct {
	xflags, extsize, nextents, projid, cowextsize uint32
	_                                             [8]byte
}

// diskQuota is struct fs_disk_quota of linux/dqblk_xfs.h, blocks of 512 bytes.
type diskQuota struct {
	_       [4]byte
	id      uint32
	blkHard uint64
	_, _, _ uint64
	bcount  uint64
	icount  uint64
	_       [56]byte
}

const (
	fsIocFsgetxattr = 0x801c581f
	prjQuota        = 2
	qXGetQuota      = 'X'<<8 + 3
)

// project returns the project id of a directory.
func project(t *testing.T, dir string) uint32 {
	t.Helper()
	id, err := projectOf(dir)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func projectOf(dir string) (uint32, error) {
	f, err := os.Open(dir)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	var x fsxattr
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), fsIocFsgetxattr, uintptr(unsafe.Pointer(&x))); errno != 0 {
		return 0, fmt.Errorf("FS_IOC_FSGETXATTR of %s: %w", dir, errno)
	}
	return x.projid, nil
}

// limitAndUse returns a project's hard limit and what it uses, in bytes, on the XFS of the guest.
// A project the disk knows nothing of has neither.
func limitAndUse(t *testing.T, id uint32) (limit, use uint64) {
	t.Helper()
	limit, use, err := limitAndUseOn(os.Getenv("XFS_DEV"), id)
	if err != nil {
		t.Fatal(err)
	}
	return limit, use
}

func limitAndUseOn(device string, id uint32) (limit, use uint64, err error) {
	dev, err := unix.BytePtrFromString(device)
	if err != nil {
		return 0, 0, err
	}
	var q diskQuota
	_, _, errno := unix.Syscall6(unix.SYS_QUOTACTL, qXGetQuota<<8|prjQuota, uintptr(unsafe.Pointer(dev)),
		uintptr(id), uintptr(unsafe.Pointer(&q)), 0, 0)
	if errors.Is(errno, unix.ENOENT) {
		return 0, 0, nil
	}
	if errno != 0 {
		return 0, 0, fmt.Errorf("Q_XGETQUOTA of project %d: %w", id, errno)
	}
	return q.blkHard * 512, q.bcount * 512, nil
}

// loopXFS makes another XFS, on a file in memory, and mounts it until the test
// ends. mountDisk mounts dev again.
func loopXFS(t *testing.T, options string) (target, dev string) {
	t.Helper()
	return loopDisk(t, "xfs", options)
}

// loopDisk makes a file system of its own, and mounts it. mkfs is what its mkfs is
// told besides.
func loopDisk(t *testing.T, fs, options string, mkfs ...string) (target, dev string) {
	t.Helper()
	image := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 300<<20); err != nil { // the least that mkfs.xfs takes
		t.Fatal(err)
	}
	command(t, "mkfs."+fs, append(mkfs, "-q", image)...)
	command(t, "modprobe", "loop")
	dev = strings.TrimSpace(command(t, "losetup", "--find", "--show", image))
	t.Cleanup(func() { command(t, "losetup", "--detach", dev) })
	target = t.TempDir()
	mountDisk(t, dev, target, fs, options)
	t.Cleanup(func() { unmount(t, target) })
	return target, dev
}

func mountDisk(t *testing.T, dev, target, fs, options string) {
	t.Helper()
	if err := unix.Mount(dev, target, fs, 0, options); err != nil {
		t.Fatalf("mount %s with %s: %v", dev, options, err)
	}
}

// command runs a command and returns its output. Not for the time when the
// server is away: see prepare.
func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// size is what df shows of a mount: its size and what is available, in bytes.
func size(t *testing.T, dir string) (total, available uint64) {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(fmt.Errorf("statfs %s: %w", dir, err))
	}
	return st.Blocks * uint64(st.Bsize), st.Bavail * uint64(st.Bsize)
}
