// Package statedir has the folders of files that podnas keeps for itself, below .podnas and beside the claims of a
// folder. Whatever was done to them meanwhile, using them is safe: no link is followed, nothing that is opened
// blocks, what is read is bounded, a file is replaced as a whole or not at all, and what can't be what podnas wrote is
// put aside (aside.go). A Reserve (reserve.go) keeps room for them on a disk that clients have filled.
package statedir

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// errNoFolder is the error of what is not a folder.
var errNoFolder = fmt.Errorf("it is not a folder: %w", ErrIrregular)

// ErrIrregular is the error of what is not a regular file: a folder, a link, a fifo, a socket or a device.
var ErrIrregular = errors.New("it is not a regular file")

// OfProcess reports whether an error is of this process or machine, and says nothing of a file or the disk.
func OfProcess(err error) bool {
	for _, e := range []error{unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.EINTR} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// Dir is an open folder. Its methods may be called concurrently.
type Dir struct {
	f       *os.File
	reserve *Reserve // may be nil
	log     *slog.Logger
}

// Open opens a folder, and makes it if it is not there. Neither the folder nor the one above it may be a link. What is
// in the place of the folder is put aside. The folder above must be there.
func Open(path string, reserve *Reserve, log *slog.Logger) (*Dir, error) {
	above, err := openFolder(unix.AT_FDCWD, filepath.Dir(path), filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer above.Close()
	return OpenIn(above, filepath.Base(path), reserve, log)
}

// OpenIn is Open for a folder in an open one.
func OpenIn(above *os.File, name string, reserve *Reserve, log *slog.Logger) (*Dir, error) {
	at, path := int(above.Fd()), filepath.Join(above.Name(), name)
	for tries := 0; ; tries++ {
		err := reserve.Do(func() error { return unix.Mkdirat(at, name, 0o700) })
		isNew := err == nil
		if isNew {
			err = above.Sync()
		}
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return nil, &fs.PathError{Op: "mkdir", Path: path, Err: err}
		}
		f, err := openFolder(at, name, path)
		switch {
		case err == nil && isNew:
			return &Dir{f, reserve, log}, give(int(f.Fd()), at)
		case err == nil:
			return &Dir{f, reserve, log}, nil
		case !errors.Is(err, ErrIrregular) || tries > 0:
			return nil, err
		}
		if err := (&Dir{above, reserve, log}).SetAside(name, err); err != nil {
			return nil, err
		}
	}
}

// Of is the Dir of an open folder.
func Of(folder *os.File, reserve *Reserve, log *slog.Logger) *Dir { return &Dir{folder, reserve, log} }

// openFolder opens a folder that is not a link. path is its name for people.
func openFolder(at int, name, path string) (*os.File, error) {
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		err = errNoFolder
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// Close closes the folder.
func (d *Dir) Close() error { return d.f.Close() }

// Name is the path of the folder.
func (d *Dir) Name() string { return d.f.Name() }

// Fd is the descriptor of the folder, as long as it is open.
func (d *Dir) Fd() int { return int(d.f.Fd()) }

// Sync makes what was done to names last.
func (d *Dir) Sync() error { return d.f.Sync() }

// Names returns what is in the folder, without what was put aside.
func (d *Dir) Names() ([]string, error) {
	again, err := openFolder(d.Fd(), ".", d.f.Name()) // which is read from its start
	if err != nil {
		return nil, err
	}
	defer again.Close()
	all, err := again.Readdirnames(-1)
	names := all[:0]
	for _, name := range all {
		if !IsAside(name) {
			names = append(names, name)
		}
	}
	return names, err
}

// Check returns ErrIrregular if there is something of that name that is not a regular file.
func (d *Dir) Check(name string) error {
	var st unix.Stat_t
	if unix.Fstatat(d.Fd(), name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		return ErrIrregular
	}
	return nil
}

// OpenFile opens a regular file, with flags as of os.OpenFile. Anything else that has the name is ErrIrregular.
func (d *Dir) OpenFile(name string, flag int, perm fs.FileMode) (*os.File, error) {
	return openFile(d.f, name, flag, perm)
}

func openFile(dir *os.File, name string, flag int, perm fs.FileMode) (*os.File, error) {
	failed := func(err error) error {
		return &fs.PathError{Op: "open", Path: filepath.Join(dir.Name(), name), Err: err}
	}
	if strings.ContainsRune(name, '/') {
		return nil, failed(unix.EINVAL)
	}
	at := int(dir.Fd())
	var st unix.Stat_t
	err := unix.Fstatat(at, name, &st, unix.AT_SYMLINK_NOFOLLOW) // opening a device may do anything
	if err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, failed(ErrIrregular)
	}
	if err != nil && (flag&os.O_CREATE == 0 || !errors.Is(err, unix.ENOENT)) {
		return nil, failed(err)
	}
	// If it was replaced since, opening it neither waits nor follows a link.
	fd, err := unix.Openat(at, name, flag|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, uint32(perm.Perm()))
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EISDIR) || errors.Is(err, unix.ENXIO) {
		err = ErrIrregular
	}
	if err != nil {
		return nil, failed(err)
	}
	f := os.NewFile(uintptr(fd), filepath.Join(dir.Name(), name))
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, errors.Join(failed(ErrIrregular), err, f.Close())
	}
	return f, nil
}

