//go:build vm

package vm_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// mountedAs are the options of a mount, by /proc/mounts, after the type of its file system.
func mountedAs(t *testing.T, mnt string) string {
	t.Helper()
	mounts, err := os.ReadFile("/proc/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 3 && f[1] == mnt {
			return f[2] + " " + f[3]
		}
	}
	t.Fatalf("%s is not in /proc/mounts", mnt)
	return ""
}

// A mount that names no version, or no minor one, gets 4.2, for which mount.nfs asks first. One that asks for what is
// not served fails at once.
func TestMountWithoutVersion(t *testing.T) {
	nativeOnly(t, "go-nfs serves version 3 alone")
	a := serve(t)
	pv := a.volume("any", "16Mi")
	for version, want := range map[string]string{"": "4.2", "nfsvers=4,": "4.2", "nfsvers=4.2,": "4.2", "nfsvers=4.1,": "4.1", "v4.1,": "4.1"} {
		t.Run(version, func(t *testing.T) {
			target := t.TempDir()
			command(t, "mount", "-t", "nfs", "-o", version+"port=20490", pv.Spec.NFS.Server+":"+pv.Spec.NFS.Path, target)
			t.Cleanup(func() { unmount(t, target) })
			if got := mountedAs(t, target); !strings.HasPrefix(got, "nfs4 ") || !strings.Contains(got, ",vers="+want+",") || !strings.Contains(got, ",hard,") {
				t.Errorf("mounted as %s", got)
			}
			mustWrite(t, filepath.Join(target, "f"), []byte(version+"."))
			holds(t, filepath.Join(a.dir(pv), "f"), []byte(version+"."))
		})
	}
	out, err := exec.Command("mount", "-t", "nfs", "-o", "nfsvers=4.0,port=20490", pv.Spec.NFS.Server+":"+pv.Spec.NFS.Path, t.TempDir()).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "not supported") {
		t.Errorf("version 4.0: %v, %s", err, out)
	}
}

// Linux lists the root, whose cookies are numbers of 63 bits, and goes on from volume to volume there; and so when there is one more.
func TestMountedRoot(t *testing.T) {
	nativeOnly(t, "go-nfs serves version 3 alone")
	a := serve(t)
	var target string
	want := map[string]bool{}
	for i := range 13 {
		pv := a.volume(fmt.Sprint("listed-", i), "16Mi")
		name := strings.TrimPrefix(pv.Spec.NFS.Path, "/")
		want[name] = true
		if i == 6 {
			target = t.TempDir()
			command(t, "mount", "-t", "nfs", "-o", "nfsvers=4.2,port=20490", pv.Spec.NFS.Server+":/", target)
			t.Cleanup(func() { unmount(t, target) })
		}
		if i < 6 || i%3 > 0 {
			continue
		}
		entries, err := os.ReadDir(target)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if !want[e.Name()] || !e.IsDir() {
				t.Errorf("there is %s", e.Name())
			}
		}
		if len(entries) != len(want) {
			t.Errorf("%d names are listed of %d volumes", len(entries), len(want))
		}
		mustWrite(t, filepath.Join(target, name, "f"), []byte("by the root"))
		holds(t, filepath.Join(a.dir(pv), "f"), []byte("by the root"))
		if err := unix.Unmount(filepath.Join(target, name), 0); err != nil { // Linux has mounted it by itself
			t.Error(err)
		}
	}
}

// A volume of a class that names no version mounts with 4.2, by the options of its
// PersistentVolume alone, and podnas doctor finds nothing wrong with that, from the wire and on the
// mount.
func TestClassWithoutVersion(t *testing.T) {
	nativeOnly(t, "go-nfs serves version 3 alone")
	a := serve(t)
	a.manifest("class-plain", fmt.Sprintf(class, "plain", "Delete"))
	a.claim("locked", "plain", "16Mi")
	pv := a.provisioned("locked")
	if got := strings.Join(pv.Spec.MountOptions, ","); got != "proto=tcp,port=20490,nfsvers=4.2" {
		t.Errorf("mount options %s", got)
	}
	mnt := mount(t, pv)
	if got := mountedAs(t, mnt); !strings.HasPrefix(got, "nfs4 ") || !strings.Contains(got, ",vers=4.2,") || !strings.Contains(got, ",hard,") {
		t.Errorf("mounted as %s", got)
	}
	mustWrite(t, filepath.Join(mnt, "f"), []byte("by 4.2"))
	holds(t, filepath.Join(a.dir(pv), "f"), []byte("by 4.2"))

	options := "--options=" + strings.Join(pv.Spec.MountOptions, ",")
	out, code := run(t, "doctor", "mount", pv.Spec.NFS.Server+":"+pv.Spec.NFS.Path, options)
	if code != 0 || !strings.Contains(out, "locks hold between nodes") || !strings.Contains(out, "the file was removed") {
		t.Errorf("from the wire: %d\n%s", code, out)
	}
	if out, code = run(t, "doctor", "mount", mnt); code != 0 || !strings.Contains(out, "flock works, between all nodes") || !strings.Contains(out, "fcntl works, between all nodes") {
		t.Errorf("what is mounted: %d\n%s", code, out)
	}
	if out, code = run(t, "volume", "show", "--root="+a.root, pv.Metadata.Name); code != 0 || !strings.Contains(out, "sudo mount -t nfs -o proto=tcp,port=20490,nfsvers=4.2 127.0.0.1:"+pv.Spec.NFS.Path+" /mnt") {
		t.Errorf("podnas volume show: %d\n%s", code, out)
	}
}

