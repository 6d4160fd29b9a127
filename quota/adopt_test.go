package quota

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestAssignTree(t *testing.T) { onDisks(t, testAssignTree) }

func testAssignTree(t *testing.T, disk string) {
	p, err := Open(disk)
	must(t, err)
	defer p.Close()
	const id, other = 4_000_000_100, 4_000_000_200

	root, err := os.MkdirTemp(disk, "adopt")
	must(t, err)
	defer os.RemoveAll(root)
	nodes := makeTree(t, root)
	before := lookAt(t, root)
	dir, err := os.Open(root)
	must(t, err)
	defer dir.Close()

	// Interrupted at its first pause, and with what that can leave behind.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.AssignTree(ctx, dir, id); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that is done: %v", err)
	}
	must(t, os.MkdirAll(filepath.Join(root, workName, "left"), 0o755))
	before["."] = lookAt(t, root)["."]

	// Entries below the root. Where the kernel can't set a project by a name, those of the fifo with two
	// names are left out, and the symbolic link with two becomes two.
	want, used := len(before)-1, len(before)-3
	if !setsNodes(t, filepath.Join(root, nodes[0])) {
		want, used = want-2, want-2
	}
	for _, to := range []struct {
		what string
		id   uint32
	}{{"first", id}, {"again", id}, {"to another project", other}} {
		t.Run(to.what, func(t *testing.T) {
			inodes := inodesOf(t, root)
			files, err := p.AssignTree(t.Context(), dir, to.id)
			if err != nil || files != want {
				t.Errorf("%d files, %v, want %d", files, err, want)
			}
			checkProject(t, root, to.id)
			after := lookAt(t, root)
			for name, was := range before {
				if after[name] != was {
					t.Errorf("%q:\n was %s\n is  %s", name, was, after[name])
				}
			}
			if len(after) != len(before) {
				t.Errorf("%d entries, want %d", len(after), len(before))
			}
			if to.what == "again" {
				for name, ino := range inodesOf(t, root) {
					if inodes[name] != ino {
						t.Errorf("%q was made anew", name)
					}
				}
			}
			// What a program does with what is its own: EXDEV is the kernel's
			// word for another project.
			for _, name := range nodes {
				from, to := filepath.Join(root, name), filepath.Join(root, name+" moved")
				must(t, os.Rename(from, to), os.Rename(to, from), os.Link(from, to), os.Remove(to))
			}
			for _, name := range nodes {
				before[filepath.Dir(name)] = lookAt(t, root)[filepath.Dir(name)]
			}
		})
	}

	// The root is counted too, and what has two names once.
	u, err := p.Usage(other)
	if err != nil || u.Inodes != int64(used) {
		t.Errorf("usage %+v, %v, want %d inodes", u, err, used)
	}
	eventually(t, func() (bool, error) { return free(p, id) }, "the first project is still in use")

	must(t, p.SetLimit(id, Limit{Bytes: 1 << 30}))
	all, err := p.Usages()
	must(t, err)
	if all[id] != (Usage{Limit: Limit{Bytes: 1 << 30}}) || all[other] != u {
		t.Errorf("all usages: %+v and %+v, want %+v", all[id], all[other], u)
	}
	if _, ok := all[0]; ok {
		t.Error("project 0 is told as one")
	}
	must(t, p.SetLimit(id, Limit{}))

	must(t, dir.Close(), os.RemoveAll(root))
	eventually(t, func() (bool, error) { return free(p, other) }, "the project is still in use")
}

// A directory that is moved while AssignTree is in it is not missed, with all that
// is below.
func TestAssignTreeOfMoved(t *testing.T) { onDisks(t, testAssignTreeOfMoved) }

