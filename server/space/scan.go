package space

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/internal/tree"
	"github.com/podnas/podnas/server/disk"
)

const (
	// The pace of a scan, which leaves the disk to clients: about 50,000 files a
	// second if they are in memory; a disk that must seek is slower anyway.
	scanBatch = 500
	scanPause = 5 * time.Millisecond
	// scanReport is how often a long scan logs its progress.
	scanReport = 10 * time.Second
	// scanPasses is how often a scan is repeated at most because directories were
	// moved meanwhile. Files are missed only if each pass missed them, because they
	// moved from an unscanned to a scanned place.
	scanPasses = 3
)

// Scan counts what is in the volume whose directory root is, while it is served. Calls
// count the files that they change or move themselves, and each file is counted once.
// Until Scan ends, the usage at the last end counts too (mark). Scan ends early, and the
// usage stays unknown, if ending is closed or the root can't be read. Call it once, after
// KeepMark and Attach; root must stay open.
func (a *Account) Scan(root *os.File, ending <-chan struct{}, log *slog.Logger) {
	started := time.Now()
	for pass := 1; ; pass++ {
		a.again.Store(false)
		if err := newPass(a, ending, log).Run(root); err != nil {
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
		log.Debug("accounting: directories were moved while they were counted; counting again", "pass", pass)
	}
	a.complete()
	a.startMark()
	u := a.Usage()
	took, level := time.Since(started), slog.LevelDebug
	if took > scanReport { // its progress was logged
		level = slog.LevelInfo
	}
	log.Log(context.Background(), level, "accounting: counted what a volume uses", "files", u.Inodes, "bytes", u.Bytes, "took", took.Round(time.Millisecond))
}

// found counts an inode that the scan came by, unless it is counted already.
func (a *Account) found(dir int, name string, i disk.Inode) {
	c := a.Enter(i)
	var again string
	if c.settleAt(dir, name) {
		again = a.identify(dir, name)
	}
	c.Leave(again)
}

// settleAt settles the charge if the inode has this name in a directory, and reports whether
// what it takes may change by itself later: the file system may free some of its blocks, or the kernel has not
// written all of it yet, which takes blocks for the places of its pieces.
func (c *Charge) settleAt(dir int, name string) (mayChange bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil || disk.InodeOf(&st) != c.inode {
		return c.ahead
	}
	c.settleLocked(&st, false, inodeAt{fd: dir, name: name})
	changed := time.Unix(st.Ctim.Unix())
	return c.ahead || st.Mode&unix.S_IFMT == unix.S_IFREG && time.Since(changed) < LookAfter
}

// Renamed tells the account that an inode was given this name in a directory for the one it
// had. During the scan, that may be from where the scan has not been to where it will not
// be again: Renamed counts a file, and for a directory the scan takes another pass.
func (a *Account) Renamed(dir int, name string) {
	if !a.scanning() {
		return
	}
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return // moved again: that call reports the new name
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		a.again.Store(true)
		return
	}
	a.found(dir, name, disk.InodeOf(&st))
}

// pass is one pass of a scan through a volume.
type pass struct {
	tree.Walker
	account *Account
	ending  <-chan struct{}
	log     *slog.Logger

	seen     int // files and directories
	batch    int // of seen, since the last pause
	reported time.Time
}

// errEnding ends a scan early.
var errEnding = errors.New("the scan is to end")

func newPass(a *Account, ending <-chan struct{}, log *slog.Logger) *pass {
	p := &pass{account: a, ending: ending, log: log, reported: time.Now()}
	p.Walker = tree.Walker{
		Enter:      p.enter,
		Name:       p.name,
		Batch:      p.pause,
		Unreadable: p.unreadable,
		// The remaining directories are left to another pass.
		Lost: func() { a.again.Store(true) },
	}
	return p
}

// enter counts a directory.
func (p *pass) enter(_ string, dir *os.File, _ *unix.Statx_t) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return err
	}
	c := p.account.Enter(disk.InodeOf(&st))
	defer c.Leave("")
	return c.Stat(int(dir.Fd()), &st, false)
}

// name counts an inode, unless it is a directory, which is to be entered.
func (p *pass) name(dir *os.File, name string) (enter bool, err error) {
	var st unix.Stat_t
	if err := unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return false, nil //nolint:nilerr // removed meanwhile
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return true, nil
	}
	p.account.found(int(dir.Fd()), name, disk.InodeOf(&st))
	return false, nil
}

// unreadable goes on after a directory that can't be opened or listed.
func (p *pass) unreadable(name string, err error) error {
	if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
		p.account.again.Store(true)
	}
	p.log.Warn("accounting: can't read a directory, what is in it is not counted", "directory", p.Path(name), "err", err)
	return nil
}

// pause lets others work after a batch, and logs the scan's progress.
func (p *pass) pause(names int) error {
	p.seen += names
	if p.batch += names; p.batch >= scanBatch {
		p.batch = 0
		time.Sleep(scanPause)
	}
	if time.Since(p.reported) > scanReport {
		p.reported = time.Now()
		p.log.Info("accounting: counting what a volume uses", "files", p.seen, "bytes", p.account.used.bytes.Load())
	}
	select {
	case <-p.ending:
		return errEnding
	default:
		return nil
	}
}
