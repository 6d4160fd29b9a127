package control

import (
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/podnas/podnas/internal/volume"
)

// newRoot is a disk with a state directory and nothing else.
func newRoot(t *testing.T, below ...string) string {
	t.Helper()
	root := filepath.Join(append([]string{t.TempDir()}, below...)...)
	mustDo(t, os.MkdirAll(filepath.Join(root, volume.StateDir), 0o700))
	return root
}

func TestListen(t *testing.T) {
	root := newRoot(t)
	socket := filepath.Join(root, volume.ControlSocket)
	l, err := Listen(root, nil, slog.New(slog.DiscardHandler))
	mustDo(t, err)
	info, err := os.Lstat(socket)
	mustDo(t, err)
	if info.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("the socket's mode is %v, want a socket for its owner alone", info.Mode())
	}
	if _, err := Listen(root, nil, slog.New(slog.DiscardHandler)); !errors.Is(err, volume.ErrInUse) {
		t.Errorf("a second listener: %v, want ErrInUse", err)
	}
	conn, err := dial(t.Context(), root)
	mustDo(t, err)
	mustDo(t, errors.Join(conn.Close(), l.Close()))
	if _, err := os.Lstat(socket); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after Close the socket is there: %v", err)
	}
}

// A killed process leaves its socket, or a file if it was killed while it created the
// socket.
func TestListenReplacesWhatIsDead(t *testing.T) {
	for name, leave := range map[string]func(path string) error{
		"socket": func(path string) error {
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
			if err != nil {
				return err
			}
			l.SetUnlinkOnClose(false)
			return l.Close()
		},
		"file": func(path string) error { return os.WriteFile(path, nil, 0o644) },
	} {
		t.Run(name, func(t *testing.T) {
			root := newRoot(t)
			mustDo(t, leave(filepath.Join(root, volume.ControlSocket)))
			if _, err := dial(t.Context(), root); !errors.As(err, new(*NotReachedError)) {
				t.Errorf("dialled what is dead: %v, want a NotReachedError", err)
			}
			l, err := Listen(root, nil, slog.New(slog.DiscardHandler))
			mustDo(t, err)
			conn, err := dial(t.Context(), root)
			mustDo(t, err)
			mustDo(t, errors.Join(conn.Close(), l.Close()))
		})
	}
}

// What is not a socket is put aside, and no link is followed.
func TestListenPutsAside(t *testing.T) {
	other := newRoot(t)
	l, err := Listen(other, nil, slog.New(slog.DiscardHandler))
	mustDo(t, err)
	defer l.Close()
	for name, leave := range map[string]func(path string) error{
		"file":   func(path string) error { return os.WriteFile(path, []byte("data"), 0o600) },
		"folder": func(path string) error { return os.MkdirAll(filepath.Join(path, "x"), 0o700) },
		"fifo":   func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"link":   func(path string) error { return os.Symlink(filepath.Join(other, volume.ControlSocket), path) },
	} {
		t.Run(name, func(t *testing.T) {
			root := newRoot(t)
			socket := filepath.Join(root, volume.ControlSocket)
			mustDo(t, leave(socket))
			l, err := Listen(root, nil, slog.New(slog.DiscardHandler))
			mustDo(t, err)
			conn, err := dial(t.Context(), root)
			mustDo(t, err)
			mustDo(t, errors.Join(conn.Close(), l.Close()))
			if _, err := os.Lstat(socket + ".damaged-1"); err != nil {
				t.Error(err)
			}
			if _, err := os.Lstat(filepath.Join(other, volume.ControlSocket)); err != nil {
				t.Error(err)
			}
		})
	}
}

// An address of a socket has 108 bytes.
func TestListenOnLongPath(t *testing.T) {
	root := newRoot(t, strings.Repeat("long", 50), strings.Repeat("longer", 40))
	l, err := Listen(root, nil, slog.New(slog.DiscardHandler))
	mustDo(t, err)
	defer l.Close()
	conn, err := dial(t.Context(), root)
	mustDo(t, err)
	mustDo(t, conn.Close())
}

func TestNotReachedSaysWhatToDo(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want string
	}{
		{fs.ErrNotExist, "podnas serve --root=/disk"},
		{syscall.ECONNREFUSED, "kubectl exec -n podnas podnas-0"},
		{fs.ErrPermission, "as the user that runs podnas"},
		{syscall.EIO, "restart podnas"},
		{syscall.EMFILE, syscall.EMFILE.Error()},
	} {
		if err := error(&NotReachedError{Root: "/disk", Err: tt.err}); !strings.Contains(err.Error(), tt.want) || !errors.Is(err, tt.err) {
			t.Errorf("%v: %q, want %q in it", tt.err, err, tt.want)
		}
	}
}

func mustDo(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
