//go:build vm

package vm_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestFullVolume fills a volume past its claim's size: the writer gets the error
// of a full disk, the volume stays usable, and the next volume feels nothing.
func TestFullVolume(t *testing.T) {
	a := serve(t)
	full, other := a.volume("full", "32Mi"), a.volume("other", "32Mi")
	mntFull, mntOther := mount(t, full), mount(t, other)

	keep := data(1, 8<<20)
	mustWrite(t, filepath.Join(mntFull, "keep"), keep)
	err := write(filepath.Join(mntFull, "big"), data(2, 48<<20))
	if !noSpace(err) {
		t.Fatalf("48 MiB more into a volume of 32 MiB: %v; want ENOSPC or EDQUOT", err)
	}
	if _, use := limitAndUse(t, project(t, a.dir(full))); use > 32<<20 {
		t.Errorf("the volume of 32 MiB holds %d bytes on the disk", use)
	}
	b := data(3, 16<<20)
	mustWrite(t, filepath.Join(mntOther, "f"), b)

	dropCaches(t)
	holds(t, filepath.Join(mntFull, "keep"), keep)
	holds(t, filepath.Join(mntOther, "f"), b)
	if err := os.Remove(filepath.Join(mntFull, "big")); err != nil {
		t.Fatal(err)
	}
	// XFS gives the space of a removed file back a moment later.
	b = data(4, 16<<20)
	eventually(t, 10*time.Second, "16 MiB can be written where 48 MiB were removed", func() bool {
		return write(filepath.Join(mntFull, "again"), b) == nil
	})
	dropCaches(t)
	holds(t, filepath.Join(mntFull, "again"), b)
	holds(t, filepath.Join(mntFull, "keep"), keep)
}

// TestSize: df in a pod shows the claim's size and what is free of it.
func TestSize(t *testing.T) {
	a := serve(t)
	var written []func() bool
	for _, v := range []struct {
		claim, asks string
		want        uint64
	}{
		{"small", "20Mi", 20 << 20},
		{"large", "1Gi", 1 << 30},
		{"decimal", "100M", 100_000_000},
	} {
		pv := a.volume(v.claim, v.asks)
		mnt := mount(t, pv)
		if got := pv.Spec.Capacity["storage"]; got != v.asks {
			t.Errorf("%s: capacity %q, want %q", v.claim, got, v.asks)
		}
		// A claim's size need not be a whole number of blocks; the kernel's limit
		// is in the disk's, and the client counts in blocks of its wsize, 1 MiB.
		total, before := size(t, mnt)
		if total < v.want-4096 || total > v.want+1<<20 {
			t.Errorf("%s: df shows a size of %d, the claim asked for %d", v.claim, total, v.want)
		}
		if limit, _ := limitAndUse(t, project(t, a.dir(pv))); limit < v.want-4096 || limit > v.want+4096 {
			t.Errorf("%s: the kernel's limit is %d, the claim asked for %d", v.claim, limit, v.want)
		}
		mustWrite(t, filepath.Join(mnt, "f"), data(1, 5<<20))
		written = append(written, func() bool {
			_, after := size(t, mnt)
			return before-after >= 5<<20 && before-after <= 6<<20
		})
	}
	// XFS sets more aside for a file that is open, and the server keeps it open for
	// a moment.
	for _, ok := range written {
		eventually(t, 20*time.Second, "5 MiB less are available after 5 MiB were written", ok)
	}
}

// TestQuotaRefused: asked for quotas that the disk can't give, podnas does not
// start, and names the mount option that would help.
func TestQuotaRefused(t *testing.T) {
	nativeOnly(t, "the engine has no part in it")
	without, _ := loopXFS(t, "noquota")
	for _, disk := range []struct{ name, root string }{
		{"tmpfs", t.TempDir()}, // the guest's root is an overlay on tmpfs
		{"XFS without prjquota", without},
	} {
		t.Run(disk.name, func(t *testing.T) {
			a := newAppliance(t, settings{root: disk.root, quota: "xfs"})
			a.launch()
			if err := a.wait(20 * time.Second); err == nil {
				t.Error("podnas ended well, want an error")
			}
			if !bytes.Contains(a.output(), []byte("prjquota")) {
				t.Errorf("it doesn't name the mount option prjquota:\n%s", a.output())
			}
		})
	}
}

// TestQuotaAuto: left to choose, podnas serves any disk and says what it chose.
func TestQuotaAuto(t *testing.T) {
	nativeOnly(t, "the engine has no part in it")
	without, _ := loopXFS(t, "noquota")
	for _, disk := range []struct {
		name, root, quota string
		engine            string
		says              string
	}{
		{name: "XFS with prjquota", root: "", quota: "auto", says: "xfs"},
		{name: "XFS without prjquota", root: without, quota: "auto", says: "prjquota"},
		// An overlay has no file handles.
		{name: "tmpfs", root: t.TempDir(), quota: "auto", engine: "auto", says: "go-nfs"},
		{name: "off", root: "", quota: "off", says: "off"},
	} {
		t.Run(disk.name, func(t *testing.T) {
			a := newAppliance(t, settings{root: disk.root, quota: disk.quota, engine: disk.engine})
			a.start()
			said := bytes.ToLower(a.output())
			if !bytes.Contains(said, []byte("quota")) || !bytes.Contains(said, []byte(disk.says)) {
				t.Errorf("the log says nothing of quota and %s:\n%s", disk.says, a.output())
			}
			pv := a.volume("auto", "10Mi")
			mnt := mount(t, pv)
			total, _ := size(t, mnt)
			limited := disk.name == "XFS with prjquota"
			if got := total == 10<<20; got != limited {
				t.Errorf("df shows a size of %d for a claim of 10 MiB; limited: %v, want %v", total, got, limited)
			}
			b := data(1, 12<<20)
			if err := write(filepath.Join(mnt, "f"), b); noSpace(err) != limited {
				t.Errorf("12 MiB written: %v", err)
			}
		})
	}
}

// TestOneDiskTwoAppliances: project ids belong to the file system, so two
// appliances on one disk must not share any.
func TestOneDiskTwoAppliances(t *testing.T) {
	nativeOnly(t, "the engine has no part in it")
	first := serve(t)
	one := first.volume("one", "16Mi")
	first.stop()
	second := serve(t)
	two := second.volume("two", "24Mi")
	a, b := project(t, first.dir(one)), project(t, second.dir(two))
	if a == b || a == 0 || b == 0 {
		t.Errorf("projects %d and %d", a, b)
	}
	if limit, _ := limitAndUse(t, a); limit != 16<<20 {
		t.Errorf("the first one's limit is now %d", limit)
	}
}
