package space

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/internal/statedir"
)

// markMax bounds the file of a mark.
const markMax = 64

// readMark reads what writeMark has written. What can't be that is put aside.
func readMark(path string, log *slog.Logger) (n Amount, err error) {
	if _, err := os.Lstat(path); err != nil { // the folder may not be there either
		return Amount{}, err
	}
	dir, err := statedir.Open(filepath.Dir(path), nil, log)
	if err != nil {
		return Amount{}, err
	}
	defer dir.Close()
	b, err := dir.Read(filepath.Base(path), markMax)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return Amount{}, err
	}
	if err == nil {
		_, err = fmt.Sscanf(string(b), "%d %d\n", &n.bytes, &n.inodes)
	}
	const most = 1 << 60 // so that what comes to it does not overflow
	if err != nil || n.bytes < 0 || n.inodes < 0 || n.bytes > most || n.inodes > most {
		why := errors.Join(fmt.Errorf("%s does not hold what a volume can use", path), err)
		return Amount{}, errors.Join(why, dir.SetAside(filepath.Base(path), why))
	}
	return n, nil
}

// writeMark writes a mark in place: its length never changes, so the disk has the old
// one or the new one.
func writeMark(path string, n Amount, sync bool, log *slog.Logger) error {
	dir, err := statedir.Open(filepath.Dir(path), nil, log)
	if err != nil {
		return err
	}
	defer dir.Close()
	name := filepath.Base(path)
	f, err := dir.OpenFile(name, os.O_WRONLY, 0)
	isNew := err != nil
	if isNew {
		if f, err = dir.MakeFile(name, os.O_WRONLY); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(f, "%020d %020d\n", n.bytes, n.inodes)
	if err == nil && (sync || isNew) {
		err = unix.Fdatasync(int(f.Fd()))
	}
	if err := errors.Join(err, f.Close()); err != nil || !isNew {
		return err
	}
	return dir.Sync()
}
