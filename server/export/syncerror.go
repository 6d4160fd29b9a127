package export

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// The kernel tells an open file of a failed sync once: the next fsync(2) is 0, though
// what could not be written is not on the disk, and is no longer tried: its pages are
// clean. So a 0 says nothing of what was written before the sync that failed, and it is
// kept in mind here that there was one. The kernel does likewise (errseq_t, Linux
// Documentation/core-api/errseq.rst), for itself and for its own NFS server.
//
// Whoever changes a file has sampled its errSeq before, and looks at it again before the
// answer. That finds every failure that can have taken the change with it, since
//
//   - a failed sync is noted before another one of the file begins;
//   - a file that was written stays open until it is synced (unsynced), so the kernel
//     has a descriptor from before to tell of what fails in the background;
//   - of the file system's journal the kernel tells whoever asks (alive).
//
// UNSTABLE WRITEs have had their answer by then. For those there is the volume's write
// verifier: it changes before the failure is noted, WRITE tells the one from before the
// data was accepted, and COMMIT the one from after its sync.

// errSeq is the last failed sync of a file: its errno in the low 16 bits, and above how
// many there were.
type errSeq struct{ v atomic.Uint64 }

func (e *errSeq) sample() uint64 { return e.v.Load() }

// failed notes a failure.
func (e *errSeq) failed(err error) {
	errno := unix.EIO
	errors.As(err, &errno)
	for {
		was := e.v.Load()
		if e.v.CompareAndSwap(was, (was>>16+1)<<16|uint64(errno)) {
			return
		}
	}
}

// since is the last failure, nil if there was none since the sample was taken.
func (e *errSeq) since(sample uint64) error {
	now := e.v.Load()
	if now == sample {
		return nil
	}
	return unix.Errno(now & 0xffff)
}

// WriteVerifier is the write verifier, RFC 1813 section 3.3.7: while it stays the same,
// the server has lost nothing that was written and not committed.
func (v *Volume) WriteVerifier() uint64 { return v.verifier.Load() }

func (v *Volume) newVerifier() { v.verifier.Store(rand.Uint64()) }

// alive tells whether the file system of an open file, or directory, goes on after a sync
// of it. When one can't write its journal, it tells those who wait for that. Whoever syncs
// later finds nothing to wait for, and no error: without this, TestSyncFails in server
// finds names lost on XFS each time, on ext4 most times, and on btrfs when processors are
// busy, one time in five.
func (d *disk) alive(fd int) error {
	var err error
	switch {
	case d.fs == unix.XFS_SUPER_MAGIC:
		_, err = unix.Flistxattr(fd, nil)
	case d.fs == unix.EXT4_SUPER_MAGIC && d.journal, d.fs == unix.BTRFS_SUPER_MAGIC:
		// Begins a change, and finds nothing to do.
		err = unix.Fremovexattr(fd, "user.podnas.none")
	}
	if errors.Is(err, unix.EIO) || errors.Is(err, unix.EROFS) {
		return err
	}
	return nil
}

// sync is fsync(2), or fdatasync(2), and 0 means that what was done before is on the disk,
// unless another sync through the descriptor has failed since.
func (d *disk) sync(fd int, data bool) error {
	sync := unix.Fsync
	if data {
		sync = unix.Fdatasync
	}
	err := sync(fd)
	if errors.Is(err, unix.EBADF) { // open with O_PATH
		fd, err = unix.Open(procPath(fd), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd) // nothing was written through it
		err = sync(fd)
	}
	return cmp.Or(err, d.alive(fd))
}
