package export

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"sync/atomic"
)

// mark is what a volume uses at most, as a file says that outlives the process: at the
// next start it is what is there, until that is counted. The file is moved up, and
// synced, before more is let in, by a step at a time; so after a crash it says a step
// too much, and after an orderly end what was used.
type mark struct {
	amounts                        // what the file says; unlimited where there is none
	keeper  atomic.Pointer[keeper] // nil: nothing is kept
	// waiting is the keeper of a volume of which nothing is known: what it uses is kept
	// once it is counted.
	waiting *keeper
}

// keeper is the file of a mark.
type keeper struct {
	path string
	log  *slog.Logger
}

// unknownPart is how much of a volume's size is taken for used, until it is counted,
// where no mark says better: the first start with a mark, or a file that is damaged.
const unknownPart = 7.0 / 8

// step is how far the mark is moved.
func (a *Account) step() amount {
	limit := a.limit.load()
	step := amount{max(limit.bytes/16, 1<<20), max(limit.inodes/16, 1<<10)}
	if limit.inodes == 0 {
		step.inodes = 1 << 16
	}
	return step
}

// keepMark has the mark kept in a file, before the volume is exported. Without a path
// nothing is kept.
func (a *Account) keepMark(path string, log *slog.Logger) {
	known, err := readMark(path)
	if err != nil {
		if path != "" {
			a.mark.waiting = &keeper{path, log}
		}
		if !errors.Is(err, fs.ErrNotExist) {
			log.Warn("accounting: can't read what a volume used, it is counted anew", "err", err)
		}
		limit := a.limit.load()
		a.expect(amount{int64(unknownPart * float64(limit.bytes)), int64(unknownPart * float64(limit.inodes))})
		return
	}
	a.writing.Lock()
	defer a.writing.Unlock()
	a.mark.keeper.Store(&keeper{path, log})
	a.mark.store(known)
	a.setCeiling()
	a.expect(known)
}

// startMark begins to keep what a volume uses of which nothing was known before it was
// counted.
func (a *Account) startMark() {
	if a.mark.waiting == nil {
		return
	}
	a.writing.Lock()
	a.mark.keeper.Store(a.mark.waiting)
	a.mark.store(amount{})
	a.setCeiling()
	a.writing.Unlock()
	a.followMark()
}

// moveMark sees to it that so much may be used. The caller holds a.writing alone.
func (a *Account) moveMark(to amount) {
	mark := a.mark.load()
	if to.bytes <= mark.bytes && to.inodes <= mark.inodes {
		return
	}
	step, most := a.step(), a.most()
	up := func(mark, to, step, most int64) int64 {
		if to <= mark {
			return mark
		}
		return max(to, min(addSizes(to, step), most)) // past the limit nothing is let in
	}
	a.setMark(amount{
		up(mark.bytes, to.bytes, step.bytes, most.bytes),
		up(mark.inodes, to.inodes, step.inodes, most.inodes),
	}, true)
}

// followMark moves the mark to what is used if that has become more by what nobody
// asks for room for, or much less.
func (a *Account) followMark() {
	mark, taken, step := a.mark.load(), a.taken.load(), a.step()
	far := func(mark, taken, step int64) bool { return taken > mark || mark-taken > 2*step }
	if a.mark.keeper.Load() == nil || !far(mark.bytes, taken.bytes, step.bytes) && !far(mark.inodes, taken.inodes, step.inodes) {
		return
	}
	a.writing.Lock()
	defer a.writing.Unlock()
	taken = a.taken.load()
	a.setMark(amount{addSizes(max(taken.bytes, 0), step.bytes), addSizes(max(taken.inodes, 0), step.inodes)},
		taken.bytes > mark.bytes || taken.inodes > mark.inodes)
}

// lastMark moves the mark to what is used, for the next start. Nothing is made any more.
func (a *Account) lastMark() {
	if a.mark.keeper.Load() == nil || !a.writing.TryLock() {
		return // what is under way may still take what it has reserved
	}
	defer a.writing.Unlock()
	taken := a.taken.load()
	a.setMark(amount{max(taken.bytes, 0), max(taken.inodes, 0)}, false)
}

// setMark writes the mark. sync: before anybody may rely on it; one that was moved down
// need not be on the disk, where the old one is right too. The caller holds a.writing
// alone.
func (a *Account) setMark(n amount, sync bool) {
	keeper := a.mark.keeper.Load()
	if keeper == nil {
		return
	}
	written := make(chan error)
	go func() { // as root, whatever user the caller's thread is
		err := writeMark(keeper.path, n, sync)
		if err != nil {
			_ = os.Remove(keeper.path) // nothing is better than what is wrong
		}
		written <- err
	}()
	if err := <-written; err != nil {
		keeper.log.Error("accounting: can't keep how much a volume uses, the next start has to count it first", "err", err)
		a.mark.keeper.Store(nil)
		n = unlimited()
	}
	a.mark.store(n)
	a.setCeiling()
}
