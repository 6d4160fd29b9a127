package export

import (
	"errors"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// nameRoom is the space that a name can take in a directory, in bytes: a block, and one
// for the directory's index. If it takes more, that is charged afterwards.
const nameRoom = 2 * blockSize

// forName returns the reservation for a new name of an existing file.
func forName() amount { return amount{bytes: nameRoom} }

// forNew returns the reservation for a new file and its name: the file usually takes
// at most a block.
func (a *Account) forNew() amount {
	if a == nil {
		return amount{}
	}
	return amount{nameRoom + a.prices.inode, 1}
}

// reservation is the space that a running call may take. It is released when the call's
// change is charged.
type reservation struct {
	account *Account // nil: nothing is counted
	amount  amount
	alone   bool // no one else has one
}

func (r reservation) release() {
	if r.account == nil {
		return
	}
	r.account.taken.add(amount{}.minus(r.amount))
	if r.alone {
		r.account.writing.Unlock()
	} else {
		r.account.writing.RUnlock()
	}
}

// claim adds n to taken if it fits below the ceiling.
func (a *Account) claim(n amount) bool {
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

// reserve reserves space. It returns EDQUOT if there is too little, EAGAIN if that is
// unknown until the volume's scan ends.
func (a *Account) reserve(n amount) (reservation, error) {
	if a == nil {
		return reservation{}, nil
	}
	a.writing.RLock()
	if a.claim(n) {
		return reservation{a, n, false}, nil
	}
	a.writing.RUnlock()
	// Alone, so that nothing is refused because of others' reservations.
	a.writing.Lock()
	if err := a.admit(n); err != nil {
		a.writing.Unlock()
		return reservation{}, err
	}
	a.taken.add(n)
	return reservation{a, n, true}, nil
}

// admit checks whether n fits. The caller has write-locked a.writing.
func (a *Account) admit(n amount) error {
	room := a.room(n)
	if n.bytes <= room.bytes && n.inodes <= room.inodes {
		return nil
	}
	return a.full(n)
}

// full returns why n does not fit. The caller has write-locked a.writing.
func (a *Account) full(n amount) error {
	most, used := a.most(), a.used.load()
	if a.scanning() && n.bytes <= most.bytes-used.bytes && n.inodes <= most.inodes-used.inodes {
		return unix.EAGAIN
	}
	return unix.EDQUOT
}

// room returns the free space, at most wanted, and raises the mark for it. It is not
// negative. The caller has write-locked a.writing.
func (a *Account) room(wanted amount) amount {
	most, taken := a.most(), a.taken.load()
	room := amount{max(most.bytes-max(taken.bytes, 0), 0), max(most.inodes-max(taken.inodes, 0), 0)}
	room = amount{min(room.bytes, wanted.bytes), min(room.inodes, wanted.inodes)}
	a.moveMark(amount{taken.bytes + room.bytes, taken.inodes + room.inodes})
	return room
}

// await waits until a volume of unknown free space is counted. It returns false if the
// error is another, or the export ends.
func (v *Volume) await(err error) bool {
	if !errors.Is(err, unix.EAGAIN) {
		return false
	}
	select {
	case <-v.account.scanned:
		return true
	case <-v.ending:
		return false
	}
}

// renameSlack is how much directories may grow by renames without free space, in bytes:
// writing a new file and giving it the old one's name must work in a full volume, even
// if the name is new, and only the kernel knows which rename makes its directory
// grow.
const renameSlack = 128 << 10

// rename calls do, which gives an existing file a name in a directory. If replaces is
// set, the name exists, and so the directory does not grow. settle charges the
// directory's growth. dir is nil if nothing is counted.
func (a *Account) rename(dir *charge, replaces bool, settle func(), do func() error) error {
	if a == nil || dir == nil || replaces {
		return do()
	}
	room, err := a.reserve(forName())
	if err == nil {
		defer room.release()
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
