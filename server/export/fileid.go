package export

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// fileIDByInode is the first byte of a FileID made of inode number and time of
// birth. The kernel's handle types, which are the first byte of the others, stop
// short of it.
const fileIDByInode = 0xff

// ErrNoFileID means that the file system can't name its files lastingly.
var ErrNoFileID = errors.New("the file system has neither birth times nor file handles")

// Identify names an open file.
func Identify(f *os.File) (FileID, error) { return identify(f, "") }

// identify names the file that is called name in dir, or dir itself if name is
// empty. A symbolic link is not followed.
//
// Which kind of name a file gets must depend on the disk alone, or handles would
// not outlive a change of the pod's rights: the seccomp profiles of container
// runtimes differ in whether they allow name_to_handle_at(2), and all allow
// statx(2). So the kernel's own handle is taken only where the disk keeps no
// times of birth (XFS of version 4, ext4 with inodes of 128 bytes). What the
// inode's generation would add is lost only for a file that was removed within
// the tick of the clock, some milliseconds, that it was made in.
func identify(dir *os.File, name string) (FileID, error) {
	flags := unix.AT_SYMLINK_NOFOLLOW
	if name == "" {
		flags |= unix.AT_EMPTY_PATH
	}
	var st unix.Statx_t
	const mask = unix.STATX_INO | unix.STATX_BTIME
	if err := unix.Statx(int(dir.Fd()), name, flags, mask, &st); err != nil {
		return "", &os.PathError{Op: "statx", Path: name, Err: err}
	}
	if st.Mask&unix.STATX_BTIME == 0 {
		return identifyByHandle(int(dir.Fd()), name)
	}
	id := binary.BigEndian.AppendUint64([]byte{fileIDByInode}, st.Ino)
	id = binary.BigEndian.AppendUint64(id, uint64(st.Btime.Sec))
	return FileID(binary.BigEndian.AppendUint32(id, st.Btime.Nsec)), nil
}

// identifyByHandle names a file by its type of handle and the handle's bytes,
// which hold the inode's number and generation.
func identifyByHandle(dir int, name string) (FileID, error) {
	flags := 0
	if name == "" {
		flags = unix.AT_EMPTY_PATH
	}
	handle, _, err := unix.NameToHandleAt(dir, name, flags)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPERM) {
		return "", fmt.Errorf("%w (name_to_handle_at: %w)", ErrNoFileID, err)
	}
	if err != nil {
		return "", &os.PathError{Op: "name_to_handle_at", Path: name, Err: err}
	}
	if t := handle.Type(); t < 0 || t >= fileIDByInode || handle.Size() >= FileIDMax {
		return "", fmt.Errorf("%w: handle of type %d and %d bytes", ErrNoFileID, t, handle.Size())
	}
	return FileID(append([]byte{byte(handle.Type())}, handle.Bytes()...)), nil
}
