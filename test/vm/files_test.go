//go:build vm

package vm_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestFiles does with one volume what programs do with files. Each part has a
// folder of its own; disk is that folder as it lies on the disk.
func TestFiles(t *testing.T) {
	a := serve(t)
	pv := a.volume("files", "512Mi")
	mnt := mount(t, pv)
	for _, part := range []struct {
		name string
		run  func(t *testing.T, dir, disk string)
	}{
		{"WriteReadBack", writeReadBack},
		{"Append", appendTo},
		{"Truncate", truncate},
		{"Sparse", sparse},
		{"Attributes", attributes},
		{"Rename", rename},
		{"RenameOpen", renameOpen},
		{"Unlink", unlink},
		{"UnlinkOpen", unlinkOpen},
		{"Directories", directories},
		{"Symlink", symlink},
		{"ManyEntries", manyEntries},
		{"ManyWriters", manyWriters},
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

func writeReadBack(t *testing.T, dir, disk string) {
	for i, size := range []int{0, 1, 4096, 1<<20 + 1, 24 << 20} {
		name := fmt.Sprint(size)
		b := data(byte(i), size)
		mustWrite(t, filepath.Join(dir, name), b)
		holds(t, filepath.Join(disk, name), b)
		dropCaches(t)
		holds(t, filepath.Join(dir, name), b)
	}
}

func appendTo(t *testing.T, dir, disk string) {
	name := filepath.Join(dir, "log")
	var want []byte
	for i := range 50 {
		f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		line := data(byte(i), 100+i)
		want = append(want, line...)
		if _, err := f.Write(line); err != nil {
			t.Error(err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	holds(t, filepath.Join(disk, "log"), want)
	dropCaches(t)
	holds(t, name, want)
}

func truncate(t *testing.T, dir, disk string) {
	name := filepath.Join(dir, "f")
	b := data(1, 300_000)
	mustWrite(t, name, b)
	if err := os.Truncate(name, 100_001); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(name, 200_000); err != nil {
		t.Fatal(err)
	}
	want := append(bytes.Clone(b[:100_001]), make([]byte, 200_000-100_001)...)
	holds(t, filepath.Join(disk, "f"), want)
	dropCaches(t)
	holds(t, name, want)
	mustWrite(t, name, b[:10]) // O_TRUNC
	holds(t, filepath.Join(disk, "f"), b[:10])
}

func sparse(t *testing.T, dir, disk string) {
	const size = 16 << 20
	name := filepath.Join(dir, "f")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	end := data(1, 4096)
	if _, err := f.WriteAt(end, size-4096); err != nil {
		t.Error(err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		t.Error(err)
	}
	dropCaches(t)
	holds(t, name, append(make([]byte, size-4096), end...))
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(disk, "f"), &st); err != nil {
		t.Fatal(err)
	}
	if st.Size != size || st.Blocks*512 > 1<<20 {
		t.Errorf("on the disk: size %d and %d bytes allocated, want %d and next to nothing", st.Size, st.Blocks*512, size)
	}
}

func attributes(t *testing.T, dir, disk string) {
	name := filepath.Join(dir, "f")
	mustWrite(t, name, data(1, 10))
	when := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	if err := os.Chtimes(name, when, when); err != nil {
		t.Error(err)
	}
	if err := os.Chmod(name, 0o640); err != nil {
		t.Error(err)
	}
	dropCaches(t)
	for _, at := range []string{name, filepath.Join(disk, "f")} {
		st, err := os.Stat(at)
		if err != nil {
			t.Fatal(err)
		}
		if st.Mode() != 0o640 || !st.ModTime().Equal(when) || st.Size() != 10 {
			t.Errorf("%s: mode %v, mtime %v, size %d", at, st.Mode(), st.ModTime(), st.Size())
		}
	}
	// As touch does: the server's own time.
	now := []unix.Timespec{{Nsec: unix.UTIME_NOW}, {Nsec: unix.UTIME_NOW}}
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, name, now, 0); err != nil {
		t.Errorf("touch: %v", err)
	}
	if st, err := os.Stat(filepath.Join(disk, "f")); err != nil || time.Since(st.ModTime()).Abs() > time.Minute {
		t.Errorf("after touch: mtime %v, %v", st.ModTime(), err)
	}
}

func rename(t *testing.T, dir, disk string) {
	for _, sub := range []string{"from", "to"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	b := data(1, 70_000)
	mustWrite(t, filepath.Join(dir, "from/a"), b)
	mustWrite(t, filepath.Join(dir, "to/a"), []byte("to be replaced"))
	for _, step := range []struct{ from, to string }{
		{"from/a", "from/b"}, // in its folder
		{"from/b", "to/b"},   // to another folder
		{"to/b", "to/a"},     // over another file
		{"to", "moved"},      // the folder with it
	} {
		if err := os.Rename(filepath.Join(dir, step.from), filepath.Join(dir, step.to)); err != nil {
			t.Fatal(err)
		}
		gone(t, filepath.Join(dir, step.from))
		gone(t, filepath.Join(disk, step.from))
	}
	dropCaches(t)
	holds(t, filepath.Join(dir, "moved/a"), b)
	holds(t, filepath.Join(disk, "moved/a"), b)
}

// renameOpen: a file's handle outlives a rename of the file, and one of the
// folder it is in.
func renameOpen(t *testing.T, dir, disk string) {
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	b := data(1, 200_000)
	mustWrite(t, filepath.Join(dir, "sub/a"), b)
	f, err := os.OpenFile(filepath.Join(dir, "sub/a"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, step := range []struct{ from, to, file string }{
		{"sub/a", "sub/b", "sub/b"},
		{"sub", "moved", "moved/b"},
	} {
		if err := os.Rename(filepath.Join(dir, step.from), filepath.Join(dir, step.to)); err != nil {
			t.Fatal(err)
		}
		dropCaches(t)
		got := make([]byte, len(b))
		if _, err := f.ReadAt(got, 0); err != nil {
			t.Errorf("read after %s became %s: %v", step.from, step.to, err)
		} else if !bytes.Equal(got, b) {
			t.Errorf("read after %s became %s: other bytes than written", step.from, step.to)
		}
		copy(b[1000:], step.to)
		if _, err := f.WriteAt([]byte(step.to), 1000); err != nil {
			t.Errorf("write after %s became %s: %v", step.from, step.to, err)
		}
		if err := f.Sync(); err != nil {
			t.Errorf("fsync after %s became %s: %v", step.from, step.to, err)
		}
		holds(t, filepath.Join(disk, step.file), b)
	}
}

func unlink(t *testing.T, dir, disk string) {
	name := filepath.Join(dir, "f")
	mustWrite(t, name, data(1, 10))
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	gone(t, name)
	gone(t, filepath.Join(disk, "f"))
	if err := os.Remove(name); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("second unlink: %v, want ENOENT", err)
	}
	// The name can be used again, and is another file.
	b := data(2, 20)
	mustWrite(t, name, b)
	dropCaches(t)
	holds(t, name, b)
}

// unlinkOpen removes a file that is open: the client renames it to .nfs... until
// it is closed, and reads and writes go on.
func unlinkOpen(t *testing.T, dir, disk string) {
	b := data(1, 3<<20)
	mustWrite(t, filepath.Join(dir, "f"), b)
	dropCaches(t)
	f, err := os.OpenFile(filepath.Join(dir, "f"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 0, len(b))
	for len(got) < len(b) {
		chunk := make([]byte, 64<<10)
		n, err := f.ReadAt(chunk, int64(len(got)))
		if err != nil && err != io.EOF {
			t.Fatalf("read at %d: %v", len(got), err)
		}
		if len(got) == 0 {
			if err := os.Remove(filepath.Join(dir, "f")); err != nil {
				t.Fatal(err)
			}
			gone(t, filepath.Join(dir, "f"))
			dropCaches(t)
		}
		got = append(got, chunk[:n]...)
	}
	if !bytes.Equal(got, b) {
		t.Error("other bytes than written")
	}
	if _, err := f.WriteAt([]byte("still mine"), 100); err != nil {
		t.Errorf("write: %v", err)
	}
	if err := f.Sync(); err != nil {
		t.Errorf("fsync: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	eventually(t, "nothing is left of the file", func() bool {
		left, err := os.ReadDir(disk)
		return err == nil && len(left) == 0
	})
}

func directories(t *testing.T, dir, disk string) {
	deep := filepath.Join(dir, "a/b/c/d/e/f")
	if err := os.MkdirAll(deep, 0o755); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(filepath.Join(disk, "a/b/c/d/e/f")); err != nil || !st.IsDir() {
		t.Errorf("on the disk: %v, %v", st, err)
	}
	if err := os.Mkdir(deep, 0o755); !errors.Is(err, syscall.EEXIST) {
		t.Errorf("mkdir of what is there: %v, want EEXIST", err)
	}
	// ENOTEMPTY it should be; go-nfs answers EIO for what it has no name for.
	if err := syscall.Rmdir(filepath.Join(dir, "a")); err == nil {
		t.Error("a directory that is not empty can be removed")
	}
	if err := syscall.Rmdir(deep); err != nil {
		t.Errorf("rmdir: %v", err)
	}
	gone(t, deep)
	if err := os.RemoveAll(filepath.Join(dir, "a")); err != nil {
		t.Error(err)
	}
	gone(t, filepath.Join(disk, "a"))
}

func symlink(t *testing.T, dir, disk string) {
	b := data(1, 5000)
	mustWrite(t, filepath.Join(dir, "file"), b)
	for name, target := range map[string]string{"relative": "file", "dangling": "no/such/file", "outside": "/etc/hostname"} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	dropCaches(t)
	for name, target := range map[string]string{"relative": "file", "dangling": "no/such/file", "outside": "/etc/hostname"} {
		for _, at := range []string{dir, disk} {
			if got, err := os.Readlink(filepath.Join(at, name)); err != nil || got != target {
				t.Errorf("readlink %s/%s: %q, %v; want %q", at, name, got, err, target)
			}
		}
	}
	holds(t, filepath.Join(dir, "relative"), b)
	if err := os.Remove(filepath.Join(dir, "relative")); err != nil {
		t.Error(err)
	}
	holds(t, filepath.Join(dir, "file"), b)
	// Removing a tree with a link in it removes the link, not what it names.
	if err := os.Remove(filepath.Join(dir, "outside")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat("/etc/hostname"); err != nil {
		t.Error(err)
	}
}

// manyEntries lists a directory that takes many READDIR replies.
func manyEntries(t *testing.T, dir, disk string) {
	const n = 600
	want := make(map[string]bool, n)
	for i := range n {
		name := fmt.Sprintf("a-name-of-some-length-%05d", i)
		want[name] = true
		if err := os.WriteFile(filepath.Join(disk, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, at := range []string{"warm", "cold"} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatalf("%s: %v", at, err)
		}
		seen := make(map[string]bool, n)
		for _, e := range entries {
			if !want[e.Name()] || seen[e.Name()] {
				t.Errorf("%s: entry %q is listed twice or was never made", at, e.Name())
			}
			seen[e.Name()] = true
		}
		if len(seen) != n {
			t.Errorf("%s: %d entries, want %d", at, len(seen), n)
		}
		dropCaches(t)
	}
	// Every handle that came with the listing is good.
	for name := range want {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	// Removed while it is listed, as rm -r does.
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	gone(t, disk)
}

// manyWriters has several files written at once.
func manyWriters(t *testing.T, dir, disk string) {
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			if err := write(filepath.Join(dir, fmt.Sprint(i)), data(byte(i), 4<<20)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	dropCaches(t)
	for i := range 8 {
		b := data(byte(i), 4<<20)
		holds(t, filepath.Join(dir, fmt.Sprint(i)), b)
		holds(t, filepath.Join(disk, fmt.Sprint(i)), b)
	}
}
