//go:build vm

package vm_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestKillUnderLocks kills the server while both nodes have locks, wait for one and write: no
// lock is held by two, all that was acknowledged is there, nobody is stuck. In some rounds a
// node is cut off meanwhile, for less than a lease. KILLS is how often; 100 take ten minutes.
func TestKillUnderLocks(t *testing.T) {
	a, pv, nodes := twoNodes(t)
	underLocks(t, a, pv, nodes, kills(t), a.kill)
}

func kills(t *testing.T) int {
	t.Helper()
	s := os.Getenv("KILLS")
	if s == "" {
		return 4
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatalf("KILLS: %v", err)
	}
	return n
}

// TestDieUnderLocks is the same with a log of the clients' state: nobody reclaims anything, and
// who waits for a lock goes on waiting.
func TestDieUnderLocks(t *testing.T) {
	log := t.TempDir()
	a, pv, nodes := twoNodesOf(t, settings{stateLog: log})
	waits := waitsAllTheTime(t, nodes)
	underLocks(t, a, pv, nodes, kills(t), func() {
		a.kill()
		tries, err := filepath.Glob(filepath.Join(log, "*.tries"))
		if err != nil {
			t.Error(err)
		}
		for _, path := range tries { // it does not die of its log, however soon it dies
			if err := os.Remove(path); err != nil {
				t.Error(err)
			}
		}
	})
	waits()
	if out := a.output(); bytes.Contains(out, []byte("may reclaim")) || !bytes.Contains(out, []byte("had died, and clients go on")) {
		t.Errorf("clients had to reclaim what they had; podnas says\n%s", out)
	}
}

// TestRestartUnderLocks is the same with restarts that are meant: nobody reclaims anything, and
// who waits for a lock goes on waiting.
func TestRestartUnderLocks(t *testing.T) {
	a, pv, nodes := twoNodes(t)
	waits := waitsAllTheTime(t, nodes)
	underLocks(t, a, pv, nodes, 3, a.stop)
	waits()
	if out := a.output(); bytes.Contains(out, []byte("may reclaim")) || !bytes.Contains(out, []byte("go on with what they have")) {
		t.Errorf("clients had to reclaim what they had; the last podnas says\n%s", out)
	}
}

// TestMoveUnderLocks is a planned end under locks, after which podnas is on another node: the disk is unmounted and mounted, and
// nothing else is there that the process before had. Nobody reclaims anything, and who waits for a lock goes on waiting.
func TestMoveUnderLocks(t *testing.T) {
	disk, log := newMappedDisk(t, 1<<30), filepath.Join(t.TempDir(), "log")
	a, pv, nodes := twoNodesOf(t, settings{root: disk.dir, stateLog: log})
	waits := waitsAllTheTime(t, nodes)
	underLocks(t, a, pv, nodes, 3, func() {
		a.stop()
		disk.remount()
		if err := os.RemoveAll(log); err != nil {
			t.Error(err)
		}
	})
	waits()
	if out := a.output(); bytes.Contains(out, []byte("may reclaim")) || bytes.Contains(out, []byte("had died")) || !bytes.Contains(out, []byte("go on with what they have")) {
		t.Errorf("clients had to reclaim what they had; the last podnas says\n%s", out)
	}
}

// waitsAllTheTime has the second node wait for what the first one has locked, until the function
// is called that it returns.
func waitsAllTheTime(t *testing.T, nodes [2]*node) func() {
	t.Helper()
	f := [2]file{nodes[0].open(t, "wait", os.O_RDWR|os.O_CREATE), nodes[1].open(t, "wait", os.O_RDWR)}
	wants(t, "lock", lock(f[0], unix.F_WRLCK, 0, 0), nil)
	waits := make(chan error, 1)
	go func() { waits <- lockWait(f[1], unix.F_WRLCK, 0, 0) }()
	return func() {
		t.Helper()
		select {
		case err := <-waits:
			t.Fatalf("what is locked is given away: %v", err)
		default:
		}
		wants(t, "unlock", lock(f[0], unix.F_UNLCK, 0, 0), nil)
		within(t, time.Minute, "a lock that was waited for all the time", func() error { return <-waits })
	}
}

