package space

import (
	"errors"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// nameRoom is the space that a name can take in a directory, in bytes: a block, and one
// for the directory's index. If it takes more, that is charged afterwards.
const nameRoom = 2 * blockSize

// ForName is what to reserve for a new name of an existing file.
func ForName() Amount { return Amount{bytes: nameRoom} }

// ForNew is what to reserve for a new file and its name: the file usually takes at most a
// block. a may be nil.
func (a *Account) ForNew() Amount {
	if a == nil {
		return Amount{}
	}
	return Amount{nameRoom + a.prices.Inode, 1}
}

// Reservation is the space that a running call may take. It is released when the call's
// change is charged.
type Reservation struct {
	account *Account // nil: nothing is counted
	amount  Amount
	alone   bool // no one else has one
}

// Release returns the reservation. Call it once. The zero Reservation has nothing to return.
// Not checked: Reserve has locked writing, one way or the other.
//
// +checklocksignore
func (r Reservation) Release() {
	if r.account == nil {
		return
	}
	r.account.taken.add(Amount{}.minus(r.amount))
	if r.alone {
		r.account.writing.Unlock()
	} else {
		r.account.writing.RUnlock()
	}
}

// pause has others reserve, and find no room, while the change of the reservation is under way. What is reserved stays
// taken. Only resume may follow. Not checked, as Release.
//
// +checklocksignore
func (r *Reservation) pause() {
	if r.account == nil {
		return
	}
	if r.alone {
		r.account.writing.Unlock()
	} else {
		r.account.writing.RUnlock()
	}
}

// resume ends pause. It waits for who writes alone, not for anybody's change that takes long. Not checked, as Release.
//
// +checklocksignore
func (r *Reservation) resume() {
	if r.account != nil {
		r.account.writing.RLock()
		r.alone = false
	}
}

// claim adds n to taken if it fits below the ceiling.
func (a *Account) claim(n Amount) bool {
	if !raise(&a.taken.bytes, n.bytes, a.ceiling.bytes.Load()) {
		return false
	}
	if n.inodes == 0 || raise(&a.taken.inodes, n.inodes, a.ceiling.inodes.Load()) {
		return true
	}
	a.taken.bytes.Add(-n.bytes)
	return false
}

// raise adds n to a sum unless that would exceed most. It can't overflow: n is not
// negative.
func raise(sum *atomic.Int64, n, most int64) bool {
	for {
		s := sum.Load()
		if s > most || n > most-max(s, 0) {
			return false
		}
		if sum.CompareAndSwap(s, s+n) {
			return true
		}
	}
}

// Reserve reserves space, until Release. It returns EDQUOT if there is too little, EAGAIN
// if that is unknown until the volume's scan ends. The caller must hold no other
// Reservation. a may be nil: then there is space.
// Not checked: it returns with writing locked.
//
// +checklocksignore
func (a *Account) Reserve(n Amount) (Reservation, error) {
	if a == nil {
		return Reservation{}, nil
	}
	a.writing.RLock()
	if a.claim(n) {
		return Reservation{a, n, false}, nil
	}
	a.writing.RUnlock()
	// Alone, so that nothing is refused because of others' reservations.
	a.writing.Lock()
	if err := a.admitLocked(n); err != nil {
		a.writing.Unlock()
		return Reservation{}, err
	}
	a.taken.add(n)
	return Reservation{a, n, true}, nil
}

// admitLocked checks whether n fits.
//
// +checklocks:a.writing
func (a *Account) admitLocked(n Amount) error {
	room := a.roomLocked(n)
	if n.bytes <= room.bytes && n.inodes <= room.inodes {
		return nil
	}
	return a.fullLocked(n)
}

// fullLocked returns why n does not fit.
//
// +checklocks:a.writing
func (a *Account) fullLocked(n Amount) error {
	most, used := a.most(), a.used.load()
	if a.scanning() && n.bytes <= most.bytes-used.bytes && n.inodes <= most.inodes-used.inodes {
		return unix.EAGAIN
	}
	return unix.EDQUOT
}

// roomLocked returns the free space, at most wanted, and raises the mark for it. It is not
// negative.
//
// +checklocks:a.writing
func (a *Account) roomLocked(wanted Amount) Amount {
	most, taken := a.most(), a.taken.load()
	room := Amount{max(most.bytes-max(taken.bytes, 0), 0), max(most.inodes-max(taken.inodes, 0), 0)}
	room = Amount{min(room.bytes, wanted.bytes), min(room.inodes, wanted.inodes)}
	a.moveMarkLocked(Amount{taken.bytes + room.bytes, taken.inodes + room.inodes})
	return room
}

// renameSlack is how much directories may grow by renames without free space, in bytes:
// writing a new file and giving it the old one's name must work in a full volume, even
// if the name is new, and only the kernel knows which rename makes its directory
// grow.
const renameSlack = 128 << 10

// Rename calls do, which gives an existing file a name in a directory. If replaces is
// set, the name exists, and so the directory does not grow. settle charges the
// directory's growth. The caller has locked the directory's names, and must hold no
// Reservation. a and dir may be nil: then Rename only calls do. The errors beside those of do are
// those of Reserve.
func (a *Account) Rename(dir *Charge, replaces bool, settle func(), do func() error) error {
	if a == nil || dir == nil || replaces {
		return do()
	}
	room, err := a.Reserve(ForName())
	if err == nil {
		defer room.Release()
		a.overdrawn.Store(0)
		return do()
	}
	if !errors.Is(err, unix.EDQUOT) {
		return err
	}
	a.writing.Lock()
	defer a.writing.Unlock()
	if a.overdrawn.Load() >= renameSlack {
		return err
	}
	before := dir.takes()
	if err := do(); err != nil {
		return err
	}
	settle()
	a.overdrawn.Add(max(dir.takes()-before, 0))
	return nil
}
