//go:build cluster

package cluster_test

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/podnas/podnas/test/cluster/controlplane"
	"github.com/podnas/podnas/test/conformance/nfstest"
)

// podnas is one instance of the server: a disk, and a process that serves it
// while it is started.
type podnas struct {
	t     testing.TB
	root  string // the disk
	port  int    // of NFS and MOUNT
	http  string
	env   []string
	flags []string
	log   string

	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
}

// newPodnas makes an instance with a fresh disk, and does not start it.
func newPodnas(t testing.TB, provisioner string, flags ...string) *podnas {
	t.Helper()
	dir := t.TempDir()
	p := &podnas{t: t, root: filepath.Join(dir, "disk"), port: freePort(t)}
	p.log = filepath.Join(cluster.logs, fmt.Sprintf("%s-%d.log", strings.ReplaceAll(t.Name(), "/", "-"), p.port))
	if err := os.Mkdir(p.root, 0o755); err != nil {
		t.Fatal(err)
	}
	p.http = fmt.Sprintf("127.0.0.1:%d", freePort(t))
	p.flags = append([]string{
		"serve",
		"--root=" + p.root,
		"--listen=127.0.0.1:" + strconv.Itoa(p.port),
		"--http=" + p.http,
		"--kubeconfig=" + cluster.kubeconfig,
		"--provisioner=" + provisioner,
	}, flags...)
	t.Cleanup(func() {
		if p.cmd != nil {
			p.kill()
		}
		if t.Failed() {
			text, err := os.ReadFile(p.log)
			lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
			t.Logf("the end of podnas's log (%v):\n%s", err, bytes.Join(lines[max(0, len(lines)-30):], []byte("\n")))
		}
	})
	return p
}

// freePort is a port that no test has had: what another has left in the cluster would lead
// to this one's podnas.
func freePort(t testing.TB) int {
	t.Helper()
	for {
		port, err := controlplane.FreePort()
		if err != nil {
			t.Fatal(err)
		}
		if _, taken := cluster.ports.LoadOrStore(port, t.Name()); !taken {
			return port
		}
	}
}

// start starts the process and waits until it says that it is ready.
func (p *podnas) start() {
	p.t.Helper()
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		p.t.Fatal(err)
	}
	defer out.Close()
	p.cmd = exec.Command(cluster.podnas, p.flags...)
	p.cmd.Env = append(os.Environ(), p.env...)
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.done = make(chan struct{})
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	go func(cmd *exec.Cmd, done chan struct{}) {
		_ = cmd.Wait() // the status is in cmd.ProcessState
		close(done)
	}(p.cmd, p.done)
	deadline := time.Now().Add(30 * time.Second)
	for !p.ready() {
		select {
		case <-p.done:
			p.t.Fatalf("podnas ended at its start: %s", p.cmd.ProcessState)
		case <-time.After(50 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			p.t.Fatal("podnas is not ready after 30 s")
		}
	}
}

func (p *podnas) ready() bool {
	client := http.Client{Timeout: 2 * time.Second}
	resp, err := client.Get("http://" + p.http + "/readyz")
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// stop ends the process as kubelet does, and fails if it doesn't end well.
func (p *podnas) stop() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatalf("stop podnas: %v", err)
	}
	select {
	case <-p.done:
	case <-time.After(30 * time.Second): // the terminationGracePeriodSeconds of deploy/
		p.t.Fatal("podnas runs 30 s after SIGTERM")
	}
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		p.t.Fatalf("podnas ended with status %d after SIGTERM", code)
	}
}

// kill ends the process at once, in the middle of whatever it does.
func (p *podnas) kill() {
	_ = p.cmd.Process.Kill() // the only error is that it has ended
	<-p.done
}

// dial connects an NFS client to it.
func (p *podnas) dial() *nfstest.Client {
	p.t.Helper()
	address := "127.0.0.1:" + strconv.Itoa(p.port)
	client, err := nfstest.Dial(p.t.Context(), address, address)
	if err != nil {
		p.t.Fatal(err)
	}
	return client
}

// volumes returns the names of the directories on the disk that are not
// podnas's own.
func (p *podnas) volumes() []string {
	p.t.Helper()
	return slices.DeleteFunc(p.list("."), func(name string) bool { return name == ".podnas" })
}

// state returns the names in a folder of podnas's own.
func (p *podnas) state(folder string) []string {
	p.t.Helper()
	return p.list(filepath.Join(".podnas", folder))
}

func (p *podnas) list(folder string) []string {
	p.t.Helper()
	entries, err := os.ReadDir(filepath.Join(p.root, folder))
	if err != nil {
		p.t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
