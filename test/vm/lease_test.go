//go:build vm

package vm_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestNodeCutOff: what a node has locked that is cut off goes to the other when its lease is
// over, and not before. When it is back it does not believe that it still has the lock.
func TestNodeCutOff(t *testing.T) {
	const lease = 30 * time.Second
	_, _, nodes := twoNodes(t)
	f := [2]*os.File{nodes[0].open(t, "f", os.O_RDWR|os.O_CREATE), nodes[1].open(t, "f", os.O_RDWR)}
	wants(t, "lock", lock(f[0], unix.F_WRLCK, 0, 0), nil)
	began := time.Now() // the lease was renewed after it
	mustWrite(t, filepath.Join(nodes[0].mnt, "renew"), []byte("now"))
	nodes[0].cut()
	var err error
	for err = syscall.EAGAIN; errors.Is(err, syscall.EAGAIN) && time.Since(began) < 3*lease; time.Sleep(200 * time.Millisecond) {
		err = lock(f[1], unix.F_WRLCK, 0, 0)
	}
	took := time.Since(began)
	if err != nil || took < lease {
		t.Errorf("the other node's lock: %v after %v; the lease is %v", err, took, lease)
	}
	t.Logf("the other node has the lock after %v", took)
	nodes[0].up()
	within(t, time.Minute, "the first node's use of its lock", func() error {
		again := lock(f[0], unix.F_WRLCK, 0, 0)
		_, read := f[0].ReadAt(make([]byte, 1), 0)
		t.Logf("the first node: lock: %v; read: %v", again, read)
		if again == nil {
			return fmt.Errorf("two nodes have the lock")
		}
		return nil
	})
	wants(t, "the other unlocks", lock(f[1], unix.F_UNLCK, 0, 0), nil)
	g := nodes[0].open(t, "f", os.O_RDWR)
	within(t, time.Minute, "a new lock of the first node", func() error { return lockWait(g, unix.F_WRLCK, 0, 0) })
}

// TestKillUnderLocks kills the server while both nodes have locks and write: they have them
// still, nobody else gets them, and all that was acknowledged is there.
func TestKillUnderLocks(t *testing.T) {
	a, pv, nodes := twoNodes(t)
	underLocks(t, a, pv, nodes, func() {
		a.prepare()
		a.kill()
	})
}

// TestRestartUnderLocks is TestKillUnderLocks with restarts that are meant: nobody reclaims
// anything, and who waits for a lock goes on waiting.
func TestRestartUnderLocks(t *testing.T) {
	a, pv, nodes := twoNodes(t)
	f := [2]*os.File{nodes[0].open(t, "wait", os.O_RDWR|os.O_CREATE), nodes[1].open(t, "wait", os.O_RDWR)}
	wants(t, "lock", lock(f[0], unix.F_WRLCK, 0, 0), nil)
	waits := make(chan error, 1)
	go func() { waits <- lockWait(f[1], unix.F_WRLCK, 0, 0) }()
	underLocks(t, a, pv, nodes, func() {
		a.prepare()
		a.stop()
	})
	select {
	case err := <-waits:
		t.Fatalf("what is locked is given away: %v", err)
	default:
	}
	wants(t, "unlock", lock(f[0], unix.F_UNLCK, 0, 0), nil)
	within(t, time.Minute, "a lock that was waited for all the time", func() error { return <-waits })
	if out := a.output(); bytes.Contains(out, []byte("may reclaim")) || !bytes.Contains(out, []byte("go on with what they have")) {
		t.Errorf("clients had to reclaim what they had; the last podnas says\n%s", out)
	}
}

// underLocks ends the server in some way, three times, while both nodes have locks and write.
func underLocks(t *testing.T, a *appliance, pv persistentVolume, nodes [2]*node, end func()) {
	t.Helper()
	var mine, theirs [2]*os.File // of each node: its lock, and the other's
	var logs [2]*syncedLog
	for i, v := range nodes {
		mine[i] = v.open(t, fmt.Sprint("lock-", i), os.O_RDWR|os.O_CREATE)
		wants(t, "lock", lock(mine[i], unix.F_WRLCK, 10, 10), nil)
		logs[i] = startLog(t, filepath.Join(v.mnt, fmt.Sprint("log-", i)))
	}
	for i, v := range nodes {
		theirs[i] = v.open(t, fmt.Sprint("lock-", 1-i), os.O_RDWR)
	}
	for range 3 {
		for _, l := range logs {
			l.grows(t, 5)
		}
		end()
		began := time.Now()
		a.start()
		ready := time.Since(began)
		for i := range nodes {
			within(t, time.Minute, "a lock that another has", func() error {
				if err := lock(theirs[i], unix.F_WRLCK, 15, 1); !errors.Is(err, syscall.EAGAIN) {
					return fmt.Errorf("after a kill node %d may lock what the other has: %w", i, err)
				}
				return nil
			})
		}
		for _, l := range logs {
			l.grows(t, 1)
		}
		t.Logf("ready after %v, all go on after %v", ready, time.Since(began))
	}
	for i, l := range logs {
		n := l.stop(t)
		checkLog(t, filepath.Join(a.dir(pv), fmt.Sprint("log-", i)), n)
		wants(t, "unlock", lock(mine[i], unix.F_UNLCK, 0, 0), nil)
	}
	for i := range nodes {
		within(t, time.Minute, "a lock that is free", func() error { return lockWait(theirs[i], unix.F_WRLCK, 0, 0) })
	}
}
