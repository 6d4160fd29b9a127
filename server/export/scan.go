package export

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"path"
	"time"

	"golang.org/x/sys/unix"
)

// The pace of a scan: what is served meanwhile comes first. Warm, it leaves about
// 100,000 files a second; a disk that has to seek is slower by itself.
const (
	scanBatch = 500
	scanPause = 5 * time.Millisecond
	// scanReport is how often a long scan says how far it is.
	scanReport = 30 * time.Second
)

// count counts what the volume uses, and then looks after what was changed, until
// the export ends.
func (v *Volume) count(log *slog.Logger) {
	v.scan(log)
	tick := time.NewTicker(lookAgain / 8)
	defer tick.Stop()
	for {
		select {
		case <-v.closed:
			return
		case now := <-tick.C:
			v.settleDue(now)
		}
	}
}

// scan counts what the volume uses. Calls go on meanwhile: what they touch they
// count themselves, account.count tells who was first. It ends early with the
// export.
func (v *Volume) scan(log *slog.Logger) {
	a := v.account
	started, said := time.Now(), time.Now()
	dirs := []string{"."}
	seen := 0
	for len(dirs) > 0 {
		dir := dirs[len(dirs)-1]
		dirs = dirs[:len(dirs)-1]
		below, n, err := v.scanDir(dir)
		if errors.Is(err, os.ErrClosed) {
			return
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.EXDEV) { // gone, or mounted there
			log.Warn("accounting: can't look into a directory, what is in it is not counted", "volume", v.Path, "directory", dir, "err", err)
		}
		dirs = append(dirs, below...)
		if seen += n; time.Since(said) > scanReport {
			said = time.Now()
			log.Info("accounting: counting what a volume uses", "volume", v.Path, "files", seen, "bytes", a.used.Load())
		}
	}
	a.mu.Lock()
	a.counted = nil
	a.mu.Unlock()
	log.Info("accounting: counted what a volume uses", "volume", v.Path, "files", a.inodes.Load(), "bytes", a.used.Load(), "took", time.Since(started).Round(time.Millisecond))
}

// scanDir counts a directory and what has its name there, and returns the
// directories in it.
func (v *Volume) scanDir(name string) (dirs []string, seen int, err error) {
	d, err := v.OpenDir(name)
	if err != nil {
		return nil, 0, err
	}
	defer d.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(d.Fd()), &st); err != nil {
		return nil, 0, err
	}
	c := v.account.enter(inodeOf(&st))
	err = c.stat(int(d.Fd()), &st)
	if c.leave(FileID{}); err != nil {
		return nil, 0, err
	}
	for {
		names, err := d.Readdirnames(scanBatch)
		for _, n := range names {
			if err := unix.Fstatat(int(d.Fd()), n, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
				continue // removed meanwhile
			}
			seen++
			if st.Mode&unix.S_IFMT == unix.S_IFDIR {
				dirs = append(dirs, path.Join(name, n))
				continue
			}
			v.account.found(int(d.Fd()), n, inodeOf(&st))
		}
		if errors.Is(err, io.EOF) {
			return dirs, seen, nil
		}
		if err != nil {
			return dirs, seen, err
		}
		time.Sleep(scanPause)
	}
}

// found counts an inode that the scan came by, unless it is counted already.
func (a *Account) found(dir int, name string, i inode) {
	c := a.enter(i)
	defer c.leave(FileID{})
	c.mu.Lock()
	defer c.mu.Unlock()
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err == nil && inodeOf(&st) == i {
		c.settle(charged(&st), false)
	}
}
