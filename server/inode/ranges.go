package inode

import (
	"bytes"
	"cmp"
	"errors"
	"math"

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

// extentsMost is how many extents one system call changes. It holds the kernel's locks of the file meanwhile, for 13
// us for each extent that XFS shares: TestManyExtents.
const extentsMost = 4096

// Allocate gives blocks to a range, and makes the file as large as the range needs.
func (f *File) Allocate(as actas.Thread, offset, length int64) error {
	as.MustAct()
	defer f.enterLong()()
	f.cached.inode.content.lock()
	defer f.cached.inode.content.mu.Unlock()
	return f.fill(offset, length, space.AnyRoom, func() error { return disk.Fallocate(f.fd, 0, offset, length) })
}

// Deallocate makes a hole of a range. The size of the file stays.
func (f *File) Deallocate(as actas.Thread, offset, length int64) error {
	as.MustAct()
	defer f.enterLong()()
	f.cached.inode.content.lock()
	defer f.cached.inode.content.mu.Unlock()
	return f.fill(offset, length, 0, func() error {
		for done := int64(0); done < length; {
			n := f.fewExtents(offset+done, length-done)
			if err := disk.Fallocate(f.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, offset+done, n); err != nil {
				return err
			}
			done += n
		}
		return nil
	})
}

// CloneFrom has a range share the blocks of a range of another file, or of this one, ioctl_ficlonerange(2). A length of 0
// is everything up to the end of the other file.
//
// Other calls see all of it or nothing, as RFC 7862 section 15.13.3 says: a WRITE to either file waits until it ends, and
// so does a READ of this one that begins meanwhile. What can't be done is refused before anything changes. Only
// where the disk fails, or is full, halfway, a part is done, as by the system call itself, and the error says so:
// to put back what was there could fail for the same reason.
func (f *File) CloneFrom(as actas.Thread, from *File, fromOffset, offset, length int64) error {
	as.MustAct()
	from.writeOut()
	f.writeOut()
	defer f.enterLong()()
	defer lockBoth(from, f)()
	a, err := from.Stat()
	if err != nil {
		return err
	}
	long := length
	if long == 0 {
		long = max(a.Size-fromOffset, 0)
	}
	defer f.cached.inode.content.replaced.Store(false)
	// A file that is mostly holes takes no more than what it has.
	return f.fill(offset, long, int64(min(a.Used, space.AnyRoom)), func() error {
		n := f.shareable(from, fromOffset, offset, long)
		if n == long { // or nothing: the kernel knows the error
			return f.share(from, fromOffset, offset, length)
		}
		if err := f.mayShare(from, fromOffset, offset, long, a.Size); err != nil {
			return err
		}
		f.cached.inode.content.replaced.Store(true)
		for done := int64(0); done < long; {
			if f.Volume.HasEnded() {
				return unix.ESTALE
			}
			n := f.shareable(from, fromOffset+done, offset+done, long-done)
			if err := f.share(from, fromOffset+done, offset+done, n); err != nil {
				return err
			}
			done += n
		}
		return nil
	})
}

// lockBoth locks the data of two files, or of one, until the function that it returns is called. Not checked: which of
// the two is locked first is not known before.
//
// +checklocksignore
func lockBoth(a, b *File) (unlock func()) {
	first, second := &a.cached.inode.content, &b.cached.inode.content
	if first == second {
		first.lock()
		return first.mu.Unlock
	}
	// Every call locks in this order, so none waits for the other.
	if cmp.Or(cmp.Compare(a.Volume.ID, b.Volume.ID), bytes.Compare(a.ID.Bytes(), b.ID.Bytes())) > 0 {
		first, second = second, first
	}
	first.lock()
	second.lock()
	return func() {
		second.mu.Unlock()
		first.mu.Unlock()
	}
}

// ShareFrom is CloneFrom of as much of a range as takes a moment. It returns how much that is.
func (f *File) ShareFrom(as actas.Thread, from *File, fromOffset, offset, length int64) (done int64, err error) {
	as.MustAct()
	from.cached.inode.content.settled()
	defer f.enterLong()()
	f.cached.inode.content.lock()
	defer f.cached.inode.content.mu.Unlock()
	a, err := from.Stat()
	if err != nil {
		return 0, err
	}
	n := f.shareable(from, fromOffset, offset, length)
	err = f.fill(offset, n, int64(min(a.Used, space.AnyRoom)), func() error { return f.share(from, fromOffset, offset, n) })
	if err != nil {
		return 0, err
	}
	return n, nil
}

// writeOut has the data of a file on the disk, as the kernel needs it to share the blocks, before anything is locked.
func (f *File) writeOut() { disk.WriteOut(f.fd) }

// share is ioctl_ficlonerange(2).
func (f *File) share(from *File, fromOffset, offset, length int64) error {
	arg := unix.FileCloneRange{Src_fd: int64(from.fd), Src_offset: uint64(fromOffset), Src_length: uint64(length), Dest_offset: uint64(offset)}
	for {
		if err := unix.IoctlFileCloneRange(f.fd, &arg); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// mayShare returns the error of sharing a range in steps, as that of ioctl_ficlonerange(2): each step is a range by itself,
// and the first ones could be done, and one of the next not. from has size bytes.
func (f *File) mayShare(from *File, fromOffset, offset, length, size int64) error {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(f.fd, &fs); err != nil {
		return err
	}
	a, err := f.Stat()
	if err != nil {
		return err
	}
	same := f.ID == from.ID && f.Volume == from.Volume
	switch {
	case length > size-fromOffset, length > math.MaxInt64-offset,
		same && fromOffset < offset+length && offset < fromOffset+length,
		length%fs.Bsize != 0 && (length < size-fromOffset || offset+length < a.Size):
		return unix.EINVAL
	}
	return nil
}

// shareable returns how many of length bytes are shared by one system call.
func (f *File) shareable(from *File, fromOffset, offset, length int64) int64 {
	return f.fewExtents(offset, from.fewExtents(fromOffset, length))
}

// fewExtents returns how many of length bytes have extentsMost extents, at most. They are all, or end between two blocks
// of every file system.
func (f *File) fewExtents(offset, length int64) int64 {
	const block, unknown = 64 << 10, extentsMost * 4096
	end, extents := offset+length, 0
	last := end
	err := disk.EachExtent(f.fd, offset, end, func(_, to int64) bool {
		if extents++; extents < extentsMost {
			return true
		}
		last = to
		return false
	})
	if err != nil {
		last = min(end, offset+unknown)
	}
	if last < end { // then it ends between two blocks
		last -= last % block
	}
	if last <= offset {
		return length
	}
	return last - offset
}

// CopyFrom copies a range of another file, and returns how much it has copied: less than length if the other
// file ends before, or with an error.
func (f *File) CopyFrom(as actas.Thread, from *File, fromOffset, offset, length int64) (done int64, err error) {
	as.MustAct()
	from.cached.inode.content.settled()
	f.cached.inode.content.lock()
	defer f.cached.inode.content.mu.Unlock()
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

// enterLong begins a change that may take long, before its locks, until leave is called.
func (f *File) enterLong() (leave func()) {
	s := &f.Volume.Snapshots
	entered := s.EnterLong(&f.ID)
	return func() { s.LeaveLong(entered) }
}

// fill has do change a range, which takes at most so many bytes more than it has: see space.Charge.Fill.
func (f *File) fill(offset, length, most int64, do func() error) error {
	f.cached.written.Store(true)
	err := f.changeIt(func() error { return f.charge.Fill(f.fd, offset, length, most, do) })
	f.cached.Changed(int(min(length, 1<<30))) // which is much
	return err
}