// MakeFile is OpenFile, and makes the file if it is not there. What is in its place is put aside.
func (d *Dir) MakeFile(name string, flag int) (*os.File, error) {
	f, err := d.OpenFile(name, flag|os.O_CREATE, 0o600)
	if errors.Is(err, ErrIrregular) {
		if err := d.SetAside(name, err); err != nil {
			return nil, err
		}
		f, err = d.OpenFile(name, flag|os.O_CREATE, 0o600)
	}
	if err != nil {
		return nil, err
	}
	if err := give(int(f.Fd()), d.Fd()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Read returns what is in a file, of at most so many bytes.
func (d *Dir) Read(name string, most int64) ([]byte, error) {
	f, err := d.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(b)) > most {
		err = fmt.Errorf("%s has more than %d bytes", f.Name(), most)
	}
	return b, err
}

// Write writes a file as a whole or not at all, and syncs it. On a full disk it takes the reserve. What is not a file
// in its place is put aside.
func (d *Dir) Write(name string, b []byte) error {
	if err := d.Check(name); err != nil {
		if err := d.SetAside(name, err); err != nil {
			return err
		}
	}
	return d.reserve.Write(d.f, name, b)
}

// Remove removes files, in their order, and syncs once; it is no error if there is none. What is not a file is put aside.
func (d *Dir) Remove(names ...string) (err error) {
	removed := false
	for _, name := range names {
		switch err = unix.Unlinkat(d.Fd(), name, 0); {
		case err == nil:
			removed = true
		case errors.Is(err, unix.ENOENT):
			err = nil
		case errors.Is(err, unix.EISDIR):
			err = d.SetAside(name, ErrIrregular)
		default:
			err = &fs.PathError{Op: "remove", Path: filepath.Join(d.f.Name(), name), Err: err}
		}
		if err != nil {
			break
		}
	}
	if removed {
		err = errors.Join(err, d.Sync())
	}
	return err
}

// Rename renames a file, which replaces another one.
func (d *Dir) Rename(name, as string) error { return replace(d.f, name, d.f, as) }

// Link gives a file another name.
func (d *Dir) Link(name, as string) error {
	if err := unix.Linkat(d.Fd(), name, d.Fd(), as, 0); err != nil {
		return &fs.PathError{Op: "link", Path: filepath.Join(d.f.Name(), as), Err: err}
	}
	return nil
}

// RemoveTemporary removes what was half written when the process before ended.
func (d *Dir) RemoveTemporary() error {
	names, err := d.Names()
	for _, name := range names {
		if strings.HasSuffix(name, temporary) {
			err = errors.Join(err, d.Remove(name))
		}
	}
	return err
}

// Remove removes a file. It is no error if there is none, or no folder.
func Remove(path string) error {
	folder, err := openFolder(unix.AT_FDCWD, filepath.Dir(path), filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrIrregular) {
		return nil
	}
	if err != nil {
		return err
	}
	defer folder.Close()
	err = unix.Unlinkat(int(folder.Fd()), filepath.Base(path), 0)
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return &fs.PathError{Op: "remove", Path: path, Err: err}
	}
	return nil
}

// give gives what is new to the owner of its folder, if the process may: a podnas that runs as root once, on the
// disk of an ordinary user, leaves nothing there that this user's podnas can't change.
func give(fd, dir int) error {
	var has, want unix.Stat_t
	if err := errors.Join(unix.Fstat(dir, &want), unix.Fstat(fd, &has)); err != nil {
		return err
	}
	if has.Uid == want.Uid {
		return nil
	}
	err := unix.Fchown(fd, int(want.Uid), int(want.Gid))
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EINVAL) { // EINVAL: a user namespace without that id
		return nil
	}
	return err
}
