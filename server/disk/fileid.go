package disk

import (
	"encoding/binary"
	"errors"
	"os"

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
