//go:build attack

package attack_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Where the server is; everything in 10.77.0.0/16 is on the box's loopback.
const (
	serverIP    = "10.77.0.1"
	nfsAddress  = serverIP + ":2049"
	httpAddress = serverIP + ":8080"
)

// process is a podnas that serves, and what it has used.
type process struct {
	t      *testing.T
	binary string
	root   string
	claims string
	flags  []string
	logged string // a file
	cgroup cgroup

	cmd  *exec.Cmd
	done chan struct{}

	mu    sync.Mutex
	used  usage
	watch chan struct{} // closed: no more samples
}

// usage is the most that a process has had.
type usage struct {
	rss              int64 // the kernel's own mark, VmHWM: nothing is between two samples
	kernel           int64 // see cgroup
	threads, handles int
}

func newProcess(t *testing.T, s setup, dir, root string) *process {
	p := &process{t: t, binary: *podnas, root: root, claims: filepath.Join(dir, "claims"), logged: filepath.Join(dir, "log")}
	if s.race {
		p.binary = *podnasRace
	} else {
		p.cgroup = newCgroup(t)
	}
	p.flags = []string{
		"serve", "--standalone", "--root=" + root, "--claims=" + p.claims, "--engine=" + s.engine, "--quota=" + s.quota, "--handles=" + s.handles,
		"--listen=" + nfsAddress, "--http=" + httpAddress, "--slow-call=0",
	}
	must(t, os.MkdirAll(p.claims, 0o755))
	return p
}

// start starts the process and does not wait.
func (p *process) start() {
	p.t.Helper()
	log, err := os.OpenFile(p.logged, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	must(p.t, err)
	defer log.Close()
	p.cmd = exec.Command(p.binary, p.flags...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.Env = append(os.Environ(), "GORACE=halt_on_error=0 exitcode=66", "GOTRACEBACK=all")
	p.done, p.watch = make(chan struct{}), make(chan struct{})
	must(p.t, p.cmd.Start())
	must(p.t, p.cgroup.add(p.cmd.Process.Pid))
	// The attacker's own place behind others is not the server's.
	_ = setPriority(p.cmd.Process.Pid)
	go func(cmd *exec.Cmd, done chan struct{}) {
		_ = cmd.Wait() // its status is in cmd.ProcessState
		close(done)
	}(p.cmd, p.done)
	go p.sample(p.cmd.Process.Pid, p.watch)
}

// serve starts the process and waits until it is ready.
func (p *process) serve() {
	p.t.Helper()
	p.start()
	eventually(p.t, time.Minute, "podnas is not ready", func() bool {
		if !p.running() {
			p.t.Fatalf("podnas ended: %v\n%s", p.cmd.ProcessState, p.log())
		}
		return ready(time.Second) == nil
	})
}

func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// ready asks for the readiness probe.
func ready(timeout time.Duration) error {
	client := http.Client{Timeout: timeout, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + httpAddress + "/readyz")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, said)
	}
	return err
}

// sample notes what the process uses until watch is closed or it is gone.
func (p *process) sample(pid int, watch chan struct{}) {
	for {
		p.look(pid)
		select {
		case <-watch:
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (p *process) look(pid int) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return // it has ended
	}
	now := usage{kernel: p.cgroup.kernel()}
	for line := range strings.Lines(string(status)) {
		switch name, value, _ := strings.Cut(line, ":"); name {
		case "VmHWM":
			kib, _ := strconv.ParseInt(strings.Fields(value)[0], 10, 64)
			now.rss = kib << 10
		case "Threads":
			now.threads, _ = strconv.Atoi(strings.TrimSpace(value))
		}
	}
	if dir, err := os.Open(fmt.Sprintf("/proc/%d/fd", pid)); err == nil {
		if info, err := dir.Stat(); err == nil && info.Size() > 0 { // since Linux 6.2 the size is the number
			now.handles = int(info.Size())
		} else if names, err := dir.Readdirnames(-1); err == nil {
			now.handles = len(names)
		}
		dir.Close()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used.rss = max(p.used.rss, now.rss)
	p.used.kernel = max(p.used.kernel, now.kernel)
	p.used.threads = max(p.used.threads, now.threads)
	p.used.handles = max(p.used.handles, now.handles)
}

// usage is the most since the start.
func (p *process) usage() usage {
	if p.running() {
		p.look(p.cmd.Process.Pid)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.used
}

// stop ends the process as kubelet does.
func (p *process) stop() {
	p.t.Helper()
	if p.cmd == nil {
		return
	}
	defer close(p.watch)
	if !p.running() {
		p.t.Errorf("podnas ended by itself: %v", p.cmd.ProcessState)
		p.cmd = nil
		return
	}
	must(p.t, p.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case <-p.done:
	case <-time.After(30 * time.Second): // terminationGracePeriodSeconds of deploy/
		p.t.Error("podnas runs 30 s after SIGTERM")
		_ = p.cmd.Process.Signal(syscall.SIGQUIT) // for its stacks
		time.Sleep(time.Second)
		_ = p.cmd.Process.Kill()
		<-p.done
	}
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		p.t.Errorf("podnas ended with status %d after SIGTERM", code)
	}
	p.cmd = nil
}

// kill ends the process in the middle of whatever it does.
func (p *process) kill() {
	close(p.watch)
	_ = p.cmd.Process.Kill()
	<-p.done
	p.cmd = nil
}

func (p *process) log() string {
	text, err := os.ReadFile(p.logged)
	must(p.t, err)
	return string(text)
}

// checkLog looks for what no attack may bring about.
func (p *process) checkLog() {
	p.t.Helper()
	text := p.log()
	for _, bad := range []string{"ended in a panic", "panic:", "DATA RACE", "fatal error:", "nfs3: a result"} {
		if at := strings.Index(text, bad); at >= 0 {
			p.t.Errorf("podnas says %q:\n%s", bad, text[max(0, at-500):min(len(text), at+4000)])
		}
	}
}

// volume makes one, and waits until it is served.
func (p *process) volume(name, size string, flags ...string) {
	p.t.Helper()
	p.command(append([]string{"create", name, "--size=" + size}, flags...)...)
}

// adopt makes one of a directory, and waits until the server has counted what is in it.
func (p *process) adopt(name, size string) {
	p.t.Helper()
	p.command("adopt", name, "--size="+size)
	eventually(p.t, time.Minute, "what is in the volume is not counted", func() bool {
		return !strings.Contains(p.command("show", name, "--output=json"), `"partial"`)
	})
}

// claim adds a class and a claim of it to the folder that the server watches.
func (p *process) claim(name string, parameters map[string]string) {
	p.t.Helper()
	text := fmt.Sprintf("apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: %s}\nprovisioner: podnas.io/nfs\nparameters:\n", name)
	for parameter, value := range parameters {
		text += fmt.Sprintf("  %s: %q\n", parameter, value)
	}
	text += fmt.Sprintf("---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: %s}\nspec:\n"+
		"  storageClassName: %[1]s\n  accessModes: [ReadWriteMany]\n  resources: {requests: {storage: 16Mi}}\n", name)
	must(p.t, os.WriteFile(filepath.Join(p.claims, name+".yaml"), []byte(text), 0o600))
}

// command is one of podnas volume.
func (p *process) command(args ...string) string {
	p.t.Helper()
	args = append([]string{"volume"}, append(args, "--root="+p.root)...)
	out, err := exec.Command(*podnas, args...).CombinedOutput()
	if err != nil {
		p.t.Fatalf("podnas %s: %v\n%s", strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return string(out)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func eventually(t testing.TB, within time.Duration, otherwise string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(within); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(otherwise)
		}
	}
}
