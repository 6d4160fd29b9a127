package disk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// FileIDMax is the largest number of bytes in a FileID: what a handle of NFS version 3 has left for it.
const FileIDMax = 46

// FileID identifies a file within its file system, even after renames; no later
// file has the same one. It is comparable and can be a map key. No file has the
// zero FileID.
type FileID struct {
	n     uint8
	bytes [FileIDMax]byte
}

// NewFileID returns the FileID with these bytes, or the zero FileID if there are
// too many.
func NewFileID(b []byte) FileID {
	var id FileID
	if len(b) <= FileIDMax {
		id.n = uint8(copy(id.bytes[:], b))
	}
	return id
}

// IsZero reports whether it is the zero FileID.
func (f FileID) IsZero() bool { return f.n == 0 }

// Fold returns a number by which tables find the FileID. Clients can choose neither inode numbers nor times of birth, so
// they can't have many FileIDs with the same one.
func (f *FileID) Fold() uint64 {
	const odd = 0x9e3779b97f4a7c15 // 2^64 by the golden ratio: its products are spread evenly
	sum := uint64(f.n)
	for at := 0; at < int(f.n); at += 8 {
		word := f.bytes[min(at, FileIDMax-8):] // what is after n is 0
		sum = (sum ^ binary.LittleEndian.Uint64(word)) * odd
	}
	return sum ^ sum>>32
}

// Bytes returns the bytes for NewFileID.
func (f FileID) Bytes() []byte { return f.bytes[:f.n] }

// AsString returns the bytes as a string, for packages that know no FileID.
func (f *FileID) AsString() string { return string(f.bytes[:f.n]) }

// fileIDByInode is the first byte of a FileID made of inode number and birth time.
// In others the first byte is the kernel's handle type, which is always smaller.
const fileIDByInode = 0xff

// ErrNoFileID means that the file system has no persistent identifiers for its
// files.
var ErrNoFileID = errors.New("the file system has neither birth times nor file handles")

// Identify returns the FileID of an open file by its inode.
func Identify(f *os.File) (FileID, error) { return ByInode{&FS{}}.Identify(int(f.Fd()), nil) }

// ByInode identifies files by inode number and birth time.
//
// Their FileIDs must depend on the disk alone, or handles would not survive a
// change of the pod's rights: seccomp profiles of some container runtimes deny
// name_to_handle_at(2), while all allow statx(2). So the kernel's handle is used
// only if the disk has no birth times (XFS version 4, ext4 with inodes of 128
// bytes). Without the inode's generation, two files can have the same FileID only
// if the first was removed within the clock tick, some milliseconds, in which it
// was created.
type ByInode struct{ FS *FS }

// Identify returns the FileID of a name in a directory, or of the directory itself if the name is empty.
func (i ByInode) Identify(dir int, name []byte) (FileID, error) {
	id, _, err := i.Look(dir, string(name))
	return id, err
}

// Look is Identify, and returns what statx(2) has found, with FS.Number.
func (i ByInode) Look(dir int, name string) (id FileID, st unix.Statx_t, err error) {
	flags := unix.AT_SYMLINK_NOFOLLOW
	if name == "" {
		flags |= unix.AT_EMPTY_PATH
	}
	const mask = unix.STATX_TYPE | unix.STATX_INO | unix.STATX_BTIME
	if err := unix.Statx(dir, name, flags, mask, &st); err != nil {
		return FileID{}, st, &os.PathError{Op: "statx", Path: name, Err: err}
	}
	st.Ino = i.FS.Number(InodeOfStatx(&st))
	if st.Mask&unix.STATX_BTIME == 0 {
		id, err = ByHandle{}.Identify(dir, []byte(name))
		return id, st, err
	}
	id = InodeID(st.Ino, &st)
	return id, st, nil
}

// InodeID returns the FileID of FS.Number and the birth time.
func InodeID(number uint64, st *unix.Statx_t) FileID {
	id := FileID{n: 1 + 8 + 8 + 4}
	id.bytes[0] = fileIDByInode
	binary.BigEndian.PutUint64(id.bytes[1:], number)
	binary.BigEndian.PutUint64(id.bytes[1+8:], uint64(st.Btime.Sec))
	binary.BigEndian.PutUint32(id.bytes[1+8+8:], st.Btime.Nsec)
	return id
}

// ByInode reports whether a FileID is by inode and birth time.
func (f *FileID) ByInode() bool { return f.bytes[0] == fileIDByInode }

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

// NeedsError says what the native engine needs but lacks here.
type NeedsError struct {
	What string
	Fix  string
	Err  error
}

func (e *NeedsError) Error() string { return fmt.Sprintf("%s (%v); %s", e.What, e.Err, e.Fix) }

func (e *NeedsError) Unwrap() error { return e.Err }

// ProbeHandles tests whether files of the disk at dir can be opened by the kernel's handles.
// The error is a *NeedsError, unless dir can't be opened.
func ProbeHandles(dir string) error {
	root, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	handle, _, err := unix.NameToHandleAt(int(root.Fd()), "", unix.AT_EMPTY_PATH)
	switch {
	case errors.Is(err, unix.EOPNOTSUPP):
		return &NeedsError{"the file system has no file handles", "use a disk with ext4, XFS or btrfs in place of an overlay", err}
	case err != nil:
		return &NeedsError{"the system call for file handles is not allowed", "let the container's seccomp profile allow name_to_handle_at, or run it unconfined", err}
	}
	fd, err := unix.OpenByHandleAt(int(root.Fd()), handle, unix.O_PATH|unix.O_CLOEXEC)
	if err != nil {
		return &NeedsError{"files can't be opened by handle", "run as root with the capability DAC_READ_SEARCH, outside a user namespace", err}
	}
	opened := Owned(fd)
	opened.Close()
	return nil
}