// A node that is evicted loses its locks: another gets them at once, and who had one gets an
// error for what it does with that file, and can go on when it has opened it again. What the
// node has open without a lock, it keeps.
func TestEvictNode(t *testing.T) {
	nativeOnly(t, "go-nfs serves version 3 alone")
	a := newAppliance(t, settings{listen: ":20490"})
	a.start()
	a.class("locks", "Delete", "nfsvers=4.1")
	a.claim("locked", "locks", "64Mi")
	pv := a.provisioned("locked")
	one, two := newNode(t, 1, pv), newNode(t, 2, pv)

	var locked, plain, removed, other file
	one.must(func() error {
		locked, plain, removed = one.open(t, "locked", os.O_RDWR|os.O_CREATE), one.open(t, "plain", os.O_RDWR|os.O_CREATE), one.open(t, "removed", os.O_RDWR|os.O_CREATE)
		return lock(locked, unix.F_WRLCK, 0, 100)
	})
	two.must(func() error {
		other = two.open(t, "locked", os.O_RDWR)
		if err := lock(other, unix.F_WRLCK, 50, 1); !errors.Is(err, unix.EAGAIN) {
			t.Errorf("another node's lock: %v, want EAGAIN", err)
		}
		return os.Remove(filepath.Join(two.mnt, "removed"))
	})
	for _, want := range []string{"Linux NFSv4 node1", "Linux NFSv4 node2"} {
		if out, code := run(t, "client", "list", "--root="+a.root); code != 0 || !strings.Contains(out, want) {
			t.Errorf("podnas client list: %d\n%s", code, out)
		}
	}
	if out, code := run(t, "volume", "show", pv.Metadata.Name, "--root="+a.root); code != 0 || !strings.Contains(out, "lock write 0 to 99") || !strings.Contains(out, "removed (removed)") {
		t.Errorf("podnas volume show: %d\n%s", code, out)
	}

	if out, code := run(t, "client", "evict", "node1", "--yes", "--root="+a.root); code != 0 || !strings.Contains(out, "1 range locked") {
		t.Fatalf("podnas client evict: %d\n%s", code, out)
	}
	two.must(func() error { return lock(other, unix.F_WRLCK, 50, 1) })
	within(t, time.Minute, "the node that was evicted goes on", func() error {
		return one.do(func() error {
			if _, err := plain.WriteAt([]byte("still open"), 0); err != nil {
				return fmt.Errorf("a file without a lock: %w", err)
			}
			if err := plain.Sync(); err != nil {
				return fmt.Errorf("a file without a lock: %w", err)
			}
			_, err := locked.WriteAt([]byte("x"), 0)
			if err == nil {
				err = locked.Sync()
			}
			if !errors.Is(err, unix.EIO) {
				return fmt.Errorf("the file whose lock is lost: %w, want EIO", err)
			}
			_, err = removed.WriteAt([]byte("x"), 0)
			if err == nil {
				err = removed.Sync()
			}
			if err == nil {
				return errors.New("a file that was removed is still there")
			}
			t.Logf("a file that was removed: %v", err)
			again := one.open(t, "locked", os.O_RDWR)
			if err := lock(again, unix.F_WRLCK, 50, 1); !errors.Is(err, unix.EAGAIN) {
				return fmt.Errorf("a lock that the other node has now: %w, want EAGAIN", err)
			}
			return lock(again, unix.F_WRLCK, 0, 10)
		})
	})
	holds(t, filepath.Join(a.dir(pv), "plain"), []byte("still open"))
}
