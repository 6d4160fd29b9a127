package inode

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/internal/statedir"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/space"
)

// A file that a client holds open stays until its last close, whoever removes it. The kernel keeps it
// only as long as this process has it open. So before its last name is removed, the file gets another
// one, in a directory on the same disk that no client can reach, and the next process can open it by
// its handle. Such a file is an orphan: clients are told one link less than it has.
//
// Where the file can't get that name, as on a full disk, it is gone when this process ends. So it is
// if it loses its last name between an OPEN's descriptor and Hold.

// orphansMax is how many orphans there are at most: as many as clients may have files open.
const orphansMax = 200_000

// orphans has what orphans have in common.
type orphans struct {
	// reclaiming is whether clients may reclaim files that nobody holds yet: any file may be one
	// of these.
	reclaiming atomic.Bool
	// left is whether the next process is to find the orphans.
	left atomic.Bool
	dir  atomic.Pointer[statedir.Dir] // nil: there can be none
}

// name is that of the file if it is an orphan.
func (k *fileKey) name() string { return fmt.Sprintf("%016x-%x", k.volume, k.id.Bytes()) }

// parseFileKey is the reverse of fileKey.name.
func parseFileKey(name string) (fileKey, bool) {
	volume, file, _ := strings.Cut(name, "-")
	id, err := strconv.ParseUint(volume, 16, 64)
	b, fileErr := hex.DecodeString(file)
	k := fileKey{id, disk.NewFileID(b)}
	return k, err == nil && fileErr == nil && !k.id.IsZero()
}

// at lends the directory's descriptor, -1 if there is none.
func (h *orphans) at() int {
	if d := h.dir.Load(); d != nil {
		return d.Fd()
	}
	return -1
}

// removing returns a file whose names are about to change, and which must stay if it loses the last, until release. It
// is nil if nobody holds the file, nor may reclaim it.
func (o *Opener) removing(key fileKey) *inode {
	switch {
	case o.orphans.at() < 0:
		return nil
	case o.orphans.reclaiming.Load():
		return o.inodes.use(key)
	}
	return o.inodes.useIf(key)
}

// release ends a use of inodes.use or useIf. With the last one, an orphan is gone.
func (o *Opener) release(i *inode) {
	i.shard.mu.Lock()
	i.held--
	gone := i.held == 0 && i.orphan.Load() && !o.orphans.reclaiming.Load() && !o.orphans.left.Load()
	i.shard.leaveLocked(i)
	i.shard.mu.Unlock()
	if gone {
		o.forget(i)
	}
}

// linkOrphan gives a file the name that it has as an orphan, if that in dir is its last one. The caller has
// locked f.lastName, and the names of dir.
func (o *Opener) linkOrphan(f *inode, dir *File, name string) bool {
	h := &o.orphans
	if o.inodes.orphans.Load() >= orphansMax {
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
		o.inodes.setOrphan(f, true) // not before, or it would have no link for a moment
	}
	return linked
}

