package space_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/quota"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/space"
)

// looks is how often LookAgain has looked for each file.
func looks(a *space.Account, now time.Time) map[string]int {
	n := map[string]int{}
	a.LookAgain(now, func(id string, _ func(int)) { n[id]++ })
	return n
}

// A file is looked at once, some time after its last use, and its charge is forgotten then.
func TestLookAgain(t *testing.T) {
	a := space.NewAccount(quota.Limit{Bytes: 1 << 50})
	enter := func(n uint64) *space.Charge { return a.Enter(disk.Inode{Device: 1, Number: n}) }
	const files = 1000
	for n := range uint64(files) {
		enter(n).Leave(fmt.Sprint(n))
	}
	inUse := enter(1)
	again := enter(2)
	again.Leave("") // which had been written before
	enter(files + 1).Leave("")
	if n := a.Held().Charges; n != files {
		t.Errorf("%d charges are kept, want those of the %d files that were written", n, files)
	}
	now := time.Now()
	if n := looks(a, now.Add(space.LookAfter-time.Second)); len(n) > 0 {
		t.Errorf("%d are looked at before the time", len(n))
	}
	later := now.Add(space.LookAfter + time.Second)
	n := looks(a, later)
	if _, looked := n["1"]; looked || len(n) != files-1 || slices.Max(slices.Collect(maps.Values(n))) != 1 {
		t.Errorf("%d are looked at, at most %d times, one that is in use: %v; want each of the %d others once",
			len(n), slices.Max(slices.Collect(maps.Values(n))), looked, files-1)
	}
	if n := a.Held().Charges; n != 1 {
		t.Errorf("%d charges are kept, want the one in use", n)
	}
	inUse.Leave("")
	if n := looks(a, later); n["1"] != 1 || len(n) != 1 {
		t.Errorf("looked at when one is not in use any more: %v", n)
	}
	if n := a.Held().Charges; n != 0 {
		t.Errorf("%d charges are kept", n)
	}
}

// Calls use and leave charges while they are looked at: none is lost, and what a file takes in the end is charged.
func TestLookAgainRace(t *testing.T) {
	dir := t.TempDir()
	a := space.NewAccount(quota.Limit{Bytes: 1 << 50})
	root, err := os.Open(dir)
	mustDo(t, err)
	defer root.Close()
	a.Attach(root, nil)
	const files = 20
	open := map[string]int{}
	inodes := make([]disk.Inode, files)
	for n := range inodes {
		f, err := os.Create(filepath.Join(dir, fmt.Sprint(n)))
		mustDo(t, err)
		t.Cleanup(func() { _ = f.Close() })
		_, err = f.Write(make([]byte, 100_000))
		mustDo(t, err)
		var st unix.Stat_t
		mustDo(t, unix.Fstat(int(f.Fd()), &st))
		inodes[n], open[fmt.Sprint(n)] = disk.InodeOf(&st), int(f.Fd())
	}
	look := func() {
		a.LookAgain(time.Now().Add(time.Hour), func(id string, look func(int)) { look(open[id]) })
	}
	done := make(chan struct{})
	var looking, calls sync.WaitGroup
	looking.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				look()
			}
		}
	})
	for range 4 {
		calls.Go(func() {
			for i := range 5000 {
				a.Enter(inodes[i%files]).Leave(fmt.Sprint(i % files))
			}
		})
	}
	calls.Wait()
	close(done)
	looking.Wait()
	for range 3 { // XFS may free blocks later, which is looked at once more
		look()
	}
	if n := a.Held().Charges; n != 0 {
		t.Errorf("%d charges are kept", n)
	}
	if u := a.Usage(); u.Inodes != files || u.Bytes < files*100_000 {
		t.Errorf("%d bytes and %d inodes are charged, of %d files", u.Bytes, u.Inodes, files)
	}
}

// BenchmarkNothingIsDue looks for what is due beside many charges that are not.
func BenchmarkNothingIsDue(b *testing.B) {
	for _, n := range []int{0, 1000, 100_000, 400_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			a := space.NewAccount(quota.Limit{Bytes: 1 << 50})
			for i := range n {
				a.Enter(disk.Inode{Device: 1, Number: uint64(i)}).Leave("x")
			}
			for b.Loop() {
				a.LookAgain(time.Now(), nil)
			}
		})
	}
}
