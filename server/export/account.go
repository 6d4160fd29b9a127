package export

import (
	"math"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Account counts a volume's usage and enforces its limit if the disk has no
// project quotas. It can, because every byte passes through the server.
//
// It has the sum of the disk usage of all inodes of the volume: st_blocks of
// stat(2), and the inode itself (prices). A call that changes an inode holds its
// charge, and each read of the attributes settles the charge: it adds the difference
// between the inode's current and last known usage. So usage is never computed from
// a call's arguments, and holes, hard links and shrinking files need no special
// rules:
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
// Calls that need space reserve it first (reserve.go), so that concurrent calls
// can't exceed the limit more than sequential ones.
type Account struct {
	limit amounts // inodes 0: none
	used  amounts // by all inodes in counted
	// taken is the sum of used, of reservations and of unseen. It is one number, so
	// that a reservation can check and add to it atomically.
	taken amounts
	// ceiling is the value of taken up to which a reservation needs no lock: the
	// limit, or the mark if that is lower.
	ceiling amounts
	mark    mark

	// writing is read-locked by each reservation until its change is charged. A call
	// that finds no space write-locks it, so that it is not refused because of others'
	// reservations.
	writing sync.RWMutex
	// overdrawn is how many bytes directories have grown past the limit by renames.
	overdrawn atomic.Int64

	prices  prices        // set before the volume is exported
	scanned chan struct{} // closed when the existing files are counted
	again   atomic.Bool   // the scan must start again

	mu      sync.Mutex
	charges map[inode]*charge // in use, or to be checked again
	// counted has the inodes that are included in used. Files created directly on the
	// disk are added when a client first uses them.
	counted inodeSet
	// unseen is the known usage at the start, minus the part of it that is in used; 0
	// after the scan.
	unseen amount
}

// Limit is what a volume may use.
type Limit struct {
	Bytes  int64
	Inodes int64 // 0: no limit
}

// amount is an amount of disk space and inodes.
type amount struct{ bytes, inodes int64 }

// amounts is an amount with atomic fields.
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

// NewAccount returns the account of a volume, to be exported with it.
func NewAccount(limit Limit) *Account {
	a := &Account{charges: map[inode]*charge{}, counted: inodeSet{}, scanned: make(chan struct{})}
	a.mark.store(unlimited())
	a.SetLimit(limit)
	return a
}

// unlimited is more than any disk has.
func unlimited() amount { return amount{math.MaxInt64, math.MaxInt64} }

// SetLimit sets the limit. If it is below the usage, nothing more is accepted.
func (a *Account) SetLimit(limit Limit) {
	a.writing.Lock()
	defer a.writing.Unlock()
	a.limit.store(amount{max(limit.Bytes, 0), max(limit.Inodes, 0)})
	a.setCeiling()
}

// most is the limit, with unlimited inodes if there is no inode limit.
func (a *Account) most() amount {
	most := a.limit.load()
	if most.inodes == 0 {
		most.inodes = math.MaxInt64
	}
	return most
}

// setCeiling sets the ceiling from the limit and the mark. The caller has
// write-locked a.writing.
func (a *Account) setCeiling() {
	most, mark := a.most(), a.mark.load()
	a.ceiling.store(amount{min(most.bytes, mark.bytes), min(most.inodes, mark.inodes)})
}

// Usage is a volume's usage.
type Usage struct {
	Bytes, Inodes int64
	Limit         Limit
	Complete      bool // otherwise existing files are still being counted
}

// Usage returns the volume's usage.
func (a *Account) Usage() Usage {
	used, limit := a.used.load(), a.limit.load()
	return Usage{
		Bytes:    used.bytes,
		Inodes:   used.inodes,
		Limit:    Limit{Bytes: limit.bytes, Inodes: limit.inodes},
		Complete: !a.scanning(),
	}
}

// scanning reports whether the scan at the start is still running.
func (a *Account) scanning() bool {
	select {
	case <-a.scanned:
		return false
	default:
		return true
	}
}

// limitTo limits the free space of the disk to that of the volume.
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

// inode identifies a file in its volume. On an overlay the number alone does not,
// because files and directories are on different devices.
type inode struct{ device, number uint64 }

func inodeOf(st *unix.Stat_t) inode { return inode{st.Dev, st.Ino} }

// count adds an inode, unless it is counted already. isNew is whether it was created
// after the start.
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

// uncount removes a deleted inode. Its number may be reused.
func (a *Account) uncount(i inode, bytes int64) {
	a.change(amount{-bytes, -1})
	a.mu.Lock()
	defer a.mu.Unlock()
	a.counted.remove(i)
}

// change adds n to used.
func (a *Account) change(n amount) {
	a.used.add(n)
	a.taken.add(n)
}

// expect sets the known usage of the disk before it is counted.
func (a *Account) expect(n amount) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.unseen = n
	a.taken.add(n)
}

// complete ends the count.
func (a *Account) complete() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.taken.add(amount{}.minus(a.unseen))
	a.unseen = amount{}
	close(a.scanned)
}
