package inode

import (
	"errors"
	"math"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/server/disk"
)

// The data of a file that is open with UseRead or UseWrite. It was opened as root, so
// the caller must check the permissions, by the owner or with Access. The methods themselves may
// run on any goroutine.

// ReadAt reads until p is full or the file ends.
func (f *File) ReadAt(p []byte, offset int64) (int, error) {
	f.cached.inode.content.settled()
	done := 0
	for done < len(p) {
		n, err := unix.Pread(f.fd, p[done:], offset+int64(done))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if n <= 0 || err != nil {
			return done, err
		}
		done += n
	}
	return done, nil
}

// ReadCached is ReadAt without waiting for the disk. The error is EAGAIN if it
// would wait, or if the file system does not support that; at the end of the file
// it reads less.
func (f *File) ReadCached(p []byte, offset int64) (int, error) {
	if f.cached.inode.content.replaced.Load() {
		return 0, unix.EAGAIN
	}
	n, err := disk.PreadNow(f.fd, p, offset)
	if err != nil {
		return 0, unix.EAGAIN
	}
	return n, nil
}

// WriteAt writes all of p, or less with an error. It returns the attributes
// afterwards, which are zero if the file was removed.
func (f *File) WriteAt(p []byte, offset int64) (int, disk.Attr, error) {
	f.cached.written.Store(true)
	f.cached.inode.content.rlock()
	defer f.cached.inode.content.mu.RUnlock()
	var st unix.Stat_t
	n := 0
	err := f.changeIt(func() (err error) {
		n, err = f.charge.Write(f.fd, p, offset, &st)
		return err
	})
	f.cached.Changed(n)
	if st.Nlink == 0 || st.Nlink == 1 && f.isOrphan() {
		return n, disk.Attr{}, err
	}
	return n, f.Volume.FS.AttrOf(&st), err
}

// Truncate sets the size of a regular file that is open with UseWrite, or was made by Create, which nobody else
// writes to yet. In Together.Do the file must be its data.
//
// Not checked: Together.Do may have locked the data.
//
// +checklocksignore
func (f *File) Truncate(as actas.Thread, size uint64) error {
	as.MustAct()
	if size > math.MaxInt64 {
		return unix.EFBIG
	}
	if f.use == UseWrite && !f.hasEntered() {
		defer f.enterToResize()()
		f.cached.inode.content.lock()
		defer f.cached.inode.content.mu.Unlock()
	}
	return f.changeIt(func() error { return f.truncate(size) })
}

func (f *File) truncate(size uint64) error {
	if f.use == UseWrite {
		f.cached.written.Store(true)
		defer f.cached.Changed(0)
	} else {
		f.changed = true
	}
	return f.charge.Resize(f.fd, int64(size), func() error {
		steps := f.sizesTo(int64(size))
		if f.cached != nil && len(steps) > 1 {
			f.cached.inode.content.replaced.Store(true)
			defer f.cached.inode.content.replaced.Store(false)
		}
		for _, size := range steps {
			if err := f.setSize(size); err != nil {
				return err
			}
		}
		return nil
	})
}

func (f *File) setSize(size int64) error {
	for {
		if err := unix.Ftruncate(f.fd, size); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// sizesTo returns the sizes that the file gets one after the other, so that it loses few extents with each system call: who
// removes it meanwhile has a directory locked, and waits for one. READs wait until the last, but not who looks at the size.
func (f *File) sizesTo(size int64) []int64 {
	var st unix.Stat_t
	if err := unix.Fstat(f.fd, &st); err != nil || size >= st.Size || !mayHaveMany(&st) {
		return []int64{size}
	}
	sizes, extents := []int64{size}, 0
	_ = disk.EachExtent(f.fd, size, st.Size, func(_, to int64) bool { // a file system that does not tell has one step
		if extents++; extents%extentsMost == 0 {
			sizes = append(sizes, to)
		}
		return true
	})
	slices.Reverse(sizes)
	return sizes
}

// mayHaveMany reports whether a file may have more extents than one system call should free.
func mayHaveMany(st *unix.Stat_t) bool { return st.Blocks*512 >= extentsMost*4096 }

// ResizesLong reports whether it may take long to set the size.
func (f *File) ResizesLong() bool {
	var st unix.Stat_t
	err := unix.Fstat(f.fd, &st)
	return err == nil && mayHaveMany(&st)
}

// enterToResize is enterLong for who sets the size, if that may take long.
func (f *File) enterToResize() (leave func()) {
	if !f.ResizesLong() {
		return func() {}
	}
	return f.enterLong()
}

// IsAwaited reports whether so many calls wait for the data of a file that another one must call WaitForData first.
func (f *File) IsAwaited() bool {
	return f.cached != nil && f.cached.inode.content.waiting.Load() >= fewWait
}

// WaitForData waits while the data of an awaited file is changed. The caller must hold no lock, and no permit to block.
func (f *File) WaitForData() {
	f.cached.inode.content.mu.RLock()
	f.cached.inode.content.mu.RUnlock() //nolint:staticcheck,gocritic // it is locked for as long as that takes
}
