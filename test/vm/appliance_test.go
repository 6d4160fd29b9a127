//go:build vm

package vm_test

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// lease is the default of --lease.
const lease = 15 * time.Second

// settings are what a test may want different about its appliance.
type settings struct {
	root   string // the backing disk; empty: a fresh folder on the XFS
	listen string // empty: 127.0.0.1:20490
	quota  string // empty: auto
	engine string // empty: the one that this run is for
	uid    uint32 // the user podnas runs as
	nofile int    // the limit of open files; 0: as it is

	stateLog string // --state-log
	lease    string // --lease; empty: lease
}

// appliance is podnas over one root and one claims folder. It may be stopped and
// started again, as a pod is.
type appliance struct {
	t      *testing.T
	root   string
	claims string
	uid    uint32
	nofile int
	args   []string
	log    string    // the file that takes the output of every start
	cmd    *exec.Cmd // the running podnas
	exited chan error
	next   *exec.Cmd // see prepare
	begin  io.Closer
}

const probes = "127.0.0.1:20491"

// newAppliance makes the folders; start starts the server over them.
func newAppliance(t *testing.T, s settings) *appliance {
	t.Helper()
	scratch := t.TempDir()
	if s.root == "" {
		root, err := os.MkdirTemp(xfs, "root-")
		if err != nil {
			t.Fatal(err)
		}
		s.root = root
	}
	if s.listen == "" {
		s.listen = "127.0.0.1:20490"
	}
	if s.quota == "" {
		s.quota = "auto"
	}
	if s.engine == "" {
		s.engine = os.Getenv("ENGINE")
	}
	a := &appliance{
		t:      t,
		root:   s.root,
		claims: filepath.Join(scratch, "claims"),
		uid:    s.uid,
		nofile: s.nofile,
		log:    filepath.Join(scratch, "podnas.log"),
	}
	a.args = []string{
		"serve", "--standalone", "--root", a.root, "--claims", a.claims, "--claim-grace", "0s",
		"--listen", s.listen, "--http", probes, "--quota", s.quota, "--engine", s.engine,
		"--handles", cmp.Or(os.Getenv("FINDER"), "auto"),
	}
	if s.lease != "" {
		a.args = append(a.args, "--lease", s.lease)
	}
	if s.stateLog != "" {
		a.args = append(a.args, "--state-log", s.stateLog)
	}
	if err := os.Mkdir(a.claims, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{a.root, a.claims} {
		if err := os.Chown(dir, int(s.uid), int(s.uid)); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if a.cmd != nil {
			a.kill()
		}
		if a.next != nil {
			a.launch()
			a.kill()
		}
		if t.Failed() {
			t.Logf("podnas %q said:\n%s", a.args, a.output())
		}
	})
	return a
}

// serve is a started appliance with nothing special.
func serve(t *testing.T) *appliance {
	t.Helper()
	a := newAppliance(t, settings{})
	a.start()
	return a
}

// prepare makes a process that becomes podnas at the next launch. It has to be
// there before the server goes away: a new process closes the files it got from
// its parent, over NFS that writes what is still cached, and so no program can
// be started while this one has a file open on a mount whose server is away. It closes
// them after exec(2), so it says when it runs.
func (a *appliance) prepare() {
	a.t.Helper()
	log, err := os.OpenFile(a.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		a.t.Fatal(err)
	}
	defer log.Close()
	runs, says, err := os.Pipe()
	if err != nil {
		a.t.Fatal(err)
	}
	defer runs.Close()
	script := `echo >&3; exec 3>&-; read -r _; exec "$0" "$@"`
	if a.nofile != 0 {
		script = fmt.Sprintf("ulimit -n %d; %s", a.nofile, script)
	}
	a.next = exec.Command("/bin/sh", append([]string{"-c", script, os.Getenv("PODNAS")}, a.args...)...)
	a.next.Stdout, a.next.Stderr = log, log
	a.next.ExtraFiles = []*os.File{says}
	a.next.Dir = "/"
	if a.uid != 0 {
		a.next.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: a.uid, Gid: a.uid}}
	}
	if a.begin, err = a.next.StdinPipe(); err != nil {
		a.t.Fatal(err)
	}
	err = a.next.Start()
	says.Close()
	if err == nil {
		_, err = runs.Read(make([]byte, 1))
	}
	if err != nil {
		a.t.Fatal(err)
	}
}

// launch starts podnas and does not wait for anything.
func (a *appliance) launch() {
	a.t.Helper()
	if a.next == nil {
		a.prepare()
	}
	if err := a.begin.Close(); err != nil { // the read ends
		a.t.Fatal(err)
	}
	cmd, exited := a.next, make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	a.cmd, a.exited, a.next = cmd, exited, nil
}

// start launches podnas and waits until it says that it is ready.
func (a *appliance) start() {
	a.t.Helper()
	a.launch()
	eventually(a.t, "podnas is ready", func() bool {
		select {
		case err := <-a.exited:
			a.cmd = nil
			a.t.Fatalf("podnas ended at once: %v\n%s", err, a.output())
		default:
		}
		return readyAt(probes)
	})
}

// readyAt reports whether podnas with this address for HTTP says that it is ready.
func readyAt(address string) bool {
	client := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + address + "/readyz")
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// stop ends podnas as kubelet does, and wants it to end well.
func (a *appliance) stop() {
	a.t.Helper()
	if err := a.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		a.t.Fatal(err)
	}
	if err := a.wait(); err != nil {
		a.t.Errorf("podnas after SIGTERM: %v", err)
	}
}

func (a *appliance) kill() {
	a.t.Helper()
	if err := a.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		a.t.Error(err)
	}
	// Its error is the signal.
	_ = a.wait()
}

// wait waits for the process to end and returns how it ended.
func (a *appliance) wait() error {
	a.t.Helper()
	const limit = time.Minute
	select {
	case err := <-a.exited:
		a.cmd = nil
		return err
	case <-time.After(limit):
		a.t.Fatalf("podnas still runs after %v", limit)
		return nil
	}
}

func (a *appliance) output() []byte {
	b, err := os.ReadFile(a.log)
	if err != nil {
		return []byte(err.Error())
	}
	return bytes.TrimSpace(b)
}

// eventually polls ok and fails the test when it has not come true in time, which is long
// enough for a busy machine.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	const limit = 2 * time.Minute
	for end := time.Now().Add(limit); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s; in the kernel:\n%s", limit, what, stuckStacks())
		}
	}
}
