//go:build vm

package vm_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/rpc"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// guest is a machine with a kernel of its own, which can be killed. The test is outside of it, and
// in it is this program again, as guestMain, which does what the test calls it for.
type guest struct {
	t    *testing.T
	n    int // taps.sh has made its network
	name string
	args []string // more options of vm.sh
	cmd  *exec.Cmd
	log  string
	rpc  *rpc.Client
}

const (
	guestPort = ":20492"
	guestMnt  = "/run/volume"
)

// newGuest makes the guest with this number, not yet booted.
func newGuest(t *testing.T, n int) *guest {
	t.Helper()
	g := &guest{t: t, n: n, name: fmt.Sprint("guest", n), log: filepath.Join(t.TempDir(), "log")}
	t.Cleanup(func() {
		if g.cmd != nil {
			g.kill()
		}
		if t.Failed() {
			said, _ := os.ReadFile(g.log) // there may be none
			t.Logf("%s said:\n%s", g.name, said)
		}
	})
	return g
}

// server is the address of the test's side of the network.
func (g *guest) server() string { return fmt.Sprintf("10.9.%d.1", g.n) }

func (g *guest) addr() string { return fmt.Sprintf("10.9.%d.2", g.n) }

// boot boots a kernel, which knows nothing of the one before but its name.
func (g *guest) boot() error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(g.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	args := append([]string{"-N", fmt.Sprint(g.n), "-m", "512", "-t", "3600", "-e", "GUEST=" + g.name}, g.args...)
	g.cmd = exec.Command("./vm.sh", append(args, program)...)
	g.cmd.Stdout, g.cmd.Stderr = log, log
	g.cmd.Env = append(os.Environ(), "TMPDIR="+g.t.TempDir()) // a guest that is killed leaves its job folder
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}    // to be killed as one
	if err := g.cmd.Start(); err != nil {
		return err
	}
	for end := time.Now().Add(4 * time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		conn, err := net.DialTimeout("tcp", g.addr()+guestPort, time.Second)
		if err == nil {
			g.rpc = rpc.NewClient(conn)
			return nil
		}
	}
	return fmt.Errorf("%s does not boot", g.name)
}

// mount mounts the volume.
func (g *guest) mount(pv persistentVolume) error {
	pv.Spec.NFS.Server = g.server()
	command := mountCommand(g.t.Context(), pv, guestMnt).Args
	_, err := g.run("", command[0], command[1:]...)
	return err
}

// kill ends the guest's kernel, as when a machine loses its power. Without its network first: the
// guest's programs are processes, too, and when they die before the kernel it gives their locks back.
func (g *guest) kill() {
	g.t.Helper()
	g.cut()
	defer g.up()
	if err := syscall.Kill(-g.cmd.Process.Pid, syscall.SIGKILL); err != nil {
		g.t.Error(err)
	}
	_ = g.cmd.Wait() // its error is the signal
	g.cmd = nil
	// The kernel's process may end later, and answer until then who boots the guest anew.
	eventually(g.t, g.name+" is gone", func() bool {
		link, err := exec.Command("ip", "link", "show", fmt.Sprint("tap", g.n)).Output()
		return err != nil || bytes.Contains(link, []byte("NO-CARRIER"))
	})
	if g.rpc != nil {
		g.rpc.Close()
	}
}

// cut cuts its network, and up mends it: nothing is sent there, and what comes from there is not
// taken (taps.sh sets rp_filter). When its tap is taken down User-Mode Linux never uses it again.
func (g *guest) cut() { g.route("add") }
func (g *guest) up()  { g.route("del") }

func (g *guest) route(how string) {
	g.t.Helper()
	if out, err := exec.Command("ip", "route", how, "blackhole", g.addr()).CombinedOutput(); err != nil {
		g.t.Errorf("ip route %s: %v\n%s", how, err, out)
	}
}

// GuestCall is what a guest is called for: a method of machine, or of a file that it has open.
type GuestCall struct {
	Do       string
	File     int
	Name, To string
	Flags    int
	Offset   int64
	Data     []byte
	Lock     unix.Flock_t
	Args     []string
}

// GuestResult is what it returns.
type GuestResult struct {
	File  int
	N     int64
	Data  []byte
	Lock  unix.Flock_t
	Errno syscall.Errno
	Text  string // of the error
	EOF   bool
}

// guestError is an error of a call in a guest.
type guestError struct {
	text  string
	errno syscall.Errno
}

func (e *guestError) Error() string { return e.text }
func (e *guestError) Unwrap() error { return e.errno }

func (g *guest) do(c GuestCall) (GuestResult, error) {
	var r GuestResult
	switch err := g.rpc.Call("Guest.Do", &c, &r); {
	case err != nil:
		return r, fmt.Errorf("%s: %w", g.name, err)
	case r.EOF:
		return r, io.EOF
	case r.Text != "":
		return r, &guestError{g.name + ": " + r.Text, r.Errno}
	}
	return r, nil
}

func (g *guest) openFile(name string, flags int) (file, error) {
	r, err := g.do(GuestCall{Do: "open", Name: name, Flags: flags})
	if err != nil {
		return nil, err
	}
	return &guestFile{g, r.File}, nil
}

func (g *guest) read(name string) ([]byte, error) {
	r, err := g.do(GuestCall{Do: "read", Name: name})
	return r.Data, err
}

