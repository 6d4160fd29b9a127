package oncrpc

import (
	"bytes"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"
)

// However many calls the disk keeps waiting, they take so many threads and no more.
// Those that don't wait for it are answered meanwhile, and in the end all are.
func TestThreadsAreBounded(t *testing.T) {
	var pipe [2]int
	if err := syscall.Pipe(pipe[:]); err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(pipe[0])
	defer syscall.Close(pipe[1])
	threads := func() int {
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			t.Fatal(err)
		}
		return len(tasks)
	}
	s := startServer(t, nil)
	s.disk.Store(int64(pipe[0]))
	const calls = 4 * waitsMax
	before := threads()
	var answers sync.WaitGroup
	for i := range uint32(calls) / 2 {
		c := s.dial()
		for n := range uint32(2) { // the second finds the connection's turn taken, or waits for it
			answers.Go(func() {
				args := words{2*i + n}
				got, err := c.Call(t.Context(), testProg, testVers, procDisk, args)
				if err != nil || !bytes.Equal(got, args.Append(nil)) {
					t.Errorf("DISK %d: %v", args[0], err)
				}
			})
		}
	}
	eventually(t, "as many as may wait for the disk", func() bool { return s.waiting.Load() >= waitsMax })
	time.Sleep(50 * lookEvery) // for more that would
	if n := s.waiting.Load(); n != waitsMax {
		t.Errorf("%d calls wait in the disk, want %d", n, waitsMax)
	}
	if n := threads() - before; n > waitsMax+32 { // and some of Go's own
		t.Errorf("%d threads more for %d calls", n, calls)
	}
	c := s.dial()
	if _, err := c.Call(t.Context(), testProg, testVers, procEcho, words{1}); err != nil {
		t.Errorf("ECHO meanwhile: %v", err)
	}
	for range calls {
		if _, err := syscall.Write(pipe[1], []byte{0}); err != nil {
			t.Fatal(err)
		}
	}
	answers.Wait()
}

// Places are taken and given back by many at once; none is lost, and none is taken
// that is not there.
func TestPlaces(t *testing.T) {
	p := newPlaces()
	var users sync.WaitGroup
	for n := range uint32(3 * waitsMax) {
		users.Go(func() {
			for range 200 {
				at := p.take(n)
				all := 0
				for i := range p.groups {
					all += int(p.groups[i].taken.Load())
				}
				if all > waitsMax {
					t.Errorf("%d places are taken", all)
				}
				p.give(at)
			}
		})
	}
	users.Wait()
	for i := range p.groups {
		if n := p.groups[i].taken.Load(); n != 0 {
			t.Errorf("%d places of group %d are taken at the end", n, i)
		}
	}
	if n := p.waiting.Load(); n != 0 {
		t.Errorf("%d wait at the end", n)
	}
}
