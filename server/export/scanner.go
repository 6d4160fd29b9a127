package export

import (
	"errors"
	"log/slog"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/tree"
)

// scanner is one pass of a scan through a volume.
type scanner struct {
	volume *Volume
	log    *slog.Logger
	walk   tree.Walker

	seen     int // files and directories
	batch    int // of seen, since the last pause
	reported time.Time
}

// errEnding ends a scan when the export ends.
var errEnding = errors.New("the export ends")

func newScanner(v *Volume, log *slog.Logger) *scanner {
	s := &scanner{volume: v, log: log, reported: time.Now()}
	s.walk = tree.Walker{
		Enter:      s.enter,
		Name:       s.one,
		Batch:      s.pause,
		Unreadable: s.unreadable,
		// The remaining directories are left to another pass.
		Lost: func() { v.account.again.Store(true) },
	}
	return s
}

func (s *scanner) run() error { return s.walk.Run(s.volume.root) }

// enter counts a directory.
func (s *scanner) enter(_ string, dir *os.File, _ *unix.Statx_t) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return err
	}
	c := s.volume.account.enter(inodeOf(&st))
	defer c.leave(FileID{})
	return c.stat(int(dir.Fd()), &st)
}

// unreadable goes on after a directory that can't be opened or listed.
func (s *scanner) unreadable(name string, err error) error {
	if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
		s.volume.account.again.Store(true)
	}
	s.log.Warn("accounting: can't read a directory, what is in it is not counted", "directory", s.walk.Path(name), "err", err)
	return nil
}

// one counts an entry, unless it is a directory, which is to be entered.
func (s *scanner) one(dir *os.File, name string) (isDir bool, err error) {
	var st unix.Stat_t
	if err := unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return false, nil //nolint:nilerr // removed meanwhile
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return true, nil
	}
	s.volume.account.found(int(dir.Fd()), name, inodeOf(&st))
	return false, nil
}

// pause lets others work after a batch, and logs the scan's progress.
func (s *scanner) pause(names int) error {
	s.seen += names
	if s.batch += names; s.batch >= scanBatch {
		s.batch = 0
		time.Sleep(scanPause)
	}
	if time.Since(s.reported) > scanReport {
		s.reported = time.Now()
		s.log.Info("accounting: counting what a volume uses", "files", s.seen, "bytes", s.volume.account.used.bytes.Load())
	}
	select {
	case <-s.volume.ending:
		return errEnding
	default:
		return nil
	}
}
