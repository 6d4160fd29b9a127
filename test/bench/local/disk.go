package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// phaseFiles is how many files a thread makes in a directory before they are
// removed, which does not count: as many as a worker of podnas bench.
const phaseFiles = 256

// load is one of podnas bench's, done on the disk.
type load struct {
	name  string
	bench string // its name in podnas bench
	// start makes what a thread needs, in a directory of its own or in the file that
	// all share.
	start func(t *thread) error
	op    func(t *thread) error
	// refill comes before each phase. A phase ends with errPhase, or with the turn.
	refill func(t *thread) error
}

// errPhase says that a thread has used up what refill made room for.
var errPhase = errors.New("the phase is over")

func loads() []load {
	return []load{
		{name: "create", bench: "create", start: (*thread).makeDir, op: (*thread).create, refill: (*thread).empty},
		{name: "create-one-sync", bench: "create", start: (*thread).makeDir, op: (*thread).createOneSync, refill: (*thread).empty},
		{name: "write-4k-rand-stable", bench: "write-4k-rand-stable", start: (*thread).openFile, op: (*thread).write},
	}
}

func names() (names []string) {
	for _, l := range loads() {
		names = append(names, l.name)
	}
	return names
}

// choose takes loads by name, all if there is none.
func choose(list string) ([]load, error) {
	all := loads()
	if list == "" {
		return all, nil
	}
	var chosen []load
	for name := range strings.SplitSeq(list, ",") {
		i := slices.IndexFunc(all, func(l load) bool { return l.name == name })
		if i < 0 {
			return nil, fmt.Errorf("no load is called %q here; there are: %s", name, strings.Join(names(), ", "))
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// thread makes system calls on a thread of its own.
type thread struct {
	dir  string // of the turn
	id   int
	rng  uint64
	size int64 // of the file that is written
	data []byte

	fd    int // its directory, or the file
	made  int // files in its directory
	count int64
}

// localRate is how many operations a second so many threads do.
func localRate(ctx context.Context, l load, parent string, threads int, size int64, d time.Duration) (rate float64, err error) {
	dir, err := os.MkdirTemp(parent, "local-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := makeFile(filepath.Join(dir, "file"), size); err != nil {
		return 0, err
	}
	all := make([]*thread, threads)
	for i := range all {
		all[i] = &thread{dir: dir, id: i, rng: uint64(i)*0x9e3779b97f4a7c15 + 1, size: size, data: make([]byte, 4<<10), fd: -1}
	}
	defer func() {
		for _, t := range all {
			if t.fd >= 0 {
				err = errors.Join(err, syscall.Close(t.fd))
			}
		}
	}()
	if err := each(all, l.start); err != nil {
		return 0, err
	}
	var elapsed time.Duration
	for elapsed < d && ctx.Err() == nil {
		if l.refill != nil {
			if err := each(all, l.refill); err != nil {
				return 0, err
			}
		}
		var stop atomic.Bool
		timer := time.AfterFunc(d-elapsed, func() { stop.Store(true) })
		start := time.Now()
		err := each(all, func(t *thread) error { return t.repeat(l.op, &stop) })
		elapsed += time.Since(start)
		timer.Stop()
		if err != nil {
			return 0, err
		}
	}
	var done int64
	for _, t := range all {
		done += t.count
	}
	return float64(done) / elapsed.Seconds(), ctx.Err()
}

// each has all threads do something at once, until all are done.
func each(threads []*thread, do func(*thread) error) error {
	var group sync.WaitGroup
	errs := make([]error, len(threads))
	for i, t := range threads {
		group.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			errs[i] = do(t)
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

func (t *thread) repeat(op func(*thread) error, stop *atomic.Bool) error {
	for !stop.Load() {
		switch err := op(t); {
		case errors.Is(err, errPhase):
			stop.Store(true)
			return nil
		case err != nil:
			return err
		}
		t.count++
	}
	return nil
}

// makeFile makes the file that is written over, with data everywhere.
func makeFile(name string, size int64) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	block := slices.Repeat([]byte("podnas!\n"), 1<<20/8)
	for n := int64(0); n < size && err == nil; n += int64(len(block)) {
		_, err = f.Write(block)
	}
	return errors.Join(err, f.Sync(), f.Close())
}

// makeDir gives the thread a directory of its own, as a worker has.
func (t *thread) makeDir() (err error) {
	name := filepath.Join(t.dir, fmt.Sprint("worker-", t.id))
	if err := os.Mkdir(name, 0o755); err != nil {
		return err
	}
	t.fd, err = syscall.Open(name, syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
	return err
}

func (t *thread) openFile() (err error) {
	t.fd, err = syscall.Open(filepath.Join(t.dir, "file"), syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	return err
}

// create makes an empty file that is there after a crash, and so is its name, on any
// file system: a program that has to know does it so.
func (t *thread) create() error { return t.makeName(syscall.Fsync) }

// createOneSync is create for who knows that the file is on the disk with its name, as
// it is on XFS.
func (t *thread) createOneSync() error {
	return t.makeName(func(int) error { return nil })
}

func (t *thread) makeName(sync func(fd int) error) error {
	if t.made == phaseFiles {
		return errPhase
	}
	fd, err := syscall.Openat(t.fd, fmt.Sprint("made-", t.made), syscall.O_CREAT|syscall.O_EXCL|syscall.O_WRONLY|syscall.O_CLOEXEC, 0o644)
	if err != nil {
		return err
	}
	t.made++
	return errors.Join(stat(fd), sync(fd), syscall.Fsync(t.fd), syscall.Close(fd), stat(t.fd))
}

// empty removes what create has made.
func (t *thread) empty() error {
	for ; t.made > 0; t.made-- {
		name := filepath.Join(t.dir, fmt.Sprint("worker-", t.id), fmt.Sprint("made-", t.made-1))
		if err := syscall.Unlink(name); err != nil {
			return err
		}
	}
	return syscall.Fsync(t.fd)
}

// stat asks for the attributes, which every reply has. It matters: when the times were
// looked at, Linux (since 6.13) makes the next change move them, and a sync has to
// bring that to the disk too.
func stat(fd int) error {
	var st syscall.Stat_t
	return syscall.Fstat(fd, &st)
}

// write writes 4 KiB over what is somewhere in the file, and syncs it.
func (t *thread) write() error {
	t.rng ^= t.rng << 13
	t.rng ^= t.rng >> 7
	t.rng ^= t.rng << 17
	at := int64(t.rng%uint64(t.size/int64(len(t.data)))) * int64(len(t.data))
	if n, err := syscall.Pwrite(t.fd, t.data, at); err != nil || n < len(t.data) {
		return fmt.Errorf("wrote %d bytes: %w", n, err)
	}
	return errors.Join(stat(t.fd), syscall.Fsync(t.fd))
}
