//go:build vm

package vm_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestStalledLookup: while the disk does not say what a name is, and how full it is, the node's other
// calls, which are on the same connection, are answered.
func TestStalledLookup(t *testing.T) {
	nativeOnly(t, "go-nfs answers one call of a connection after the other")
	disk := newMappedDisk(t, 1<<30)
	a := newAppliance(t, settings{root: disk.dir})
	a.start()
	pv := a.volume("stalled", "256Mi")
	onDisk := filepath.Join(a.dir(pv), "dir")
	if err := os.Mkdir(onDisk, 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		if err := write(filepath.Join(onDisk, fmt.Sprint("file-", i)), []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	a.stop()
	disk.remount() // so that no inode is in memory that has yet to be written
	a.start()
	mnt := mountWith(t, pv, append(pv.Spec.MountOptions, "actimeo=0")) // each look at the root is a call
	dir := filepath.Join(mnt, "dir")
	if _, err := os.Lstat(filepath.Join(dir, "none")); !os.IsNotExist(err) { // but the directory
		t.Fatal(err)
	}
	if err := dropAllCaches(); err != nil {
		t.Fatal(err)
	}
	disk.stall()
	stalled := true
	defer func() {
		if stalled {
			disk.resume()
		}
	}()
	looked, counted := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := os.Lstat(filepath.Join(dir, "file-50"))
		looked <- err
	}()
	go func() {
		var st unix.Statfs_t
		counted <- unix.Statfs(mnt, &st)
	}()
	for range 10 {
		time.Sleep(100 * time.Millisecond)
		answered := make(chan error, 1)
		go func() {
			_, err := os.Lstat(mnt)
			answered <- err
		}()
		select {
		case err := <-answered:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(5 * time.Second):
			t.Fatal("a call that does not need the disk waits behind one that does")
		}
	}
	if len(looked) > 0 {
		t.Error("the name was looked up without the disk")
	}
	disk.resume()
	stalled = false
	if err := errors.Join(<-looked, <-counted); err != nil {
		t.Error(err)
	}
}
