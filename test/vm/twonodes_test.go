//go:build vm

package vm_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// node is a network namespace and a host name of its own. The kernel's NFS client is one for
// each namespace, and has the host name in its identity: to the server these are two machines.
type node struct {
	t    *testing.T
	do   func(func() error) error // runs a function on a thread that is there
	link string                   // the server's end of its link
	addr string                   // the server's address on it
	local
}

// newNode makes the node with this number, with the volume mounted.
func newNode(t *testing.T, n int, pv persistentVolume) *node {
	t.Helper()
	v := newMachine(t, n, fmt.Sprint("node", n))
	pv.Spec.NFS.Server = v.addr
	v.must(func() error { v.mnt = mount(t, pv); return nil })
	return v
}

// newMachine makes the node with this number and a host name, without a mount.
func newMachine(t *testing.T, n int, host string) *node {
	t.Helper()
	v := &node{t: t, link: fmt.Sprint("server", n), addr: fmt.Sprintf("10.77.%d.1", n)}
	inside := fmt.Sprint("node", n)
	jobs, results := make(chan func() error), make(chan error)
	ids := make(chan int)
	go func() {
		runtime.LockOSThread() // it ends with the goroutine
		err := unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_NEWUTS)
		if err == nil {
			err = unix.Sethostname([]byte(host))
		}
		ids <- unix.Gettid()
		for do := range jobs {
			if err != nil {
				results <- err
				continue
			}
			results <- do()
		}
	}()
	id := <-ids
	v.do = func(do func() error) error {
		jobs <- do
		return <-results
	}
	t.Cleanup(func() { close(jobs) })
	v.ip("link add " + v.link + " type veth peer name " + inside)
	t.Cleanup(func() { v.ip("link del " + v.link) })
	v.ip(fmt.Sprintf("link set %s netns %d", inside, id))
	v.ip("addr add " + v.addr + "/24 dev " + v.link)
	v.up()
	v.must(func() error {
		v.ip("link set lo up")
		v.ip(fmt.Sprintf("addr add 10.77.%d.2/24 dev %s", n, inside))
		v.ip("link set " + inside + " up")
		return nil
	})
	return v
}

func (v *node) must(do func() error) {
	v.t.Helper()
	if err := v.do(do); err != nil {
		v.t.Fatal(err)
	}
}

// ip runs ip(8), in the namespace of the thread.
func (v *node) ip(args string) {
	v.t.Helper()
	if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
		v.t.Errorf("ip %s: %v\n%s", args, err, out)
	}
}

// cut takes the node's link down.
func (v *node) cut() { v.set(false) }

// up takes it up again.
func (v *node) up() { v.set(true) }

// set takes the link up or down by itself: a program, when it starts, closes the files that it
// got from this process, and those that were written over this link can't be closed without it.
func (v *node) set(up bool) {
	v.t.Helper()
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		v.t.Fatal(err)
	}
	defer unix.Close(s)
	link, err := unix.NewIfreq(v.link)
	if err == nil {
		err = unix.IoctlIfreq(s, unix.SIOCGIFFLAGS, link)
	}
	if err == nil {
		flags := link.Uint16() &^ unix.IFF_UP
		if up {
			flags |= unix.IFF_UP
		}
		link.SetUint16(flags)
		err = unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, link)
	}
	if err != nil {
		v.t.Fatalf("link %s: %v", v.link, err)
	}
}

// twoNodes is a server with a volume that two nodes have mounted.
func twoNodes(t *testing.T) (*appliance, persistentVolume, [2]*node) {
	t.Helper()
	return twoNodesOf(t, settings{})
}

// twoNodesOf is twoNodes with an appliance of one's own.
func twoNodesOf(t *testing.T, s settings) (*appliance, persistentVolume, [2]*node) {
	t.Helper()
	s.listen = ":20490"
	a := newAppliance(t, s)
	a.start()
	pv := a.volume("shared", "256Mi")
	return a, pv, [2]*node{newNode(t, 1, pv), newNode(t, 2, pv)}
}

// open opens a file of the volume for the rest of the test.
func (v *node) open(t *testing.T, name string, flags int) file {
	t.Helper()
	return openBy(t, v, name, flags)
}

// within runs what must end in time.
func within(t *testing.T, limit time.Duration, what string, do func() error) {
	t.Helper()
	done, began := make(chan error, 1), time.Now()
	go func() { done <- do() }()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
		t.Logf("%s took %v", what, time.Since(began).Round(time.Millisecond))
	case <-time.After(limit):
		t.Fatalf("%s hangs; in the kernel:\n%s", what, stuckStacks())
	}
}

// stuckStacks are the kernel stacks of the threads that are inside the NFS client, or that no
// signal reaches.
func stuckStacks() string {
	var b strings.Builder
	files, _ := filepath.Glob("/proc/[0-9]*/task/*/stack") // its pattern is fine
	for _, file := range files {
		stack, err := os.ReadFile(file)
		status, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "status"))
		if err == nil && (strings.Contains(string(stack), "nfs") || strings.Contains(string(status), "State:\tD")) {
			name, _, _ := strings.Cut(string(status), "\n")
			fmt.Fprintf(&b, "%s %s\n%s\n", file, name, stack)
		}
	}
	return b.String()
}
