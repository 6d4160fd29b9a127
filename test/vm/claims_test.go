//go:build vm

package vm_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestSeveralVolumes: volumes that are in use at the same time know nothing of
// each other.
func TestSeveralVolumes(t *testing.T) {
	a := serve(t)
	a.class("standard", "Delete")
	for i := range 6 {
		a.claim(fmt.Sprint("claim-", i), "standard", "32Mi")
	}
	var mounts []string
	for i := range 6 {
		mounts = append(mounts, mount(t, a.provisioned(fmt.Sprint("claim-", i))))
	}
	var wg sync.WaitGroup
	for i, mnt := range mounts {
		wg.Go(func() {
			if err := write(filepath.Join(mnt, "f"), data(byte(i), 4<<20)); err != nil {
				t.Error(err)
			}
			if err := write(filepath.Join(mnt, fmt.Sprint("only-in-", i)), nil); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	dropCaches(t)
	for i, mnt := range mounts {
		holds(t, filepath.Join(mnt, "f"), data(byte(i), 4<<20))
		entries, err := os.ReadDir(mnt)
		if err != nil || len(entries) != 2 || entries[1].Name() != fmt.Sprint("only-in-", i) {
			t.Errorf("volume %d lists %v, %v", i, entries, err)
		}
	}
}

// TestMountOptions: the class's mount options reach the PersistentVolume, after
// those that every mount needs, and the mount.
func TestMountOptions(t *testing.T) {
	nativeOnly(t, "the engine has no part in it")
	a := serve(t)
	a.class("tuned", "Delete", "nfsvers=3", "noatime", "rsize=65536")
	a.claim("tuned", "tuned", "16Mi")
	pv := a.provisioned("tuned")
	want := []string{"nfsvers=3", "proto=tcp", "port=20490", "mountport=20490", "mountproto=tcp", "mountvers=3", "nolock", "timeo=100", "retrans=2", "noatime", "rsize=65536"}
	for _, option := range want {
		if !slices.Contains(pv.Spec.MountOptions, option) {
			t.Errorf("mount options %q have no %s", pv.Spec.MountOptions, option)
		}
	}
	mnt := mount(t, pv)
	mounts, err := os.ReadFile("/proc/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, mnt) {
			for _, option := range []string{"vers=3", "proto=tcp", "port=20490", "noatime", "rsize=65536"} {
				if !strings.Contains(line, option) {
					t.Errorf("the mount has no %s: %s", option, line)
				}
			}
			return
		}
	}
	t.Errorf("%s is not in /proc/mounts", mnt)
}

// TestNoRpcbind: neither mount.nfs nor umount.nfs asks rpcbind for a port. In a cluster nobody
// answers there, and each pod would take ten seconds more to end.
func TestNoRpcbind(t *testing.T) {
	nativeOnly(t, "the engine has no part in it")
	rpcbind, err := net.Listen("tcp", "127.0.0.1:111")
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan error, 1)
	go func() {
		c, err := rpcbind.Accept()
		if err == nil {
			err = errors.Join(errors.New("it was asked"), c.Close())
		}
		asked <- err
	}()
	a := serve(t)
	target := t.TempDir()
	for _, cmd := range []*exec.Cmd{mountCommand(t.Context(), a.volume("v", "16Mi"), target), exec.Command("umount", target)} {
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", cmd, err, out)
		}
	}
	if err := rpcbind.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-asked; !errors.Is(err, net.ErrClosed) {
		t.Errorf("rpcbind: %v", err)
	}
}

// TestIPv6: a volume of a server with an IPv6 address mounts with the volume's
// own options.
func TestIPv6(t *testing.T) {
	nativeOnly(t, "the engine has no part in it")
	a := newAppliance(t, settings{listen: "[::1]:20490"})
	a.start()
	pv := a.volume("six", "32Mi")
	if pv.Spec.NFS.Server != "::1" {
		t.Errorf("server %q, want ::1", pv.Spec.NFS.Server)
	}
	mnt := mount(t, pv)
	b := data(1, 2<<20)
	mustWrite(t, filepath.Join(mnt, "f"), b)
	dropCaches(t)
	holds(t, filepath.Join(mnt, "f"), b)
	holds(t, filepath.Join(a.dir(pv), "f"), b)
}

