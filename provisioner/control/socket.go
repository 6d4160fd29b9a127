package control

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path"
	"path/filepath"
	"syscall"

	"github.com/podnas/podnas/internal/statedir"
	"github.com/podnas/podnas/internal/volume"
)

// socketPath is the path of the socket in an open directory, through /proc. A
// socket's address has at most 108 bytes, and the path of a disk's root may be
// longer.
func socketPath(dir *os.File) string {
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), path.Base(volume.ControlSocket))
}

// Listen creates the socket of a disk. The caller has its Store open, so an
// existing socket without a listener is left over from a dead process, and is
// replaced. What is no socket is put aside. On a full disk it takes the reserve, which may be nil.
func Listen(root string, reserve *statedir.Reserve, log *slog.Logger) (net.Listener, error) {
	dir, err := os.Open(filepath.Join(root, volume.StateDir))
	if err != nil {
		return nil, fmt.Errorf("open the state of the disk: %w", err)
	}
	l, err := listen(dir, reserve, log)
	if err != nil {
		_ = dir.Close() // only looked at
		return nil, fmt.Errorf("make the socket %s: %w", filepath.Join(root, volume.ControlSocket), err)
	}
	return l, nil
}

func listen(dir *os.File, reserve *statedir.Reserve, log *slog.Logger) (net.Listener, error) {
	address := socketPath(dir)
	info, err := os.Lstat(address)
	dead := err == nil && (info.Mode().Type() == fs.ModeSocket || info.Mode().IsRegular() && info.Size() == 0)
	if err == nil && !dead {
		err = statedir.Of(dir, reserve, log).SetAside(path.Base(address), errors.New("it is not a socket"))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if conn, err := net.Dial("unix", address); err == nil {
		_ = conn.Close() // nothing was sent
		return nil, volume.ErrInUse
	}
	if err := os.Remove(address); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var l net.Listener
	err = reserve.Do(func() (err error) {
		l, err = net.Listen("unix", address)
		return err
	})
	if err != nil {
		return nil, err
	}
	// Until now the mode of its directory, 0700, kept other users out.
	if err := os.Chmod(address, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return &listener{l, dir}, nil
}

// listener keeps the socket's directory open, because its address leads through it
// and Close needs it to remove the socket.
type listener struct {
	net.Listener
	dir *os.File
}

func (l *listener) Close() error {
	err := l.Listener.Close()
	_ = l.dir.Close() // only looked at
	return err
}

// dial connects to the podnas that serves the disk at root.
func dial(ctx context.Context, root string) (net.Conn, error) {
	dir, err := os.Open(filepath.Join(root, volume.StateDir))
	if err != nil {
		return nil, &NotReachedError{Root: root, Err: err}
	}
	defer dir.Close()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", socketPath(dir))
	if err != nil {
		return nil, &NotReachedError{Root: root, Err: err}
	}
	return conn, nil
}

// NotReachedError means that no podnas answers on a disk. Its text says what to
// do.
type NotReachedError struct {
	Root string
	Err  error
}

func (e *NotReachedError) Error() string {
	switch {
	case errors.Is(e.Err, fs.ErrPermission):
		return fmt.Sprintf("no permission to connect to the podnas of %s: run this as root, or as the user that runs podnas", e.Root)
	case errors.Is(e.Err, fs.ErrNotExist), errors.Is(e.Err, syscall.ECONNREFUSED), errors.Is(e.Err, syscall.ENOTDIR):
		return fmt.Sprintf(`no podnas is running on %s.
Set --root=DIR or $PODNAS_ROOT to the disk of the running podnas, or start one:
  podnas serve --root=%[1]s                              (in a cluster)
  podnas serve --root=%[1]s --standalone --claims=DIR    (without one)
If podnas is in a cluster, run this command in its pod, or find out why the pod does not run:
  kubectl exec -n podnas podnas-0 -- podnas ...
  podnas doctor pod
In the pod of a standby nobody answers. 'kubectl podnas ...' finds the pod that serves.`, e.Root)
	case errors.Is(e.Err, syscall.EIO):
		return fmt.Sprintf("the disk at %s returns errors, and so does podnas: the disk has failed, or its file system has shut down (the kernel's log says which); restart podnas, and read its log", e.Root)
	}
	return fmt.Sprintf("connect to the podnas of %s: %v", e.Root, e.Err)
}

func (e *NotReachedError) Unwrap() error { return e.Err }
