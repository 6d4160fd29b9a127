//go:build vm

package vm_test

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestNodeCutOff: what a node has locked that is cut off goes to the other when its lease is
// over, and not before. When it is back it does not believe that it still has the lock.
func TestNodeCutOff(t *testing.T) {
	_, _, nodes := twoNodes(t)
	nodeCutOff(t, [2]machine{nodes[0], nodes[1]}, nodes[0])
}

// nodeCutOff cuts the link of the first node.
func nodeCutOff(t *testing.T, nodes [2]machine, first link) {
	t.Helper()
	f := [2]file{openBy(t, nodes[0], "f", os.O_RDWR|os.O_CREATE), openBy(t, nodes[1], "f", os.O_RDWR)}
	wants(t, "lock", lock(f[0], unix.F_WRLCK, 0, 0), nil)
	began := time.Now() // the lease was renewed after it
	wants(t, "write", writeBy(nodes[0], "renew", []byte("now")), nil)
	first.cut()
	var err error
	for err = syscall.EAGAIN; errors.Is(err, syscall.EAGAIN) && time.Since(began) < 3*lease; time.Sleep(200 * time.Millisecond) {
		err = lock(f[1], unix.F_WRLCK, 0, 0)
	}
	took := time.Since(began)
	if err != nil || took < lease {
		t.Errorf("the other node's lock: %v after %v; the lease is %v", err, took, lease)
	}
	t.Logf("the other node has the lock after %v", took)
	first.up()
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
	g := openBy(t, nodes[0], "f", os.O_RDWR)
	within(t, time.Minute, "a new lock of the first node", func() error { return lockWait(g, unix.F_WRLCK, 0, 0) })
}