// TestPrintedMountCommand runs the command that podnas prints for a volume, as
// somebody who tries it in a shell does.
func TestPrintedMountCommand(t *testing.T) {
	nativeOnly(t, "the engine has no part in it")
	for name, listen := range map[string]string{"IPv4": "127.0.0.1:20490", "IPv6": "[::1]:20490"} {
		t.Run(name, func(t *testing.T) {
			a := newAppliance(t, settings{listen: listen})
			a.start()
			pv := a.volume("printed", "16Mi")
			var printed []string
			eventually(t, "the mount command for the volume is printed", func() bool {
				for line := range bytes.Lines(a.output()) {
					_, options, ok := strings.Cut(string(line), "mount -t nfs ")
					if ok && strings.Contains(options, pv.Spec.NFS.Path) {
						printed = append([]string{"mount", "-t", "nfs"}, strings.Fields(options)...)
					}
				}
				return len(printed) > 0
			})
			target := t.TempDir()
			command(t, printed[0], append(printed[1:len(printed)-1], target)...)
			t.Cleanup(func() { unmount(t, target) })
			mustWrite(t, filepath.Join(target, "f"), []byte("by hand"))
			holds(t, filepath.Join(a.dir(pv), "f"), []byte("by hand"))
		})
	}
}

// TestDelete removes a claim whose volume is mounted: the volume, its files and
// its quota limit go, and a client that still has it gets an error.
func TestDelete(t *testing.T) {
	a := serve(t)
	pv, other := a.volume("gone", "32Mi"), a.volume("stays", "32Mi")
	mnt, mntOther := mount(t, pv), mount(t, other)
	mustWrite(t, filepath.Join(mnt, "f"), data(1, 8<<20))
	b := data(2, 8<<20)
	mustWrite(t, filepath.Join(mntOther, "f"), b)
	// The server's own work must not follow this out of the volume.
	outside := filepath.Join(a.dir(other), "f")
	if err := os.Symlink(outside, filepath.Join(mnt, "link")); err != nil {
		t.Fatal(err)
	}
	id := project(t, a.dir(pv))
	if limit, _ := limitAndUse(t, id); limit != 32<<20 {
		t.Errorf("the volume's limit is %d before", limit)
	}

	a.unclaim("gone")
	eventually(t, "the volume is gone", func() bool {
		_, found := a.find("gone")
		_, err := os.Lstat(a.dir(pv))
		return !found && os.IsNotExist(err)
	})
	eventually(t, "the trash is empty and the limit cleared", func() bool {
		limit, use := limitAndUse(t, id)
		return limit == 0 && use == 0 && len(a.trash()) == 0
	})
	dropCaches(t)
	if _, err := os.ReadDir(mnt); !errors.Is(err, syscall.ESTALE) && !errors.Is(err, syscall.ENOENT) && !errors.Is(err, syscall.EACCES) {
		t.Errorf("the removed volume lists with %v, want ESTALE", err)
	}
	if err := write(filepath.Join(mnt, "new"), []byte("too late")); err == nil {
		t.Error("the removed volume still takes files")
	}
	holds(t, filepath.Join(mntOther, "f"), b)

	// The same claim again is a new, empty volume, with its own limit.
	a.claim("gone", "standard", "48Mi")
	again := a.provisioned("gone")
	entries, err := os.ReadDir(a.dir(again))
	if err != nil || len(entries) != 0 {
		t.Errorf("the new volume holds %v, %v", entries, err)
	}
	if limit, _ := limitAndUse(t, project(t, a.dir(again))); limit != 48<<20 {
		t.Errorf("the new volume's limit is %d", limit)
	}
}

