//go:build vm

package vm_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// xattrPrograms are commands that set, read and copy extended attributes. Each runs in a folder with the file data and the folder
// tree, which have some.
var xattrPrograms = []string{
	"setfattr -n user.new -v value data && getfattr -n user.new --only-values data",
	"setfattr -n user.new -v value tree && getfattr -d tree",
	"setfattr -n user.one -v another data && setfattr -x user.two data && getfattr -d -m '^user' data", // "-m -" has system.nfs4_acl, too
	"setfattr -n user.slash/dot.. -v value data && getfattr -d data",
	"setfattr -n user.none -v '' data && getfattr -d data",
	"setfattr -x user.nothing data",
	"getfattr -n user.nothing data",
	"setfattr -n other.new -v value data",
	"setfattr -h -n user.new -v value tree/link",
	"getfattr -h -d tree/link",
	"getfattr -R -d tree",
	"cp -a data new && getfattr -d new",
	"cp -a tree new && getfattr -R -d new",
	"cp data new && getfattr -d new", // without attributes
	"cp --preserve=xattr data new && getfattr -d new",
	"mv data new && getfattr -d new",
	"ln data new && setfattr -n user.new -v value new && getfattr -d data",
	"tar --xattrs -cf archive data tree && mkdir new && tar --xattrs -xf archive -C new && rm archive && getfattr -R -d new",
	"rsync -aX data tree new && getfattr -R -d new",
	"rsync -aX tree/ new && setfattr -n user.later -v value tree/file && rsync -aX --checksum tree/ new && getfattr -R -d new",
	"getfattr --dump data >dump && setfattr -x user.one data && setfattr --restore=dump && rm dump && getfattr -d data",
	"chmod 444 data && su nobody -s /bin/sh -c 'getfattr -d data; setfattr -n user.one -v value data; setfattr -x user.one data'",
	"chmod 600 data && su nobody -s /bin/sh -c 'getfattr -n user.one data; setfattr -n user.one -v value data'",
	"chmod 666 data && su nobody -s /bin/sh -c 'setfattr -n user.one -v value data; getfattr -d data'",
	"mkdir new && chmod 1777 new && su nobody -s /bin/sh -c 'setfattr -n user.one -v value new'",
	"chmod 400 data && chown nobody data && su nobody -s /bin/sh -c 'setfattr -n user.one -v value data; getfattr -d data'",
	"(setfattr -n user.new -v value /dev/fd/3; rm data; setfattr -n user.more -v value /dev/fd/3; getfattr -d /dev/fd/3) 3<data | grep user",
}

// TestXattrs has programs set, read and copy extended attributes on mounts of version 4.2, as they do on the server's own disk.
func TestXattrs(t *testing.T) {
	nativeOnly(t, "go-nfs serves version 3 alone")
	// The other two take three times as long as ext4.
	onDisks(t, []string{"XFS", "xfs", "btrfs", "ext4"}, []string{"ext4"}, func(t *testing.T, _ string, a *appliance, local string) {
		pv := a.volume("one", "8Mi")
		mnt := mountWith(t, pv, version42Options())
		for _, program := range xattrPrograms {
			t.Run(program, func(t *testing.T) { sameXattrs(t, program, placesIn(mnt, a.dir(pv), local)) })
		}
		t.Run("sizes", func(t *testing.T) { xattrSizes(t, mnt, local) })
		t.Run("copy of the volume", func(t *testing.T) { xattrsOfCopy(t, a, mnt) })
		t.Run("full", func(t *testing.T) { xattrsInFull(t, mnt) })
	})
}

// sameXattrs has a program do the same with attributes in both places.
func sameXattrs(t *testing.T, program string, p places) {
	defer p.remove(t)
	p.same(t, program, func(folder string) {
		for n, name := range []string{"data", "tree/file", "tree/folder/file"} {
			mustWrite(t, filepath.Join(folder, name), data(byte(n), 10_000))
			mustSetXattr(t, filepath.Join(folder, name), "user.one", []byte(name))
			mustSetXattr(t, filepath.Join(folder, name), "user.two", []byte{0, 1, 0xff, byte(n)})
		}
		mustSetXattr(t, filepath.Join(folder, "tree/folder"), "user.of a folder", []byte("value"))
		if err := os.Symlink("file", filepath.Join(folder, "tree/link")); err != nil {
			t.Fatal(err)
		}
	}, xattrsBelow)
}