// unlinkOrphan undoes linkOrphan. The caller has locked f.lastName.
func (o *Opener) unlinkOrphan(f *inode) {
	if o.inodes.setOrphan(f, false) {
		asRoot(func() { _ = unix.Unlinkat(o.orphans.at(), f.key.name(), 0) }) // what is left the next process removes
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

// forget removes an orphan, unless somebody holds it.
func (o *Opener) forget(f *inode) bool {
	var own disk.Descriptor
	defer func() { own.Close() }() // frees it, when who waits for lastName goes on: a LINK has a directory locked
	f.lastName.Lock()
	defer f.lastName.Unlock()
	f.shard.mu.Lock()
	gone := f.held == 0 && f.orphan.Load()
	f.shard.mu.Unlock()
	if !gone {
		return false
	}
	var err error
	asRoot(func() { own, err = o.removeOrphan(f) })
	if err != nil && !errors.Is(err, unix.ENOENT) {
		o.log.Warn("nfs: the space of a file that was removed while it was open can't be freed; the next start tries again", "err", err)
		return false
	}
	o.inodes.setOrphan(f, false)
	return true
}

// removeOrphan removes the name of an orphan, and its usage from that of its volume. The file is freed with the descriptor
// that it returns.
func (o *Opener) removeOrphan(f *inode) (disk.Descriptor, error) {
	dir, name := o.orphans.at(), f.key.name()
	own, openErr := disk.OpenEntry(dir, name)
	v, ok := o.table.ByID(f.key.volume)
	if !ok || !v.Begin() {
		return own, unix.Unlinkat(dir, name, 0)
	}
	defer v.Done()
	var taking space.Taking
	if v.Account != nil && openErr == nil {
		taking = v.Account.Take(own.FD())
	}
	err := o.changeInside(v, func() error { // no snapshot has what has no name
		err := unix.Unlinkat(dir, name, 0)
		taking.Done(err)
		return err
	}, &f.key.id)
	o.inodes.drop(v, f.key.id)
	return own, err
}

// OpenOrphans has files that are removed while they are held become orphans, in a directory on the disk of the
// volumes. What is there from the process before can be opened again with Removed.
// Call it before the first call is served. Until EndReclaim, no file that loses its last name is gone.
func (o *Opener) OpenOrphans(dir string) error {
	d, err := statedir.Open(dir, nil, o.log)
	if err != nil {
		return err
	}
	names, err := d.Names()
	if err != nil {
		return errors.Join(err, d.Close())
	}
	o.orphans.reclaiming.Store(true)
	o.orphans.dir.Store(d)
	for _, name := range names {
		key, ok := parseFileKey(name)
		if !ok {
			o.log.Warn("nfs: this is no file that was removed while it was open: remove it", "file", filepath.Join(dir, name))
			continue
		}
		if err := d.Check(name); err != nil {
			if err := d.SetAside(name, err); err != nil {
				o.log.Warn("nfs: what is no file that was removed while it was open can't be put aside", "err", err)
			}
			continue
		}
		f := o.inodes.use(key)
		o.inodes.setOrphan(f, true)
		o.countOrphan(f)
		o.release(f)
	}
	o.table.OnForget(o.forgetVolume)
	return nil
}

// countOrphan counts a file of the process before, where the server counts: the scan of its volume
// does not come by.
func (o *Opener) countOrphan(f *inode) {
	v, ok := o.table.ByID(f.key.volume)
	if !ok || v.Account == nil {
		return
	}
	own, err := disk.OpenEntry(o.orphans.at(), f.key.name())
	if err != nil {
		return
	}
	defer own.Close()
	taking := v.Account.Take(own.FD())
	taking.Done(nil)
}

// The pace of EndReclaim, which leaves the disk to clients.
const (
	forgetBatch  = 100
	forgetPause  = 20 * time.Millisecond
	forgetReport = 10 * time.Second
)

// EndReclaim says that nobody reclaims files any more, and removes the orphans that
// nobody holds, until ctx ends.
func (o *Opener) EndReclaim(ctx context.Context) {
	o.orphans.reclaiming.Store(false)
	var unused []*inode
	o.inodes.each(func(i *inode) {
		if i.held == 0 && i.orphan.Load() {
			unused = append(unused, i)
		}
	})
	pace, report := time.NewTicker(forgetPause), time.NewTicker(forgetReport)
	defer pace.Stop()
	defer report.Stop()
	removed := 0
	for i, f := range unused {
		if i%forgetBatch == forgetBatch-1 {
			<-pace.C
		}
		if ctx.Err() != nil {
			return
		}
		if o.forget(f) {
			removed++
		}
		select {
		case <-report.C:
			o.log.Info("nfs: removing files that were removed while they were open, and that nobody has open any more", "files", removed, "of", len(unused))
		default:
		}
	}
	if removed > 0 {
		o.log.Info("nfs: removed the files that were removed while they were open, and that nobody has open any more", "files", removed)
	}
}

// LeaveRemoved leaves the orphans to the next process: each Held is closed after it.
func (o *Opener) LeaveRemoved() { o.orphans.left.Store(true) }

// forgetVolume removes the orphans of a volume that is not exported any more.
func (o *Opener) forgetVolume(id uint64) {
	if o.inodes.orphans.Load() == 0 { // as in snapshots, of which many may end
		return
	}
	var files []*inode
	o.inodes.each(func(i *inode) {
		if i.key.volume == id && i.orphan.Load() {
			files = append(files, i)
		}
	})
	for _, f := range files {
		f.lastName.Lock()
		o.unlinkOrphan(f)
		f.lastName.Unlock()
	}
}

func (h *orphans) close() {
	if d := h.dir.Swap(nil); d != nil {
		_ = d.Close() // a directory, nothing to lose
	}
}
