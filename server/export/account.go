package export

import (
	"math"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Account counts what a volume uses and keeps it below a limit, where the disk has
// no project quotas to do so: every byte passes through the server.
//
// It holds the sum of what each inode of the volume takes on the disk: st_blocks of
// stat(2), and the inode itself (prices). Whoever changes an inode holds its charge
// meanwhile, and each look at the attributes settles the charge: what the inode
// takes now, against what it took when last looked at. So nothing is computed from
// what a call meant to do, and holes, hard links and files that shrink need no rules
// of their own:
//
//   - A hole takes no blocks. A write is let in by the room its range could take
//     (charge.write), and charged by what it took.
//   - An inode is charged once, whatever names it has, and no more when the last
//     is gone, though somebody may have it open.
//   - ext4 and btrfs count delayed allocation in st_blocks at once. What comes
//     later (the blocks that hold a file's map) is found by one more look, some
//     time after the last write.
//   - XFS allocates ahead of a file that grows, past its end: twice as much again, at
//     most. What is more than aheadMax past the end is not charged: it is not the user's
//     data, and XFS takes it back when the file is closed, some minutes later, or when
//     the disk is full. It becomes the user's when something is written behind it. What
//     is less is charged, and looked at again when XFS has taken it back (lookLate).
//     Nobody else can take it back: how a file is cut past its end by descriptor could
//     cut what another writer has just put there.
//   - Copy on write allocates new blocks before it frees the old ones; both are
//     the one file's, so a look after the write sees the sum as it stays.
//     Extents that files share are charged to each.
//
// What is about to take room reserves it first (reserve.go), so that many together
// let in no more than one would.
type Account struct {
	limit amounts // inodes 0: none
	used  amounts // by all inodes that are in counted
	// taken is used, what is reserved, and unseen: what a reservation is held against,
	// in one number, so that nothing can change between the look and the taking.
	taken amounts
	// ceiling is how far taken may go before somebody has to look more closely: the
	// limit, or the mark where that is lower.
	ceiling amounts
	mark    mark

	// writing is held by each reservation until what it was for is charged, shared;
	// alone by who finds no room, so that nothing is refused for what others have
	// reserved.
	writing sync.RWMutex
	// overdrawn is how much directories have grown by renames past the limit, bytes.
	overdrawn atomic.Int64

	prices  prices        // set before the volume is exported
	scanned chan struct{} // closed when all that was there is counted
	again   atomic.Bool   // the scan has to look at all once more

	mu      sync.Mutex
	charges map[inode]*charge // in use, or to be looked at once more
	// counted is the inodes that are in used. What somebody puts on the disk by hand
	// comes into it when a client first uses it.
	counted inodeSet
	// unseen is what was there at the start, as far as it is known, less what of that
	// is in used; nothing after the scan.
	unseen amount
}

// Limit is what a volume may use.
type Limit struct {
	Bytes  int64
	Inodes int64 // 0: as many as there is room for
}

// amount is how much of a disk.
type amount struct{ bytes, inodes int64 }

// amounts is an amount that many change at once.
type amounts struct{ bytes, inodes atomic.Int64 }

func (a *amounts) add(n amount) {
	a.bytes.Add(n.bytes)
	if n.inodes != 0 {
		a.inodes.Add(n.inodes)
	}
}

func (a *amounts) store(n amount) {
	a.bytes.Store(n.bytes)
	a.inodes.Store(n.inodes)
}

func (a *amounts) load() amount { return amount{a.bytes.Load(), a.inodes.Load()} }

func (n amount) minus(m amount) amount { return amount{n.bytes - m.bytes, n.inodes - m.inodes} }

// NewAccount makes the account of a volume that is about to be exported.
func NewAccount(limit Limit) *Account {
	a := &Account{charges: map[inode]*charge{}, counted: inodeSet{}, scanned: make(chan struct{})}
	a.mark.store(unlimited())
	a.SetLimit(limit)
	return a
}

// unlimited is more than any disk has.
func unlimited() amount { return amount{math.MaxInt64, math.MaxInt64} }

// SetLimit sets the limit. Below what is used it lets nothing more in.
func (a *Account) SetLimit(limit Limit) {
	a.writing.Lock()
	defer a.writing.Unlock()
	a.limit.store(amount{max(limit.Bytes, 0), max(limit.Inodes, 0)})
	a.setCeiling()
}

// most is the limit, with none of inodes as one that is never met.
func (a *Account) most() amount {
	most := a.limit.load()
	if most.inodes == 0 {
		most.inodes = math.MaxInt64
	}
	return most
}

// setCeiling follows the limit and the mark. The caller holds a.writing alone.
func (a *Account) setCeiling() {
	most, mark := a.most(), a.mark.load()
	a.ceiling.store(amount{min(most.bytes, mark.bytes), min(most.inodes, mark.inodes)})
}

// Usage is what a volume uses.
type Usage struct {
	Bytes, Inodes int64
	Limit         Limit
	Complete      bool // else the count of what was there before goes on
}

// Usage tells what the volume uses.
func (a *Account) Usage() Usage {
	used, limit := a.used.load(), a.limit.load()
	return Usage{
		Bytes:    used.bytes,
		Inodes:   used.inodes,
		Limit:    Limit{Bytes: limit.bytes, Inodes: limit.inodes},
		Complete: !a.scanning(),
	}
}

// scanning tells whether the scan at the start goes on.
func (a *Account) scanning() bool {
	select {
	case <-a.scanned:
		return false
	default:
		return true
	}
}

// limitTo makes of the room on the disk the room in the volume: the smaller of
// both is free.
func (a *Account) limitTo(room *Statfs) {
	a.mu.Lock()
	unseen := a.unseen
	a.mu.Unlock()
	limit := a.limit.load()
	bytes := max(addSizes(a.used.bytes.Load(), unseen.bytes), 0)
	inodes := uint64(max(addSizes(a.used.inodes.Load(), unseen.inodes), 0))
	free := uint64(max(limit.bytes-bytes, 0))
	room.Size = uint64(limit.bytes)
	room.Free, room.Available = min(room.Free, free), min(room.Available, free)
	if limit.inodes == 0 {
		room.Files = inodes + room.FreeFiles
		return
	}
	room.Files = uint64(limit.inodes)
	room.FreeFiles = min(room.FreeFiles, room.Files-min(inodes, room.Files))
}

// inode tells a file from all others of its volume. On an overlay the number
// alone does not: files and directories have devices of their own.
type inode struct{ device, number uint64 }

func inodeOf(st *unix.Stat_t) inode { return inode{st.Dev, st.Ino} }

// count adds an inode that was come by, unless it is counted. isNew: it was not there
// at the start.
func (a *Account) count(i inode, bytes int64, isNew bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.counted.add(i) {
		return
	}
	n := amount{bytes, 1}
	a.used.add(n)
	var known amount
	if !isNew {
		known = amount{min(n.bytes, a.unseen.bytes), min(n.inodes, a.unseen.inodes)}
		a.unseen = a.unseen.minus(known)
	}
	a.taken.add(n.minus(known))
}

// uncount takes an inode off that is gone. Its number may be used again.
func (a *Account) uncount(i inode, bytes int64) {
	a.change(amount{-bytes, -1})
	a.mu.Lock()
	defer a.mu.Unlock()
	a.counted.remove(i)
}

// change changes what is used.
func (a *Account) change(n amount) {
	a.used.add(n)
	a.taken.add(n)
}

// expect says what is on the disk, before it is counted.
func (a *Account) expect(n amount) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.unseen = n
	a.taken.add(n)
}

// complete says that all is counted.
func (a *Account) complete() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.taken.add(amount{}.minus(a.unseen))
	a.unseen = amount{}
	close(a.scanned)
}
