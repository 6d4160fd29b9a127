package export

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// fileIDByInode is the first byte of a FileID made where the file system gives
// no handles (a plain overlayfs). The kernel's handle types stop short of it.
const fileIDByInode = 0xff

// ErrNoFileID means that the file system can't name its files lastingly.
var ErrNoFileID = errors.New("the file system has neither file handles nor birth times")

// Identify names an open file.
func Identify(f *os.File) (FileID, error) { return identify(f, "") }

// identify names the file that is called name in dir, or dir itself if name is
// empty. A symbolic link is not followed.
//
// The name is the kernel's own handle, name_to_handle_at(2): its type and its
// bytes, which hold the inode's number and generation.
func identify(dir *os.File, name string) (FileID, error) {
	flags := 0
	if name == "" {
		flags = unix.AT_EMPTY_PATH
	}
	handle, _, err := unix.NameToHandleAt(int(dir.Fd()), name, flags)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPERM) { // EPERM: a container's seccomp filter
		return identifyByInode(dir, name, flags)
	}
	if err != nil {
		return "", &os.PathError{Op: "name_to_handle_at", Path: name, Err: err}
	}
	if t := handle.Type(); t < 0 || t >= fileIDByInode || handle.Size() >= FileIDMax {
		return "", fmt.Errorf("%w: handle of type %d and %d bytes", ErrNoFileID, t, handle.Size())
	}
	return FileID(append([]byte{byte(handle.Type())}, handle.Bytes()...)), nil
}

// identifyByInode names a file by its inode number and the time of its birth,
// which tells it from an earlier file of that number.
func identifyByInode(dir *os.File, name string, flags int) (FileID, error) {
	var st unix.Statx_t
	const mask = unix.STATX_INO | unix.STATX_BTIME
	err := unix.Statx(int(dir.Fd()), name, flags|unix.AT_SYMLINK_NOFOLLOW, mask, &st)
	if err != nil {
		return "", &os.PathError{Op: "statx", Path: name, Err: err}
	}
	if st.Mask&mask != mask {
		return "", ErrNoFileID
	}
	id := binary.BigEndian.AppendUint64([]byte{fileIDByInode}, st.Ino)
	id = binary.BigEndian.AppendUint64(id, uint64(st.Btime.Sec))
	return FileID(binary.BigEndian.AppendUint32(id, st.Btime.Nsec)), nil
}
