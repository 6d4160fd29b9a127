//go:build vm

package vm_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// keepers are who can keep a volume's limits, on which disk. A short run has one of the pairs.
func keepers(t *testing.T, one string, test func(t *testing.T, s settings)) {
	t.Helper()
	for _, k := range []struct{ quota, fs string }{{"kernel", "xfs"}, {"kernel", "ext4"}, {"server", "xfs"}, {"server", "ext4"}} {
		name := k.quota + " on " + k.fs
		t.Run(name, func(t *testing.T) {
			if name != one {
				notInShortRun(t, "one keeper on one disk is enough here, and TestAttacks has others")
			}
			s := settings{quota: k.quota}
			if k.quota == "server" {
				s.root, _ = loopDisk(t, k.fs, "")
			} else if k.fs == "ext4" {
				s.root, _ = loopDisk(t, "ext4", "prjquota", "-O", "quota,project", "-E", "quotatype=prjquota")
			}
			test(t, s)
		})
	}
}

// inodes is what df -i shows of a mount.
func inodes(t *testing.T, dir string) (total, free uint64) {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	return st.Files, st.Ffree
}

// until makes things until it is refused, and returns how many there are.
func until(t *testing.T, most int, do func(i int) error) int {
	t.Helper()
	for i := range most {
		err := do(i)
		if noSpace(err) {
			t.Logf("%v, after %d", err, i)
			return i
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return most
}

func makeEmpty(dir string) func(i int) error {
	return func(i int) error {
		f, err := os.OpenFile(filepath.Join(dir, fmt.Sprint(i)), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		return f.Close()
	}
}

// TestInodeLimit: a volume of 1 MiB holds no more than 1,024 directories or empty
// files, and leaves the disk's inodes to others. df -i shows it, and a claim that is
// raised has more.
func TestInodeLimit(t *testing.T) {
	nativeOnly(t, "the engine has no part in it")
	keepers(t, "kernel on xfs", func(t *testing.T, s settings) {
		const limit, most = 1024, 3000
		a := newAppliance(t, s)
		a.start()
		a.manifest("class-growing", fmt.Sprintf(class, "growing", "Delete")+"allowVolumeExpansion: true\n")
		a.claim("files", "growing", "1Mi")
		files, dirs, other := mount(t, a.provisioned("files")), mount(t, a.volume("dirs", "1Mi")), mount(t, a.volume("other", "1Mi"))
		if total, free := inodes(t, files); total != limit || free != limit-1 {
			t.Errorf("df -i shows %d inodes and %d free of them, want %d, and all but that of the directory", total, free, limit)
		}
		if n := until(t, most, func(i int) error { return os.Mkdir(filepath.Join(dirs, fmt.Sprint(i)), 0o755) }); n >= limit {
			t.Errorf("%d directories fit into 1 MiB, want less than %d", n, limit)
		}
		n := until(t, most, makeEmpty(files))
		if n >= limit {
			t.Errorf("%d empty files fit into 1 MiB, want less than %d", n, limit)
		}
		if total, free := inodes(t, files); total != limit || free != uint64(limit-1-n) {
			t.Errorf("df -i shows %d inodes and %d free of them, with %d files", total, free, n)
		}
		if err := makeEmpty(other)(0); err != nil {
			t.Errorf("another volume: %v", err)
		}
		a.claim("files", "growing", "16Mi")
		eventually(t, "df -i shows the new limit", func() bool {
			total, _ := inodes(t, files)
			return total == 4*limit
		})
		for i := n; i < n+10; i++ {
			if err := makeEmpty(files)(i); err != nil {
				t.Fatalf("raised: %v", err)
			}
		}
	})
}

// TestInodesTakenOver: a volume of a podnas that knew no limit of inodes, and that
// has more than its size gives it, gets one above that.
func TestInodesTakenOver(t *testing.T) {
	nativeOnly(t, "the engine has no part in it")
	keepers(t, "server on ext4", func(t *testing.T, s settings) {
		const made = 1500
		a := newAppliance(t, s)
		a.start()
		a.manifest("class-small", fmt.Sprintf(class, "small", "Delete")+"parameters: {bytesPerInode: 1Ki}\n")
		a.claim("old", "small", "4Mi")
		pv := a.provisioned("old")
		mnt := mount(t, pv)
		if total, _ := inodes(t, mnt); total != 4096 {
			t.Errorf("df -i shows %d inodes, want 4096, one for each KiB", total)
		}
		for i := range made {
			if err := makeEmpty(a.dir(pv))(i); err != nil {
				t.Fatal(err)
			}
		}
		a.stop()
		record := filepath.Join(a.root, ".podnas", "volumes", pv.Metadata.Name+".json")
		text, err := os.ReadFile(record)
		if err != nil {
			t.Fatal(err)
		}
		var says map[string]any
		if err := json.Unmarshal(text, &says); err != nil {
			t.Fatal(err)
		}
		delete(says, "inodes")
		delete(says, "bytesPerInode")
		delete(says, "checksum")
		text, err = json.Marshal(says)
		if err := errors.Join(err, os.WriteFile(record, text, 0o600)); err != nil {
			t.Fatal(err)
		}
		a.start()
		const limit = (made + 1) * 5 / 4
		eventually(t, "df -i shows a limit above what there is", func() bool {
			total, _ := inodes(t, mnt)
			return total == limit
		})
		if !bytes.Contains(a.output(), []byte("uses nearly all inodes of its size's limit")) {
			t.Error("the log says nothing of it")
		}
		if n := until(t, limit, func(i int) error { return makeEmpty(mnt)(made + i) }); n == 0 || n >= limit-made {
			t.Errorf("%d more fit, want some, and less than %d", n, limit-made)
		}
	})
}