// TestDeleteWhileDown: a claim that went while podnas was stopped is dealt with
// at the next start, and so is a trash that was not empty yet.
func TestDeleteWhileDown(t *testing.T) {
	nativeOnly(t, "the engine has no part in it")
	a := serve(t)
	a.volume("stays", "16Mi") // without any claim that it knows, it may be the wrong folder
	big, small := a.volume("big", "64Mi"), a.volume("small", "16Mi")
	for i := range 3000 {
		if err := os.WriteFile(filepath.Join(a.dir(big), fmt.Sprint(i)), []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	a.unclaim("big")
	eventually(t, "the volume is in the trash", func() bool {
		_, err := os.Lstat(a.dir(big))
		return os.IsNotExist(err)
	})
	a.kill()
	a.unclaim("small")
	a.start()
	eventually(t, "both volumes are gone and the trash is empty", func() bool {
		_, err := os.Lstat(a.dir(small))
		_, found := a.find("small")
		return os.IsNotExist(err) && !found && len(a.trash()) == 0
	})
}

// TestRetain: a class that retains leaves the data when its claim goes.
func TestRetain(t *testing.T) {
	nativeOnly(t, "the engine has no part in it")
	a := serve(t)
	a.class("kept", "Retain")
	a.claim("kept", "kept", "32Mi")
	a.volume("deleted", "16Mi")
	pv := a.provisioned("kept")
	if pv.Spec.ReclaimPolicy != "Retain" {
		t.Errorf("reclaim policy %q", pv.Spec.ReclaimPolicy)
	}
	mnt := mount(t, pv)
	b := data(1, 4<<20)
	mustWrite(t, filepath.Join(mnt, "f"), b)
	a.unclaim("kept")
	a.unclaim("deleted")
	// The other one going shows that podnas has looked.
	eventually(t, "the other volume is gone", func() bool {
		_, found := a.find("deleted")
		return !found
	})
	a.stop()
	a.start()
	holds(t, filepath.Join(a.dir(pv), "f"), b)
	if limit, _ := limitAndUse(t, project(t, a.dir(pv))); limit != 32<<20 {
		t.Errorf("the retained volume's limit is now %d", limit)
	}
	dropCaches(t)
	holds(t, filepath.Join(mnt, "f"), b)
}

// TestTooLarge: a claim that the disk can't hold gets no volume, and the reason
// with both numbers.
func TestTooLarge(t *testing.T) {
	nativeOnly(t, "the engine has no part in it")
	a := serve(t)
	a.class("standard", "Delete")
	a.claim("huge", "standard", "500Gi")
	why := regexp.MustCompile(`500Gi [^\n]*\b[0-9.]+Gi is free`)
	eventually(t, "podnas says why", func() bool { return why.Match(a.output()) })
	if pv, found := a.find("huge"); found {
		t.Errorf("there is a volume %s of 500Gi", pv.Metadata.Name)
	}
	// It holds nobody else up.
	a.volume("modest", "16Mi")
}

// TestForeignPaths: only volumes can be mounted, by their own path.
func TestForeignPaths(t *testing.T) {
	a := serve(t)
	pv := a.volume("mine", "16Mi")
	if err := os.WriteFile(filepath.Join(a.root, "stray"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(a.root, "dir"), 0o777); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{
		"/", "/.podnas", "/.podnas/trash", "/no-such-volume", "/stray", "/dir", "/..", "/../etc",
		pv.Spec.NFS.Path + "/..", pv.Spec.NFS.Path + "/../.podnas",
	} {
		foreign := pv
		foreign.Spec.NFS.Path = path
		target := t.TempDir()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		out, err := mountCommand(ctx, foreign, target).CombinedOutput()
		cancel()
		if err == nil {
			unmount(t, target)
			t.Errorf("%s can be mounted", path)
		} else if !bytes.Contains(out, []byte("denied")) && !bytes.Contains(out, []byte("No such file")) && !bytes.Contains(out, []byte("not a directory")) {
			t.Errorf("mount of %s: %v, %s", path, err, out)
		}
	}
}
