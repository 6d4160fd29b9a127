package diskimage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/internal/volume/xfs"
)

// attached returns the loop device of a file; nil: none. A killed process leaves one
// if its mount outlives it.
func attached(file *os.File) (*os.File, error) {
	var want unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &want); err != nil {
		return nil, err
	}
	// These exist for devices in use. The path in them may be of another
	// namespace, so the inode identifies the file.
	bound, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return nil, err
	}
	for _, path := range bound {
		name := strings.Split(path, "/")[3]
		device, err := openDevice(name)
		if errors.Is(err, unix.ENXIO) {
			continue // it is gone
		}
		if err != nil {
			return nil, err
		}
		status, err := unix.IoctlLoopGetStatus64(int(device.Fd()))
		switch {
		case err == nil && status.Device == want.Dev && status.Inode == want.Ino:
			if status.Offset != 0 || status.Sizelimit != 0 {
				_ = device.Close() // nothing was written
				return nil, fmt.Errorf("part of it is attached to %s: detach that (losetup -d)", device.Name())
			}
			return device, nil
		case err != nil && !errors.Is(err, unix.ENXIO): // ENXIO: it has just been detached
			_ = device.Close() // nothing was written
			return nil, fmt.Errorf("read the file of %s: %w", device.Name(), err)
		}
		_ = device.Close() // nothing was written
	}
	return nil, nil
}

// attach attaches the file to a loop device, which lasts while it is open or
// mounted: it ends with a killed process.
func attach(ctx context.Context, file *os.File, sector uint32) (device *os.File, err error) {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("%w; loop devices need the kernel module loop and, in a cluster, a privileged pod (deploy/overlays/disk-image)", err)
	}
	defer control.Close()
	// The device keeps its file description open. With one of its own, the lock on
	// file stays this process's, and ends with it.
	own, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", file.Fd()), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer own.Close()
	config := unix.LoopConfig{
		Fd:   uint32(own.Fd()),
		Size: sector,
		// Direct: one copy in the page cache instead of two. The kernel goes
		// without where the disk below can't.
		Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR | unix.LO_FLAGS_DIRECT_IO},
	}
	copy(config.Info.File_name[:len(config.Info.File_name)-1], file.Name())
	err = xfs.RetryBusy(ctx, func() error { // busy: another process got the same one
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return fmt.Errorf("find a free loop device: %w", err)
		}
		if device, err = openDevice("loop" + strconv.Itoa(n)); err != nil {
			return err
		}
		if err := unix.IoctlLoopConfigure(int(device.Fd()), &config); err != nil {
			_ = device.Close() // nothing was written
			return fmt.Errorf("attach it to %s: %w", device.Name(), err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return device, nil
}

// openDevice opens a loop device. A container has nodes only of devices from before
// its start; openDevice creates the node of a later one.
func openDevice(name string) (*os.File, error) {
	path := "/dev/" + name
	device, err := os.OpenFile(path, os.O_RDWR, 0)
	if !errors.Is(err, os.ErrNotExist) {
		return device, err
	}
	text, err := os.ReadFile("/sys/block/" + name + "/dev")
	if err != nil {
		return nil, err
	}
	var major, minor uint32
	if _, err := fmt.Sscanf(string(text), "%d:%d", &major, &minor); err != nil {
		return nil, fmt.Errorf("read the number of %s: %w", name, err)
	}
	if err := unix.Mknod(path, unix.S_IFBLK|0o600, int(unix.Mkdev(major, minor))); err != nil {
		return nil, fmt.Errorf("make %s: %w", path, err)
	}
	return os.OpenFile(path, os.O_RDWR, 0)
}

// detach frees the device, as soon as nothing else uses it.
func detach(device *os.File) error {
	err := unix.IoctlSetInt(int(device.Fd()), unix.LOOP_CLR_FD, 0)
	if errors.Is(err, unix.ENXIO) {
		err = nil // it is detached
	}
	if err != nil {
		err = fmt.Errorf("detach %s: %w", device.Name(), err)
	}
	return errors.Join(err, device.Close())
}
