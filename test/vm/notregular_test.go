//go:build vm

package vm_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// notRegular has one node open what the other has made and what is no regular file: the client, which does not
// know that, asks the server to open it. What comes of it is what a local file system does.
func notRegular(t *testing.T, disk string, nodes [2]*node) {
	const dir = "not-regular"
	maker, user := nodes[0].path(dir), nodes[1].path(dir)
	const read, write, both = unix.O_RDONLY | unix.O_NONBLOCK, unix.O_WRONLY, unix.O_RDWR | unix.O_NONBLOCK
	for _, tt := range []struct {
		name  string
		flags int
		is    uint32 // the type of what is opened
		err   error
	}{
		{"fifo", read, unix.S_IFIFO, nil},
		{"fifo", both, unix.S_IFIFO, nil},
		{"fifo", both | unix.O_CREAT, unix.S_IFIFO, nil},
		{"fifo", both | unix.O_TRUNC, unix.S_IFIFO, nil},
		{"fifo", both | unix.O_CREAT | unix.O_TRUNC, unix.S_IFIFO, nil},
		{"fifo", both | unix.O_CREAT | unix.O_EXCL, 0, syscall.EEXIST},
		{"fifo", write | unix.O_NONBLOCK, 0, syscall.ENXIO}, // nobody reads it
		{"null", read, unix.S_IFCHR, nil},
		{"null", write, unix.S_IFCHR, nil},
		{"null", write | unix.O_CREAT | unix.O_TRUNC, unix.S_IFCHR, nil}, // as a shell's >
		{"null", write | unix.O_CREAT | unix.O_EXCL, 0, syscall.EEXIST},
		{"socket", both, 0, syscall.ENXIO},
		{"socket", both | unix.O_CREAT, 0, syscall.ENXIO},
		{"socket", both | unix.O_CREAT | unix.O_EXCL, 0, syscall.EEXIST},
		{"to-file", both, unix.S_IFREG, nil},
		{"to-file", both | unix.O_CREAT, unix.S_IFREG, nil},
		{"to-file", read | unix.O_NOFOLLOW, 0, syscall.ELOOP},
		{"to-file", both | unix.O_CREAT | unix.O_EXCL, 0, syscall.EEXIST},
		{"to-fifo", both, unix.S_IFIFO, nil},
		{"to-fifo", both | unix.O_CREAT, unix.S_IFIFO, nil},
		{"to-dir", read, unix.S_IFDIR, nil},
		{"to-dir", both, 0, syscall.EISDIR},
		{"to-nothing", both, 0, syscall.ENOENT},
		{"to-nothing", both | unix.O_CREAT, unix.S_IFREG, nil},
		{"dir", read, unix.S_IFDIR, nil},
		{"dir", both, 0, syscall.EISDIR},
		{"dir", read | unix.O_CREAT, 0, syscall.EISDIR},
		{"dir", both | unix.O_CREAT | unix.O_EXCL, 0, syscall.EEXIST},
	} {
		for _, dropped := range []bool{false, true} { // what the client does not know any more, or has never seen
			mustMakeNotRegular(t, maker)
			if dropped {
				if _, err := os.ReadDir(user); err != nil {
					t.Fatal(err)
				}
				dropCaches(t)
			}
			fd, err := unix.Open(filepath.Join(user, tt.name), tt.flags|unix.O_CLOEXEC, 0o644)
			var st unix.Stat_t
			if err == nil {
				err = unix.Fstat(fd, &st)
				_ = unix.Close(fd)
			}
			if !errors.Is(err, tt.err) || st.Mode&unix.S_IFMT != tt.is {
				t.Errorf("open %s with %#x, dropped %v: %v and a mode of %o, want %v and %o", tt.name, tt.flags, dropped, err, st.Mode, tt.err, tt.is)
			}
			if err := os.RemoveAll(maker); err != nil {
				t.Fatal(err)
			}
		}
	}
	// A name that the client knows as a regular file.
	mustMakeNotRegular(t, maker)
	if err := os.WriteFile(filepath.Join(user, "file"), []byte("content"), 0o644); err != nil {
		t.Error(err)
	}
	if err := os.Rename(filepath.Join(maker, "fifo"), filepath.Join(maker, "file")); err != nil {
		t.Error(err)
	}
	fd, err := unix.Open(filepath.Join(user, "file"), both|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Errorf("open a fifo that has replaced a file: %v", err)
	} else {
		_ = unix.Close(fd)
	}
	holds(t, filepath.Join(disk, dir, "target"), []byte("content"))
}

// mustMakeNotRegular makes what notRegular opens.
func mustMakeNotRegular(t *testing.T, dir string) {
	t.Helper()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(
		os.MkdirAll(at("dir"), 0o755),
		unix.Mkfifo(at("fifo"), 0o644),
		unix.Mknod(at("null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))),
		unix.Mknod(at("socket"), unix.S_IFSOCK|0o666, 0),
		os.WriteFile(at("target"), []byte("content"), 0o644),
		os.Symlink("target", at("to-file")), os.Symlink("fifo", at("to-fifo")), os.Symlink("dir", at("to-dir")), os.Symlink("nothing", at("to-nothing")),
	); err != nil {
		t.Fatal(err)
	}
}
