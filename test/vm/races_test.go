//go:build vm

package vm_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Parts of TestTwoNodes: waits for a lock that a signal ends, and renames.

// signals: a process waits for a lock that one on the other node has, until a signal ends one
// of them.
func signals(t *testing.T, nodes [2]*node) {
	const name = "lock-of-processes"
	mustWrite(t, filepath.Join(nodes[0].mnt, name), nil)
	after := nodes[1].open(t, name, os.O_RDWR)
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		for _, what := range []string{"has", "waits for"} {
			has := startLocker(t, filepath.Join(nodes[0].mnt, name), 0, 2)
			within(t, time.Minute, "a lock that is free", func() error { return has.says("one") })
			waits := startLocker(t, filepath.Join(nodes[1].mnt, name), 1, 0)
			within(t, time.Minute, "a lock that is free", func() error { return waits.says("one") })
			waits.goOn.Close()
			both := make(chan error, 1)
			go func() { both <- waits.says("both") }()
			select {
			case err := <-both:
				t.Fatalf("it has a lock that another has: %v", err)
			case <-time.After(1500 * time.Millisecond):
			}
			ends := map[string]*locker{"has": has, "waits for": waits}[what]
			if err := ends.cmd.Process.Signal(signal); err != nil {
				t.Error(err)
			}
			within(t, time.Minute, fmt.Sprintf("who %s a lock ends by %v: it", what, signal), func() error {
				_ = ends.cmd.Wait() // its error is the signal
				return nil
			})
			if ends == has {
				within(t, time.Minute, "the other's lock", func() error { return errors.Join(<-both, waits.cmd.Wait()) })
			} else {
				has.goOn.Close()
				within(t, time.Minute, "the end of who has the lock", func() error { return errors.Join(has.says("both"), has.cmd.Wait()) })
			}
			within(t, time.Minute, "a lock that is free", func() error {
				return errors.Join(lockWait(after, unix.F_WRLCK, 0, 0), lock(after, unix.F_UNLCK, 0, 0))
			})
		}
	}
}

// locker is this program again, as lockerMain.
type locker struct {
	cmd  *exec.Cmd
	goOn io.Closer
	said *bufio.Reader
}

func startLocker(t *testing.T, name string, first, second int) *locker {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	l := &locker{cmd: exec.Command(program, name, fmt.Sprint(first), fmt.Sprint(second))}
	l.cmd.Env = append(os.Environ(), "LOCKER=1")
	l.cmd.Stderr = os.Stderr
	in, inErr := l.cmd.StdinPipe()
	out, outErr := l.cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr, l.cmd.Start()); err != nil {
		t.Fatal(err)
	}
	l.goOn, l.said = in, bufio.NewReader(out)
	return l
}

func (l *locker) says(want string) error {
	got, err := l.said.ReadString('\n')
	if got != want+"\n" {
		return fmt.Errorf("the process says %q, want %q: %w", got, want, err)
	}
	return nil
}

// lockerMain locks a byte of a file, and another one when its input ends.
func lockerMain(args []string) error {
	var first, second int64
	if _, err := fmt.Sscan(args[1]+" "+args[2], &first, &second); err != nil {
		return err
	}
	f, err := os.OpenFile(args[0], os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if err := lockWait(localFile{f}, unix.F_WRLCK, first, 1); err != nil {
		return err
	}
	fmt.Println("one")
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	if err := lockWait(localFile{f}, unix.F_WRLCK, second, 1); err != nil {
		return err
	}
	fmt.Println("both")
	return nil
}

// renameRace: of two that rename a file away, one has renamed it.
func renameRace(t *testing.T, disk string, nodes [2]machine) {
	const names = 40
	for n := range names {
		wants(t, "write", writeBy(nodes[0], fmt.Sprint("from-", n), []byte{byte(n)}), nil)
	}
	won := 0
	for n := range names {
		var moved [2]error
		var both sync.WaitGroup
		for i, v := range nodes {
			both.Go(func() {
				moved[i] = v.rename(fmt.Sprint("from-", n), fmt.Sprintf("to-%d-%d", i, n))
			})
		}
		both.Wait()
		x, y := moved[0], moved[1]
		if (x == nil) == (y == nil) || !errors.Is(errors.Join(x, y), fs.ErrNotExist) {
			t.Errorf("name %d: %v and %v", n, x, y)
		}
		winner := 1
		if x == nil {
			winner = 0
			won++
		}
		holds(t, filepath.Join(disk, fmt.Sprintf("to-%d-%d", winner, n)), []byte{byte(n)})
		gone(t, filepath.Join(disk, fmt.Sprintf("to-%d-%d", 1-winner, n)))
		gone(t, filepath.Join(disk, fmt.Sprint("from-", n)))
	}
	t.Logf("node 0 has renamed %d of %d", won, names)
}

// replaceRace: a file that one node replaces again and again is always there for the other,
// and one of the versions.
func replaceRace(t *testing.T, _ string, nodes [2]machine) {
	const versions, size = 60, 30_000
	version := func(n int) []byte { return bytes.Repeat([]byte{byte(n)}, size) }
	const name = "replaced"
	wants(t, "write", writeBy(nodes[0], name, version(0)), nil)
	var done atomic.Bool
	var reader sync.WaitGroup
	reads := 0
	reader.Go(func() {
		for ; !done.Load(); reads++ {
			b, err := nodes[1].read(name)
			if err != nil || len(b) != size || !bytes.Equal(b, version(int(b[0]))) {
				t.Errorf("read %d: %d bytes, %v", reads, len(b), err)
				return
			}
		}
	})
	for n := range versions {
		if err := errors.Join(writeBy(nodes[0], name+".new", version(n)), nodes[0].rename(name+".new", name)); err != nil {
			t.Error(err)
		}
	}
	done.Store(true)
	reader.Wait()
	t.Logf("%d versions, read %d times", versions, reads)
}
