//go:build vm

package vm_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestNativeFiles does what go-nfs cannot: what is in TestFiles works with both.
func TestNativeFiles(t *testing.T) {
	nativeOnly(t, "it has no O_EXCL, no LINK, no MKNOD, and its modes and times are not the disk's")
	a := serve(t)
	pv := a.volume("files", "256Mi")
	mnt := mount(t, pv)
	for _, part := range []struct {
		name string
		run  func(t *testing.T, dir, disk string)
	}{
		{"Exclusive", func(t *testing.T, dir, disk string) { exclusive(t, dir, disk, "f", 0) }},
		{"ExclusiveTruncated", func(t *testing.T, dir, disk string) { exclusive(t, dir, disk, "g", os.O_TRUNC) }},
		{"HardLinks", hardLinks},
		{"RenameOver", renameOver},
		{"Mmap", mmap},
		{"FarOffsets", farOffsets},
		{"Names", names},
		{"Times", times},
		{"Nodes", nodes},
		{"Directory", notEmpty},
	} {
		t.Run(part.name, func(t *testing.T) {
			dir := filepath.Join(mnt, part.name)
			if err := os.Mkdir(dir, 0o777); err != nil {
				t.Fatal(err)
			}
			part.run(t, dir, filepath.Join(a.dir(pv), part.name))
		})
	}
}

