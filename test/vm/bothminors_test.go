//go:build vm

package vm_test

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// mountedOn is a node with another volume mounted.
func mountedOn(t *testing.T, v *node, pv persistentVolume) *node {
	t.Helper()
	other := *v
	pv.Spec.NFS.Server = v.addr
	v.must(func() error { other.mnt = mount(t, pv); return nil })
	return &other
}

// TestNodeWithBothMinors: a node that has a volume of an older podnas, mounted with 4.1, and a new one with 4.2, is two clients to the
// server, whose locks are apart, and one node to people. It is evicted as one, and goes on as one.
func TestNodeWithBothMinors(t *testing.T) {
	nativeOnly(t, "go-nfs serves version 3 alone")
	a := newAppliance(t, settings{listen: ":20490"})
	a.start()
	a.class("older", "Delete", "nfsvers=4.1")
	a.manifest("class-newer", fmt.Sprintf(class, "newer", "Delete"))
	a.claim("old", "older", "64Mi")
	a.claim("new", "newer", "64Mi")
	older, newer := a.provisioned("old"), a.provisioned("new")
	old, fresh := [2]*node{newNode(t, 1, older), newNode(t, 2, older)}, [2]*node{}
	for i, v := range old {
		fresh[i] = mountedOn(t, v, newer)
		if with41, with42 := mountedAs(t, v.mnt), mountedAs(t, fresh[i].mnt); !strings.Contains(with41, ",vers=4.1,") || !strings.Contains(with42, ",vers=4.2,") {
			t.Fatalf("mounted as %s and %s", with41, with42)
		}
	}

	// Each volume has its locks, which hold between the nodes.
	var mine, theirs [2]file
	for i, on := range [][2]*node{old, fresh} {
		mine[i], theirs[i] = on[0].open(t, "locked", os.O_RDWR|os.O_CREATE), on[1].open(t, "locked", os.O_RDWR)
		wants(t, "a lock", lock(mine[i], unix.F_WRLCK, 0, 100), nil)
		wants(t, "the other node's", lock(theirs[i], unix.F_WRLCK, 50, 1), syscall.EAGAIN)
	}
	// One volume by both versions: what a node has locked by one is locked to it by the other.
	twice := older
	twice.Spec.MountOptions = newer.Spec.MountOptions
	again := mountedOn(t, old[0], twice).open(t, "locked", os.O_RDWR)
	wants(t, "the node's own, by 4.2", lock(again, unix.F_WRLCK, 50, 1), syscall.EAGAIN)
	wants(t, "another range by 4.2", lock(again, unix.F_WRLCK, 200, 1), nil)
	wants(t, "the same by 4.1", lock(mine[0], unix.F_WRLCK, 200, 1), syscall.EAGAIN)

	asOne := func(when string) {
		t.Helper()
		for _, name := range []string{"node1", "node2"} {
			line := regexp.MustCompile(`(?m)^Linux NFSv4 ` + name + ` +[0-9a-f]{16} +10\.77\.\d\.2:\d+ +4\.1,4\.2 +active +`)
			if out, code := run(t, "client", "list", "--root="+a.root); code != 0 || strings.Count(out, name) != 1 || !line.MatchString(out) {
				t.Errorf("%s podnas client list: %d\n%s", when, code, out)
			}
		}
	}
	asOne("at first")
	eventually(t, "the metrics have two nodes", func() bool {
		metrics, err := get("http://" + probes + "/metrics")
		return err == nil && strings.Contains(metrics, "podnas_nfs4_clients 2\n")
	})
	if out, _ := run(t, "doctor", "--root="+a.root); !strings.Contains(out, "no two nodes have come with the same one") {
		t.Errorf("podnas doctor says\n%s", out)
	}

	out, code := run(t, "client", "evict", "node1", "--yes", "--root="+a.root)
	if !regexp.MustCompile(`^client Linux NFSv4 node1 \([0-9a-f]{16}, [0-9a-f]{16}, at 10\.77\.1\.2:\d+\) is evicted: it had 3 files open and 3 ranges locked`).MatchString(out) || code != 0 {
		t.Fatalf("podnas client evict: %d\n%s", code, out)
	}
	for _, f := range theirs {
		wants(t, "the other node's lock after that", lock(f, unix.F_WRLCK, 50, 1), nil)
	}
	for i, on := range [][2]*node{old, fresh} {
		within(t, time.Minute, "the node goes on", func() error {
			_, err := mine[i].WriteAt([]byte("x"), 0)
			if err == nil {
				err = mine[i].Sync()
			}
			if !errors.Is(err, unix.EIO) {
				return fmt.Errorf("the file whose lock is lost: %w, want EIO", err)
			}
			f := on[0].open(t, "locked", os.O_RDWR)
			if err := lock(f, unix.F_WRLCK, 50, 1); !errors.Is(err, unix.EAGAIN) {
				return fmt.Errorf("a lock that the other node has now: %w, want EAGAIN", err)
			}
			return lock(f, unix.F_WRLCK, 0, 10)
		})
	}
	asOne("after the node has come again")
}
