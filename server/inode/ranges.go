package inode

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/server/disk"
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
func (f *File) Allocate(as actas.Thread, offset, length int64) error {
	as.MustAct()
	return f.fill(offset, length, space.AnyRoom, func() error { return disk.Fallocate(f.fd, 0, offset, length) })
}

// Deallocate makes a hole of a range. The size of the file stays.
func (f *File) Deallocate(as actas.Thread, offset, length int64) error {
	as.MustAct()
	return f.fill(offset, length, 0, func() error {
		return disk.Fallocate(f.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, offset, length)
	})
}

// CloneFrom has a range share the blocks of a range of another file, or of this one, ioctl_ficlonerange(2): all of it, or
// with an error maybe a part. A length of 0 is everything up to the end of the other file.
func (f *File) CloneFrom(as actas.Thread, from *File, fromOffset, offset, length int64) error {
	as.MustAct()
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
func (f *File) CopyFrom(as actas.Thread, from *File, fromOffset, offset, length int64) (done int64, err error) {
	as.MustAct()
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
	err := f.change(func() error { return f.charge.Fill(f.fd, offset, length, most, do) })
	f.kept.Changed(int(min(length, 1<<30))) // which is much
	return err
}
