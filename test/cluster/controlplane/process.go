package controlplane

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

// process is one running program, its output in a file.
type process struct {
	cmd  *exec.Cmd
	log  string
	done chan struct{} // closed when the program has ended and err is set
	err  error
}

// startProcess starts the program with its log in dir; a log that is there is
// appended to.
func startProcess(dir, path string, args ...string) (*process, error) {
	p := &process{
		cmd:  exec.Command(path, args...),
		log:  filepath.Join(dir, filepath.Base(path)+".log"),
		done: make(chan struct{}),
	}
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	started := make(chan error)
	go func() {
		// The kernel sends Pdeathsig when the thread that forked ends
		// (prctl(2)), so that thread must live as long as the program.
		runtime.LockOSThread()
		defer out.Close()
		if err := p.cmd.Start(); err != nil {
			started <- fmt.Errorf("start %s: %w", filepath.Base(path), err)
			return
		}
		started <- nil
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// kill ends the program at once and waits until it is gone.
func (p *process) kill() {
	// The only error is that it has ended already.
	_ = p.cmd.Process.Kill()
	<-p.done
}

// ended returns an error with the end of the log if the program is not running
// any more.
func (p *process) ended() error {
	select {
	case <-p.done:
		return fmt.Errorf("%s ended (%v); the end of its log:\n%s",
			filepath.Base(p.cmd.Path), p.err, strings.Join(p.lastLines(10), "\n"))
	default:
		return nil
	}
}

func (p *process) lastLines(n int) []string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return []string{err.Error()}
	}
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return lines[max(0, len(lines)-n):]
}
