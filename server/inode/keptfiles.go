package inode

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/internal/statedir"
	"github.com/podnas/podnas/server/disk"
)

// KeepRemoved has files kept that are removed while they are held, in a directory on the disk of the
// volumes. What is there from the process before can be opened again with Reopen and OpenRemoved.
// Call it before the first call is served. Until EndReclaim, no file that loses its last name is gone.
func (o *Opener) KeepRemoved(dir string) error {
	d, err := statedir.Open(dir, nil, o.log)
	if err != nil {
		return err
	}
	names, err := d.Names()
	if err != nil {
		return errors.Join(err, d.Close())
	}
	h := &o.held
	h.mu.Lock()
	h.dir, h.reclaiming = d, true
	h.mu.Unlock()
	for _, name := range names {
		key, ok := parseHeldKey(name)
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
		f := h.hold(key)
		h.setKept(f, true)
		o.countKept(f)
		o.release(f)
	}
	o.table.KeepBy(o)
	return nil
}

// countKept counts a file of the process before, where the server counts: the scan of its volume
// does not come by.
func (o *Opener) countKept(f *heldFile) {
	v, ok := o.table.ByID(f.key.volume)
	if !ok || v.Account == nil {
		return
	}
	own, err := disk.OpenEntry(o.held.at(), f.key.name())
	if err != nil {
		return
	}
	defer own.Close()
	taking := v.Account.Take(own.FD())
	taking.Done(nil)
}

// OpenRemoved is Open, with UseRead or UseWrite, of a file that is kept. The error is ESTALE if it is
// not. The caller knows that somebody holds it, or may reclaim it.
func (o *Opener) OpenRemoved(client netip.Addr, handle []byte, use Use) (*File, error) {
	v, id, err := o.volumeOf(client, handle)
	if err != nil {
		return nil, err
	}
	if !o.held.keeps(heldKey{v.ID, id}) {
		v.Done()
		return nil, unix.ESTALE
	}
	f, err := o.openDataIn(v, id, use, true)
	if err != nil {
		return nil, err
	}
	f.opened = true
	if f.Attr, err = f.Stat(); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// The pace of EndReclaim, which leaves the disk to clients.
const (
	forgetBatch  = 100
	forgetPause  = 20 * time.Millisecond
	forgetReport = 10 * time.Second
)

// EndReclaim says that nobody reclaims files any more, and removes those that are kept and that
// nobody holds, until ctx ends.
func (o *Opener) EndReclaim(ctx context.Context) {
	h := &o.held
	h.mu.Lock()
	h.reclaiming = false
	unused := slices.DeleteFunc(slices.Collect(maps.Values(h.files)), func(f *heldFile) bool { return !f.kept || f.users > 0 })
	h.mu.Unlock()
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

// LeaveRemoved leaves what is kept to the next process: each Held is closed after it.
func (o *Opener) LeaveRemoved() {
	o.held.mu.Lock()
	defer o.held.mu.Unlock()
	o.held.left = true
}

// ForgetVolume removes what is kept of a volume that is not exported any more.
func (o *Opener) ForgetVolume(id uint64) {
	h := &o.held
	var files []*heldFile
	h.mu.RLock()
	for key, f := range h.files {
		if key.volume == id && f.kept {
			files = append(files, f)
		}
	}
	h.mu.RUnlock()
	for _, f := range files {
		f.names.Lock()
		h.unlink(f)
		f.names.Unlock()
	}
}

func (h *heldFiles) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.dir != nil {
		_ = h.dir.Close() // a directory, nothing to lose
		h.dir = nil
	}
}