func mustSetXattr(t *testing.T, name, attribute string, value []byte) {
	t.Helper()
	if err := unix.Setxattr(name, attribute, value, 0); err != nil {
		t.Fatalf("setxattr %s of %s: %v", attribute, name, err)
	}
}

// xattrsBelow describes all files in a folder with their attributes of users.
func xattrsBelow(t *testing.T, folder string) string {
	t.Helper()
	var b strings.Builder
	if err := filepath.WalkDir(folder, func(name string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		below, err := filepath.Rel(folder, name)
		fmt.Fprintf(&b, "%s:", below)
		list := make([]byte, 64<<10)
		n, listErr := unix.Llistxattr(name, list)
		if err := errors.Join(err, listErr); err != nil {
			return fmt.Errorf("listxattr %s: %w", name, err)
		}
		names := strings.Split(string(list[:n]), "\x00")
		slices.Sort(names)
		for _, attribute := range names {
			if !strings.HasPrefix(attribute, "user.") {
				continue
			}
			value := make([]byte, 64<<10)
			n, err := unix.Lgetxattr(name, attribute, value)
			if err != nil {
				return fmt.Errorf("getxattr %s of %s: %w", attribute, name, err)
			}
			fmt.Fprintf(&b, " %q=%q", attribute, value[:n])
		}
		b.WriteByte('\n')
		return nil
	}); err != nil {
		t.Error(err)
	}
	return b.String()
}

// xattrSizes sets names and values of all lengths, and compares the errors with those of the local disk.
func xattrSizes(t *testing.T, mnt, local string) {
	for _, tt := range []struct{ name, value int }{
		{0, 1}, {1, 1}, {249, 1}, {250, 1}, {251, 1}, {300, 1}, {1, 0}, {1, 4000}, {1, 5000}, {1, 20_000}, {1, 64 << 10}, {1, 64<<10 + 1},
	} {
		var errs [2]error
		for i, dir := range []string{mnt, local} {
			file := filepath.Join(dir, "sizes")
			mustWrite(t, file, nil)
			name, value := "user."+strings.Repeat("n", tt.name), bytes.Repeat([]byte("v"), tt.value)
			if errs[i] = unix.Setxattr(file, name, value, unix.XATTR_CREATE); errs[i] == nil {
				if i == 0 {
					dropCaches(t)
				}
				got := make([]byte, 64<<10)
				n, err := unix.Getxattr(file, name, got)
				if err != nil || !bytes.Equal(got[:n], value) {
					t.Errorf("a name of %d and a value of %d bytes: %v, %d bytes", tt.name, tt.value, err, n)
				}
				errs[i] = unix.Setxattr(file, name, value, unix.XATTR_CREATE)
			}
			if err := os.Remove(file); err != nil {
				t.Error(err)
			}
		}
		if !errors.Is(errs[0], errs[1]) {
			t.Errorf("a name of %d and a value of %d bytes: %v, on the disk %v", tt.name, tt.value, errs[0], errs[1])
		}
	}
}

// xattrsOfCopy copies a volume on the server.
func xattrsOfCopy(t *testing.T, a *appliance, mnt string) {
	if err := os.Mkdir(filepath.Join(mnt, "d"), 0o755); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, filepath.Join(mnt, "d", "f"), []byte("content"))
	mustSetXattr(t, filepath.Join(mnt, "d"), "user.a", []byte("of the folder"))
	mustSetXattr(t, filepath.Join(mnt, "d", "f"), "user.a", []byte("of the file"))
	to := a.volume("copied", "8Mi")
	copied := mountWith(t, to, version42Options())
	command(t, "cp", "-a", filepath.Join(mnt, "d"), filepath.Join(copied, "d")) // from one mount to another
	if got, want := xattrsBelow(t, filepath.Join(copied, "d")), xattrsBelow(t, filepath.Join(mnt, "d")); got != want {
		t.Errorf("the copy has\n%s\nit was\n%s", got, want)
	}
	if err := errors.Join(os.RemoveAll(filepath.Join(mnt, "d")), os.RemoveAll(filepath.Join(copied, "d"))); err != nil {
		t.Error(err)
	}
}

