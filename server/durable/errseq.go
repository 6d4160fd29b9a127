package durable

import (
	"errors"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// The kernel reports a failed sync to an open file once: the next fsync(2) returns 0,
// although the lost data is not on the disk and the kernel does not retry it, because
// its pages are clean. So 0 says nothing about data written before the failed sync, and
// podnas must remember the failure. The kernel does the same (errseq_t, Linux
// Documentation/core-api/errseq.rst), for itself and for its own NFS server.
//
// A call that changes a file samples its errSeq before, and checks it again before the
// reply. That finds every failure that may have lost the change, because
//
//   - a failed sync is recorded before another one of the file begins;
//   - a file that was written stays open until it is synced (File.Unsynced), so the kernel
//     has an earlier descriptor to which it reports what fails in the background;
//   - a failure of the file system's journal is found by a further system call (disk.FS.Sync).
//
// An UNSTABLE WRITE gets its reply before the sync. For those there is the volume's write
// verifier: it changes before the failure is recorded. WRITE returns the verifier from
// before it accepted the data, and COMMIT the one from after its sync.

// errSeq is the last failed sync of a file: its errno in the low 16 bits, and the
// number of failures in the others.
type errSeq struct{ v atomic.Uint64 }

func (e *errSeq) sample() uint64 { return e.v.Load() }

// failed records a failure.
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