func testAssignTreeOfMoved(t *testing.T, disk string) {
	p, err := Open(disk)
	must(t, err)
	defer p.Close()
	const id = 4_000_000_300
	root, err := os.MkdirTemp(disk, "moving")
	must(t, err)
	defer os.RemoveAll(root)
	at := func(above string, i int) string { return filepath.Join(root, above, fmt.Sprint(i)) }
	for _, above := range []string{"one", "two"} {
		for i := range 10 {
			must(t, os.MkdirAll(filepath.Join(at(above, i), "last"), 0o755),
				os.WriteFile(filepath.Join(at(above, i), "last/file"), nil, 0o644))
		}
	}
	// in lists the directories of above that were entered to their end.
	in := func(above string) (entered []string) {
		for i := range 10 {
			dir, err := os.Open(filepath.Join(at(above, i), "last"))
			must(t, err)
			is, err := assigned(dir, id)
			must(t, err, dir.Close())
			if is {
				entered = append(entered, at(above, i))
			}
		}
		return entered
	}
	moved := false
	ctx := stepping{t.Context(), func() {
		for first, second := range map[string]string{"one": "two", "two": "one"} {
			if moved || len(in(first)) < 10 {
				continue
			}
			// It has left the first and is in the second: nobody comes by again.
			if dirs := in(second); len(dirs) > 0 {
				moved = true
				must(t, os.Rename(dirs[0], filepath.Join(root, first, "moved")),
					os.Rename(filepath.Join(root, second), filepath.Join(root, first, second)))
			}
		}
	}}
	dir, err := os.Open(root)
	must(t, err)
	defer dir.Close()
	files, err := p.AssignTree(ctx, dir, id)
	if err != nil || files != 2+3*20 || !moved {
		t.Errorf("%d files, %v, moved: %v", files, err, moved)
	}
	checkProject(t, root, id)
}

// What somebody puts into the work directory meanwhile is assigned too, and keeps nothing from its end.
func TestAssignTreeWithSharedWork(t *testing.T) { onDisks(t, testAssignTreeWithSharedWork) }

func testAssignTreeWithSharedWork(t *testing.T, disk string) {
	p, err := Open(disk)
	must(t, err)
	defer p.Close()
	const id = 4_000_000_400
	root, err := os.MkdirTemp(disk, "shared")
	must(t, err)
	defer os.RemoveAll(root)
	nodes := makeTree(t, root)
	theirs := filepath.Join(root, workName, "theirs")
	ctx := stepping{t.Context(), func() {
		if _, err := os.Lstat(filepath.Dir(theirs)); err == nil {
			must(t, os.MkdirAll(theirs, 0o755), os.WriteFile(filepath.Join(theirs, "file"), []byte("content"), 0o644))
		}
		// Assigned as a directory, while what is in it need not be.
		if dir, err := os.Open(filepath.Join(root, "dir1")); err == nil {
			is, err := assigned(dir, id)
			must(t, err, dir.Close())
			if is {
				must(t, os.Rename(dir.Name(), filepath.Join(theirs, "dir1")))
			}
		}
	}}
	dir, err := os.Open(root)
	must(t, err)
	defer dir.Close()
	files, err := p.AssignTree(ctx, dir, id)
	if data, readErr := os.ReadFile(filepath.Join(theirs, "dir1/below/file")); err != nil || readErr != nil || string(data) != "content" {
		t.Errorf("%d files, %v; %q, %v", files, err, data, readErr)
	}
	checkProject(t, root, id)
	for _, name := range nodes {
		if name, ok := strings.CutPrefix(name, "dir1/"); ok {
			from, to := filepath.Join(theirs, "dir1", name), filepath.Join(root, filepath.Base(name)+" moved")
			must(t, os.Rename(from, to), os.Rename(to, from))
		}
	}
}

// stepping is a context that does something each time it is asked.
type stepping struct {
	context.Context
	do func()
}

func (s stepping) Err() error {
	s.do()
	return s.Context.Err()
}

