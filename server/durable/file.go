package durable

import (
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/shares"
	"github.com/podnas/podnas/server/stats"
)

// Syncer syncs the files of all volumes. Its methods may be called concurrently.
type Syncer struct {
	log     *slog.Logger
	slots   slots
	onBtrfs overlap
	spare   sync.Pool // of syncWait, so that a sync allocates nothing
}

// New returns a Syncer.
func New(log *slog.Logger) *Syncer {
	return &Syncer{
		log:   log,
		slots: slots{semaphore: shares.New[chan struct{}](syncsMax)},
		spare: sync.Pool{New: func() any { return make(syncWait, 1) }},
	}
}

// Volume has the syncs that files of one volume share, and the volume's write verifier.
type Volume struct {
	id     uint64
	path   string // for people
	fs     *disk.FS
	counts *stats.Syncs

	dirs     syncs // of directories, where they are synced together
	files    syncs // of files with little to write, where they are
	verifier atomic.Uint64
}

// Init sets what the volume is. Call it once, before all else. The syncs are counted in counts.
//
// +checklocksignore
func (v *Volume) Init(id uint64, path string, fs *disk.FS, counts *stats.Syncs) {
	v.id, v.path, v.fs, v.counts = id, path, fs, counts
	v.dirs.aside = true
	v.NewVerifier()
}

// WriteVerifier is the write verifier, RFC 1813 section 3.3.7: while it does not
// change, the server has lost no uncommitted data.
func (v *Volume) WriteVerifier() uint64 { return v.verifier.Load() }

// NewVerifier changes the write verifier, so that clients send again what they have not committed.
func (v *Volume) NewVerifier() { v.verifier.Store(rand.Uint64()) }

// Kind says what a descriptor can be synced for, and with which others.
type Kind uint8

// The kinds of descriptors.
const (
	Other Kind = iota // open with O_PATH
	Names             // a directory's names
	Read              // a regular file's data
	Write
)

func (k Kind) isData() bool { return k == Read || k == Write }

// State has what the descriptors of one file share: the calls that wait, and the failures. The zero State is ready.
type State struct {
	syncs syncs // that are not together with other files'
	errs  errSeq
	// syncing is locked while a regular file is synced, and a failure recorded.
	syncing sync.Mutex
}

// Owner opens a file that the process has open with O_PATH, and whose mode does not let it open the file
// otherwise.
type Owner interface {
	OpenToSync() (disk.Descriptor, error)
}

// File is a descriptor that can be synced. Whoever has it keeps the descriptor open.
type File struct {
	volume *Volume
	fd     int
	kind   Kind
	state  *State
	owner  Owner // nil: the process is root
	// unsynced is 0 if all writes are synced: the bytes that were written since the last sync began, and 1 for each
	// change.
	unsynced atomic.Int64
}

// Init sets what the file is. Call it once, before all else.
func (f *File) Init(v *Volume, fd int, kind Kind, state *State, owner Owner) {
	f.volume, f.fd, f.kind, f.state, f.owner = v, fd, kind, state, owner
}

// Changed says that the file was written, with so many bytes.
func (f *File) Changed(bytes int) { f.unsynced.Add(int64(bytes) + 1) }

// Unsynced reports whether something was written that is not synced: then the descriptor must stay open until it is.
func (f *File) Unsynced() bool { return f.unsynced.Load() > 0 }

// Sample returns what a call passes to Here or Begin after its change, which then return each failure since now.
func (f *File) Sample() uint64 { return f.state.errs.sample() }

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
