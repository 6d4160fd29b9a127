package export

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path"
	"time"

	"golang.org/x/sys/unix"
)

// scanner is one pass of a scan through a volume. It has two descriptors at any depth:
// it goes up by "..", or, if that leads elsewhere because a directory was moved, by
// the names from the root.
type scanner struct {
	volume *Volume
	log    *slog.Logger
	dir    *os.File // the current one; nil if there was no way back
	way    []level  // to dir; the first is the volume's root

	seen     int // files and directories
	batch    int // of seen, since the last pause
	reported time.Time
}

// level is a directory of the way.
type level struct {
	name  string
	inode inode
	// below has the names of its directories that are still to be entered, each
	// with a 0 after it: there can be millions.
	below []byte
}

// errEnding ends a scan when the export ends.
var errEnding = errors.New("the export ends")

func (s *scanner) run() error {
	defer s.close()
	err := s.begin()
	for err == nil && len(s.way) > 0 {
		err = s.step()
	}
	return err
}

func (s *scanner) begin() error {
	root, err := openDirAt(int(s.volume.root.Fd()), ".")
	if err != nil {
		return err
	}
	return s.enter(root, ".")
}

// step enters the next directory, or leaves this one.
func (s *scanner) step() error {
	if name, ok := s.way[len(s.way)-1].next(); ok {
		return s.down(name)
	}
	return s.up()
}

func (s *scanner) close() {
	if s.dir != nil {
		_ = s.dir.Close() // only read from
		s.dir = nil
	}
}

func (l *level) next() (name string, ok bool) {
	if len(l.below) == 0 {
		return "", false
	}
	names := l.below[:len(l.below)-1]
	start := bytes.LastIndexByte(names, 0) + 1
	l.below = l.below[:start]
	return string(names[start:]), true
}

// down enters a directory in this one, if it is still there.
func (s *scanner) down(name string) error {
	dir, err := openDirAt(int(s.dir.Fd()), name)
	switch {
	case err == nil:
		return s.enter(dir, name)
	case isElsewhere(err):
		return nil
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		s.volume.account.again.Store(true)
	}
	s.log.Warn("accounting: can't look into a directory, what is in it is not counted", "directory", s.pathOf(name), "err", err)
	return nil
}

// enter enters a directory, which it then owns, and counts it and its entries.
func (s *scanner) enter(dir *os.File, name string) error {
	s.close()
	s.dir = dir
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return err
	}
	c := s.volume.account.enter(inodeOf(&st))
	err := c.stat(int(dir.Fd()), &st)
	c.leave(FileID{})
	if err != nil {
		return err
	}
	s.way = append(s.way, level{name: name, inode: inodeOf(&st)})
	at := &s.way[len(s.way)-1]
	for {
		names, err := dir.Readdirnames(scanBatch)
		for _, name := range names {
			if s.one(name) {
				at.below = append(append(at.below, name...), 0)
			}
		}
		if err := s.pause(len(names)); err != nil {
			return err
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			s.log.Warn("accounting: can't list a directory, what is in it is not counted", "directory", s.pathOf("."), "err", err)
			return nil
		}
	}
}

// one counts an entry, unless it is a directory, which is to be entered.
func (s *scanner) one(name string) (isDir bool) {
	var st unix.Stat_t
	if err := unix.Fstatat(int(s.dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return false // removed meanwhile
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return true
	}
	s.volume.account.found(int(s.dir.Fd()), name, inodeOf(&st))
	return false
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

// up goes back to the parent directory. If there is no way to it any more, its
// remaining directories are left to another pass.
func (s *scanner) up() error {
	s.way = s.way[:len(s.way)-1]
	if len(s.way) == 0 {
		return nil
	}
	above, err := s.above()
	s.close()
	if err == nil {
		s.dir = above
		return nil
	}
	if !isElsewhere(err) {
		return fmt.Errorf("go back to %s: %w", s.pathOf("."), err)
	}
	s.way[len(s.way)-1].below = nil
	s.volume.account.again.Store(true)
	return nil
}

// above opens the directory that is now the last of the way.
func (s *scanner) above() (*os.File, error) {
	if s.dir != nil {
		dir, err := openDirAt(int(s.dir.Fd()), "..")
		if err == nil {
			dir, err = isStill(dir, s.way[len(s.way)-1].inode)
		}
		if err == nil {
			return dir, nil
		}
	}
	at, err := openDirAt(int(s.volume.root.Fd()), ".")
	for _, l := range s.way[1:] {
		if err != nil {
			return nil, err
		}
		var next *os.File
		next, err = openDirAt(int(at.Fd()), l.name)
		_ = at.Close() // only read from
		if err == nil {
			at, err = isStill(next, l.inode)
		}
	}
	return at, err
}

// isStill closes a directory that is not the earlier one, and returns ENOENT.
func isStill(dir *os.File, was inode) (*os.File, error) {
	var st unix.Stat_t
	err := unix.Fstat(int(dir.Fd()), &st)
	if err == nil && inodeOf(&st) != was {
		err = unix.ENOENT
	}
	if err != nil {
		_ = dir.Close() // only read from
		return nil, err
	}
	return dir, nil
}

// isElsewhere reports whether an error means that a name is gone, of another type, or a
// mount.
func isElsewhere(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EXDEV)
}

// pathOf returns the path of a name here, for people: only its end, if it is long.
func (s *scanner) pathOf(name string) string {
	const most = 20
	for i := len(s.way) - 1; i > 0; i-- {
		if len(s.way)-i > most {
			return path.Join("...", name)
		}
		name = path.Join(s.way[i].name, name)
	}
	return name
}

// openDirAt opens a directory in another, or its "." or "..", without following
// symbolic links or entering mounts.
func openDirAt(dir int, name string) (*os.File, error) {
	how := unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_SYMLINKS,
	}
	for {
		fd, err := unix.Openat2(dir, name, &how)
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
			continue // EAGAIN: something was renamed while ".." was looked up
		case err != nil:
			return nil, &os.PathError{Op: "openat2", Path: name, Err: err}
		}
		return os.NewFile(uintptr(fd), name), nil
	}
}