// xattrsInFull sets attributes until the volume is full, and then removes them.
func xattrsInFull(t *testing.T, mnt string) {
	value := bytes.Repeat([]byte("v"), 900)
	var err error
	files := 0
	for ; err == nil && files < 40_000; files++ {
		file := filepath.Join(mnt, fmt.Sprint("full", files))
		if err = os.WriteFile(file, nil, 0o600); err == nil {
			for i := 0; i < 3 && err == nil; i++ {
				err = unix.Setxattr(file, fmt.Sprint("user.", i), value, 0)
			}
		}
	}
	if !errors.Is(err, unix.EDQUOT) && !errors.Is(err, unix.ENOSPC) {
		t.Errorf("after %d files: %v", files, err)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(mnt, &st); err != nil || st.Blocks*uint64(st.Bsize) > 9<<20 {
		t.Errorf("statfs: %+v, %v", st, err)
	}
	if err := unix.Removexattr(filepath.Join(mnt, "full0"), "user.0"); err != nil {
		t.Errorf("in a full volume an attribute can't be removed: %v", err)
	}
	command(t, "sh", "-c", "rm -f '"+mnt+"'/full[0-9] && find '"+mnt+"' -name 'full*' -delete")
	mustWrite(t, filepath.Join(mnt, "after"), []byte("content"))
	mustSetXattr(t, filepath.Join(mnt, "after"), "user.a", value)
}

// getOpened reads an attribute of a file that it opens: from then on the client has what other nodes have closed, set or removed
// before, close-to-open. By name alone it may take what it remembers, for acregmin, nfs(5).
func getOpened(name, attribute string, value []byte) (int, error) {
	f, err := os.Open(name)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return unix.Fgetxattr(int(f.Fd()), attribute, value)
}

// TestXattrsTwoNodes changes attributes on one node, and reads them on another, which remembers what it has read.
func TestXattrsTwoNodes(t *testing.T) {
	nativeOnly(t, "go-nfs serves version 3 alone")
	a := newAppliance(t, settings{listen: ":20490"})
	a.start()
	pv := a.volume("shared", "32Mi")
	pv.Spec.MountOptions = version42Options()
	one, two := newNode(t, 1, pv), newNode(t, 2, pv)
	file := func(v *node) string { return filepath.Join(v.mnt, "file") }
	one.must(func() error { return os.WriteFile(file(one), []byte("content"), 0o666) })
	for round := range 20 {
		want := fmt.Sprint("round ", round)
		from, to := one, two
		if round%2 == 1 {
			from, to = two, one
		}
		from.must(func() error { return unix.Setxattr(file(from), "user.a", []byte(want), 0) })
		for range 2 { // the second is answered by what the client remembers
			to.must(func() error {
				value := make([]byte, 100)
				n, err := getOpened(file(to), "user.a", value)
				if err == nil && string(value[:n]) != want {
					err = fmt.Errorf("round %d: it is %q", round, value[:n])
				}
				return err
			})
		}
		if round == 10 {
			from.must(func() error { return unix.Removexattr(file(from), "user.a") })
			to.must(func() error {
				_, err := getOpened(file(to), "user.a", nil)
				if errors.Is(err, unix.ENODATA) {
					return nil
				}
				return errors.Join(errors.New("an attribute that another node has removed"), err)
			})
		}
		// What one node writes while another sets attributes is seen: neither takes the other's change for its own.
		from.must(func() error { return os.WriteFile(file(from), []byte(want), 0o666) })
		to.must(func() error {
			b, err := os.ReadFile(file(to))
			if err == nil && string(b) != want {
				err = fmt.Errorf("round %d: the file holds %q", round, b)
			}
			return err
		})
	}
}
