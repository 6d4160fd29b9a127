//go:build vm

package vm_test

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestTwoGuests has two nodes with a kernel each, of which one is killed. The server is outside of
// both. It does what TestTwoNodes does with two namespaces of one kernel, and what those can't:
// end without a word, and come back as another incarnation of the same client.
func TestTwoGuests(t *testing.T) {
	a := newAppliance(t, settings{root: t.TempDir(), listen: ":20490"})
	a.start()
	pv := a.volume("shared", "256Mi")
	guests := [2]*guest{newGuest(t, 0), newGuest(t, 1)}
	booted := time.Now()
	bootAll(t, pv, guests)
	t.Logf("both have booted and mounted after %v", time.Since(booted).Round(time.Second))
	machines := [2]machine{guests[0], guests[1]}
	for _, part := range ofTwoMachines {
		t.Run(part.name, func(t *testing.T) { part.run(t, a.dir(pv), machines) })
	}
	appending, long := 15*time.Second, os.Getenv("GUESTS")
	if long != "" {
		var err error
		if appending, err = time.ParseDuration(long); err != nil {
			t.Fatalf("GUESTS: %v", err)
		}
	}
	t.Run("Append", func(t *testing.T) { // with a network that is cut in the middle
		var cut sync.WaitGroup
		cut.Go(func() {
			time.Sleep(appending / 3)
			guests[1].cut()
			answers := make(chan error, 1)
			go func() { answers <- guests[1].dropCaches() }()
			select {
			case err := <-answers:
				t.Errorf("a guest answers that is cut off: %v", err)
			case <-time.After(5 * time.Second):
			}
			guests[1].up()
		})
		appenders(t, a.dir(pv), machines, appending)
		cut.Wait()
	})
	if long != "" {
		t.Run("CutOff", func(t *testing.T) { nodeCutOff(t, machines, guests[0]) })
	}
	t.Run("ComesBack", func(t *testing.T) { guestComesBack(t, a, pv, guests) })
	t.Run("Killed", func(t *testing.T) { guestKilled(t, a, guests) })
}

func bootAll(t *testing.T, pv persistentVolume, guests [2]*guest) {
	t.Helper()
	var all sync.WaitGroup
	for _, g := range guests {
		all.Go(func() {
			err := g.boot()
			if err == nil {
				err = g.mount(pv)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	if all.Wait(); t.Failed() {
		t.FailNow()
	}
}

// holding has a guest lock files in several ways, and have one open that is removed. Whoever wants
// a lock has to wait from the time that it returns, at the earliest.
func holding(t *testing.T, a *appliance, g *guest) time.Time {
	t.Helper()
	ranges, whole := mustOpenBy(t, g, "ranges-of-killed"), mustOpenBy(t, g, "flock-of-killed")
	wants(t, "lock", lock(ranges, unix.F_WRLCK, 100, 50), nil)
	wants(t, "lock", lock(ranges, unix.F_RDLCK, 1000, 0), nil)
	wants(t, "flock", whole.flock(unix.LOCK_EX), nil)
	removed := mustOpenBy(t, g, "removed-by-killed")
	wants(t, "write", errOf(removed.Write(data(1, 1<<20))), nil)
	wants(t, "sync", removed.Sync(), nil)
	wants(t, "remove", g.remove("removed-by-killed"), nil)
	if n := len(removedFiles(t, a)); n != 1 {
		t.Errorf("%d files are kept that were removed while they are open, want 1", n)
	}
	began := time.Now() // the lease is renewed after it
	wants(t, "write", writeBy(g, "renew", []byte("now")), nil)
	return began
}

// mustOpenBy opens a file that nobody closes: its guest is killed.
func mustOpenBy(t *testing.T, m machine, name string) file {
	t.Helper()
	f, err := m.openFile(name, os.O_RDWR|os.O_CREATE)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// removedFiles lists what the server keeps of files that were removed while clients have them open.
func removedFiles(t *testing.T, a *appliance) []os.DirEntry {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(a.root, ".podnas", "removed"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return entries
}

// guestComesBack: of a node that is killed and boots again, all that it had goes when it mounts, as
// it then says that it has begun anew (RFC 8881 section 18.35.4, case 5). Nobody wants any of that
// before, so it stays however long the boot takes.
func guestComesBack(t *testing.T, a *appliance, pv persistentVolume, guests [2]*guest) {
	ranges, whole := openBy(t, guests[0], "ranges-of-killed", os.O_RDWR|os.O_CREATE), openBy(t, guests[0], "flock-of-killed", os.O_RDWR|os.O_CREATE)
	began := holding(t, a, guests[1])
	guests[1].kill()
	if err := guests[1].boot(); err != nil {
		t.Fatal(err)
	}
	if n := len(removedFiles(t, a)); n != 1 {
		t.Errorf("%d removed files are kept when the node has booted and not mounted, want 1", n)
	}
	if err := guests[1].mount(pv); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the removed file is gone", func() bool { return len(removedFiles(t, a)) == 0 })
	t.Logf("a killed node has mounted again, and lost what it had, after %v", time.Since(began))
	wants(t, "the other's flock", whole.flock(unix.LOCK_EX|unix.LOCK_NB), nil)
	wants(t, "the other's lock", lock(ranges, unix.F_WRLCK, 0, 0), nil)
	mine := openBy(t, guests[1], "ranges-of-killed", os.O_RDWR)
	wants(t, "its own lock", lock(mine, unix.F_WRLCK, 100, 1), syscall.EAGAIN)
	wants(t, "unlock", lock(ranges, unix.F_UNLCK, 0, 0), nil)
	wants(t, "its own lock", lock(mine, unix.F_WRLCK, 100, 1), nil)
	if _, err := guests[1].read("removed-by-killed"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the removed file: %v", err)
	}
}

// guestKilled: what a node had locked that is killed goes to the other when its lease is over, and
// not before, to one that waits and to one that tries; and the file is gone that it had open.
func guestKilled(t *testing.T, a *appliance, guests [2]*guest) {
	ranges, whole := openBy(t, guests[0], "ranges-of-killed", os.O_RDWR|os.O_CREATE), openBy(t, guests[0], "flock-of-killed", os.O_RDWR|os.O_CREATE)
	began := holding(t, a, guests[1])
	wants(t, "what is between", lock(ranges, unix.F_WRLCK, 150, 850), nil)
	wants(t, "what another reads", lock(ranges, unix.F_RDLCK, 1<<40, 0), nil)
	guests[1].kill()
	waits := make(chan error, 1)
	var waited time.Duration
	go func() {
		err := lockWait(ranges, unix.F_WRLCK, 149, 1)
		waited = time.Since(began)
		waits <- err
	}()
	var err error
	for err = syscall.EAGAIN; errors.Is(err, syscall.EAGAIN) && time.Since(began) < 3*lease; time.Sleep(200 * time.Millisecond) {
		err = whole.flock(unix.LOCK_EX | unix.LOCK_NB)
	}
	tried := time.Since(began)
	if err != nil || tried < lease {
		t.Errorf("the other node's lock: %v after %v; the lease is %v", err, tried, lease)
	}
	within(t, time.Minute, "a lock that was waited for", func() error { return <-waits })
	if waited < lease {
		t.Errorf("a lock that was waited for came after %v; the lease is %v", waited, lease)
	}
	t.Logf("the other node has the lock that it tried after %v, and that it waited for after %v", tried, waited)
	wants(t, "all that was read", lock(ranges, unix.F_WRLCK, 0, 0), nil)
	eventually(t, "the removed file is gone", func() bool { return len(removedFiles(t, a)) == 0 })
}
