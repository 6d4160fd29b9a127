package export

import (
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/aligned"
	"github.com/podnas/podnas/server/space"
)

// scansAtOnce is how many volumes are scanned concurrently.
const scansAtOnce = 4

// isEmpty reports whether the volume has no files.
func (v *Volume) isEmpty() bool {
	fd, err := unix.Openat(int(v.root.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	root := os.NewFile(uintptr(fd), ".")
	defer root.Close()
	_, err = root.Readdirnames(1)
	return errors.Is(err, io.EOF)
}

// count counts the volume's usage, if necessary, and then settles changed files until
// the export ends. Each scan needs a slot.
func (v *Volume) count(slots chan struct{}, log *slog.Logger) {
	if v.account.Usage().Partial {
		select {
		case slots <- struct{}{}:
			v.scan(log)
			<-slots
		case <-v.ending:
		}
	}
	v.again = time.AfterFunc(time.Hour, v.lookAfter)
	v.again.Reset(aligned.Until(time.Now(), lookEvery))
}

// lookEvery is the time between two looks after a volume's charges. All volumes look together: 200 that do it
// each at a time of its own wake an idle process 40 times a second, and that costs 1% of a processor.
const lookEvery = space.LookAfter / 8

// scan counts the volume's usage while it is served, until the export ends.
func (v *Volume) scan(log *slog.Logger) {
	if !v.begin() {
		return
	}
	defer v.calls.Done()
	v.account.Scan(v.root, v.ending, log)
}

// lookAfter settles due charges periodically. A timer calls it, because a goroutine
// would need a stack for each volume.
func (v *Volume) lookAfter() {
	select {
	case <-v.ending:
	default:
		v.settleDue(time.Now())
		v.account.FollowMark()
		v.again.Reset(aligned.Until(time.Now(), lookEvery))
	}
}

// settleDue reads the usage of files again that were written some time ago, if
// they can be opened by handle.
func (v *Volume) settleDue(now time.Time) {
	if !v.begin() {
		return
	}
	defer v.calls.Done()
	v.account.LookAgain(now, func(id string, look func(fd int)) {
		if d, err := v.finder.open(NewFileID([]byte(id)), UseAttr.flags()); err == nil {
			look(d.fd())
			d.close()
		}
	})
}

// identifyAgain returns the ID of the file with a name in a directory, for settleDue; it is empty
// if the file has none.
func (v *Volume) identifyAgain(dir int, name string) string {
	id, _ := v.finder.identify(dir, []byte(name))
	return id.string()
}

// Await waits until the volume is counted, if an error of a change is EAGAIN because its free space is
// not known yet. It returns false if the error is another, or the export ends.
func (v *Volume) Await(err error) bool { return v.account != nil && v.account.Await(err, v.ending) }

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
	if err := os.Remove(t.markFile(id)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// LastMarks writes the usage of all volumes, after serving has ended.
func (t *Table) LastMarks() {
	for _, v := range t.Volumes() {
		if v.account != nil {
			v.account.LastMark()
		}
	}
}
