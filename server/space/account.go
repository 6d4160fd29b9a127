// Package space counts what a volume uses of its disk, and enforces the volume's limits of bytes and
// of inodes, if the disk has no project quotas, by which the kernel would do so. It can, because every
// byte passes through the server.
//
// An inode uses its blocks on the disk (charge.go), and the inode itself has a price (price.go).
// [Account] says what that means for holes, links, preallocation and delayed allocation.
//
// A change of a file goes through the volume's Account:
//
//  1. Account.Enter returns the Charge of each inode that the change can make larger or
//     smaller: of the file, and of the directories whose names change.
//  2. The caller locks the names of those directories, so that the file of a name can't
//     change before it is charged.
//  3. Account.Reserve reserves the space that the change can take, in an atomic counter, or
//     refuses the change (admit.go). Charge.Write, Charge.Resize and Account.Rename do it
//     themselves (admit.go).
//  4. After the change, Charge.Stat and Charge.Look read the inode's attributes, which
//     the reply needs anyway, and charge what the inode uses now. Account.EnterNew does
//     that for a new inode, Taking for one that has lost a name.
//  5. Reservation.Release returns the reservation, and Charge.Leave the Charge.
//
// Account.Scan counts what was there before (scan.go). Until it ends, an upper bound that the process
// before has stored is in its place (mark.go).
package space

import (
	"container/list"
	"math"
	"os"
	"sync"
	"sync/atomic"

	"github.com/podnas/podnas/quota"
	"github.com/podnas/podnas/server/disk"
)

// Account counts a volume's usage and enforces its limit.
//
// It has the sum of the disk usage of all inodes of the volume: st_blocks of
// stat(2), and the inode itself (Prices). A call that changes an inode holds its
// charge, and each read of the attributes settles the charge: it adds the difference
// between the inode's current and last known usage. So usage is never computed from
// a call's arguments, and holes, hard links and shrinking files need no special
// rules:
//
//   - A hole takes no blocks. A write is let in by the room its range could take
//     (Charge.Write), and charged by what it took.
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
// Calls that need space reserve it first (admit.go), so that concurrent calls
// can't exceed the limit more than sequential ones.
//
// The methods of an Account and of a Charge may be called concurrently, but for Attach and
// KeepMark. Where an Account or a Charge may be nil, the method's comment says so.
//
// Order of locks: Charge.blocks, Account.writing, Charge.mu, Account.mu.
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
	lifted  atomic.Bool // the limit, see Lift

	// writing is read-locked by each reservation until its change is charged. A call
	// that finds no space write-locks it, so that it is not refused because of others'
	// reservations.
	writing sync.RWMutex
	// overdrawn is how many bytes directories have grown past the limit by renames.
	overdrawn atomic.Int64

	prices   Prices                            // set by Attach
	identify func(dir int, name string) string // set by Attach
	scanned  chan struct{}                     // closed when the existing files are counted
	again    atomic.Bool                       // the scan must start again

	mu sync.Mutex
	// +checklocks:mu
	charges map[disk.Inode]*Charge // in use, or to be looked at again
	// soon and late have the charges that nobody uses, and that are looked at again after LookAfter and after lookLate:
	// each in the order of Charge.due, as all in one list wait for as long.
	// +checklocks:mu
	soon list.List
	// +checklocks:mu
	late list.List
	// counted has the inodes that are included in used. Files created directly on the
	// disk are added when a client first uses them.
	// +checklocks:mu
	counted inodeSet
	// unseen is the known usage at the start, minus the part of it that is in used; 0
	// after the scan.
	// +checklocks:mu
	unseen Amount
}

// Amount is an amount of disk space and inodes.
type Amount struct{ bytes, inodes int64 }

// amounts is an Amount with atomic fields.
type amounts struct{ bytes, inodes atomic.Int64 }

func (a *amounts) add(n Amount) {
	a.bytes.Add(n.bytes)
	if n.inodes != 0 {
		a.inodes.Add(n.inodes)
	}
}

func (a *amounts) store(n Amount) {
	a.bytes.Store(n.bytes)
	a.inodes.Store(n.inodes)
}

func (a *amounts) load() Amount { return Amount{a.bytes.Load(), a.inodes.Load()} }

