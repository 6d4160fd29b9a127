// Command locker is what a pod of the end-to-end test runs on a volume: it locks, appends and
// syncs all the time, beside another locker on another node, and notices how long calls take
// and whether a lock was held by two.
//
//	locker [-mount SERVER:PATH -options OPTIONS] NAME OTHER FOLDER
//	locker stop
//
// On its standard output are a line for each call that took long, and at its end, which
// "locker stop" in the same container brings about, what it has been told is on the disk.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/podnas/podnas/test/e2e/locker/report"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "locker:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	if len(args) == 1 && args[0] == "stop" {
		return syscall.Kill(1, syscall.SIGTERM)
	}
	f := flag.NewFlagSet("locker", flag.ContinueOnError)
	source := f.String("mount", "", "mount this `SERVER:PATH` on the folder first, in this container alone")
	options := f.String("options", "", "how, as mount(2) has it")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() != 3 {
		return errors.New("want NAME OTHER FOLDER")
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	l := &locker{name: f.Arg(0), other: f.Arg(1), dir: f.Arg(2), report: report.Writer{To: out}, stopped: make(chan struct{})}
	if *source != "" {
		if err := syscall.Mount(*source, l.dir, "nfs4", 0, *options); err != nil {
			return fmt.Errorf("mount %s with %s: %w", *source, *options, err)
		}
	}
	go func() {
		<-stop
		close(l.stopped)
	}()
	return l.run()
}

// locker is one of two.
type locker struct {
	name, other string
	dir         string
	report      report.Writer
	stopped     chan struct{} // closed when it has to end
}

// run does everything at once until it is stopped, or something is wrong.
func (l *locker) run() error {
	held, err := l.hold()
	if err != nil {
		return err
	}
	errs, waited := make(chan error, 3), make(chan error, 1)
	for _, do := range []func() error{l.append, l.takeTurns, l.try} {
		go func() { errs <- do() }()
	}
	go func() { waited <- l.wait() }()
	for range cap(errs) {
		if err := <-errs; err != nil {
			return err
		}
	}
	if err := l.release(held); err != nil {
		return err
	}
	if err := <-waited; err != nil {
		return err
	}
	return l.report.End()
}

// file opens a file of the volume.
func (l *locker) file(name string, flags int) (f *os.File, err error) {
	return f, l.call("open", func() error {
		f, err = os.OpenFile(filepath.Join(l.dir, name), flags|os.O_CREATE, 0o644)
		return err
	})
}

// call makes a system call and reports it if it took long.
func (l *locker) call(what string, do func() error) error {
	began := time.Now()
	err := do()
	l.report.Took(what, began, time.Since(began))
	if err != nil && !errors.Is(err, syscall.EAGAIN) {
		return fmt.Errorf("%s, after %v: %w", what, time.Since(began), err)
	}
	return err
}

// lock is fcntl(2) with F_SETLK or F_SETLKW, for the whole file.
func (l *locker) lock(what string, f *os.File, how int, kind int16) error {
	return l.call(what, func() error {
		return syscall.FcntlFlock(f.Fd(), how, &syscall.Flock_t{Type: kind})
	})
}

// ended tells whether the locker has to end, after a pause: the node has one processor.
func (l *locker) ended(pause time.Duration) bool {
	select {
	case <-l.stopped:
		return true
	case <-time.After(pause):
		return false
	}
}

// append writes numbered lines to a file that is this locker's own, and syncs each.
func (l *locker) append() error {
	f, err := l.file("log-"+l.name, os.O_WRONLY|os.O_APPEND)
	if err != nil {
		return err
	}
	for n := 0; !l.ended(100 * time.Millisecond); n++ {
		if err := l.add(f, fmt.Sprintf("%d\n", n)); err != nil {
			return err
		}
		l.report.Appended()
	}
	return f.Close()
}

