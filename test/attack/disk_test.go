//go:build attack

package attack_test

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// disk is a file system of an attack's own, in a file.
type disk struct {
	t       *testing.T
	image   string
	options string
	at      string
	root    string // podnas's
}

// newDisk makes and mounts one. Its image and its mount point are in dir.
func newDisk(t *testing.T, s setup, dir string, size int64, inodes int) *disk {
	t.Helper()
	image := filepath.Join(dir, "image")
	d := &disk{t: t, image: image, options: "loop", at: filepath.Join(dir, "disk")}
	d.root = filepath.Join(d.at, "root")
	must(t, os.WriteFile(image, nil, 0o600))
	must(t, os.Truncate(image, size))
	must(t, os.Mkdir(d.at, 0o755))
	command := []string{"mkfs.xfs", "-q", "-f", image}
	if s.fs == "ext4" {
		// Tables of inodes that are there from the start are not written later, beside
		// what is measured.
		command = []string{"mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", image}
		if inodes > 0 {
			command = append(command[:3], append([]string{"-N", fmt.Sprint(inodes)}, command[3:]...)...)
		}
		if s.quota == "kernel" {
			command = append(command[:3], append([]string{"-O", "quota,project"}, command[3:]...)...)
			command[len(command)-2] += ",quotatype=prjquota"
		}
	}
	run(t, command...)
	if s.quota == "kernel" {
		d.options += ",prjquota"
	}
	run(t, "mount", "-o", d.options, image, d.at)
	t.Cleanup(func() {
		if err := unix.Unmount(d.at, 0); err != nil {
			t.Errorf("unmount the disk: %v", err)
			_ = unix.Unmount(d.at, unix.MNT_DETACH)
		}
	})
	must(t, os.Mkdir(d.root, 0o755))
	return d
}

func run(t testing.TB, command ...string) {
	t.Helper()
	if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%q: %v\n%s", command, err, out)
	}
}

// spent is what is used of the disk: bytes and inodes.
func (d *disk) spent() (bytes, inodes int64) {
	d.t.Helper()
	unix.Sync()
	var st unix.Statfs_t
	must(d.t, unix.Statfs(d.at, &st))
	return int64(st.Blocks-st.Bfree) * st.Bsize, int64(st.Files - st.Ffree)
}

// remount unmounts the disk and mounts it again, so that nothing of it is in memory.
func (d *disk) remount() {
	d.t.Helper()
	must(d.t, unix.Unmount(d.at, 0))
	run(d.t, "mount", "-o", d.options, d.image, d.at)
}

// freeze has every write wait, as a disk does that hangs. What is returned ends it.
func (d *disk) freeze() (thaw func()) {
	d.t.Helper()
	f, err := os.Open(d.at)
	must(d.t, err)
	must(d.t, unix.IoctlSetInt(int(f.Fd()), 0xc0045877 /* FIFREEZE */, 0))
	return func() {
		d.t.Helper()
		defer f.Close()
		must(d.t, unix.IoctlSetInt(int(f.Fd()), 0xc0045878 /* FITHAW */, 0))
	}
}

// inodePrice is what podnas charges for an inode beside its blocks: what it takes on that
// disk.
var inodePrice = map[string]int64{"ext4": 256, "xfs": 512}

// holds is what a folder takes on the disk, each inode counted once.
func holds(t testing.TB, dir string) (bytes, inodes int64) {
	t.Helper()
	seen := map[uint64]bool{}
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Lstat(path)
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		if !seen[st.Ino] {
			seen[st.Ino] = true
			bytes += st.Blocks * 512
			inodes++
		}
		return nil
	})
	must(t, err)
	return bytes, inodes
}