func exclusive(t *testing.T, dir, disk, name string, more int) {
	flags := os.O_RDWR | os.O_CREATE | os.O_EXCL | more
	before := time.Now().Add(-time.Minute)
	f, err := os.OpenFile(filepath.Join(dir, name), flags, 0o640)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("mine"); err != nil {
		t.Error(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.OpenFile(filepath.Join(dir, name), flags, 0o640); !errors.Is(err, syscall.EEXIST) {
		t.Errorf("a second O_EXCL: %v, want EEXIST", err)
	}
	dropCaches(t)
	for _, at := range []string{dir, disk} {
		st, err := os.Stat(filepath.Join(at, name))
		if err != nil {
			t.Fatal(err)
		}
		// The verifier was kept in the times, and the client sets them afterwards.
		if st.Mode() != 0o640 || st.ModTime().Before(before) || st.ModTime().After(time.Now().Add(time.Minute)) {
			t.Errorf("%s: mode %v, mtime %v", at, st.Mode(), st.ModTime())
		}
	}
	holds(t, filepath.Join(disk, name), []byte("mine"))
}

func hardLinks(t *testing.T, dir, disk string) {
	b := data(1, 10_000)
	mustWrite(t, filepath.Join(dir, "a"), b)
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"b", "sub/c"} {
		if err := os.Link(filepath.Join(dir, "a"), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Link(filepath.Join(dir, "a"), filepath.Join(dir, "b")); !errors.Is(err, syscall.EEXIST) {
		t.Errorf("link to a name that is there: %v, want EEXIST", err)
	}
	if err := os.Link(filepath.Join(dir, "sub"), filepath.Join(dir, "d")); !errors.Is(err, syscall.EPERM) {
		t.Errorf("link to a directory: %v, want EPERM", err)
	}
	// A link to a symbolic link is one to the link itself.
	if err := os.Symlink("nowhere", filepath.Join(dir, "symlink")); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(filepath.Join(dir, "symlink"), filepath.Join(dir, "same")); err != nil {
		t.Errorf("link to a symbolic link: %v", err)
	}
	copy(b[100:], "through b")
	f, err := os.OpenFile(filepath.Join(dir, "b"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt([]byte("through b"), 100)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Error(err)
	}
	if err := os.Remove(filepath.Join(dir, "a")); err != nil {
		t.Error(err)
	}
	dropCaches(t)
	for _, at := range []string{dir, disk} {
		holds(t, filepath.Join(at, "sub/c"), b)
		var one, other unix.Stat_t
		if err := errors.Join(unix.Lstat(filepath.Join(at, "b"), &one), unix.Lstat(filepath.Join(at, "sub/c"), &other)); err != nil {
			t.Fatal(err)
		}
		if one.Nlink != 2 || one.Ino != other.Ino {
			t.Errorf("%s: %d links, inodes %d and %d", at, one.Nlink, one.Ino, other.Ino)
		}
	}
}

// renameOver replaces a file that is open: who has it open goes on reading and
// writing what it was, and its space is given back afterwards.
func renameOver(t *testing.T, dir, disk string) {
	old, fresh := data(1, 2<<20), data(2, 1000)
	mustWrite(t, filepath.Join(dir, "f"), old)
	f, err := os.OpenFile(filepath.Join(dir, "f"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		mustWrite(t, filepath.Join(dir, "new"), fresh)
		if err := os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, "f")); err != nil {
			t.Fatal(err)
		}
		dropCaches(t)
		holds(t, filepath.Join(dir, "f"), fresh)
		got := make([]byte, len(old))
		if _, err := f.ReadAt(got, 0); err != nil || !bytes.Equal(got, old) {
			t.Errorf("rename %d: the open file can't be read as before: %v", i, err)
		}
		copy(old[i*100:], "still written")
		if _, err := f.WriteAt([]byte("still written"), int64(i*100)); err != nil {
			t.Error(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	eventually(t, "the old file is gone", func() bool {
		left, err := os.ReadDir(disk)
		return err == nil && len(left) == 1
	})
	// A directory over an empty one, and not over one with files.
	for _, sub := range []string{"d", "empty", "full/x"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		from, to string
		want     error
	}{
		{"d", "full", syscall.EEXIST}, // so XFS says it; rename(2) allows ENOTEMPTY too
		{"d", "f", syscall.ENOTDIR},
		{"f", "d", syscall.EISDIR},
		{"full", "full/x/y", syscall.EINVAL},
		{"d", "empty", nil},
	} {
		err := unix.Rename(filepath.Join(dir, step.from), filepath.Join(dir, step.to))
		if !errors.Is(err, step.want) {
			t.Errorf("rename %s to %s: %v, want %v", step.from, step.to, err, step.want)
		}
	}
}

func mmap(t *testing.T, dir, disk string) {
	b := data(1, 256<<10)
	mustWrite(t, filepath.Join(dir, "f"), b)
	f, err := os.OpenFile(filepath.Join(dir, "f"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := unix.Mmap(int(f.Fd()), 0, len(b), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(m, b) {
		t.Error("the mapping shows other bytes than were written")
	}
	for _, at := range []int{0, 4095, 100_000, len(b) - 5} {
		copy(m[at:], "mapped")
		copy(b[at:], "mapped")
	}
	if err := unix.Msync(m, unix.MS_SYNC); err != nil {
		t.Errorf("msync: %v", err)
	}
	holds(t, filepath.Join(disk, "f"), b)
	copy(m[5000:], "and unmapped")
	copy(b[5000:], "and unmapped")
	if err := unix.Munmap(m); err != nil {
		t.Error(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	dropCaches(t)
	holds(t, filepath.Join(dir, "f"), b)
	holds(t, filepath.Join(disk, "f"), b)
}

// farOffsets writes past 2^32 and 2^40, and up to the largest file there can be.
func farOffsets(t *testing.T, dir, disk string) {
	f, err := os.Create(filepath.Join(dir, "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	offsets := []int64{0, 1<<31 - 3, 1<<32 - 3, 1<<40 - 3, 1<<42 + 7, 1<<62 + 1, 1<<63 - 23} // the last, which is 22 bytes, up to XFS's largest size
	for _, at := range offsets {
		if _, err := f.WriteAt(fmt.Appendf(nil, "at %d", at), at); err != nil {
			t.Errorf("write at %d: %v", at, err)
		}
	}
	if err := f.Sync(); err != nil {
		t.Error(err)
	}
	dropCaches(t)
	onDisk := open(t, filepath.Join(disk, "f"))
	for _, at := range offsets {
		want := fmt.Sprintf("at %d", at)
		for _, from := range []*os.File{f, onDisk} {
			got := make([]byte, len(want))
			if _, err := from.ReadAt(got, at); err != nil || string(got) != want {
				t.Errorf("%s at %d: %q, %v", from.Name(), at, got, err)
			}
		}
	}
	hole := data(1, 100)
	if _, err := f.ReadAt(hole, 1<<41); err != nil || !bytes.Equal(hole, make([]byte, 100)) {
		t.Errorf("the hole at 2^41 reads as %q, %v", hole, err)
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(dir, "f"), &st); err != nil || st.Size < 1<<62 || st.Blocks*512 > 1<<20 {
		t.Errorf("size %d with %d blocks, %v", st.Size, st.Blocks, err)
	}
}

// names: any bytes but / and NUL are a name, up to 255 of them.
func names(t *testing.T, dir, disk string) {
	all := []string{
		strings.Repeat("n", 255), "\xff\xfe not UTF-8 \x80", "a\nb", " ", "...", "-rf", "*", `back\slash`, "ümlaut", "u\u0308mlaut", ".nfs", "CON", "\x01",
	}
	for i, name := range all {
		mustWrite(t, filepath.Join(dir, name), data(byte(i), 10))
	}
	dropCaches(t)
	for _, at := range []string{dir, disk} {
		entries, err := os.ReadDir(at)
		if err != nil || len(entries) != len(all) {
			t.Errorf("%s lists %q, %v", at, entries, err)
		}
		for i, name := range all {
			holds(t, filepath.Join(at, name), data(byte(i), 10))
		}
	}
	if err := write(filepath.Join(dir, strings.Repeat("n", 256)), nil); !errors.Is(err, syscall.ENAMETOOLONG) {
		t.Errorf("a name of 256 bytes: %v, want ENAMETOOLONG", err)
	}
	target := strings.Repeat("t/", 500) // XFS takes 1,023 bytes
	if err := os.Symlink(target, filepath.Join(dir, "long")); err != nil {
		t.Errorf("a link to a path of 1000 bytes: %v", err)
	}
	dropCaches(t)
	if got, err := os.Readlink(filepath.Join(dir, "long")); err != nil || got != target {
		t.Errorf("the link to a path of 1000 bytes reads as %q, %v", got, err)
	}
}
