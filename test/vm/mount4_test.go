//go:build vm

package vm_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
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

// A mount that names no version, or no minor one, gets 4.1: mount.nfs asks for 4.2 first, and
// for the next lower one where the server says MINOR_VERS_MISMATCH. One that asks for what is
// not served fails at once.
func TestMountWithoutVersion(t *testing.T) {
	nativeOnly(t, "go-nfs serves version 3 alone")
	a := serve(t)
	pv := a.volume("any", "16Mi")
	for _, version := range []string{"", "nfsvers=4,", "nfsvers=4.1,", "v4.1,"} {
		t.Run(version, func(t *testing.T) {
			target := t.TempDir()
			command(t, "mount", "-t", "nfs", "-o", version+"port=20490", pv.Spec.NFS.Server+":"+pv.Spec.NFS.Path, target)
			t.Cleanup(func() { unmount(t, target) })
			if got := mountedAs(t, target); !strings.HasPrefix(got, "nfs4 ") || !strings.Contains(got, ",vers=4.1,") || !strings.Contains(got, ",hard,") {
				t.Errorf("mounted as %s", got)
			}
			mustWrite(t, filepath.Join(target, "f"), []byte(version+"."))
			holds(t, filepath.Join(a.dir(pv), "f"), []byte(version+"."))
		})
	}
	for _, version := range []string{"nfsvers=4.0", "nfsvers=4.2"} {
		out, err := exec.Command("mount", "-t", "nfs", "-o", version+",port=20490", pv.Spec.NFS.Server+":"+pv.Spec.NFS.Path, t.TempDir()).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "not supported") {
			t.Errorf("%s: %v, %s", version, err, out)
		}
	}
}

// A volume of a class that asks for 4.1 mounts with it, by the options of its PersistentVolume
// alone, and podnas doctor finds nothing wrong with that, from the wire and on the mount.
func TestClassWith41(t *testing.T) {
	nativeOnly(t, "go-nfs serves version 3 alone")
	a := serve(t)
	a.class("locks", "Delete", "nfsvers=4.1")
	a.claim("locked", "locks", "16Mi")
	pv := a.provisioned("locked")
	if got := strings.Join(pv.Spec.MountOptions, ","); got != "proto=tcp,port=20490,nfsvers=4.1" {
		t.Errorf("mount options %s", got)
	}
	mnt := mount(t, pv)
	if got := mountedAs(t, mnt); !strings.HasPrefix(got, "nfs4 ") || !strings.Contains(got, ",vers=4.1,") || !strings.Contains(got, ",hard,") {
		t.Errorf("mounted as %s", got)
	}
	mustWrite(t, filepath.Join(mnt, "f"), []byte("by 4.1"))
	holds(t, filepath.Join(a.dir(pv), "f"), []byte("by 4.1"))

	options := "--options=" + strings.Join(pv.Spec.MountOptions, ",")
	out, code := run(t, "doctor", "mount", pv.Spec.NFS.Server+":"+pv.Spec.NFS.Path, options)
	if code != 0 || !strings.Contains(out, "locks hold between nodes") || !strings.Contains(out, "the file was removed") {
		t.Errorf("from the wire: %d\n%s", code, out)
	}
	if out, code = run(t, "doctor", "mount", mnt); code != 0 || !strings.Contains(out, "flock works, between all nodes") || !strings.Contains(out, "fcntl works, between all nodes") {
		t.Errorf("what is mounted: %d\n%s", code, out)
	}
	if out, code = run(t, "volume", "show", "--root="+a.root, pv.Metadata.Name); code != 0 || !strings.Contains(out, "sudo mount -t nfs -o proto=tcp,port=20490,nfsvers=4.1 127.0.0.1:"+pv.Spec.NFS.Path+" /mnt") {
		t.Errorf("podnas volume show: %d\n%s", code, out)
	}
}