func (n Amount) minus(m Amount) Amount { return Amount{n.bytes - m.bytes, n.inodes - m.inodes} }

// NewAccount returns the account of a volume. Call Attach before the first change.
func NewAccount(limit quota.Limit) *Account {
	a := &Account{charges: map[disk.Inode]*Charge{}, counted: inodeSet{}, scanned: make(chan struct{})}
	a.mark.store(unlimited())
	a.SetLimit(limit)
	return a
}

// unlimited is more than any disk has.
func unlimited() Amount { return Amount{math.MaxInt64, math.MaxInt64} }

// Attach tells the account its volume's directory, before the first change. identify
// returns an ID of the file with a name in a directory, by which LookAgain can open it, or "".
func (a *Account) Attach(root *os.File, identify func(dir int, name string) string) {
	a.prices, a.identify = PricesOf(root), identify
}

// SetLimit sets the limit. If it is below the usage, nothing more is accepted. The caller
// must hold no Reservation.
func (a *Account) SetLimit(limit quota.Limit) {
	a.writing.Lock()
	defer a.writing.Unlock()
	a.limit.store(Amount{max(limit.Bytes, 0), max(limit.Inodes, 0)})
	a.setCeilingLocked()
}

// Lift has nothing be refused for the limit, until the returned function is called. What is used is counted, and shown with the
// limit, as always. The caller must hold no Reservation, also not when it ends this. a may be nil.
func (a *Account) Lift() (end func()) {
	if a == nil {
		return func() {}
	}
	a.setLifted(true)
	return func() { a.setLifted(false) }
}

func (a *Account) setLifted(lifted bool) {
	a.writing.Lock()
	defer a.writing.Unlock()
	a.lifted.Store(lifted)
	a.setCeilingLocked()
}

// most is the limit, with unlimited inodes if there is no inode limit.
func (a *Account) most() Amount {
	if a.lifted.Load() {
		return unlimited()
	}
	most := a.limit.load()
	if most.inodes == 0 {
		most.inodes = math.MaxInt64
	}
	return most
}

// setCeilingLocked sets the ceiling from the limit and the mark.
//
// +checklocks:a.writing
func (a *Account) setCeilingLocked() {
	most, mark := a.most(), a.mark.load()
	a.ceiling.store(Amount{min(most.bytes, mark.bytes), min(most.inodes, mark.inodes)})
}

// Usage returns the volume's usage. It is the sum of differences, so it can be below zero for a
// moment. It needs no lock, and takes none.
func (a *Account) Usage() quota.Usage {
	used, limit := a.used.load(), a.limit.load()
	return quota.Usage{
		Bytes:   used.bytes,
		Inodes:  used.inodes,
		Limit:   quota.Limit{Bytes: limit.bytes, Inodes: limit.inodes},
		Partial: a.scanning(),
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

// Room is the size and the free space of a disk or a volume, in bytes and files, as of
// statfs(2).
type Room struct {
	Size, Free, Available uint64
	Files, FreeFiles      uint64
}

// LimitTo limits the size and the free space of the disk to those of the volume.
func (a *Account) LimitTo(room *Room) {
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

// count adds an inode, unless it is counted already. isNew is whether it was created
// after the start.
func (a *Account) count(i disk.Inode, bytes int64, isNew bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.counted.add(i) {
		return
	}
	n := Amount{bytes, 1}
	a.used.add(n)
	var known Amount
	if !isNew {
		known = Amount{min(n.bytes, a.unseen.bytes), min(n.inodes, a.unseen.inodes)}
		a.unseen = a.unseen.minus(known)
	}
	a.taken.add(n.minus(known))
}

// uncount removes a deleted inode. Its number may be reused.
func (a *Account) uncount(i disk.Inode, bytes int64) {
	a.change(Amount{-bytes, -1})
	a.mu.Lock()
	defer a.mu.Unlock()
	a.counted.remove(i)
}

// change adds n to used.
func (a *Account) change(n Amount) {
	a.used.add(n)
	a.taken.add(n)
}

// expect sets the known usage of the disk before it is counted.
func (a *Account) expect(n Amount) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.unseen = n
	a.taken.add(n)
}

// complete ends the count.
func (a *Account) complete() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.taken.add(Amount{}.minus(a.unseen))
	a.unseen = Amount{}
	close(a.scanned)
}