func (g *guest) rename(from, to string) error {
	_, err := g.do(GuestCall{Do: "rename", Name: from, To: to})
	return err
}

func (g *guest) remove(name string) error {
	_, err := g.do(GuestCall{Do: "remove", Name: name})
	return err
}

func (g *guest) dropCaches() error {
	_, err := g.do(GuestCall{Do: "drop caches"})
	return err
}

func (g *guest) run(input, program string, args ...string) (string, error) {
	r, err := g.do(GuestCall{Do: "run", Data: []byte(input), Name: program, Args: args})
	return string(r.Data), err
}

// guestFile is a file that a guest has open.
type guestFile struct {
	g  *guest
	id int
}

func (f *guestFile) do(what string, c GuestCall) (GuestResult, error) {
	c.Do, c.File = what, f.id
	return f.g.do(c)
}

func (f *guestFile) Write(b []byte) (int, error) {
	r, err := f.do("file write", GuestCall{Data: b})
	return int(r.N), err
}

func (f *guestFile) WriteAt(b []byte, at int64) (int, error) {
	r, err := f.do("file write at", GuestCall{Data: b, Offset: at})
	return int(r.N), err
}

func (f *guestFile) ReadAt(b []byte, at int64) (int, error) {
	r, err := f.do("file read at", GuestCall{Flags: len(b), Offset: at})
	return copy(b, r.Data), err
}

func (f *guestFile) Close() error {
	_, err := f.do("file close", GuestCall{})
	return err
}

func (f *guestFile) Sync() error {
	_, err := f.do("file sync", GuestCall{})
	return err
}

func (f *guestFile) Truncate(size int64) error {
	_, err := f.do("file truncate", GuestCall{Offset: size})
	return err
}

func (f *guestFile) Chmod(mode os.FileMode) error {
	_, err := f.do("file chmod", GuestCall{Flags: int(mode)})
	return err
}

func (f *guestFile) size() (int64, error) {
	r, err := f.do("file size", GuestCall{})
	return r.N, err
}

func (f *guestFile) flock(how int) error {
	_, err := f.do("file flock", GuestCall{Flags: how})
	return err
}

func (f *guestFile) fcntl(how int, l *unix.Flock_t) error {
	r, err := f.do("file fcntl", GuestCall{Flags: how, Lock: *l})
	if err == nil {
		*l = r.Lock
	}
	return err
}

// Guest is the guest's side.
type Guest struct {
	local
	mu    sync.Mutex
	files map[int]file
	next  int
}

// guestMain serves the test's calls until its connection ends.
func guestMain(name string) error {
	if err := errors.Join(unix.Sethostname([]byte(name)), os.Mkdir(guestMnt, 0o755)); err != nil {
		return err
	}
	l, err := net.Listen("tcp", guestPort)
	if err != nil {
		return err
	}
	conn, err := l.Accept()
	if err != nil {
		return err
	}
	server := rpc.NewServer()
	if err := server.Register(&Guest{local: local{guestMnt}, files: map[int]file{}}); err != nil {
		return err
	}
	server.ServeConn(conn)
	return nil
}

// Do is called by guest.do.
func (s *Guest) Do(c *GuestCall, r *GuestResult) error {
	err := s.do(c, r)
	switch {
	case errors.Is(err, io.EOF):
		r.EOF = true
	case err != nil:
		r.Text = err.Error()
		_ = errors.As(err, &r.Errno)
	}
	return nil
}

func (s *Guest) do(c *GuestCall, r *GuestResult) (err error) {
	switch c.Do {
	case "open":
		f, err := s.openFile(c.Name, c.Flags)
		if err != nil {
			return err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.next++
		s.files[s.next], r.File = f, s.next
	case "read":
		r.Data, err = s.read(c.Name)
	case "rename":
		err = s.rename(c.Name, c.To)
	case "remove":
		err = s.remove(c.Name)
	case "drop caches":
		err = s.dropCaches()
	case "run":
		var out string
		out, err = s.run(string(c.Data), c.Name, c.Args...)
		r.Data = []byte(out)
	default:
		s.mu.Lock()
		f := s.files[c.File]
		s.mu.Unlock()
		return doFile(f, c, r)
	}
	return err
}

func doFile(f file, c *GuestCall, r *GuestResult) (err error) {
	var n int
	switch c.Do {
	case "file write":
		n, err = f.Write(c.Data)
		r.N = int64(n)
	case "file write at":
		n, err = f.WriteAt(c.Data, c.Offset)
		r.N = int64(n)
	case "file read at":
		r.Data = make([]byte, c.Flags)
		n, err = f.ReadAt(r.Data, c.Offset)
		r.Data = r.Data[:n]
	case "file close":
		err = f.Close()
	case "file sync":
		err = f.Sync()
	case "file truncate":
		err = f.Truncate(c.Offset)
	case "file chmod":
		err = f.Chmod(os.FileMode(c.Flags))
	case "file size":
		r.N, err = f.size()
	case "file flock":
		err = f.flock(c.Flags)
	case "file fcntl":
		r.Lock = c.Lock
		err = f.fcntl(c.Flags, &r.Lock)
	default:
		err = fmt.Errorf("%q is nothing that a guest does", c.Do)
	}
	return err
}
