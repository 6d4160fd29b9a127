package xfs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// unmountWait is how long Unmount waits for files that are open.
const unmountWait = 2 * time.Second

// Mount mounts a device on a directory, which is made if it is missing and must be empty. It returns the root directory.
// repair says what to do if the file system is damaged, and privileged where the rights for it are.
func Mount(ctx context.Context, device, dir, options, repair, privileged string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	if len(entries) > 0 {
		return nil, fmt.Errorf("%s contains files, such as %s, which the mount would hide: use an empty directory", dir, entries[0].Name())
	}
	const flags = unix.MS_NODEV | unix.MS_NOSUID // not noexec, which access(2) would show to clients
	// A device that is being unmounted is busy.
	if err := RetryBusy(ctx, func() error { return unix.Mount(device, dir, "xfs", flags, options) }); err != nil {
		return nil, explain(err, device, repair, privileged)
	}
	root, err := os.Open(dir)
	if err != nil {
		_ = unix.Unmount(dir, unix.MNT_DETACH) // the other error is returned
		return nil, fmt.Errorf("%w: it is still mounted elsewhere by a process, which must end first", err)
	}
	return root, nil
}

// explain adds to an error of mount(2) what to do.
func explain(err error, device, repair, privileged string) error {
	fix := "the kernel's log (dmesg) says why"
	switch {
	case errors.Is(err, unix.EPERM):
		fix = "mounting needs CAP_SYS_ADMIN, in a cluster a privileged pod (" + privileged + ")"
	case errors.Is(err, unix.ENODEV):
		fix = "this kernel has no XFS: load its module (modprobe xfs)"
	case errors.Is(err, unix.EUCLEAN), errors.Is(err, unix.EBADMSG), errors.Is(err, unix.EIO):
		fix = "it is damaged: " + repair
	case errors.Is(err, unix.EINVAL):
		fix += ": it is already mounted, it is damaged (xfs_repair), or this kernel lacks a feature or the quotas of XFS"
	}
	return fmt.Errorf("mount %s: %w; %s", device, err, fix)
}

// Unmount unmounts what is on a directory. If a process has a file open for long, it is unmounted when that file is closed,
// and later is true.
func Unmount(dir string) (later bool, err error) {
	// An interrupted call may hold a file for a moment.
	ctx, cancel := context.WithTimeout(context.Background(), unmountWait)
	defer cancel()
	err = RetryBusy(ctx, func() error { return unix.Unmount(dir, 0) })
	if errors.Is(err, unix.EBUSY) {
		later = true
		err = unix.Unmount(dir, unix.MNT_DETACH)
	}
	if err != nil {
		return later, fmt.Errorf("unmount %s: %w", dir, err)
	}
	return later, nil
}

// DetachLeft unmounts a device from a directory, as often as a process that has ended has left it there. If a process still
// uses it, or it is mounted in another namespace, too, the file system stays active.
func DetachLeft(device *os.File, dir string) error {
	for {
		there, err := mounted(device, dir)
		if err != nil || !there {
			return err
		}
		err = unix.Unmount(dir, 0)
		if errors.Is(err, unix.EBUSY) {
			err = unix.Unmount(dir, unix.MNT_DETACH)
		}
		if err != nil {
			return fmt.Errorf("unmount %s, left by a process that has ended: %w", dir, err)
		}
	}
}

// mounted reports whether a device is mounted on a directory, by proc_pid_mountinfo(5):
// a file system that is shut down does not answer.
func mounted(device *os.File, dir string) (bool, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(device.Fd()), &st); err != nil {
		return false, err
	}
	number := fmt.Sprintf("%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev))
	escaped := strings.NewReplacer(`\`, `\134`, " ", `\040`, "\t", `\011`, "\n", `\012`).Replace(dir)
	mounts, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return false, err
	}
	defer mounts.Close()
	lines := bufio.NewScanner(mounts)
	for lines.Scan() {
		if f := strings.Fields(lines.Text()); len(f) > 4 && f[2] == number && f[4] == escaped {
			return true, nil
		}
	}
	return false, lines.Err()
}

// RetryBusy calls f until it does not return EBUSY, for at most ten seconds.
func RetryBusy(ctx context.Context, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		err := f()
		if !errors.Is(err, unix.EBUSY) {
			return err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return err
		}
	}
}
