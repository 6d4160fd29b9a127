package export

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/shares"
)

type jobFunc func(error)

func (f jobFunc) Run(err error) { f(err) }

// Calls of many users at once: each makes a file that must be its own.
func TestWorkersIdentity(t *testing.T) {
	needNative(t)
	dir := t.TempDir()
	mustDo(t, os.Chmod(dir, 0o777))
	// The parents of a test's directory are closed to others.
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	mustDo(t, err)
	defer unix.Close(fd)
	w := NewWorkers(4, nil)
	var pending sync.WaitGroup
	for i := range 400 {
		uid, gid := uint32(1000+i%7), uint32(2000+i%5)
		id := (&Options{}).Identity(uid, gid, []uint32{uint32(3000 + i%3)})
		pending.Add(1)
		w.Do(id, shares.Owner{Volume: uint64(i % 3)}, jobFunc(func(err error) {
			defer pending.Done()
			name := fmt.Sprint("file", i)
			if err == nil {
				var file int
				if file, err = unix.Openat(fd, name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY, 0o600); err == nil {
					err = unix.Close(file)
				}
			}
			if err != nil {
				t.Errorf("uid %d: %v", uid, err)
			}
			groups, err := unix.Getgroups()
			if err != nil || len(groups) != 1 || groups[0] != 3000+i%3 {
				t.Errorf("groups %v, %v, want %d", groups, err, 3000+i%3)
			}
		}))
	}
	pending.Wait()
	w.Close()
	for i := range 400 {
		var st unix.Stat_t
		mustDo(t, unix.Fstatat(fd, fmt.Sprint("file", i), &st, 0))
		if st.Uid != uint32(1000+i%7) || st.Gid != uint32(2000+i%5) {
			t.Fatalf("file %d belongs to %d:%d", i, st.Uid, st.Gid)
		}
	}
	// No other thread of the process has changed.
	for range 100 {
		var wg sync.WaitGroup
		wg.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			if uid, err := unix.SetfsuidRetUid(-1); err != nil || uid != 0 {
				t.Errorf("a thread of the process runs as %d, %v", uid, err)
			}
		})
		wg.Wait()
	}
}

// There are as many threads as jobs, up to a number, and they end when they are not needed.
func TestWorkersComeAndGo(t *testing.T) {
	needNative(t)
	const most = 4
	w := NewWorkers(most, nil)
	defer w.Close()
	threads := func(want int) {
		t.Helper()
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.threads != want || w.backlog != 0 || w.idle != want {
			t.Errorf("%d threads, %d idle and %d jobs that wait, want %d idle threads", w.threads, w.idle, w.backlog, want)
		}
	}
	// together makes calls wait for each other, as many as there can be at a time, and
	// tells on which threads those are.
	together := func(calls, atOnce int) (on []int) {
		t.Helper()
		started, end := make(chan int, calls), make(chan struct{})
		var pending sync.WaitGroup
		for i := range calls {
			pending.Add(1)
			w.Do((&Options{}).Identity(uint32(1000+i), 1000, nil), shares.Owner{Volume: uint64(i)}, jobFunc(func(err error) {
				defer pending.Done()
				if err != nil {
					t.Error(err)
				}
				started <- unix.Gettid()
				<-end
			}))
		}
		for range atOnce {
			on = append(on, <-started)
		}
		select {
		case <-started:
			t.Errorf("more than %d at once", atOnce)
		case <-time.After(20 * time.Millisecond):
		}
		close(end)
		pending.Wait()
		comesTrue(t, "all threads are idle", func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.idle == w.threads
		})
		return on
	}
	threads(0)
	together(1, 1)
	threads(1)
	together(2, 2)
	threads(2)
	all := together(2*most, most)
	threads(most)
	w.endUnused() // looks from here on
	together(1, 1)
	w.endUnused()
	threads(1)
	comesTrue(t, "one of the threads is left", func() bool {
		left := 0
		for _, tid := range all {
			if tid == os.Getpid() { // Go parks the process's first thread for ever instead of ending it
				continue
			}
			if _, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", tid)); err == nil {
				left++
			}
		}
		return left <= 1
	})
	w.endUnused()
	threads(0)
	together(most, most)
	threads(most)
}

// Calls of one volume that never end leave threads for those of others, and what they
// made wait is done when they end.
func TestWorkersAreShared(t *testing.T) {
	needNative(t)
	w := NewWorkers(8, nil)
	for name, uid := range map[string]uint32{"root": 0, "a user": 1000} {
		t.Run(name, func(t *testing.T) {
			id := (&Options{}).Identity(uid, uid, nil)
			end := make(chan struct{})
			var pending sync.WaitGroup
			const calls = 100
			pending.Add(calls)
			for range calls {
				w.Do(id, shares.Owner{Volume: 1}, jobFunc(func(err error) {
					defer pending.Done()
					<-end
					if err != nil {
						t.Error(err)
					}
				}))
			}
			for volume := range uint64(20) {
				done := make(chan struct{})
				w.Do(id, shares.Owner{Volume: 2 + volume}, jobFunc(func(error) { close(done) }))
				select {
				case <-done:
				case <-time.After(20 * time.Second):
					t.Fatalf("volume %d waits for the calls of volume 1", 2+volume)
				}
			}
			close(end)
			pending.Wait()
		})
	}
	w.Close()
}

// comesTrue waits for what happens soon.
func comesTrue(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in ten seconds: %s", what)
		}
	}
}
