package export

import (
	"maps"
	"slices"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
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
	mu    sync.Mutex
	syncs map[*underWay]struct{}
}

// underWay is one of them.
type underWay struct {
	ended chan struct{} // closed then
	err   error         // from then on
}

// sync does the sync of an open file.
func (o *overlap) sync(d *disk, fd int, sync func() error) error {
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
			return d.commit(fd)
		}
	}
	return own.err
}

func isDir(fd int) bool {
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR
}

// commit commits a btrfs with all changes of names and attributes from before it. It writes no file's data.
func (d *disk) commit(dir int) error {
	const startSync, waitSync = 0x80089418, 0x40089416 // BTRFS_IOC_START_SYNC, BTRFS_IOC_WAIT_SYNC, linux/btrfs.h
	opened, err := reopen(dir, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer opened.close()
	var transaction uint64
	for _, request := range []uintptr{startSync, waitSync} {
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(opened.fd()), request, uintptr(unsafe.Pointer(&transaction))); errno != 0 {
			return errno
		}
	}
	return d.alive(opened.fd())
}
