//go:build vm

package vm_test

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// finds has the next start find files by the kernel's handles, or by the index.
func (a *appliance) finds(by string) { a.args[slices.Index(a.args, "--handles")+1] = by }

// TestFinderChanges has a file open over changes of the way in which the server finds files. Whoever opens it
// anew on the same node has the same file: what one writes the other sees at once, and the first's
// close does not take the other's lock away.
func TestFinderChanges(t *testing.T) {
	a, _, nodes := twoNodes(t)
	had := nodes[0].open(t, "file", os.O_RDWR|os.O_CREATE)
	elsewhere := nodes[1].open(t, "file", os.O_RDWR)
	// One of these changes to the other way, and the next back.
	for n, by := range []string{"index", "kernel", "index"} {
		end := a.stop
		if n == 1 {
			end = a.kill // and the node reclaims what it has
		}
		a.finds(by)
		a.prepare()
		end()
		a.start()
		dropCaches(t) // and with them the names that lead to the handle from before
		again := nodes[0].open(t, "file", os.O_RDWR)
		wants(t, "lock", again.flock(unix.LOCK_EX|unix.LOCK_NB), nil)
		text := fmt.Sprint("written after ", by)
		for _, files := range [][2]file{{had, again}, {again, had}} {
			got := make([]byte, len(text))
			wants(t, "write", errOf(files[0].WriteAt([]byte(text), 0)), nil)
			wants(t, "read", errOf(files[1].ReadAt(got, 0)), nil)
			if string(got) != text {
				t.Errorf("by %s: what was written at once is read as %q", by, got)
			}
			text += ", and again"
		}
		wants(t, "close", had.Close(), nil)
		wants(t, "lock of what the other node has locked", elsewhere.flock(unix.LOCK_EX|unix.LOCK_NB), unix.EAGAIN)
		wants(t, "unlock", again.flock(unix.LOCK_UN), nil)
		wants(t, "lock of what is free", elsewhere.flock(unix.LOCK_EX|unix.LOCK_NB), nil)
		wants(t, "unlock", elsewhere.flock(unix.LOCK_UN), nil)
		had = again
	}
}
