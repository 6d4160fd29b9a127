package inode

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/internal/statedir"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/space"
)

// A file that a client holds open stays until its last close, whoever removes it. The kernel keeps it
// only as long as this process has it open. So before its last name is removed, the file gets another
// one, in a directory on the same disk that no client can reach, and the next process can open it by
// its handle. Such a file is kept: clients are told one link less than it has.
//
// Where the file can't get that name, as on a full disk, it is gone when this process ends. So it is
// if it loses its last name between an OPEN's descriptor and Hold.

// keptMax is how many files are kept at most: as many as clients may have open. While all are kept
// that are removed, there could be more.
const keptMax = 200_000

// heldFiles are the files that clients hold open, and those that are kept.
type heldFiles struct {
	kept atomic.Int64 // how many are: as long as none is, calls do not ask for each file

	mu sync.RWMutex
	// +checklocks:mu
	dir *statedir.Dir // nil: no file can be kept
	// +checklocks:mu
	files map[heldKey]*heldFile
	// reclaiming is whether clients may reclaim files that nobody holds yet: any file may be one
	// of these.
	// +checklocks:mu
	reclaiming bool
	// left is whether the next process is to find what is kept.
	// +checklocks:mu
	left bool
}

type heldKey struct {
	volume uint64 // its ID
	id     disk.FileID
}

// heldFile is a file that is held, or kept.
type heldFile struct {
	key   heldKey
	users int  // Helds, and calls that change its names; guarded by heldFiles.mu
	kept  bool // guarded by heldFiles.mu, and changed under names

	// names is locked while the file gets a name or loses its last: what is kept has no other.
	names sync.Mutex
}

func (f *File) heldKey() heldKey { return heldKey{f.Volume.ID, f.ID} }

// name is that of the file if it is kept.
func (k *heldKey) name() string { return fmt.Sprintf("%016x-%x", k.volume, k.id.Bytes()) }

// parseHeldKey is the reverse of heldKey.name.
func parseHeldKey(name string) (heldKey, bool) {
	volume, file, _ := strings.Cut(name, "-")
	id, err := strconv.ParseUint(volume, 16, 64)
	b, fileErr := hex.DecodeString(file)
	k := heldKey{id, disk.NewFileID(b)}
	return k, err == nil && fileErr == nil && !k.id.IsZero()
}

// at lends the directory's descriptor, -1 if there is none.
func (h *heldFiles) at() int {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if h.dir == nil {
		return -1
	}
	return h.dir.Fd()
}

// hold is another use of a file, until release.
func (h *heldFiles) hold(key heldKey) *heldFile {
	h.mu.Lock()
	defer h.mu.Unlock()
	f := h.files[key]
	if f == nil {
		f = &heldFile{key: key}
		h.files[key] = f
	}
	f.users++
	return f
}

// keeps reports whether a file is kept.
func (h *heldFiles) keeps(key heldKey) bool {
	if h.kept.Load() == 0 {
		return false
	}
	h.mu.RLock()
	defer h.mu.RUnlock()
	f := h.files[key]
	return f != nil && f.kept
}

// holds reports whether a file must stay if it loses its last name.
func (h *heldFiles) holds(key heldKey) bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.dir != nil && (h.reclaiming || h.files[key] != nil)
}

// held reports whether somebody holds a file, or it is kept.
func (h *heldFiles) held(key heldKey) bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.files[key] != nil
}

// removing returns a file whose names are about to change, until release; nil if nobody holds it.
func (h *heldFiles) removing(key heldKey) *heldFile {
	if !h.holds(key) {
		return nil
	}
	return h.hold(key)
}

// release ends a use. With the last one, what is kept is gone.
func (o *Opener) release(f *heldFile) {
	h := &o.held
	h.mu.Lock()
	f.users--
	gone := f.users == 0 && f.kept && !h.reclaiming && !h.left
	h.dropUnusedLocked(f)
	h.mu.Unlock()
	if gone {
		o.forget(f)
	}
}

// setKept changes f.kept. It is false if that was so already.
func (h *heldFiles) setKept(f *heldFile, kept bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if f.kept == kept {
		return false
	}
	if f.kept = kept; kept {
		h.kept.Add(1)
		return true
	}
	h.kept.Add(-1)
	h.dropUnusedLocked(f)
	return true
}

// dropUnusedLocked forgets a file that is neither held nor kept.
//
// +checklocks:h.mu
func (h *heldFiles) dropUnusedLocked(f *heldFile) {
	if f.users > 0 || f.kept {
		return
	}
	delete(h.files, f.key)
	if len(h.files) == 0 {
		h.files = map[heldKey]*heldFile{} // a map keeps the memory of its largest size
	}
}

// link gives a file the name by which it is kept, if that in dir is its last one. The caller has
// locked f.names, and the names of dir.
func (h *heldFiles) link(f *heldFile, dir *File, name string) bool {
	if h.kept.Load() >= keptMax {
		return false
	}
	var st unix.Stat_t
	if err := unix.Fstatat(dir.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink != 1 {
		return false
	}
	linked := false
	asRoot(func() {
		if err := unix.Linkat(dir.fd, name, h.at(), f.key.name(), 0); err != nil {
			return
		}
		linked = true
		if v := dir.Volume; !v.FS.Journal && !v.Options.Async { // else the sync of dir has this, too
			_ = unix.Fsync(h.at()) // if it fails, a power cut takes the file
		}
	})
	if linked {
		h.setKept(f, true) // not before, or it would have no link for a moment
	}
	return linked
}

// unlink undoes link. The caller has locked f.names.
func (h *heldFiles) unlink(f *heldFile) {
	if h.setKept(f, false) {
		asRoot(func() { _ = unix.Unlinkat(h.at(), f.key.name(), 0) }) // what is left the next process removes
	}
}

// asRoot does something on a goroutine of its own, which is root: the caller's may act as a
// client's user.
func asRoot(do func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	<-done
}

// forget removes a file that is kept, unless somebody holds it.
func (o *Opener) forget(f *heldFile) bool {
	h := &o.held
	f.names.Lock()
	defer f.names.Unlock()
	h.mu.RLock()
	gone := f.users == 0 && f.kept
	h.mu.RUnlock()
	if !gone {
		return false
	}
	var err error
	asRoot(func() { err = o.unlinkKept(f) })
	if err != nil && !errors.Is(err, unix.ENOENT) {
		o.log.Warn("nfs: the space of a file that was removed while it was open can't be freed; the next start tries again", "err", err)
		return false
	}
	h.setKept(f, false)
	return true
}

// unlinkKept removes the name of a file that is kept, and its usage from that of its volume.
func (o *Opener) unlinkKept(f *heldFile) error {
	dir, name := o.held.at(), f.key.name()
	v, ok := o.table.ByID(f.key.volume)
	if !ok || !v.Begin() {
		return unix.Unlinkat(dir, name, 0)
	}
	defer v.Done()
	var taking space.Taking
	if v.Account != nil {
		if own, err := disk.OpenEntry(dir, name); err == nil {
			defer own.Close()
			taking = v.Account.Take(own.FD())
		}
	}
	err := o.change(v, func() error {
		err := unix.Unlinkat(dir, name, 0)
		taking.Done(err)
		return err
	}, &f.key.id)
	o.files.drop(v, f.key.id)
	return err
}
