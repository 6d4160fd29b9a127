package inode

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/podnas/podnas/internal/statedir"
	"github.com/podnas/podnas/server/disk"
)

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
