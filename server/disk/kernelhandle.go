package disk

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// kernelHandle is struct file_handle of open_by_handle_at(2), with room for what
// fits a FileID behind the type. x/sys allocates one for every call.
type kernelHandle struct {
	size  uint32
	kind  int32
	bytes [FileIDMax - 1]byte
}

// fileID is the type of handle and its bytes, which hold the inode's number and
// generation. False if it does not fit.
func (h *kernelHandle) fileID() (FileID, bool) {
	if h.kind < 0 || h.kind >= fileIDByInode || int(h.size) > len(h.bytes) {
		return FileID{}, false
	}
	id := FileID{n: uint8(1 + h.size)}
	id.bytes[0] = byte(h.kind)
	copy(id.bytes[1:], h.bytes[:h.size])
	return id, true
}

// ByHandle finds files by the kernel's handles. To open them needs
// CAP_DAC_READ_SEARCH.
type ByHandle struct{ Root *os.File }

// Identify returns the FileID of a name in a directory, or of the directory itself if the name is empty, with
// name_to_handle_at(2).
func (ByHandle) Identify(dir int, name []byte) (FileID, error) {
	var path [unix.NAME_MAX + 1]byte // ends with 0
	flags := 0
	switch {
	case len(name) == 0:
		flags = unix.AT_EMPTY_PATH
	case copy(path[:unix.NAME_MAX], name) < len(name):
		return FileID{}, unix.ENAMETOOLONG
	case bytes.IndexByte(name, 0) >= 0:
		return FileID{}, unix.EINVAL
	}
	return nameToHandle(dir, &path[0], flags)
}

// nameToHandle is name_to_handle_at(2). The path ends with 0.
func nameToHandle(dir int, path *byte, flags int) (FileID, error) {
	h := kernelHandle{}
	h.size = uint32(len(h.bytes))
	var mount int32
	_, _, errno := unix.Syscall6(unix.SYS_NAME_TO_HANDLE_AT, uintptr(dir), uintptr(unsafe.Pointer(path)),
		uintptr(unsafe.Pointer(&h)), uintptr(unsafe.Pointer(&mount)), uintptr(flags), 0)
	switch errno {
	case 0:
	case unix.EOPNOTSUPP, unix.EPERM, unix.EOVERFLOW: // the last: too large for a handle of ours
		return FileID{}, fmt.Errorf("%w (name_to_handle_at: %w)", ErrNoFileID, errno)
	default:
		return FileID{}, os.NewSyscallError("name_to_handle_at", errno)
	}
	id, ok := h.fileID()
	if !ok {
		return FileID{}, fmt.Errorf("%w: handle of type %d and %d bytes", ErrNoFileID, h.kind, h.size)
	}
	return id, nil
}

// Types of handles, enum fid_type in the kernel. XFS adds a bit to those that have 64
// bits of number.
const (
	fidIno32Gen = 1
	fidXFS64    = fidIno32Gen | 0x80
	fidBtrfs    = 0x4d
)

// NumberIn returns the inode number in a handle of the disk, 0 if its position in the handle is
// not known.
func (d *FS) NumberIn(id *FileID) uint64 {
	if id.n < 1+8 {
		return 0
	}
	number := binary.NativeEndian.Uint64(id.bytes[1:])
	switch {
	case id.bytes[0] == fileIDByInode:
		return binary.BigEndian.Uint64(id.bytes[1:])
	case d.Type == unix.XFS_SUPER_MAGIC && id.bytes[0] == fidXFS64, d.Type == unix.BTRFS_SUPER_MAGIC && id.bytes[0] == fidBtrfs:
		return number
	case (d.Type == unix.XFS_SUPER_MAGIC || d.Type == unix.EXT4_SUPER_MAGIC) && id.bytes[0] == fidIno32Gen:
		return uint64(binary.NativeEndian.Uint32(id.bytes[1:]))
	case d.Type == unix.TMPFS_MAGIC && id.bytes[0] == fidIno32Gen && id.n == 1+12: // mm/shmem.c: generation, and two halves
		return uint64(binary.NativeEndian.Uint32(id.bytes[5:])) | uint64(binary.NativeEndian.Uint32(id.bytes[9:]))<<32
	}
	return 0
}

// Open opens a file, with open_by_handle_at(2). The error is ESTALE if it is gone.
func (k ByHandle) Open(file FileID, flags int) (Descriptor, error) {
	if file.n < 2 || file.bytes[0] == fileIDByInode {
		return Descriptor{}, unix.ESTALE // of the other form
	}
	h := kernelHandle{size: uint32(file.n) - 1, kind: int32(file.bytes[0])}
	copy(h.bytes[:], file.bytes[1:file.n])
	for tries := 0; ; {
		fd, _, errno := unix.Syscall(unix.SYS_OPEN_BY_HANDLE_AT, k.Root.Fd(), uintptr(unsafe.Pointer(&h)), uintptr(flags|unix.O_CLOEXEC))
		switch {
		case errno == 0:
			return Owned(int(fd)), nil
		case errno == unix.EINTR:
		case errno == unix.ENOMEM && tries < 5:
			// ext4 returns this also while a new file gets the number of a removed
			// one.
			tries++
			time.Sleep(time.Millisecond)
		default:
			return Descriptor{}, errno
		}
	}
}

// Reopen opens a file that is open with O_PATH.
func (k ByHandle) Reopen(file FileID, _, flags int) (Descriptor, error) {
	return k.Open(file, flags)
}