// makeTree makes a tree of all sorts of things, and returns those that can't be
// opened for their project.
func makeTree(t *testing.T, root string) (nodes []string) {
	t.Helper()
	for i := range 3 {
		dir := fmt.Sprintf("dir%d/below", i)
		at := func(name string) string { return filepath.Join(root, dir, name) }
		must(t, os.MkdirAll(filepath.Join(root, dir), 0o755),
			os.WriteFile(at("file"), []byte("content"), 0o644),
			os.Chown(at("file"), 1000, 2000),
			os.WriteFile(at("closed"), nil, 0),
			os.Symlink(strings.Repeat("../../secret", 20), at("link")),
			os.Lchown(at("link"), 1000, 1000),
			unix.Mkfifo(at("fifo"), 0o640),
			unix.Setxattr(at("fifo"), "trusted.podnas", []byte("x"), 0),
			unix.Mknod(at("socket"), unix.S_IFSOCK|0o600, 0),
			// There is no driver for it: to open it is an error.
			unix.Mknod(at("device"), unix.S_IFBLK|0o660, int(unix.Mkdev(250, 7))),
			os.Chown(at("device"), 0, 6))
		for _, name := range []string{"link", "fifo", "socket", "device"} {
			then := []unix.Timespec{{Sec: 1e9, Nsec: 1}, {Sec: 1.1e9, Nsec: 2}}
			must(t, unix.UtimesNanoAt(unix.AT_FDCWD, at(name), then, unix.AT_SYMLINK_NOFOLLOW))
			nodes = append(nodes, filepath.Join(dir, name))
		}
	}
	must(t, os.Link(filepath.Join(root, "dir0/below/file"), filepath.Join(root, "file")),
		unix.Mkfifo(filepath.Join(root, "dir0/fifo of two"), 0o600),
		os.Link(filepath.Join(root, "dir0/fifo of two"), filepath.Join(root, "dir1/fifo of two")),
		os.Symlink("/nowhere", filepath.Join(root, "dir0/link of two")),
		os.Link(filepath.Join(root, "dir0/link of two"), filepath.Join(root, "dir1/link of two")))
	return append(nodes, "dir0/link of two", "dir1/link of two")
}

// lookAt describes all that AssignTree must leave as it is.
func lookAt(t *testing.T, root string) map[string]string {
	t.Helper()
	found := map[string]string{}
	must(t, filepath.Walk(root, func(path string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		must(t, unix.Lstat(path, &st))
		name, err := filepath.Rel(root, path)
		must(t, err)
		target, _ := os.Readlink(path)
		attr := make([]byte, 100)
		n, _ := unix.Lgetxattr(path, "trusted.podnas", attr)
		found[name] = fmt.Sprintf("%v %d:%d %x %v to %q, attribute %q", info.Mode(), st.Uid, st.Gid, st.Rdev, info.ModTime(), target, attr[:max(n, 0)])
		return nil
	}))
	delete(found, workName)
	delete(found, workName+"/left")
	return found
}

func inodesOf(t *testing.T, root string) map[string]uint64 {
	t.Helper()
	found := map[string]uint64{}
	must(t, filepath.Walk(root, func(path string, _ os.FileInfo, err error) error {
		var st unix.Stat_t
		must(t, err, unix.Lstat(path, &st))
		found[path] = st.Ino
		return nil
	}))
	return found
}

// checkProject asks the kernel about everything that it can be asked about.
// setsNodes reports whether file_setattr(2) works there (Linux 6.17, and not on ext4 yet).
func setsNodes(t *testing.T, node string) bool {
	t.Helper()
	fd, err := unix.Open(node, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(fd)
	_, err = setNodeProject(fd, 0)
	return err == nil
}

func checkProject(t *testing.T, root string, id uint32) {
	t.Helper()
	must(t, filepath.Walk(root, func(path string, info os.FileInfo, err error) error {
		must(t, err)
		if !info.IsDir() && !info.Mode().IsRegular() {
			return nil
		}
		f, err := os.Open(path)
		must(t, err)
		defer f.Close()
		var a fileAttributes
		must(t, ioctl(f, fsIocGetXattr, &a))
		if inherits := a.xflags&xflagProjInherit != 0; a.project != id || inherits != info.IsDir() {
			t.Errorf("%s: project %d, inherits %v, want project %d", path, a.project, inherits, id)
		}
		return nil
	}))
}
