package locate

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/disk"
)

// ProbeIndex tests whether files of the disk at dir can be found by an index. The error is a
// *NeedsError, unless dir can't be opened.
func ProbeIndex(dir string) error {
	root, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	d := disk.Of(root)
	id, err := disk.Identify(root)
	if err != nil || d.NumberIn(&id) == 0 {
		return &disk.NeedsError{What: "files can't be told apart", Fix: "use a disk whose files have birth times, as ext4, XFS and btrfs give them", Err: errors.Join(err, disk.ErrNoFileID)}
	}
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: disk.Within | unix.RESOLVE_NO_MAGICLINKS}
	path, err := unix.Openat2(int(root.Fd()), ".", &how)
	if err != nil {
		return &disk.NeedsError{What: "the system call openat2 is not allowed", Fix: "use Linux 5.6 or later, and a seccomp profile that knows it", Err: err}
	}
	named := disk.Owned(path)
	defer named.Close()
	opened, err := disk.Reopen(path, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return &disk.NeedsError{What: "open files can't be opened again", Fix: "mount /proc, and let podnas's user read the disk", Err: err}
	}
	opened.Close()
	return nil
}
