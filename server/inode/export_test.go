package inode

import (
	"log/slog"
	"time"

	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/locate"
)

// What tests know beside what the server's other parts call, and why.

// Times that tests wait for, and a size that they go beyond.
const (
	AttrsKept   = attrsKept
	BornBefore  = bornBefore
	ExtentsMost = extentsMost
	FilesIdle   = filesIdle
	SpareRecord = spareRecord
	TickMax     = tickMax
)

// The forms of what is on the disk, which another version reads.
var (
	DecodeACL = decodeACL
	EncodeACL = encodeACL
)

// OrphanName returns the name by which an orphan is kept.
func OrphanName(volume uint64, id disk.FileID) string {
	k := fileKey{volume, id}
	return k.name()
}

// KeepsAtime is how READ knows that the kernel leaves the atime alone; disks that are mounted in all ways are no test's.
var KeepsAtime = keepsAtime

// FewExtents returns how much of a range one system call changes.
func (f *File) FewExtents(offset, end int64) int64 { return f.fewExtents(offset, end) }

// Changing does something as a change of the file: a test can't stop a call in its midst.
func (f *File) Changing(do func() error) error { return f.changeIt(do) }

// Table returns the exports.
func (o *Opener) Table() *exports.Table { return o.table }

// CloseCached closes all cached descriptors, so that files are found anew.
func (o *Opener) CloseCached() { o.inodes.close() }

// ShardsMax is by how many KeepAtMost divides.
const ShardsMax = shardsMax

// KeepAtMost sets how many idle descriptors there are; a process has it from its own limit.
func (o *Opener) KeepAtMost(n int64) { o.inodes.limit.Store(n) }

// EvictHandles forgets what handles are of, as time does.
func (o *Opener) EvictHandles() { o.handles.Evict() }

// ForgetInside has all directories be looked for again, as time does.
func (o *Opener) ForgetInside() { o.inside = locate.NewInside() }

// BelieveInside has a directory be taken for one that is in its volume.
func (o *Opener) BelieveInside(v *exports.Volume, id disk.FileID) {
	o.inside.Put(&v.Files, &id, o.inside.Now())
}

// Remembers reports whether attributes are remembered on the disk of a volume.
func (o *Opener) Remembers(v *exports.Volume) bool { return o.remembers(v) }

// OpenOwn opens a file that is open as path: no volume of a test has files of others.
func (o *Opener) OpenOwn(v *exports.Volume, id disk.FileID, path int, use Use) (disk.Descriptor, error) {
	return o.openOwn(v, id, path, use)
}

// Known counts what is in the table of inodes: files that are known by a key, if it is given, that are held, and
// descriptors for data. Nothing of it must be left.
func (o *Opener) Known(volume uint64, id disk.FileID) (files, held, data int) {
	o.inodes.each(func(i *inode) {
		if i.key == (fileKey{volume, id}) {
			files++
		}
		if i.isHeldLocked() {
			held++
		}
		for _, f := range i.open[UseRead:] {
			if f != nil {
				data++
			}
		}
	})
	return files, held, data
}

// Orphans counts the orphans.
func (o *Opener) Orphans() int64 { return o.inodes.orphans.Load() }

// PassIdle has what is unused be so for long.
func (o *Opener) PassIdle() { o.inodes.sweeps.Add(int64(filesIdle / filesSweep)) }

// Sweep closes what is idle, or syncs it first, as a goroutine does from time to time.
func (o *Opener) Sweep() {
	unsynced, _ := o.inodes.removeIdle()
	for _, f := range unsynced {
		o.syncer.Then(&f.File, f)
		for users := 1; users > 0; time.Sleep(time.Millisecond) {
			f.inode.shard.mu.Lock()
			users = f.users
			f.inode.shard.mu.Unlock()
		}
	}
}

// Cached is the descriptor of a File.
type Cached struct{ *descriptor }

// Cached returns the descriptor, which outlives the File.
func (f *File) Cached() Cached { return Cached{f.cached} }

// Look returns its attributes, whether or not the file was removed.
func (c Cached) Look() (disk.Attr, error) { return look(c.volume, c.fd, nil) }

// IsKept reports whether it is in the cache.
func (c Cached) IsKept() bool {
	c.inode.shard.mu.Lock()
	defer c.inode.shard.mu.Unlock()
	return c.inode.open[c.use] == c.descriptor
}

// StepsOfModes calls step after each step of what a kill may interrupt.
func (o *Opener) StepsOfModes(step func(string)) { o.modes.step = step }

// OpenModes is for a process that does not yet put right what is left, and RestoreModes does it then.
func (o *Opener) OpenModes(records string) {
	o.modes.open(records, true, slog.New(slog.DiscardHandler))
}

// RestoreModes puts right what is left, and reports whether more is.
func (o *Opener) RestoreModes() (more bool) {
	o.restoreModes()
	return o.modes.some.Load()
}
