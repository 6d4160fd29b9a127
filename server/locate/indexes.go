package locate

import (
	"cmp"
	"log/slog"
	"path/filepath"
	"strconv"
	"sync/atomic"

	"github.com/podnas/podnas/server/inodeindex"
)

// Indexes has what the indexes of all volumes share: their memory, the folder that keeps them, and how many are
// filled at a time. The zero Indexes is ready for SetUp.
type Indexes struct {
	dir    string // where they are kept from one start to the next; empty: nowhere
	log    *slog.Logger
	memory *inodeindex.Memory
	// sleeping is the memory of those of snapshots: however many there are, the volumes keep theirs.
	sleeping *inodeindex.Memory
	// Walks limits concurrent walks; nil: to a few. It must be set before SetUp.
	Walks    chan struct{}
	loads    chan struct{} // and files of indexes that are read
	stopping atomic.Bool   // they are written without pauses
}

// SetUp is for before the first volume is set up. bytes is how much memory the indexes may take, 0: as much as most disks
// need.
func (n *Indexes) SetUp(bytes int, log *slog.Logger) {
	most := cmp.Or(bytes, indexMax)
	n.log, n.memory, n.sleeping = log, inodeindex.NewMemory(most), inodeindex.NewMemory(most/sleepingPart)
	n.loads = make(chan struct{}, walksAtOnce)
	if n.Walks == nil {
		n.Walks = make(chan struct{}, walksAtOnce)
	}
}

// sleepingPart is the part of the memory for indexes that those of snapshots may take in addition.
const sleepingPart = 8

// Keep keeps the indexes in a directory from one start to the next, in a file per volume of 1,000 files or more. The
// directory is created when it is needed.
func (n *Indexes) Keep(dir string) { n.dir = dir }

// IsKept reports whether they are kept.
func (n *Indexes) IsKept() bool { return n.dir != "" }

// Stop has what is still to be written be written without pauses.
func (n *Indexes) Stop() { n.stopping.Store(true) }

// file is where the index of a volume is kept, empty if it is not.
func (n *Indexes) file(volume uint64) string {
	if n.dir == "" {
		return ""
	}
	return filepath.Join(n.dir, strconv.FormatUint(volume, 10))
}

// Forget removes what is kept of the index of a volume.
func (n *Indexes) Forget(volume uint64) error {
	path := n.file(volume)
	if path == "" {
		return nil
	}
	return removeKeptIndex(path)
}

// DropUnused has an index that is filled on demand forget all names if no call has asked it for a file since the last
// DropUnused, and it is not walked.
func (v *Volume) DropUnused() {
	x := v.index
	if x == nil || !v.OnDemand || x.askedFor.Swap(false) {
		return
	}
	x.walks.mu.Lock()
	defer x.walks.mu.Unlock()
	if !x.walks.running {
		x.names.Forget()
	}
}

// Save writes what is new in the volume's index, if there is one.
func (v *Volume) Save() {
	if v.index != nil {
		v.index.save()
	}
}
