package exports

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/internal/idle"
	"github.com/podnas/podnas/internal/statedir"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/space"
)

// scansAtOnce is how many volumes are scanned concurrently.
const scansAtOnce = 4

// isEmpty reports whether the volume has no files.
func (v *Volume) isEmpty() bool {
	fd, err := unix.Openat(int(v.Files.Root.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	root := os.NewFile(uintptr(fd), ".")
	defer root.Close()
	_, err = root.Readdirnames(1)
	return errors.Is(err, io.EOF)
}

// count counts the volume's usage, if necessary, and then has the table look after it. Each scan needs
// a slot.
func (v *Volume) count(slots chan struct{}, log *slog.Logger) {
	if v.Account.Usage().Partial {
		select {
		case slots <- struct{}{}:
			v.scan(log)
			<-slots
		case <-v.ending:
			return
		}
	}
	v.counted.Store(true)
	t := v.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.looking == nil {
		t.looking = time.AfterFunc(idle.UntilTick(time.Now(), lookEvery), t.lookAfter)
	}
}

// lookEvery is the time between two looks after the charges of all volumes. A timer for each volume would
// wake an idle process more often, and a goroutine for each would need a stack.
const lookEvery = space.LookAfter / 4

// lookAfter settles due charges periodically, as long as there are volumes that are counted.
func (t *Table) lookAfter() {
	t.mu.Lock()
	counted := t.countedLocked()
	if len(counted) == 0 {
		t.looking = nil // count begins it again
	}
	t.mu.Unlock()
	if len(counted) == 0 {
		return
	}
	for _, v := range counted {
		v.SettleDue(time.Now())
		v.Account.FollowMark()
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	t.looking.Reset(idle.UntilTick(time.Now(), lookEvery))
}

// countedLocked returns the volumes that are counted.
//
// +checklocks:t.mu
func (t *Table) countedLocked() []*Volume {
	counted := make([]*Volume, 0, len(t.byID))
	for _, v := range t.byID {
		if v.counted.Load() {
			counted = append(counted, v)
		}
	}
	return counted
}

// scan counts the volume's usage while it is served, until the export ends.
func (v *Volume) scan(log *slog.Logger) {
	if !v.Begin() {
		return
	}
	defer v.Done()
	v.Account.Scan(v.Files.Root, v.ending, log)
}

// SettleDue reads the usage of files again that were written some time ago, if
// they can be opened by handle.
func (v *Volume) SettleDue(now time.Time) {
	if !v.Begin() {
		return
	}
	defer v.Done()
	v.Account.LookAgain(now, func(id string, look func(fd int)) {
		if d, err := v.Files.Open(disk.NewFileID([]byte(id)), disk.PathOnly); err == nil {
			look(d.FD())
			d.Close()
		}
	})
}

// KeepMarks keeps the usage of volumes in a directory from one start to the next, in a
// file per volume. Call it before adding volumes. The directory is created when it is
// needed.
func (t *Table) KeepMarks(dir string) { t.marks = dir }

// markFile is where the mark of a volume is kept, empty if nothing is.
func (t *Table) markFile(id uint64) string {
	if t.marks == "" {
		return ""
	}
	return filepath.Join(t.marks, strconv.FormatUint(id, 10))
}

// ForgetMark removes the mark of a volume that was deleted, or is no longer
// counted.
func (t *Table) ForgetMark(id uint64) error {
	if t.marks == "" {
		return nil
	}
	return statedir.Remove(t.markFile(id))
}

// LastMarks writes the usage of all volumes, after serving has ended.
func (t *Table) LastMarks() {
	for _, v := range t.Volumes() {
		if v.Account != nil {
			v.Account.LastMark()
		}
	}
}

// identifyAgain returns the ID of the file with a name in a directory, for SettleDue; it is empty
// if the file has none.
func (v *Volume) identifyAgain(dir int, name string) string {
	id, _ := v.Files.Identify(dir, []byte(name))
	return id.AsString()
}