// add appends a line to a file and syncs it.
func (l *locker) add(f *os.File, line string) error {
	if err := l.call("write", func() error { _, err := f.WriteString(line); return err }); err != nil {
		return err
	}
	return l.call("fsync", f.Sync)
}

// takeTurns adds lines to a file that both lockers write to, under its lock. Each line has the
// number that the file's size says, so that if two had the lock at once, a number is there
// twice, or a line is lost.
func (l *locker) takeTurns() error {
	f, err := l.file("turns", os.O_RDWR|os.O_APPEND)
	if err != nil {
		return err
	}
	for !l.ended(100 * time.Millisecond) {
		if err := l.lock("wait for a turn", f, syscall.F_SETLKW, syscall.F_WRLCK); err != nil {
			return err
		}
		var size int64
		err := l.call("fstat", func() error {
			at, err := f.Stat()
			if err == nil {
				size = at.Size()
			}
			return err
		})
		if err != nil {
			return err
		}
		turn := int(size / int64(len(report.Turn(0, l.name))))
		if err := l.add(f, report.Turn(turn, l.name)); err != nil {
			return err
		}
		l.report.TookTurn(turn)
		if err := l.lock("unlock", f, syscall.F_SETLK, syscall.F_UNLCK); err != nil {
			return err
		}
	}
	return f.Close()
}

const freed = "let go of\n"

// hold locks the file that this locker keeps all the time.
func (l *locker) hold() (*os.File, error) {
	f, err := l.file("held-"+l.name, os.O_RDWR)
	if err != nil {
		return nil, err
	}
	// It waits, since the other one may just be trying it.
	return f, l.lock("lock", f, syscall.F_SETLKW, syscall.F_WRLCK)
}

func (l *locker) release(held *os.File) error {
	if err := l.add(held, freed); err != nil {
		return err
	}
	return held.Close() // which unlocks it
}

// theirs opens the file that the other locker holds, as soon as that does so.
func (l *locker) theirs() (*os.File, error) {
	f, err := l.file("held-"+l.other, os.O_RDWR)
	if err != nil {
		return nil, err
	}
	for {
		err := l.lock("try", f, syscall.F_SETLK, syscall.F_WRLCK)
		if errors.Is(err, syscall.EAGAIN) {
			return f, nil
		}
		if err != nil {
			return nil, err
		}
		if err := l.lock("unlock", f, syscall.F_SETLK, syscall.F_UNLCK); err != nil {
			return nil, err
		}
		if l.ended(time.Second) {
			return nil, errors.New("the other locker never held its lock")
		}
	}
}

// try asks again and again for what the other one holds, and must not get it.
func (l *locker) try() error {
	f, err := l.theirs()
	if err != nil {
		return err
	}
	for !l.ended(200 * time.Millisecond) {
		switch err := l.lock("try", f, syscall.F_SETLK, syscall.F_WRLCK); {
		case errors.Is(err, syscall.EAGAIN):
		case err != nil:
			return err
		default:
			if free, err := isFreed(f); err != nil || !free {
				return fmt.Errorf("got the lock that %s holds: %w", l.other, err)
			}
			return nil // wait has it, too: a process does not exclude itself
		}
	}
	return nil
}

// wait waits for what the other one holds, until that ends.
func (l *locker) wait() error {
	f, err := l.theirs()
	if err != nil {
		return err
	}
	if err := syscall.FcntlFlock(f.Fd(), syscall.F_SETLKW, &syscall.Flock_t{Type: syscall.F_WRLCK}); err != nil {
		return fmt.Errorf("wait for what %s holds: %w", l.other, err)
	}
	free, err := isFreed(f)
	if err == nil && !free {
		err = fmt.Errorf("got the lock that %s holds, after waiting for it", l.other)
	}
	return err
}

func isFreed(f *os.File) (bool, error) {
	b := make([]byte, len(freed))
	_, err := f.ReadAt(b, 0)
	if errors.Is(err, io.EOF) {
		return false, nil
	}
	return string(b) == freed, err
}
