package durable

import (
	"maps"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/disk"
)

// On btrfs, an fsync(2) may return 0 although the directory's new names are only in the log that another
// fsync is about to write. That one also logs new directories below its own, and those that a file was moved
// from, in the log's next transaction. When the transaction before is on the disk, the directory counts as
// written, because its last change was made then (btrfs_inode_in_log in fs/btrfs/btrfs_inode.h, Linux 6.18).
// A power cut before the other fsync ends takes the names. Of TestSyncFails/native/btrfs/names in server,
// eight at a time on two processors, 8 runs of 173 lost a directory or a symbolic link, and none of 167 since.
//
// So a directory's sync also waits for those that were under way when its fsync returned. If one of them
// fails, it commits the file system.

// overlap has the syncs that are under way on btrfs.
type overlap struct {
	mu sync.Mutex
	// +checklocks:mu
	syncs map[*underWay]struct{}
}

// underWay is one of them.
type underWay struct {
	ended chan struct{} // closed then
	err   error         // from then on
}

// sync does the sync of an open file.
func (o *overlap) sync(d *disk.FS, fd int, sync func() error) error {
	own := &underWay{ended: make(chan struct{})}
	o.mu.Lock()
	if o.syncs == nil {
		o.syncs = make(map[*underWay]struct{})
	}
	o.syncs[own] = struct{}{}
	o.mu.Unlock()
	own.err = sync()
	waits := own.err == nil && isDir(fd)
	var others []*underWay
	o.mu.Lock()
	delete(o.syncs, own)
	if waits {
		others = slices.Collect(maps.Keys(o.syncs))
	}
	o.mu.Unlock()
	close(own.ended) // first, as others wait for this one
	for _, other := range others {
		<-other.ended
		if other.err != nil {
			return d.Commit(fd)
		}
	}
	return own.err
}

func isDir(fd int) bool {
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR
}
