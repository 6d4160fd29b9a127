package space

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// readMark reads what writeMark has written.
func readMark(path string) (n Amount, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return Amount{}, err
	}
	_, err = fmt.Sscanf(string(b), "%d %d\n", &n.bytes, &n.inodes)
	const most = 1 << 60 // so that what comes to it does not overflow
	if err != nil || n.bytes < 0 || n.inodes < 0 || n.bytes > most || n.inodes > most {
		return Amount{}, fmt.Errorf("%s does not hold what a volume can use", path)
	}
	return n, nil
}

// writeMark writes a mark in place: its length never changes, so the disk has the old
// one or the new one.
func writeMark(path string, n Amount, sync bool) error {
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
