package export

import (
	"errors"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/space"
)

// Ranges of a regular file that is open with UseRead or UseWrite: its holes, and blocks that are given to it,
// taken away, copied, or shared with another file. The caller has checked offsets and lengths: no sum of them is more
// than the largest offset.

// Next returns where the next data or the next hole begins, from an offset on. The error is ENXIO if there is none; each
// file ends with a hole.
func (f *File) Next(offset int64, hole bool) (int64, error) {
	whence := unix.SEEK_DATA
	if hole {
		whence = unix.SEEK_HOLE
	}
	return unix.Seek(f.fd, offset, whence) // it moves the descriptor's offset, which nothing uses
}

// Allocate gives blocks to a range, and makes the file as large as the range needs.
func (f *File) Allocate(as Thread, offset, length int64) error {
	as.check()
	return f.fill(offset, length, space.AnyRoom, func() error { return fallocate(f.fd, 0, offset, length) })
}

// Deallocate makes a hole of a range. The size of the file stays.
func (f *File) Deallocate(as Thread, offset, length int64) error {
	as.check()
	return f.fill(offset, length, 0, func() error {
		return fallocate(f.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, offset, length)
	})
}

func fallocate(fd int, mode uint32, offset, length int64) error {
	for {
		if err := unix.Fallocate(fd, mode, offset, length); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// CloneFrom has a range share the blocks of a range of another file, or of this one, ioctl_ficlonerange(2): all of it, or
// with an error maybe a part. A length of 0 is everything up to the end of the other file.
func (f *File) CloneFrom(as Thread, from *File, fromOffset, offset, length int64) error {
	as.check()
	a, err := from.Stat()
	if err != nil {
		return err
	}
	long := length
	if long == 0 {
		long = max(a.Size-fromOffset, 0)
	}
	arg := unix.FileCloneRange{Src_fd: int64(from.fd), Src_offset: uint64(fromOffset), Src_length: uint64(length), Dest_offset: uint64(offset)}
	// A file that is mostly holes takes no more than what it has.
	return f.fill(offset, long, int64(min(a.Used, space.AnyRoom)), func() error { return unix.IoctlFileCloneRange(f.fd, &arg) })
}

// CopyFrom copies a range of another file, and returns how much it has copied: less than length if the other
// file ends before, or with an error.
func (f *File) CopyFrom(as Thread, from *File, fromOffset, offset, length int64) (done int64, err error) {
	as.check()
	err = f.fill(offset, length, space.AnyRoom, func() error {
		for done < length {
			in, out := fromOffset+done, offset+done
			n, err := unix.CopyFileRange(from.fd, &in, f.fd, &out, int(length-done), 0)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if n <= 0 || err != nil {
				return err
			}
			done += int64(n)
		}
		return nil
	})
	return done, err
}

// fill has do change a range, which takes at most so many bytes more than it has: see space.Charge.Fill.
func (f *File) fill(offset, length, most int64, do func() error) error {
	f.kept.written.Store(true)
	defer f.beginChange().end()
	err := f.charge.Fill(f.fd, offset, length, most, do)
	f.kept.changed(int(min(length, 1<<30))) // which is much
	return err
}

// Same reports whether attributes are those of the same file, whatever volumes it was found in.
func (a *Attr) Same(b *Attr) bool { return a.Ino == b.Ino && a.device == b.device }

// Ability is what a file system can do, or not.
type Ability int

// The abilities that file systems lack.
const (
	CanAllocate Ability = iota
	CanDeallocate
	CanClone
	abilities // how many there are
)

// known is whether a file system has an ability, as far as somebody has wanted to know.
type known [abilities]atomic.Int32

const (
	isAble = 1 + iota
	isUnable
)

// Unable returns the error of an operation as it is, but for EOPNOTSUPP where the file system can do it with other
// files: that becomes EINVAL. Linux's client does not ask again, as long as the volume is mounted, for what it was told
// is not supported. The caller must be root.
func (v *Volume) Unable(what Ability, err error) error {
	if !errors.Is(err, unix.EOPNOTSUPP) {
		return err
	}
	is := &v.known[what]
	if is.Load() == 0 {
		switch tried := v.try(what); {
		case tried == nil:
			is.Store(isAble)
		case errors.Is(tried, unix.EOPNOTSUPP):
			is.Store(isUnable)
		}
	}
	if is.Load() == isUnable {
		return err
	}
	return unix.EINVAL
}

// try tries what a file system can do, with a file that has no name and no data.
func (v *Volume) try(what Ability) error {
	const block = 64 << 10 // no file system has larger ones
	fd, err := unix.Openat(int(v.root.Fd()), ".", unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	d := owned(fd)
	defer d.close()
	if err := unix.Ftruncate(fd, 2*block); err != nil {
		return err
	}
	switch what {
	case CanAllocate:
		return fallocate(fd, 0, 0, block)
	case CanDeallocate:
		return fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, block)
	}
	return unix.IoctlFileCloneRange(fd, &unix.FileCloneRange{Src_fd: int64(fd), Src_length: block, Dest_offset: block})
}
