package export

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// The pace of a scan, which leaves the disk to clients: about 50,000 files a
	// second if they are in memory; a disk that must seek is slower anyway.
	scanBatch = 500
	scanPause = 5 * time.Millisecond
	// scansAtOnce is how many volumes are scanned concurrently.
	scansAtOnce = 4
	// scanReport is how often a long scan logs its progress.
	scanReport = 10 * time.Second
	// scanPasses is how often a scan is repeated at most because directories were
	// moved meanwhile. Files are missed only if each pass missed them, because they
	// moved from an unscanned to a scanned place.
	scanPasses = 3
)

// isEmpty tells whether there is nothing in the volume.
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
	if v.account.scanning() {
		select {
		case slots <- struct{}{}:
			v.scan(log)
			<-slots
		case <-v.ending:
		}
	}
	v.again = time.AfterFunc(time.Hour, v.lookAfter)
	v.again.Reset(lookAgain / 8)
}

// lookAfter settles due charges periodically. A timer calls it, because a goroutine
// would need a stack for each volume.
func (v *Volume) lookAfter() {
	select {
	case <-v.ending:
	default:
		v.settleDue(time.Now())
		v.account.followMark()
		v.again.Reset(lookAgain / 8)
	}
}

// scan counts the volume's usage while it is served. Calls count the files that they
// change or move themselves, and account.count counts each file once. Until the scan
// ends, the usage at the last end counts too (mark). scan ends early if the export ends.
func (v *Volume) scan(log *slog.Logger) {
	if !v.begin() {
		return
	}
	defer v.calls.Done()
	a := v.account
	started := time.Now()
	for pass := 1; ; pass++ {
		a.again.Store(false)
		if err := newScanner(v, log).run(); err != nil {
			if !errors.Is(err, errEnding) {
				log.Error("accounting: can't count what a volume uses", "err", err)
			}
			return
		}
		if !a.again.Load() {
			break
		}
		if pass == scanPasses {
			log.Warn("accounting: directories were moved all the time while they were counted, some may be missing", "passes", pass)
			break
		}
		log.Debug("accounting: directories were moved while they were counted, going over them once more", "pass", pass)
	}
	a.complete()
	a.startMark()
	u := a.Usage()
	took, level := time.Since(started), slog.LevelDebug
	if took > scanReport { // it was told that it goes on
		level = slog.LevelInfo
	}
	log.Log(context.Background(), level, "accounting: counted what a volume uses", "files", u.Inodes, "bytes", u.Bytes, "took", took.Round(time.Millisecond))
}

// found counts an inode that the scan came by, unless it is counted already.
func (a *Account) found(dir int, name string, i inode) {
	c := a.enter(i)
	var again FileID
	if c.foundAt(dir, name) {
		again, _ = identifyByHandle(dir, name) // else it stays as it is
	}
	c.leave(again)
}

// foundAt settles the charge of what has a name, and tells whether it may become less by
// itself.
func (c *charge) foundAt(dir int, name string) (mayShrink bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err == nil && inodeOf(&st) == c.inode {
		c.settle(&st, false)
	}
	return c.ahead
}

// moved says that something was given this name for the one it had. While the scan
// goes on, that may be from where it has not been to where it will not be again: a
// file is counted here, and for a directory the scan looks at all once more.
func (a *Account) moved(dir int, name string) {
	if a == nil || !a.scanning() {
		return
	}
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return // moved on, and whoever did so says where to
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		a.again.Store(true)
		return
	}
	a.found(dir, name, inodeOf(&st))
}
