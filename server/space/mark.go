package space

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/internal/statedir"
)

// mark is an upper bound of a volume's usage in a file that outlives the process: the
// next start takes it as the usage, until that is counted. The file is raised by a
// step, and synced, before more is accepted; so after a crash it is a step too high,
// and after an orderly end it is the usage.
type mark struct {
	amounts                        // the file's content; unlimited without a file
	keeper  atomic.Pointer[keeper] // nil: there is no file
	// waiting is the keeper of a volume of unknown usage: its mark is written once the
	// volume is counted.
	waiting *keeper
}

// keeper is the file of a mark.
type keeper struct {
	path string
	log  *slog.Logger
}

// unknownPart is the part of a volume's size that counts as used until it is counted,
// if there is no valid mark: at the first start with marks, or if the file is damaged.
const unknownPart = 7.0 / 8

// step is how far the mark is raised.
func (a *Account) step() Amount {
	limit := a.limit.load()
	step := Amount{max(limit.bytes/16, 1<<20), max(limit.inodes/16, 1<<10)}
	if limit.inodes == 0 {
		step.inodes = 1 << 16
	}
	return step
}

// KeepMark sets the mark's file, before the first change. Without a path there is none.
func (a *Account) KeepMark(path string, log *slog.Logger) {
	known, err := readMark(path, log)
	if err != nil {
		if path != "" {
			a.mark.waiting = &keeper{path, log}
		}
		if !errors.Is(err, fs.ErrNotExist) {
			log.Warn("accounting: can't read what a volume used at the last end; counting it again", "err", err)
		}
		limit := a.limit.load()
		a.expect(Amount{int64(unknownPart * float64(limit.bytes)), int64(unknownPart * float64(limit.inodes))})
		return
	}
	a.writing.Lock()
	defer a.writing.Unlock()
	a.mark.keeper.Store(&keeper{path, log})
	a.mark.store(known)
	a.setCeilingLocked()
	a.expect(known)
}

// startMark starts the mark of a volume that had none, when it is counted.
func (a *Account) startMark() {
	if a.mark.waiting == nil {
		return
	}
	a.writing.Lock()
	a.mark.keeper.Store(a.mark.waiting)
	a.mark.store(Amount{})
	a.setCeilingLocked()
	a.writing.Unlock()
	a.FollowMark()
}

// moveMarkLocked raises the mark to allow a usage.
//
// +checklocks:a.writing
func (a *Account) moveMarkLocked(to Amount) {
	mark := a.mark.load()
	if to.bytes <= mark.bytes && to.inodes <= mark.inodes {
		return
	}
	step, most := a.step(), a.most()
	a.setMarkLocked(Amount{
		raisedMark(mark.bytes, to.bytes, step.bytes, most.bytes),
		raisedMark(mark.inodes, to.inodes, step.inodes, most.inodes),
	}, true)
}

// raisedMark returns a mark that allows a usage, and a step more unless that is beyond the limit.
func raisedMark(mark, to, step, most int64) int64 {
	if to <= mark {
		return mark
	}
	return max(to, min(addSizes(to, step), most)) // nothing is accepted beyond the limit
}

// FollowMark moves the mark to the usage if that has grown without reservations, or
// become much less. Call it every few seconds. The caller must hold no Reservation.
func (a *Account) FollowMark() {
	mark, taken, step := a.mark.load(), a.taken.load(), a.step()
	far := func(mark, taken, step int64) bool { return taken > mark || mark-taken > 2*step }
	if a.mark.keeper.Load() == nil || !far(mark.bytes, taken.bytes, step.bytes) && !far(mark.inodes, taken.inodes, step.inodes) {
		return
	}
	a.writing.Lock()
	defer a.writing.Unlock()
	taken = a.taken.load()
	a.setMarkLocked(Amount{addSizes(max(taken.bytes, 0), step.bytes), addSizes(max(taken.inodes, 0), step.inodes)},
		taken.bytes > mark.bytes || taken.inodes > mark.inodes)
}

// LastMark moves the mark to the usage, for the next start. Call it when there are no more
// changes. Not checked: checklocks does not know TryLock.
//
// +checklocksignore
func (a *Account) LastMark() {
	if a.mark.keeper.Load() == nil || !a.writing.TryLock() {
		return // running calls may still use their reservations
	}
	defer a.writing.Unlock()
	taken := a.taken.load()
	a.setMarkLocked(Amount{max(taken.bytes, 0), max(taken.inodes, 0)}, false)
}

// setMarkLocked writes the mark. sync is needed if it is raised; a lowered one need not be on
// the disk, because the old one is valid, too.
//
// +checklocks:a.writing
func (a *Account) setMarkLocked(n Amount, sync bool) {
	keeper := a.mark.keeper.Load()
	if keeper == nil {
		return
	}
	written := make(chan error)
	go func() { // as root, whatever user the caller's thread is
		err := writeMark(keeper.path, n, sync, keeper.log)
		if err != nil {
			_ = statedir.Remove(keeper.path) // no mark is better than a wrong one
		}
		written <- err
	}()
	if err := <-written; err != nil {
		keeper.log.Error("accounting: can't write how much a volume uses; the next start must count it first", "err", err)
		a.mark.keeper.Store(nil)
		n = unlimited()
	}
	a.mark.store(n)
	a.setCeilingLocked()
}

// markMax bounds the file of a mark.
const markMax = 64

// readMark reads what writeMark has written. What can't be that is put aside.
func readMark(path string, log *slog.Logger) (n Amount, err error) {
	if _, err := os.Lstat(path); err != nil { // the folder may not be there either
		return Amount{}, err
	}
	dir, err := statedir.Open(filepath.Dir(path), nil, log)
	if err != nil {
		return Amount{}, err
	}
	defer dir.Close()
	b, err := dir.Read(filepath.Base(path), markMax)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return Amount{}, err
	}
	if err == nil {
		_, err = fmt.Sscanf(string(b), "%d %d\n", &n.bytes, &n.inodes)
	}
	const most = 1 << 60 // so that what comes to it does not overflow
	if err != nil || n.bytes < 0 || n.inodes < 0 || n.bytes > most || n.inodes > most {
		why := errors.Join(fmt.Errorf("%s does not hold what a volume can use", path), err)
		return Amount{}, errors.Join(why, dir.SetAside(filepath.Base(path), why))
	}
	return n, nil
}

// writeMark writes a mark in place: its length never changes, so the disk has the old
// one or the new one.
func writeMark(path string, n Amount, sync bool, log *slog.Logger) error {
	dir, err := statedir.Open(filepath.Dir(path), nil, log)
	if err != nil {
		return err
	}
	defer dir.Close()
	name := filepath.Base(path)
	f, err := dir.OpenFile(name, os.O_WRONLY, 0)
	isNew := err != nil
	if isNew {
		if f, err = dir.MakeFile(name, os.O_WRONLY); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(f, "%020d %020d\n", n.bytes, n.inodes)
	if err == nil && (sync || isNew) {
		err = unix.Fdatasync(int(f.Fd()))
	}
	if err := errors.Join(err, f.Close()); err != nil || !isNew {
		return err
	}
	return dir.Sync()
}
