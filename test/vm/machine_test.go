//go:build vm

package vm_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// machine is a node with a volume mounted: a namespace of this guest (node), or a guest of its own
// (guest). Names are those in the volume.
type machine interface {
	openFile(name string, flags int) (file, error)
	read(name string) ([]byte, error)
	rename(from, to string) error
	remove(name string) error
	// run runs a program in the volume, and returns all that it prints.
	run(input, program string, args ...string) (string, error)
	dropCaches() error
}

// link is a machine's network, which can be cut.
type link interface {
	cut()
	up()
}

// file is a file that a machine has open.
type file interface {
	lockable
	io.Writer
	io.ReaderAt
	io.WriterAt
	io.Closer
	Sync() error
	Truncate(size int64) error
	Chmod(mode os.FileMode) error
	flock(how int) error
	size() (int64, error)
}

type lockable interface {
	fcntl(how int, l *unix.Flock_t) error
}

// openBy opens a file for the rest of the test.
func openBy(t *testing.T, m machine, name string, flags int) file {
	t.Helper()
	f, err := m.openFile(name, flags)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// writeBy is write by a machine.
func writeBy(m machine, name string, b []byte) error {
	f, err := m.openFile(name, os.O_CREATE|os.O_TRUNC|os.O_WRONLY)
	if err != nil {
		return err
	}
	if _, err := f.Write(b); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return f.Close()
}

// lock is fcntl(2) with F_SETLK. The kind is F_RDLCK, F_WRLCK or F_UNLCK.
func lock(f lockable, kind int16, start, length int64) error {
	return f.fcntl(unix.F_SETLK, &unix.Flock_t{Type: kind, Start: start, Len: length})
}

// lockWait is lock with F_SETLKW.
func lockWait(f lockable, kind int16, start, length int64) error {
	return f.fcntl(unix.F_SETLKW, &unix.Flock_t{Type: kind, Start: start, Len: length})
}

// localFile is a file of this kernel.
type localFile struct{ *os.File }

func (f localFile) fcntl(how int, l *unix.Flock_t) error { return unix.FcntlFlock(f.Fd(), how, l) }
func (f localFile) flock(how int) error                  { return unix.Flock(int(f.Fd()), how) }

func (f localFile) size() (int64, error) {
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

// local is a machine whose volume is mounted here.
type local struct{ mnt string }

func (m *local) path(name string) string { return filepath.Join(m.mnt, name) }

func (m *local) openFile(name string, flags int) (file, error) {
	f, err := os.OpenFile(m.path(name), flags, 0o644)
	if err != nil {
		return nil, err
	}
	return localFile{f}, nil
}

func (m *local) read(name string) ([]byte, error) { return os.ReadFile(m.path(name)) }
func (m *local) rename(from, to string) error     { return os.Rename(m.path(from), m.path(to)) }
func (m *local) remove(name string) error         { return os.Remove(m.path(name)) }
func (m *local) dropCaches() error                { return dropAllCaches() }

func (m *local) run(input, program string, args ...string) (string, error) {
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Stdin = m.mnt, strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s", program, err, out)
	}
	return string(out), err
}
