package tree

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// must stops the test at the first error.
func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// open opens a directory until the test ends.
func open(t *testing.T, dir string) *os.File {
	t.Helper()
	f, err := os.Open(dir)
	must(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// tempDir is t.TempDir for trees that os.RemoveAll can't remove. In the machine of
// test/vm it is on the XFS there.
func tempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(os.Getenv("PODNAS_TEST_XFS"), "tree")
	must(t, err)
	t.Cleanup(func() {
		_ = os.Chmod(dir, 0o700)
		f, err := os.Open(dir)
		if err == nil {
			_, err = Empty(context.Background(), f)
			_ = f.Close()
		}
		if err := errors.Join(err, os.Remove(dir)); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// copyTree copies a directory as a whole.
func copyTree(t *testing.T, from, to string) *Copy {
	t.Helper()
	var c Copy
	must(t, c.Run(t.Context(), open(t, from), open(t, to)))
	return &c
}

// same compares two trees in all that Copy promises.
func same(t *testing.T, from, to string) {
	t.Helper()
	want, got := describe(t, from), describe(t, to)
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if got[name].text != want[name].text {
			t.Errorf("%q:\n got %s\nwant %s", name, got[name].text, want[name].text)
		}
		// XFS reserves blocks where a file grows, which are not copied.
		if got[name].blocks > want[name].blocks {
			t.Errorf("%q: %d blocks, want %d", name, got[name].blocks, want[name].blocks)
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%q is in the copy only", name)
		}
	}
}

type described struct {
	text   string
	blocks int64 // of a regular file
}

// describe walks a tree with the means of the standard library and describes
// every entry in it.
func describe(t *testing.T, root string) map[string]described {
	t.Helper()
	found := map[string]described{}
	links := map[uint64]string{} // the first name of an inode
	must(t, filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		s := fmt.Sprintf("mode %o, owner %d:%d, mtime %v, device %x", st.Mode, st.Uid, st.Gid, st.Mtim, st.Rdev)
		var blocks int64
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFLNK:
			target, err := os.Readlink(path)
			must(t, err)
			s += fmt.Sprintf(", to %q", target)
		case unix.S_IFREG:
			data, err := os.ReadFile(path)
			must(t, err)
			s += fmt.Sprintf(", %d bytes %x", st.Size, sha256.Sum256(data))
			blocks = st.Blocks
		}
		if st.Mode&unix.S_IFMT != unix.S_IFDIR {
			if _, ok := links[st.Ino]; !ok {
				links[st.Ino] = name
			}
			s += fmt.Sprintf(", %d names, first %q", st.Nlink, links[st.Ino])
		}
		list := make([]byte, 64<<10)
		n, err := unix.Llistxattr(path, list)
		if err != nil {
			return err
		}
		names := strings.Split(strings.TrimSuffix(string(list[:n]), "\x00"), "\x00")
		slices.Sort(names)
		for _, attr := range names {
			if attr == "" {
				continue
			}
			value := make([]byte, 64<<10)
			n, err := unix.Lgetxattr(path, attr, value)
			if err != nil {
				return err
			}
			s += fmt.Sprintf(", %s=%x", attr, sha256.Sum256(value[:n]))
		}
		found[name] = described{s, blocks}
		return nil
	}))
	return found
}

// acl is the value of a system.posix_acl_ attribute for: the owner rwx, user 7
// rwx, group r-x, mask rwx, others none.
func acl() []byte {
	b := binary.LittleEndian.AppendUint32(nil, 2)
	for _, e := range []struct {
		tag, perm uint16
		id        uint32
	}{{0x01, 7, ^uint32(0)}, {0x02, 7, 7}, {0x04, 5, ^uint32(0)}, {0x10, 7, ^uint32(0)}, {0x20, 0, ^uint32(0)}} {
		b = binary.LittleEndian.AppendUint16(b, e.tag)
		b = binary.LittleEndian.AppendUint16(b, e.perm)
		b = binary.LittleEndian.AppendUint32(b, e.id)
	}
	return b
}

// grower fills a directory with all sorts of things, the same for the same seed.
type grower struct {
	t     *testing.T
	rand  *rand.Rand
	root  bool // owners, devices and trusted attributes too
	files []string
}

