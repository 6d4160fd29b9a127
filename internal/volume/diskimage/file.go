package diskimage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/internal/volume/xfs"
)

// sectorSize is that of new images. Disks with sectors of 4096 bytes need it for
// direct IO, and those of 512 support it.
const sectorSize = 4096

// create creates an image. The file gets its name when all of it is on the disk:
// an interruption leaves nothing, and a file with the name is complete.
func create(ctx context.Context, dir *os.File, path string, size int64) error {
	mkfs, err := exec.LookPath("mkfs.xfs")
	if err != nil {
		return fmt.Errorf("creating it needs the program mkfs.xfs: install xfsprogs (in a cluster: the image of deploy/overlays/disk-image): %w", err)
	}
	fd, err := unix.Open(dir.Name(), unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("make an unnamed file in %s: %w; a disk image must be on ext4, XFS, btrfs or tmpfs", dir.Name(), err)
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, mkfs, "-q", "-L", xfs.Label, "-s", "size="+strconv.Itoa(sectorSize), "/proc/self/fd/3")
	cmd.ExtraFiles = []*os.File{f}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", mkfs, err, bytes.TrimSpace(out))
	}
	if err := f.Sync(); err != nil {
		return err
	}
	name := fmt.Sprintf("/proc/self/fd/%d", f.Fd())
	if err := unix.Linkat(unix.AT_FDCWD, name, int(dir.Fd()), filepath.Base(path), unix.AT_SYMLINK_FOLLOW); err != nil {
		return fmt.Errorf("name it: %w", err)
	}
	return dir.Sync()
}

// openImage opens the file at path and locks it for this process.
func openImage(path string) (*os.File, error) {
	// Open only a regular file: opening a device can have effects.
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("it is not a regular file (%s); podnas does not change it", info.Mode().Type())
	}
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if now, err := f.Stat(); err != nil || !os.SameFile(info, now) {
		_ = f.Close() // nothing was written
		return nil, errors.Join(errors.New("it was replaced while podnas opened it"), err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close() // nothing was written
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errors.New("it is in use by another podnas")
		}
		return nil, fmt.Errorf("lock it: %w", err)
	}
	return f, nil
}

// inspect checks whether a file is podnas's image; otherwise the error says what it
// is. podnas writes only to its own images: a file with other content may be
// somebody's only copy of it.
func inspect(f *os.File) (xfs.Superblock, error) {
	info, err := f.Stat()
	if err != nil {
		return xfs.Superblock{}, err
	}
	if info.Size() == 0 {
		return xfs.Superblock{}, errors.New("the file is empty, and not from podnas: remove it, and podnas creates an image")
	}
	s, err := xfs.ReadSuperblock(f)
	switch {
	case errors.Is(err, xfs.ErrNone):
		return s, errors.New("the file contains no XFS; podnas does not change it: move it away, or use another file")
	case err != nil:
		return s, err
	case s.Label != xfs.Label:
		return s, fmt.Errorf("the file contains an XFS with the label %q, which is not from podnas; podnas does not change it: move it away, or let podnas use it: xfs_admin -L %s %s", s.Label, xfs.Label, f.Name())
	case info.Size() < s.Size:
		return s, fmt.Errorf("the file is truncated: it has %d bytes, and the XFS in it %d; restore it from a copy", info.Size(), s.Size)
	}
	return s, nil
}
