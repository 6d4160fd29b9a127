package space

import (
	"errors"
	"log/slog"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/internal/tree"
	"github.com/podnas/podnas/server/disk"
)

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