func newGrower(t *testing.T, seed uint64) *grower {
	return &grower{t: t, rand: rand.New(rand.NewPCG(seed, seed)), root: os.Geteuid() == 0}
}

func (g *grower) grow(dir string, depth int) {
	t := g.t
	for i := range 5 + g.rand.IntN(20) {
		path := filepath.Join(dir, fmt.Sprintf("%d-\xff\n%c", i, 'a'+g.rand.IntN(26)))
		switch kind := g.rand.IntN(10); {
		case kind < 2 && depth > 0:
			must(t, os.Mkdir(path, 0o700))
			g.grow(path, depth-1)
			if g.rand.IntN(3) == 0 {
				must(t, unix.Setxattr(path, "system.posix_acl_default", acl(), 0))
			}
			continue // grow has dressed it
		case kind == 2:
			must(t, os.Symlink(strings.Repeat("../nowhere", 1+g.rand.IntN(50)), path))
		case kind == 3:
			must(t, unix.Mkfifo(path, 0o600))
		case kind == 4:
			must(t, unix.Mknod(path, unix.S_IFSOCK|0o600, 0))
		case kind == 5 && g.root:
			must(t, unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 5))))
		case kind == 6 && len(g.files) > 0:
			must(t, os.Link(g.files[g.rand.IntN(len(g.files))], path))
			continue // the rest it has from there
		default:
			g.file(path)
		}
		g.dress(path)
	}
	g.dress(dir)
}

func (g *grower) file(path string) {
	f, err := os.Create(path)
	must(g.t, err)
	defer f.Close()
	var size int64
	for range g.rand.IntN(4) { // each one a hole and some data
		size += int64(g.rand.IntN(3)) * 64 << 10
		data := make([]byte, g.rand.IntN(20_000))
		for i := range data {
			data[i] = byte(g.rand.Uint32())
		}
		_, err := f.WriteAt(data, size)
		must(g.t, err)
		size += int64(len(data))
	}
	must(g.t, f.Truncate(size+int64(g.rand.IntN(2))*128<<10))
	g.files = append(g.files, path)
}

func (g *grower) dress(path string) {
	t := g.t
	var st unix.Stat_t
	must(t, unix.Lstat(path, &st))
	kind := st.Mode & unix.S_IFMT
	if g.root {
		must(t, os.Lchown(path, g.rand.IntN(3)*1000, g.rand.IntN(3)*1000))
	}
	if g.root && kind != unix.S_IFLNK && g.rand.IntN(3) == 0 {
		must(t, unix.Setxattr(path, "trusted.podnas", []byte{1, 2, 3}, 0))
	}
	if (kind == unix.S_IFREG || kind == unix.S_IFDIR) && g.rand.IntN(3) == 0 {
		must(t, unix.Setxattr(path, "user.\xfe", make([]byte, g.rand.IntN(1000)), 0),
			unix.Setxattr(path, "user.empty", nil, 0))
	}
	if g.root && kind == unix.S_IFREG && g.rand.IntN(3) == 0 {
		// CAP_NET_BIND_SERVICE, permitted: struct vfs_cap_data, revision 2.
		must(t, unix.Setxattr(path, "security.capability", []byte("\x00\x00\x00\x02\x00\x04\x00\x00"+"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"), 0))
	}
	if kind != unix.S_IFLNK {
		if g.rand.IntN(3) == 0 {
			must(t, unix.Setxattr(path, "system.posix_acl_access", acl(), 0))
		}
		// An ordinary user must be able to read it.
		readable := uint32(0o400)
		if kind == unix.S_IFDIR {
			readable = 0o500
		}
		must(t, unix.Chmod(path, g.rand.Uint32()&0o7777|readable))
	}
	times := []unix.Timespec{unix.NsecToTimespec(g.rand.Int64N(1 << 60)), unix.NsecToTimespec(g.rand.Int64N(1 << 60))}
	must(t, unix.UtimesNanoAt(unix.AT_FDCWD, path, times, unix.AT_SYMLINK_NOFOLLOW))
}

// settled sets a time of long ago, as a file has that nobody changes.
func settled(t *testing.T, path string) {
	t.Helper()
	must(t, os.Chtimes(path, time.Time{}, time.Unix(1_600_000_000, 123_456_789)))
}
