package export

import (
	"errors"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// nameRoom is what a name can take in a directory, in bytes: a block, and one of what
// finds the blocks. Where it takes more, it is charged by that afterwards.
const nameRoom = 2 * blockSize

// forName is the room for another name of something that is there.
func forName() amount { return amount{bytes: nameRoom} }

// forNew is the room for something new and its name: it takes a block itself at most,
// as a rule.
func (a *Account) forNew() amount {
	if a == nil {
		return amount{}
	}
	return amount{nameRoom + a.prices.inode, 1}
}

// reservation is room that what is under way may take. When that is charged, the
// reservation is given back.
type reservation struct {
	account *Account // nil: nobody counts
	amount  amount
	alone   bool // nobody else has one
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

// claim adds to taken what fits below the ceiling.
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

// raise adds to a sum unless it would be more than most then. It can't overflow: n is
// not negative.
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

// reserve takes room. EDQUOT if there is not as much, EAGAIN if that is not known
// before the volume's scan has ended.
func (a *Account) reserve(n amount) (reservation, error) {
	if a == nil {
		return reservation{}, nil
	}
	a.writing.RLock()
	if a.claim(n) {
		return reservation{a, n, false}, nil
	}
	a.writing.RUnlock()
	// Alone: so that nothing is refused for what others have reserved.
	a.writing.Lock()
	if err := a.admit(n); err != nil {
		a.writing.Unlock()
		return reservation{}, err
	}
	a.taken.add(n)
	return reservation{a, n, true}, nil
}

// admit tells whether there is so much room. The caller holds a.writing alone.
func (a *Account) admit(n amount) error {
	room := a.room(n)
	if n.bytes <= room.bytes && n.inodes <= room.inodes {
		return nil
	}
	return a.full(n)
}

// full is why so much does not fit. The caller holds a.writing alone.
func (a *Account) full(n amount) error {
	most, used := a.most(), a.used.load()
	if a.scanning() && n.bytes <= most.bytes-used.bytes && n.inodes <= most.inodes-used.inodes {
		return unix.EAGAIN
	}
	return unix.EDQUOT
}

// room is how much there is, up to what is wanted where it takes the mark to be moved
// for more. It is not negative. The caller holds a.writing alone.
func (a *Account) room(wanted amount) amount {
	most, taken := a.most(), a.taken.load()
	room := amount{max(most.bytes-max(taken.bytes, 0), 0), max(most.inodes-max(taken.inodes, 0), 0)}
	room = amount{min(room.bytes, wanted.bytes), min(room.inodes, wanted.inodes)}
	a.moveMark(amount{taken.bytes + room.bytes, taken.inodes + room.inodes})
	return room
}

// await waits until a volume whose room is not known is counted. It is false if the
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

// renameSlack is how much directories may grow by renames where there is no room for
// that, in bytes: to write a new file and give it the old one's name must go on working
// in a full volume, also where the name is new, and which rename makes its directory
// grow only the kernel knows.
const renameSlack = 128 << 10

// rename does what gives a name in a directory to something that has one already.
// replaces: something has that name, and so the directory does not grow. settle charges
// what the directory takes then. dir is nil if nobody counts.
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
