//go:build cluster

package cluster_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/podnas/podnas/internal/doctor"
	"github.com/podnas/podnas/nfs/mount3"
	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/test/testdisk"
)

// viewOfSnapshot makes a claim one that shows a VolumeSnapshot.
func viewOfSnapshot(name string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) {
		copyOfSnapshot(name)(c)
		c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}
	}
}

// What nobody may write to shows the snapshot, which stays while there is such a claim, and then goes as it was asked to.
func TestClaimThatShowsASnapshot(t *testing.T) {
	testdisk.XFS(t, func(t *testing.T, disk string) {
		snapshotController(t)
		n := newTenant(t)
		s := newSnapshots(t, n)
		p := podnasOn(t, disk, n.provisioner)
		class := n.class("", expandable)
		deletes := s.snapshotClass("", "Delete", true)
		n.claim("data", class, "2Mi", nil)
		source := n.bound("data")
		writeFile(t, filepath.Join(p.root, source.Name, "file"), "before")
		s.snapshot("first", deletes, "data")
		handle, content := s.ready(s.name, "first")
		tree := func() string {
			found, _ := filepath.Glob(filepath.Join(p.root, ".podnas/snapshots/*/ready", handle[strings.LastIndex(handle, "/")+1:]))
			return strings.Join(found, " ")
		}
		writeFile(t, filepath.Join(p.root, source.Name, "file"), "after")

		n.claim("read", class, "2Mi", viewOfSnapshot("first"))
		n.claim("read-again", class, "4Mi", viewOfSnapshot("first"))
		v, again := n.bound("read"), n.bound("read-again")
		if !v.Spec.NFS.ReadOnly || !slices.Contains(v.Spec.MountOptions, "ro") || !slices.Equal(v.Spec.AccessModes, []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}) {
			t.Errorf("%+v", v.Spec)
		}
		if capacity := again.Spec.Capacity[corev1.ResourceStorage]; capacity.String() != "4Mi" {
			t.Errorf("the second has %s", capacity.String())
		}
		if got := p.volumes(); !slices.Equal(got, []string{source.Name}) {
			t.Errorf("the disk has %q", got)
		}
		file := checkView(t, p, v)

		t.Run("refused", func(t *testing.T) {
			n.claim("small", class, "1Mi", viewOfSnapshot("first"))
			if message := n.failure("small"); !strings.Contains(message, "2Mi") || !strings.Contains(message, "1Mi") {
				t.Errorf("the event is %q, want both sizes", message)
			}
			n.deleteClaim("small")
			n.grow("read", "8Mi")
			if message := n.event(n.name, "read", "VolumeResizeFailed"); !strings.Contains(message, "it shows a snapshot") {
				t.Errorf("the event is %q", message)
			}
			s.snapshot("of-a-view", deletes, "read-again")
			if message := n.event(n.name, "of-a-view", "SnapshotFailed"); !strings.Contains(message, "it is the snapshot") {
				t.Errorf("the event is %q", message)
			}
			s.delete("of-a-view")
			eventually(t, time.Minute, "it goes", func() bool { return s.get(snapshotsResource, s.name, "of-a-view") == nil })
		})
		t.Run("copies", func(t *testing.T) {
			n.claim("copy", class, "8Mi", func(c *corev1.PersistentVolumeClaim) {
				viewOfSnapshot("first")(c)
				c.Spec.AccessModes = append(c.Spec.AccessModes, corev1.ReadWriteMany)
			})
			n.claim("copy-of-view", class, "8Mi", func(c *corev1.PersistentVolumeClaim) {
				c.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "read"}
				c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}
			})
			for _, name := range []string{"copy", "copy-of-view"} {
				if got, err := os.ReadFile(filepath.Join(p.root, n.bound(name).Name, "file")); string(got) != "before" {
					t.Errorf("%s has %q, %v", name, got, err)
				}
			}
		})
		t.Run("the snapshot stays", func(t *testing.T) {
			name := handle[strings.LastIndex(handle, "/")+1:]
			if _, errs, code := p.run("snapshot", "delete", source.Name, name, "--yes"); code == 0 || !strings.Contains(errs, "claim "+n.name+"/read") {
				t.Errorf("by command: %d, %s", code, errs)
			}
			s.delete("first")
			if message := n.event(n.name, "first", "SnapshotDeleteFailed"); !strings.Contains(message, "claim "+n.name+"/read") {
				t.Errorf("the event is %q", message)
			}
			eventually(t, time.Minute, "the content says why", func() bool {
				return strings.Contains(s.statusError(contentsResource, "", content.GetName()), "shows its files")
			})
			eventually(t, time.Minute, "the doctor says why", func() bool {
				results, _ := p.doctor()
				return found(results, "VolumeSnapshotContent "+content.GetName(), doctor.Warning, "can't be yet")
			})
			p.kill()
			p.start()
			if read := readFile(t, p, file); string(read.Data) != "before" {
				t.Errorf("by the handle of before: %q, %s", read.Data, read.Status)
			}
			n.deleteClaim("data")
			n.gone(source.Name)
			n.deleteClaim("read")
			n.gone(v.Name)
			checkView(t, p, again)
			if read := readFile(t, p, file); read.Status != nfs3.ErrStale {
				t.Errorf("by the handle of one that is deleted: %q, %s", read.Data, read.Status)
			}
			if s.get(snapshotsResource, s.name, "first") == nil || tree() == "" {
				t.Errorf("the VolumeSnapshot is gone, its files are %q", tree())
			}
			n.deleteClaim("read-again")
			eventually(t, time.Minute, "the VolumeSnapshot goes, and its files", func() bool {
				return s.get(snapshotsResource, s.name, "first") == nil && tree() == ""
			})
		})
	})
}

