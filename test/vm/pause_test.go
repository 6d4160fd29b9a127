//go:build vm

package vm_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestGaneshaPause measures how long a call takes while NFS-Ganesha, as it is by default, is
// restarted under files that two clients have open, one of which is cut off. No suite runs it: RUN=TestGaneshaPause ENGINE=ganesha
// test/vm/run.sh does.
func TestGaneshaPause(t *testing.T) {
	export := filepath.Join(xfs, "ganesha")
	cmd := exec.Command("bash", "-euc", `source ../bench/peers.sh; register; graceless=false; ganesha "$1"; echo started
		read -r _; kill $!; wait; ganesha "$1"; echo started; wait`, "peers", export)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }) // it may have ended
	lines := bufio.NewScanner(out)
	lines.Scan()
	mnt := t.TempDir()
	command(t, "mount", "-t", "nfs", "-o", "vers=4.1,port=20490", "127.0.0.1:"+export, mnt)
	t.Cleanup(func() { unmount(t, mnt) })
	// Another client, which has a file open and does not come back.
	silent := newMachine(t, 2, "silent")
	silent.must(func() error {
		silent.mnt = t.TempDir()
		command(t, "mount", "-t", "nfs", "-o", "vers=4.1,port=20490", silent.addr+":"+export, silent.mnt)
		return nil
	})
	t.Cleanup(func() { unmount(t, silent.mnt) })
	silent.open(t, "held", os.O_RDWR|os.O_CREATE)
	t.Cleanup(silent.up)

	w := startAppender(t, filepath.Join(mnt, "log"))
	w.goesOn(t, 4*time.Minute) // after its first grace period
	w.forget()
	silent.cut()
	began := time.Now()
	if _, err := fmt.Fprintln(in); err != nil {
		t.Fatal(err)
	}
	lines.Scan()
	t.Logf("NFS-Ganesha is there again after %v", time.Since(began).Round(100*time.Millisecond))
	w.goesOn(t, 4*time.Minute)
	t.Logf("the longest call took %v", w.stop(t).Round(100*time.Millisecond))
}

// appender adds to a file all the time, and syncs, and notes how long that takes.
type appender struct {
	mu      sync.Mutex
	done    int           // guarded by mu
	longest time.Duration // guarded by mu
	quit    bool          // guarded by mu
	ended   chan error
}

func startAppender(t *testing.T, name string) *appender {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	w := &appender{ended: make(chan error, 1)}
	go func() { w.ended <- errors.Join(w.write(f), f.Close()) }()
	return w
}

// write writes until it has to end.
func (w *appender) write(f *os.File) error {
	for {
		began := time.Now()
		_, err := f.WriteString("x")
		if err == nil {
			err = f.Sync()
		}
		if err != nil {
			return err
		}
		w.mu.Lock()
		w.done++
		w.longest = max(w.longest, time.Since(began))
		quit := w.quit
		w.mu.Unlock()
		if quit {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// count returns how often it has added to its file.
func (w *appender) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.done
}

// forget begins anew with the longest call.
func (w *appender) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.longest = 0
}

// goesOn waits until it has added three times more.
func (w *appender) goesOn(t *testing.T, limit time.Duration) {
	t.Helper()
	had := w.count()
	for end := time.Now().Add(limit); w.count() < had+3; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("nothing is written within %v; in the kernel:\n%s", limit, stuckStacks())
		}
	}
}

// stop ends it, and returns how long the longest call took.
func (w *appender) stop(t *testing.T) time.Duration {
	t.Helper()
	w.mu.Lock()
	w.quit = true
	w.mu.Unlock()
	within(t, time.Minute, "the end of the appender", func() error { return <-w.ended })
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.longest
}
