package export

import (
	"encoding/binary"
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// FileID names a file within its file system for as long as it lives, wherever
// it is moved; no later file has the same. It can be compared and used as a key.
// The zero FileID is no file's.
type FileID struct {
	n     uint8
	bytes [FileIDMax]byte
}

// NewFileID is the FileID with these bytes, the zero FileID if they are too many.
func NewFileID(b []byte) FileID {
	var id FileID
	if len(b) <= FileIDMax {
		id.n = uint8(copy(id.bytes[:], b))
	}
	return id
}

// IsZero tells whether it is no file's.
func (f FileID) IsZero() bool { return f.n == 0 }

// Bytes are what NewFileID was given.
func (f FileID) Bytes() []byte { return f.bytes[:f.n] }

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
		return FileID{}, &os.PathError{Op: "statx", Path: name, Err: err}
	}
	if st.Mask&unix.STATX_BTIME == 0 {
		return identifyByHandle(int(dir.Fd()), name)
	}
	id := binary.BigEndian.AppendUint64([]byte{fileIDByInode}, st.Ino)
	id = binary.BigEndian.AppendUint64(id, uint64(st.Btime.Sec))
	return NewFileID(binary.BigEndian.AppendUint32(id, st.Btime.Nsec)), nil
}
