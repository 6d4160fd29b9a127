package tree

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/test/leaks"
)

// A copy holds at most half a KiB of each directory that it is in: docs/limits.md says so. It does not hold their extended
// attributes.
func TestCopyDeepAttributes(t *testing.T) {
	const levels, size, most = 1500, 3800, 512 // bytes for each
	name := strings.Repeat("d", 250)
	from, to := tempDir(t), tempDir(t)
	at := open(t, from)
	for range levels {
		must(t, unix.Mkdirat(int(at.Fd()), name, 0o755))
		below, err := openDir(at, name)
		must(t, err, at.Close(), unix.Fsetxattr(int(below.Fd()), "user.large", bytes.Repeat([]byte("x"), size), 0))
		at = below
	}
	fd, err := unix.Openat(int(at.Fd()), "bottom", unix.O_CREAT|unix.O_WRONLY, 0o600)
	must(t, err, unix.Close(fd), at.Close())
	j := job{Copy: &Copy{}, ctx: t.Context(), linked: Inodes{}}
	must(t, j.to.begin(open(t, to)))
	defer j.to.close()
	before, held := leaks.LiveHeap(), 0
	j.walk = entries{Walker: Walker{Enter: j.enter, Leave: j.leave}, visit: func(e *Entry) error {
		if e.Name == "bottom" {
			held = leaks.LiveHeap() - before
		}
		return j.entry(e)
	}}
	must(t, j.walk.run(t.Context(), open(t, from)))
	if held == 0 || held > levels*most {
		t.Errorf("%d bytes at the bottom of %d directories, want at most %d", held, levels, levels*most)
	}
	value := make([]byte, 2*size)
	n, err := unix.Getxattr(filepath.Join(to, name, name, name), "user.large", value)
	if err != nil || n != size {
		t.Errorf("an attribute of %d bytes, %v, want %d", n, err, size)
	}
	runtime.KeepAlive(j.dirs)
}

// A directory has its attributes and ACLs from before what is in it is copied, but is private until it is complete, and what is
// made in it does not inherit from it.
func TestCopyDirectoryWithACLs(t *testing.T) {
	from, to := tempDir(t), tempDir(t)
	dir := filepath.Join(from, "d")
	must(t, os.Mkdir(dir, 0o750), os.Mkdir(filepath.Join(dir, "sub"), 0o755), os.WriteFile(filepath.Join(dir, "file"), nil, 0o644),
		os.Link(filepath.Join(dir, "file"), filepath.Join(dir, "second")), os.Symlink("x", filepath.Join(dir, "link")),
		unix.Setxattr(dir, "system.posix_acl_access", acl(), 0), unix.Setxattr(dir, "system.posix_acl_default", acl(), 0),
		unix.Setxattr(from, "system.posix_acl_default", acl(), 0))
	j := job{Copy: &Copy{}, ctx: t.Context(), linked: Inodes{}}
	must(t, j.to.begin(open(t, to)))
	defer j.to.close()
	seen := 0
	j.walk = entries{Walker: Walker{Enter: j.enter, Leave: j.leave}, visit: func(e *Entry) error {
		for _, made := range []string{"", "d", "d/sub"} {
			st, err := os.Stat(filepath.Join(to, made))
			if err == nil && st.Mode() != os.ModeDir|0o700 {
				t.Errorf("at %s: %s has mode %v", e.Path(), made, st.Mode())
			}
			seen++
		}
		return j.entry(e)
	}}
	must(t, j.walk.run(t.Context(), open(t, from)))
	if seen == 0 {
		t.Error("nothing was visited")
	}
	must(t, j.removeHub())
	same(t, from, to)
}

// A copy holds little of each file that has several names.
func TestCopyManyLinks(t *testing.T) {
	const files = 3000
	from, to := tempDir(t), tempDir(t)
	must(t, os.Mkdir(filepath.Join(from, "d"), 0o755))
	for i := range files {
		name := fmt.Sprint(i)
		must(t, os.WriteFile(filepath.Join(from, name), nil, 0o644), os.Link(filepath.Join(from, name), filepath.Join(from, "d", name)))
	}
	j := job{Copy: &Copy{}, ctx: t.Context(), linked: Inodes{}}
	must(t, j.to.begin(open(t, to)))
	defer j.to.close()
	before, held, n := leaks.LiveHeap(), 0, 0
	j.walk = entries{Walker: Walker{Enter: j.enter, Leave: j.leave}, visit: func(e *Entry) error {
		if n++; n == 2*files {
			held = leaks.LiveHeap() - before
		}
		return j.entry(e)
	}}
	must(t, j.walk.run(t.Context(), open(t, from)))
	if most := files * 20; held == 0 || held > most {
		t.Errorf("%d bytes after %d files, want at most %d", held, files, most)
	}
	same(t, from, to)
}
