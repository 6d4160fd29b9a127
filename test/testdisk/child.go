package testdisk

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// User is as whom a Child runs.
type User struct {
	// ID is its user and group. With Namespace it is root in a user namespace that has no other user.
	ID        uint32
	Namespace bool
	// Drops are the capabilities that root lacks.
	Drops []uintptr
	// Keeps are capabilities that another user has.
	Keeps []uintptr
}

// Nobody is the number of a user without rights.
const Nobody = 65534

// prCapBsetDrop is PR_CAPBSET_DROP of prctl(2).
const prCapBsetDrop = 24

// Child runs tests of the package again, as another user, in a process with a temporary directory
// of that user, and with these variables. pattern is for go test -run. It skips where the user can't
// be had.
func Child(t *testing.T, user User, pattern string, env ...string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can start a process of another user")
	}
	dir, err := os.MkdirTemp("", "child") // t.TempDir is closed to others
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	temporary := filepath.Join(dir, "tmp")
	if err := errors.Join(os.Chmod(dir, 0o755), os.Mkdir(temporary, 0o700), copySelf(filepath.Join(dir, "tests"))); err != nil {
		t.Fatal(err)
	}
	defer mountMemory(t, temporary)()
	if err := errors.Join(os.Chmod(temporary, 0o700), os.Chown(temporary, int(user.ID), int(user.ID))); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(dir, "tests"), "-test.run="+pattern, "-test.v", "-test.timeout=15m")
	cmd.Dir, cmd.Env = temporary, append(append(os.Environ(), "TMPDIR="+temporary), env...)
	cmd.SysProcAttr = user.attr()
	var output strings.Builder
	cmd.Stdout, cmd.Stderr = &output, &output
	started, ended := make(chan error), make(chan error)
	go func() {
		// For good: what the thread has dropped it never has again, and the child ends with it.
		runtime.LockOSThread()
		for _, c := range user.Drops {
			if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, prCapBsetDrop, c, 0); errno != 0 {
				started <- errno
				return
			}
		}
		err := cmd.Start()
		started <- err
		if err == nil {
			ended <- cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		t.Skipf("no process of this user can be started here: %v", err)
	}
	err = <-ended
	// The leaves of the tests that ran: one that skips has none.
	passed := strings.Contains(output.String(), "--- PASS: ") && !strings.Contains(output.String(), "\n--- SKIP: ")
	if err != nil || !passed {
		t.Errorf("in a process of user %d: %v, passed anything: %v\n%s", user.ID, err, passed, failures(output.String()))
	}
}

func (u User) attr() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	switch {
	case u.Namespace:
		a.Cloneflags = syscall.CLONE_NEWUSER
		a.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: int(u.ID), Size: 1}}
		a.GidMappings = a.UidMappings
		a.Credential = &syscall.Credential{NoSetGroups: true}
	case u.ID != 0:
		a.Credential, a.AmbientCaps = &syscall.Credential{Uid: u.ID, Gid: u.ID}, u.Keeps
	}
	return a
}

// copySelf copies the running program: the folder that go test builds it in is closed to others.
func copySelf(to string) error {
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer self.Close()
	program, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(program, self); err != nil {
		return errors.Join(err, program.Close())
	}
	return program.Close()
}

// failures is what a child says without the tests that passed and were skipped.
func failures(output string) string {
	var b strings.Builder
	for line := range strings.Lines(output) {
		trimmed := strings.TrimSpace(line)
		if !strings.HasPrefix(trimmed, "=== ") && !strings.HasPrefix(trimmed, "--- PASS") && !strings.HasPrefix(trimmed, "--- SKIP") && !strings.Contains(line, "named skip") {
			b.WriteString(line)
		}
	}
	return b.String()
}
