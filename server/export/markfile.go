package export

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// readMark reads what writeMark has written.
func readMark(path string) (n amount, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return amount{}, err
	}
	_, err = fmt.Sscanf(string(b), "%d %d\n", &n.bytes, &n.inodes)
	const most = 1 << 60 // so that what comes to it does not overflow
	if err != nil || n.bytes < 0 || n.inodes < 0 || n.bytes > most || n.inodes > most {
		return amount{}, fmt.Errorf("%s does not hold what a volume can use", path)
	}
	return n, nil
}

// writeMark writes a mark in place: its length never changes, so the disk has the old
// one or the new one.
func writeMark(path string, n amount, sync bool) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	isNew := errors.Is(err, fs.ErrNotExist)
	if isNew {
		if err := makeMarksDir(filepath.Dir(path)); err != nil {
			return err
		}
		f, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%020d %020d\n", n.bytes, n.inodes)
	if err == nil && (sync || isNew) {
		err = unix.Fdatasync(int(f.Fd()))
	}
	if err := errors.Join(err, f.Close()); err != nil || !isNew {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(giveTo(path, dir), dir.Sync(), dir.Close())
}

func makeMarksDir(path string) error {
	err := os.Mkdir(path, 0o700)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	above, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(giveTo(path, above), above.Sync(), above.Close())
}

// giveTo gives what is new to the owner of its directory, if the process may, so that a
// podnas which runs as root once leaves nothing that an ordinary user's can't change.
func giveTo(path string, dir *os.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return err
	}
	if err := os.Lchown(path, int(st.Uid), int(st.Gid)); !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return nil
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
	if err := os.Remove(t.markFile(id)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// LastMarks writes the usage of all volumes, after serving has ended.
func (t *Table) LastMarks() {
	for _, v := range t.Volumes() {
		if v.account != nil {
			v.account.lastMark()
		}
	}
}
