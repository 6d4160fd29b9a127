//go:build vm

package vm_test

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestNothingLeft: once all clients are gone, a podnas that had much to do has no
// more descriptors and goroutines than one that had little.
func TestNothingLeft(t *testing.T) {
	nativeOnly(t, "it keeps nothing open")
	a := serve(t)
	pv := a.volume("left", "128Mi")
	use(t, a, pv, "little", 10)
	time.Sleep(8 * time.Second) // a file is closed when it was idle for 5 s
	before := a.descriptors()
	little := a.goroutines()

	a.start()
	for i := range 3 {
		use(t, a, pv, fmt.Sprint("much-", i), 100)
	}
	// Clients that end in the middle of something.
	conns := make([]*net.TCPConn, 40)
	for i := range conns {
		conn, err := net.Dial("tcp", "127.0.0.1:20490")
		if err != nil {
			t.Fatal(err)
		}
		conns[i] = conn.(*net.TCPConn)
		if _, err := conn.Write([]byte{0x80, 0, 1, 0, 'h', 'a', 'l', 'f'}[:1+i%8]); err != nil {
			t.Fatal(err)
		}
	}
	for i, conn := range conns {
		if i%2 == 0 {
			if err := conn.SetLinger(0); err != nil { // a reset
				t.Fatal(err)
			}
		}
		conn.Close()
	}
	// Volumes that come and go.
	for i := range 3 {
		name := fmt.Sprint("goes-", i)
		use(t, a, a.volume(name, "64Mi"), "f", 20)
		a.unclaim(name)
	}
	eventually(t, "the volumes are gone", func() bool {
		entries, err := os.ReadDir(a.root)
		return err == nil && len(entries) == 2 && len(a.trash()) == 0 // .podnas and the one that stays
	})
	for deadline := time.Now().Add(30 * time.Second); len(a.descriptors()) > len(before); time.Sleep(time.Second) {
		if time.Now().After(deadline) {
			t.Errorf("podnas has open %d descriptors, after little work %d:\n%s\nand then:\n%s",
				len(a.descriptors()), len(before), strings.Join(a.descriptors(), "\n"), strings.Join(before, "\n"))
			break
		}
	}
	much := a.goroutines()
	for _, begun := range slices.Sorted(maps.Keys(much)) {
		if much[begun] > little[begun] {
			t.Errorf("%d goroutines %s, after little work %d", much[begun], begun, little[begun])
		}
	}
	t.Logf("%d descriptors, %d kinds of goroutines", len(before), len(little))
}

// use mounts the volume, works with n files in it, and unmounts.
func use(t *testing.T, a *appliance, pv persistentVolume, prefix string, n int) {
	t.Helper()
	target := t.TempDir()
	if out, err := mountCommand(t.Context(), pv, target).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	defer unmount(t, target)
	for i := range n {
		name := filepath.Join(target, fmt.Sprint(prefix, "-", i))
		mustWrite(t, name, []byte(name))
	}
	dropCaches(t)
	for i := range n {
		name := filepath.Join(target, fmt.Sprint(prefix, "-", i))
		holds(t, name, []byte(name))
		if i%3 != 0 {
			continue
		}
		if err := errors.Join(os.Rename(name, name+"-renamed"), os.Remove(name+"-renamed")); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.ReadDir(target); err != nil {
		t.Error(err)
	}
}

// descriptors are what podnas has open.
func (a *appliance) descriptors() []string {
	a.t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", a.cmd.Process.Pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		a.t.Fatal(err)
	}
	var open []string
	for _, e := range entries {
		if to, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil { // or it is closed by now
			open = append(open, to)
		}
	}
	return open
}

// goroutines ends podnas with SIGQUIT, on which a Go program lists its goroutines,
// and counts them by where they were begun.
func (a *appliance) goroutines() map[string]int {
	a.t.Helper()
	said := len(a.output())
	if err := a.cmd.Process.Signal(syscall.SIGQUIT); err != nil {
		a.t.Fatal(err)
	}
	_ = a.wait() // its status says that it was quit
	count := map[string]int{}
	for _, m := range regexp.MustCompile(`(?m)^created by (\S+)`).FindAllSubmatch(a.output()[said:], -1) {
		count["begun by "+string(m[1])]++
	}
	if len(count) == 0 {
		a.t.Errorf("podnas listed no goroutines:\n%s", a.output()[said:])
	}
	return count
}