// A snapshot that is deleted while claims of it are made is there for each that gets a volume.
func TestSnapshotDeletedWhileClaimsAreMade(t *testing.T) {
	testdisk.XFS(t, func(t *testing.T, disk string) {
		snapshotController(t)
		n := newTenant(t)
		s := newSnapshots(t, n)
		p := podnasOn(t, disk, n.provisioner)
		class, deletes := n.class("", nil), s.snapshotClass("", "Delete", true)
		n.claim("data", class, "2Mi", nil)
		writeFile(t, filepath.Join(p.root, n.bound("data").Name, "file"), "before")
		s.snapshot("first", deletes, "data")
		_, content := s.ready(s.name, "first")
		for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
			n.claim(name, class, "2Mi", viewOfSnapshot("first"))
			if name == "d" {
				s.delete("first")
			}
		}
		// All are bound, or the snapshot is gone before: then they say so.
		settled := func() (bound int, all bool) {
			all = true
			claims, _ := n.claims()
			for i := range claims {
				c := &claims[i]
				switch {
				case c.Name == "data":
				case c.Status.Phase == corev1.ClaimBound:
					bound++
				case len(n.events(n.name, c.Name, "ProvisioningFailed")) == 0:
					all = false
				}
			}
			return bound, all
		}
		eventually(t, 2*time.Minute, "each claim has a volume, or an event", func() bool {
			_, all := settled()
			return all
		})
		bound, _ := settled()
		t.Logf("%d claims are bound", bound)
		for _, pv := range n.volumes() {
			if pv.Spec.NFS.ReadOnly {
				checkView(t, p, &pv)
			}
		}
		if bound > 0 && s.get(contentsResource, "", content.GetName()) == nil {
			t.Error("the content is gone")
		}
		n.deleteClaims()
		eventually(t, 2*time.Minute, "the VolumeSnapshot goes", func() bool { return s.get(snapshotsResource, s.name, "first") == nil })
	})
}

// checkView reads and changes a volume that shows a snapshot, and returns the handle of its file.
func checkView(t *testing.T, p *podnas, v *corev1.PersistentVolume) nfs3.FH {
	t.Helper()
	client := p.dial()
	defer client.Close()
	root, err := client.Mount(t.Context(), v.Spec.NFS.Path)
	if err != nil || root.Status != mount3.OK {
		t.Fatalf("mount %s: %s (%v)", v.Spec.NFS.Path, root.Status, err)
	}
	file, err := client.Lookup(t.Context(), root.Handle, "file")
	if err != nil || file.Status != nfs3.OK {
		t.Fatalf("LOOKUP in %s: %s (%v)", v.Name, file.Status, err)
	}
	if read := readFile(t, p, file.Object); string(read.Data) != "before" {
		t.Errorf("%s has %q, %s", v.Name, read.Data, read.Status)
	}
	if written, err := client.Write(t.Context(), file.Object, 0, nfs3.FileSync, []byte("x")); err != nil || written.Status != nfs3.ErrROFS {
		t.Errorf("WRITE to %s: %s (%v)", v.Name, written.Status, err)
	}
	return file.Object
}