// underLocks ends the server in some way, so many times, while nodes have locks and write.
func underLocks(t *testing.T, a *appliance, pv persistentVolume, nodes [2]*node, times int, end func()) {
	t.Helper()
	var mine, theirs [2]file // of each node: its lock, and the other's
	var logs [2]*syncedLog
	turns := newTurns(t, nodes)
	for i, v := range nodes {
		mine[i] = v.open(t, fmt.Sprint("lock-", i), os.O_RDWR|os.O_CREATE)
		wants(t, "lock", lock(mine[i], unix.F_WRLCK, 10, 10), nil)
		logs[i] = startLog(t, filepath.Join(v.mnt, fmt.Sprint("log-", i)))
	}
	for i, v := range nodes {
		theirs[i] = v.open(t, fmt.Sprint("lock-", 1-i), os.O_RDWR)
	}
	for round := range times {
		for _, l := range logs {
			l.grows(t, 5)
		}
		turns.grow(t)
		cut := nodes[round/4%2]
		a.prepare()
		if round%4 == 2 {
			cut.cut()
		}
		end()
		began := time.Now()
		a.start()
		ready := time.Since(began)
		if round%4 == 2 {
			time.Sleep(2 * time.Second)
			cut.up()
		}
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
		t.Logf("round %d: ready after %v, all go on after %v", round, ready, time.Since(began))
	}
	turns.stop(t)
	for i, l := range logs {
		n := l.stop(t)
		checkLog(t, filepath.Join(a.dir(pv), fmt.Sprint("log-", i)), n)
		wants(t, "unlock", lock(mine[i], unix.F_UNLCK, 0, 0), nil)
	}
	for i := range nodes {
		within(t, time.Minute, "a lock that is free", func() error { return lockWait(theirs[i], unix.F_WRLCK, 0, 0) })
	}
}

// turns is a number in a file that nodes raise in turns, each under a lock that it waits for.
type turns struct {
	taken  [2]atomic.Int64
	holder atomic.Int64 // the node that has the lock, counted from 1
	last   int64        // guarded by that lock
	quit   atomic.Bool
	ended  chan error
}

func newTurns(t *testing.T, nodes [2]*node) *turns {
	t.Helper()
	c := &turns{ended: make(chan error, len(nodes))}
	mustWrite(t, filepath.Join(nodes[0].mnt, "turns"), make([]byte, 8))
	for i, v := range nodes {
		f := v.open(t, "turns", os.O_RDWR)
		go func() {
			var err error
			for err == nil && !c.quit.Load() {
				err = c.take(i, f)
			}
			c.ended <- err
		}()
	}
	return c
}

func (c *turns) take(node int, f file) error {
	if err := lockWait(f, unix.F_WRLCK, 0, 0); err != nil {
		return fmt.Errorf("node %d waits for its turn: %w", node, err)
	}
	if !c.holder.CompareAndSwap(0, int64(node)+1) {
		return fmt.Errorf("node %d has the lock, and so has the other", node)
	}
	var b [8]byte
	if _, err := f.ReadAt(b[:], 0); err != nil {
		return fmt.Errorf("node %d: %w", node, err)
	}
	if n := int64(binary.BigEndian.Uint64(b[:])); n != c.last {
		return fmt.Errorf("node %d reads %d, and %d was written", node, n, c.last)
	}
	binary.BigEndian.PutUint64(b[:], uint64(c.last+1))
	_, err := f.WriteAt(b[:], 0)
	if err := errors.Join(err, f.Sync()); err != nil {
		return fmt.Errorf("node %d: %w", node, err)
	}
	c.last++
	c.taken[node].Add(1)
	if !c.holder.CompareAndSwap(int64(node)+1, 0) {
		return fmt.Errorf("node %d had the lock, and another has got it", node)
	}
	return lock(f, unix.F_UNLCK, 0, 0)
}

// grow waits until each node has had another turn.
func (c *turns) grow(t *testing.T) {
	t.Helper()
	had := [2]int64{c.taken[0].Load(), c.taken[1].Load()}
	eventually(t, "both nodes have their turns", func() bool {
		select {
		case err := <-c.ended:
			t.Fatalf("no more turns: %v", err)
		default:
		}
		return c.taken[0].Load() > had[0] && c.taken[1].Load() > had[1]
	})
}

func (c *turns) stop(t *testing.T) {
	t.Helper()
	c.quit.Store(true)
	for range 2 {
		within(t, 2*time.Minute, "the end of the turns", func() error { return <-c.ended })
	}
	t.Logf("%d and %d turns", c.taken[0].Load(), c.taken[1].Load())
}
