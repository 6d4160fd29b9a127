//go:build vm

package vm_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestNameIsOnTheDisk: what the server has answered well about a name is on the disk,
// with the attributes that it was made with. After each call the disk is copied as it
// is, without what the kernel has only in memory, and looked at.
func TestNameIsOnTheDisk(t *testing.T) {
	nativeOnly(t, "the other engine makes no fifos")
	for _, fs := range []string{"xfs", "ext4"} {
		t.Run(fs, func(t *testing.T) {
			root, dev := loopDisk(t, fs, "")
			a := newAppliance(t, settings{root: root})
			a.start()
			pv := a.volume("names", "64Mi")
			mnt := mount(t, pv)
			if err := os.Mkdir(filepath.Join(mnt, "acl"), 0o755); err != nil {
				t.Fatal(err)
			}
			inherited := acl(mode{bits: 0o750, acl: []aclEntry{{aclUser, 1234, 6}, {aclMask, 0, 7}}})
			if err := unix.Setxattr(filepath.Join(a.dir(pv), "acl"), "system.posix_acl_default", inherited, 0); err != nil {
				t.Fatal(err)
			}
			mustWrite(t, filepath.Join(mnt, "old"), nil)
			unix.Sync()

			for _, step := range []struct {
				name string
				do   func(path string) error
			}{
				{"file", makeFile(0)},
				{"exclusive", makeFile(unix.O_EXCL)},
				{"truncated", makeFile(unix.O_TRUNC)},
				{"acl/file", makeFile(0)},
				{"acl/exclusive", makeFile(unix.O_EXCL)},
				{"dir", func(path string) error { return os.Mkdir(path, 0o750) }},
				{"acl/dir", func(path string) error { return os.Mkdir(path, 0o750) }},
				{"symlink", func(path string) error { return os.Symlink("somewhere", path) }},
				{"fifo", func(path string) error { return unix.Mkfifo(path, 0o640) }},
				{"link", func(path string) error { return os.Link(filepath.Join(mnt, "file"), path) }},
				{"acl/renamed", func(path string) error { return os.Rename(filepath.Join(mnt, "old"), path) }},
			} {
				if err := step.do(filepath.Join(mnt, step.name)); err != nil {
					t.Fatal(err)
				}
				copied := copyOfDisk(t, fs, dev)
				want := madeAt(t, filepath.Join(a.dir(pv), step.name))
				if got := madeAt(t, filepath.Join(copied, pv.Metadata.Name, step.name)); !got.equal(want) {
					t.Errorf("%s: on the disk is %+v, want %+v", step.name, got, want)
				}
				unmountNow(t, copied)
			}
			if err := os.Remove(filepath.Join(mnt, "file")); err != nil {
				t.Fatal(err)
			}
			copied := copyOfDisk(t, fs, dev)
			if got := madeAt(t, filepath.Join(copied, pv.Metadata.Name, "file")); got.mode != 0 {
				t.Errorf("what was removed is on the disk: %+v", got)
			}
		})
	}
}

func makeFile(flags int) func(path string) error {
	return func(path string) error {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|flags, 0o640)
		if err != nil {
			return err
		}
		return f.Close()
	}
}

// copyOfDisk mounts a copy of what a loop device has on its disk.
func copyOfDisk(t *testing.T, fs, dev string) (target string) {
	t.Helper()
	image := filepath.Join(t.TempDir(), "image")
	command(t, "sh", "-c", `cp --sparse=always "$(losetup --noheadings --output BACK-FILE "$0")" "$1"`, dev, image)
	options := map[string]string{"xfs": "loop,nouuid", "ext4": "loop"}
	target = t.TempDir()
	command(t, "mount", "-t", fs, "-o", options[fs], image, target)
	t.Cleanup(func() { unmount(t, target) })
	return target
}

// made is what a name must not lose.
type made struct {
	mode, uid, nlink uint32
	acl              []byte
}

func (m made) equal(n made) bool {
	return m.mode == n.mode && m.uid == n.uid && m.nlink == n.nlink && bytes.Equal(m.acl, n.acl)
}

// madeAt looks at a name. Of what is not there, all is zero.
func madeAt(t *testing.T, name string) made {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(name, &st); errors.Is(err, unix.ENOENT) {
		return made{}
	} else if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	acl := make([]byte, 1024)
	n, err := unix.Lgetxattr(name, "system.posix_acl_access", acl)
	if err != nil && !errors.Is(err, unix.ENODATA) && !errors.Is(err, unix.EOPNOTSUPP) {
		t.Fatalf("%s: %v", name, err)
	}
	return made{st.Mode, st.Uid, uint32(st.Nlink), acl[:max(n, 0)]}
}
