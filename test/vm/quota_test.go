//go:build vm

package vm_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"syscall"
	"testing"
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
	eventually(t, "16 MiB can be written where 48 MiB were removed", func() bool {
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
		eventually(t, "5 MiB less are available after 5 MiB were written", ok)
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
			a := newAppliance(t, settings{root: disk.root, quota: "kernel"})
			a.launch()
			if err := a.wait(); err == nil {
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
		{name: "XFS with prjquota", root: "", quota: "auto", says: "the kernel enforces sizes"},
		{name: "XFS without prjquota", root: without, quota: "auto", says: "the server enforces sizes"},
		{name: "overlayfs", root: t.TempDir(), quota: "auto", engine: "auto", says: "the server enforces sizes"},
		{name: "off", root: "", quota: "off", says: "not enforced"},
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
			limited := disk.quota != "off"
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

// TestQuotaTurnedOn: a volume that was made when the kernel did not keep sizes has
// no project, and keeps its size by the server when the kernel does so for others.
func TestQuotaTurnedOn(t *testing.T) {
	nativeOnly(t, "the engine has no part in it")
	a := newAppliance(t, settings{quota: "server"})
	a.start()
	before := a.volume("before", "16Mi")
	keep := data(1, 4<<20)
	mustWrite(t, filepath.Join(a.dir(before), "keep"), keep)
	a.stop()
	a.args[slices.Index(a.args, "server")] = "kernel"
	a.start()
	after := a.volume("after", "16Mi")
	for claim, mnt := range map[string]string{"before": mount(t, before), "after": mount(t, after)} {
		if total, _ := size(t, mnt); total != 16<<20 {
			t.Errorf("%s: df shows a size of %d", claim, total)
		}
		if err := write(filepath.Join(mnt, "big"), data(2, 24<<20)); !noSpace(err) {
			t.Errorf("%s: 24 MiB into 16 MiB: %v", claim, err)
		}
	}
	holds(t, filepath.Join(a.dir(before), "keep"), keep)
	list := command(t, os.Getenv("PODNAS"), "volume", "list", "--root", a.root)
	for _, want := range []string{`default/before +ready +\d+ +server\s`, `default/after +ready +\d+ +kernel\s`, `QUOTA kernel: .*XFS project quotas`, `QUOTA server: .*no project`} {
		if !regexp.MustCompile(want).MatchString(list) {
			t.Errorf("podnas volume list does not have %q:\n%s", want, list)
		}
	}
}

// TestServerCounts: where the kernel has no project quotas the server keeps the
// sizes, and what it counts is what du finds, whatever many clients do at once,
// and after a restart.
func TestServerCounts(t *testing.T) {
	const limit = 64 << 20
	for _, fs := range []string{"xfs", "ext4", "tmpfs"} {
		t.Run(fs, func(t *testing.T) {
			if fs != "ext4" {
				notInShortRun(t, "ext4 has it, and make test counts on each kind of disk")
			}
			root := t.TempDir() // the guest's own, an overlay on tmpfs
			s := settings{quota: "server"}
			if fs == "tmpfs" {
				s.engine = "auto"
			} else {
				root, _ = loopDisk(t, fs, "")
			}
			s.root = root
			a := newAppliance(t, s)
			a.start()
			pv, other := a.volume("counted", "64Mi"), a.volume("other", "16Mi")
			mnt, mntOther := mount(t, pv), mount(t, other)
			if total, _ := size(t, mnt); total != limit {
				t.Errorf("df shows a size of %d", total)
			}

			done := make(chan error)
			for client := range 4 {
				go func() { done <- manyChanges(filepath.Join(mnt, string(rune('a'+client))), client) }()
			}
			for range 4 {
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
			agree := func(when string) {
				t.Helper()
				var used, found int64
				defer func() {
					if t.Failed() {
						t.Logf("df shows %d bytes, du finds %d", used, found)
					}
				}()
				eventually(t, "df and du agree "+when, func() bool {
					total, available := size(t, mnt)
					used, found = int64(total-available), du(t, a.dir(pv))
					return used-found < 1<<20 && found-used < 1<<20
				})
			}
			agree("after many changes")

			keep := data(1, 8<<20)
			mustWrite(t, filepath.Join(mnt, "keep"), keep)
			if err := write(filepath.Join(mnt, "big"), data(2, limit)); !noSpace(err) {
				t.Fatalf("64 MiB more: %v; want ENOSPC or EDQUOT", err)
			}
			// XFS sets more aside for a file that is open.
			eventually(t, "the volume of 64 MiB holds no more on the disk", func() bool {
				return du(t, a.dir(pv)) <= limit+128<<10
			})
			mustWrite(t, filepath.Join(mntOther, "f"), data(3, 8<<20))
			overwrite(t, filepath.Join(mnt, "keep"), keep)
			agree("when it is full")

			a.kill()
			a.start()
			agree("after a restart")
			dropCaches(t)
			holds(t, filepath.Join(mnt, "keep"), keep)
			if err := os.Remove(filepath.Join(mnt, "big")); err != nil {
				t.Fatal(err)
			}
			eventually(t, "16 MiB can be written where as many were removed", func() bool {
				return write(filepath.Join(mnt, "again"), data(4, 16<<20)) == nil
			})
			agree("at the end")
		})
	}
}

// TestRaisedClaim: a claim that asks for more has it while its volume is written
// to, and df shows it, whatever enforces the sizes.
func TestRaisedClaim(t *testing.T) {
	nativeOnly(t, "the engine has no part in it")
	for _, quota := range []string{"kernel", "server"} {
		t.Run(quota, func(t *testing.T) {
			a := newAppliance(t, settings{quota: quota})
			a.start()
			a.manifest("class-growing", fmt.Sprintf(class, "growing", "Delete")+"allowVolumeExpansion: true\n")
			a.claim("raised", "growing", "16Mi")
			mnt := mount(t, a.provisioned("raised"))
			b := data(1, 24<<20)
			if err := write(filepath.Join(mnt, "f"), b); !noSpace(err) {
				t.Fatalf("24 MiB into 16 MiB: %v", err)
			}
			a.claim("raised", "growing", "64Mi")
			eventually(t, "df shows the new size", func() bool {
				total, _ := size(t, mnt)
				return total == 64<<20
			})
			mustWrite(t, filepath.Join(mnt, "f"), b)
			holds(t, filepath.Join(mnt, "f"), b)
		})
	}
}

// manyChanges makes, grows, cuts, links, renames and removes files.
func manyChanges(dir string, seed int) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	r := rand.New(rand.NewPCG(uint64(seed), 1))
	for i := range 200 {
		name := filepath.Join(dir, strconv.Itoa(r.IntN(20)))
		other := filepath.Join(dir, strconv.Itoa(r.IntN(20)))
		var err error
		switch r.IntN(6) {
		case 0, 1:
			err = os.WriteFile(name, make([]byte, r.IntN(300_000)), 0o644)
		case 2:
			err = os.Truncate(name, int64(r.IntN(200_000)))
		case 3:
			_ = os.Link(name, other) // go-nfs has none
		case 4:
			err = os.Rename(name, other)
		case 5:
			err = os.Remove(name)
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("change %d: %w", i, err)
		}
	}
	return nil
}

// overwrite writes a file again, in place.
func overwrite(t *testing.T, name string, b []byte) {
	t.Helper()
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt(b, 0)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		t.Errorf("write again what is there: %v", err)
	}
}

// du is what du(1) finds in a directory, in bytes.
func du(t *testing.T, dir string) int64 {
	t.Helper()
	type inode struct{ device, number uint64 } // on an overlay, a file and a directory may have the same number
	seen := map[inode]bool{}
	total := int64(0)
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		if i := (inode{st.Dev, st.Ino}); !seen[i] {
			seen[i] = true
			total += st.Blocks * 512
		}
		return nil
	})
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return total
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
