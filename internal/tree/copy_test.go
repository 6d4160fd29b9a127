package tree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/test/testdisk"
)

func TestCopyRandom(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			from, to := tempDir(t), tempDir(t)
			newGrower(t, seed).grow(from, 2)
			c := copyTree(t, from, to)
			same(t, from, to)
			if want := int64(len(describe(t, from)) - 1); c.Files.Load() != want {
				t.Errorf("%d files counted, want %d", c.Files.Load(), want)
			}
		})
	}
}

// A copy is the same, whatever moves the data.
func TestCopyAcrossDisks(t *testing.T) {
	var tmp, shm unix.Stat_t
	from := tempDir(t)
	to, err := os.MkdirTemp("/dev/shm", "tree")
	if err != nil {
		t.Skip("no second file system to copy to: ", err)
	}
	defer os.RemoveAll(to)
	must(t, unix.Stat(from, &tmp), unix.Stat(to, &shm))
	if tmp.Dev == shm.Dev {
		t.Skip("the temporary directory and /dev/shm are one file system")
	}
	data := strings.Repeat("0123456789abcdef", 1<<18) // 4 MiB, a chunk
	must(t, os.WriteFile(filepath.Join(from, "big"), []byte(data+"and more"), 0o600))
	must(t, os.WriteFile(filepath.Join(from, "sparse"), []byte("begin"), 0o600))
	must(t, os.Truncate(filepath.Join(from, "sparse"), 1<<40))
	copyTree(t, from, to)
	got, err := os.ReadFile(filepath.Join(to, "big"))
	if err != nil || string(got) != data+"and more" {
		t.Errorf("%d bytes of %d or other ones, %v", len(got), len(data)+8, err)
	}
	var st unix.Stat_t
	must(t, unix.Stat(filepath.Join(to, "sparse"), &st))
	if st.Size != 1<<40 || st.Blocks > 64 {
		t.Errorf("sparse: %d bytes in %d blocks, want 1 TiB in few", st.Size, st.Blocks)
	}
}

// The content that makes clones quick: it is not on the disk twice, where the
// disk can do that, and holes stay holes in any case.
func TestCopyHoles(t *testing.T) {
	from, to := tempDir(t), tempDir(t)
	for name, write := range map[string]func(f *os.File) error{
		"empty": func(*os.File) error { return nil },
		"only":  func(f *os.File) error { return f.Truncate(1 << 30) },
		"tail":  func(f *os.File) error { _, err := f.WriteString("x"); return errors.Join(err, f.Truncate(1<<30)) },
		"head":  func(f *os.File) error { _, err := f.WriteAt([]byte("x"), 1<<30); return err },
		"middle": func(f *os.File) error {
			_, err := f.WriteAt([]byte("x"), 1<<29)
			return errors.Join(err, f.Truncate(1<<30))
		},
		"reserved": func(f *os.File) error { return unix.Fallocate(int(f.Fd()), 0, 0, 1<<20) },
	} {
		f, err := os.Create(filepath.Join(from, name))
		must(t, err)
		must(t, write(f), f.Close())
	}
	copyTree(t, from, to)
	entries, err := os.ReadDir(from)
	must(t, err)
	for _, e := range entries {
		var a, b unix.Stat_t
		must(t, unix.Stat(filepath.Join(from, e.Name()), &a), unix.Stat(filepath.Join(to, e.Name()), &b))
		if a.Size != b.Size || b.Blocks > a.Blocks {
			t.Errorf("%s: %d bytes in %d blocks, want %d in %d", e.Name(), b.Size, b.Blocks, a.Size, a.Blocks)
		}
	}
	head, err := os.Open(filepath.Join(to, "head"))
	must(t, err)
	defer head.Close()
	b := make([]byte, 2)
	if n, err := head.ReadAt(b, 1<<30); n != 1 || b[0] != 'x' || !errors.Is(err, io.EOF) {
		t.Errorf("after the hole: %q, %v", b[:n], err)
	}
}

// Ways down that are longer than a path, and than what may be open; five times as long in CI.
func TestCopyDeep(t *testing.T) {
	levels := testdisk.Rounds(1000, 5000)
	from, to := tempDir(t), tempDir(t)
	name := strings.Repeat("d", 200) // so that no path has room for it
	at := open(t, from)
	for range levels {
		must(t, unix.Mkdirat(int(at.Fd()), name, 0o755))
		next, err := openDir(at, name)
		must(t, err, at.Close())
		at = next
	}
	fd, err := unix.Openat(int(at.Fd()), "bottom", unix.O_CREAT|unix.O_WRONLY, 0o600)
	must(t, err, unix.Close(fd), at.Close())
	var limit unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	few := limit
	few.Cur = 64
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &few))
	defer func() { must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)) }()
	c := copyTree(t, from, to)
	if c.Files.Load() != int64(levels)+1 {
		t.Errorf("%d entries, want %d", c.Files.Load(), levels+1)
	}
	depth, bottom := 0, false
	must(t, Walk(t.Context(), open(t, to), func(*os.File) error { return nil }, func(e *Entry) error {
		depth++
		bottom = bottom || e.Name == "bottom"
		return nil
	}))
	if depth != levels+1 || !bottom {
		t.Errorf("the copy has %d entries, bottom there: %v", depth, bottom)
	}
}

// An ordinary user copies what is its own, modes in its way or not.
func TestCopyAsUser(t *testing.T) {
	if os.Getenv("PODNAS_TEST_USER") == "" && os.Geteuid() == 0 {
		tmp := tempDir(t)
		must(t, os.Chown(tmp, 65534, 65534))
		cmd := exec.Command("/proc/self/exe", "-test.run=^(TestCopyAsUser|TestCopyRandom|TestCopyResume|TestEmpty)$", "-test.v")
		cmd.Dir = tmp
		cmd.Env = append(os.Environ(), "PODNAS_TEST_USER=1", "PODNAS_TEST_XFS="+tmp)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		out, err := cmd.CombinedOutput()
		t.Logf("as user 65534:\n%s", out)
		if err != nil {
			t.Error(err)
		}
		return
	}
	from, to := tempDir(t), tempDir(t)
	must(t, os.Mkdir(filepath.Join(from, "d"), 0o755))
	must(t, os.WriteFile(filepath.Join(from, "d", "f"), []byte("x"), 0o400))
	must(t, os.Chmod(filepath.Join(from, "d"), 0o500))
	copyTree(t, from, to)
	same(t, from, to)
	copyTree(t, from, to) // into a directory that is read-only by now
	same(t, from, to)
}

// A fifo blocks who opens it, a link leads out, a mount is another disk, and a
// copy made inside of its source must not find itself.
func TestCopyStaysInside(t *testing.T) {
	from, outside := tempDir(t), tempDir(t)
	must(t, os.WriteFile(filepath.Join(outside, "secret"), nil, 0o644))
	must(t, os.Symlink(outside, filepath.Join(from, "out")))
	must(t, unix.Mkfifo(filepath.Join(from, "fifo"), 0o600))
	to := filepath.Join(from, "copy")
	must(t, os.Mkdir(to, 0o755))
	copyTree(t, from, to)
	names := describe(t, to)
	if len(names) != 3 || names["out"].text == "" || names["fifo"].text == "" {
		t.Errorf("the copy has %v", names)
	}

	dir, err := openDir(open(t, "/"), "proc")
	if !vanished(err) {
		t.Errorf("a mount was entered: %v, %v", dir, err)
	}
}

func TestCopyResume(t *testing.T) {
	from := tempDir(t)
	newGrower(t, 100).grow(from, 2)
	total := len(describe(t, from)) - 1
	to := tempDir(t)
	// Go a little further each time. What is complete stays as it was.
	step := int64(total/8 + 1)
	made := map[string]uint64{}
	for after := int64(0); ; after += step {
		c := &Copy{}
		done, err := runFor(t, c, from, to, after)
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		for name, ino := range inodes(t, to) {
			if was, ok := made[name]; ok && was != ino {
				t.Errorf("%q was made again", name)
			}
			if !strings.HasPrefix(name, hubName) {
				made[name] = ino
			}
		}
		if done {
			break
		}
		if after > int64(total)+2*step {
			t.Fatal("it never ends")
		}
	}
	same(t, from, to)
	// And once more, with nothing to do.
	c := copyTree(t, from, to)
	if c.Files.Load() != int64(total) {
		t.Errorf("%d files counted, want %d", c.Files.Load(), total)
	}
	same(t, from, to)
	for name, ino := range inodes(t, to) {
		if made[name] != ino {
			t.Errorf("%q was made again by a copy of what is complete", name)
		}
	}
}

// runFor ends a copy when it has made that many files.
func runFor(t *testing.T, c *Copy, from, to string, files int64) (done bool, err error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	j := job{Copy: c, ctx: ctx, linked: Inodes{}}
	must(t, j.to.begin(open(t, to)))
	defer j.to.close()
	defer j.closeHub()
	j.walk = entries{Walker: Walker{Enter: j.enter, Leave: j.leave}, visit: func(e *Entry) error {
		if c.Files.Load() >= files {
			cancel()
		}
		return j.entry(e)
	}}
	err = j.walk.run(ctx, open(t, from))
	return err == nil, err
}

func inodes(t *testing.T, root string) map[string]uint64 {
	t.Helper()
	found := map[string]uint64{}
	must(t, filepath.Walk(root, func(path string, info os.FileInfo, err error) error {
		if err == nil && path != root {
			name, _ := filepath.Rel(root, path)
			found[name] = info.Sys().(*syscall.Stat_t).Ino
		}
		return err
	}))
	return found
}

// What the source is now, the copy is after the next run, whatever it was.
func TestCopyResumeChanged(t *testing.T) {
	from, to := tempDir(t), tempDir(t)
	for _, dir := range []string{"dir", "dir/sub", "gone", "gone/sub", "tofile", "tofile/sub"} {
		must(t, os.Mkdir(filepath.Join(from, dir), 0o755))
	}
	for _, name := range []string{"a", "b", "dir/x", "dir/sub/y", "gone/sub/z", "tofile/sub/z", "todir", "mode"} {
		must(t, os.WriteFile(filepath.Join(from, name), []byte(name), 0o644))
		settled(t, filepath.Join(from, name))
	}
	must(t, os.Link(filepath.Join(from, "a"), filepath.Join(from, "dir/link to a")))
	must(t, os.Link(filepath.Join(from, "dir/x"), filepath.Join(from, "link to x")))
	copyTree(t, from, to)
	same(t, from, to)

	must(t, os.WriteFile(filepath.Join(from, "a"), []byte("A"), 0o644), // same size
		os.WriteFile(filepath.Join(from, "b"), []byte("longer"), 0o644),
		os.RemoveAll(filepath.Join(from, "gone")),
		os.RemoveAll(filepath.Join(from, "tofile")),
		os.WriteFile(filepath.Join(from, "tofile"), nil, 0o644),
		os.Remove(filepath.Join(from, "todir")),
		os.Mkdir(filepath.Join(from, "todir"), 0o755),
		os.Remove(filepath.Join(from, "link to x")), // becomes a file of its own
		os.WriteFile(filepath.Join(from, "link to x"), []byte("other"), 0o644),
		os.Chmod(filepath.Join(from, "mode"), 0o600),
		os.Link(filepath.Join(from, "b"), filepath.Join(from, "dir/link to b")))
	copyTree(t, from, to)
	same(t, from, to)
}

// An interrupted copy can have left anything under a name.
func TestCopyIncomplete(t *testing.T) {
	from, to := tempDir(t), tempDir(t)
	must(t, os.WriteFile(filepath.Join(from, "f"), []byte("content"), 0o644))
	settled(t, filepath.Join(from, "f"))
	must(t, os.Symlink("right", filepath.Join(from, "l")))
	then := make([]unix.Timeval, 2)
	must(t, unix.Lutimes(filepath.Join(from, "l"), then))
	must(t, unix.Mkfifo(filepath.Join(from, "p"), 0o640))

	must(t, os.WriteFile(filepath.Join(to, "f"), []byte("CONTENT"), 0o644)) // now, not then
	must(t, os.Symlink("wrong", filepath.Join(to, "l")))
	must(t, os.WriteFile(filepath.Join(to, "p"), nil, 0o644))
	must(t, os.MkdirAll(filepath.Join(to, hubName, "x/y"), 0o755))
	copyTree(t, from, to)
	same(t, from, to)
}

// The default ACL of a directory in the copy must not get into what the source
// has without.
func TestCopyDefaultACL(t *testing.T) {
	from, to := tempDir(t), tempDir(t)
	must(t, os.Mkdir(filepath.Join(from, "d"), 0o755))
	must(t, os.WriteFile(filepath.Join(from, "f"), nil, 0o644))
	must(t, unix.Setxattr(to, "system.posix_acl_default", acl(), 0))
	copyTree(t, from, to)
	same(t, from, to)
}

func TestCopyAccessTime(t *testing.T) {
	from, to := tempDir(t), tempDir(t)
	then := time.Unix(1_000_000_000, 987_654_321)
	must(t, os.WriteFile(filepath.Join(from, "f"), []byte("x"), 0o644))
	for _, name := range []string{"f", "."} {
		must(t, os.Chtimes(filepath.Join(from, name), then, then))
	}
	copyTree(t, from, to)
	for _, path := range []string{from, to} {
		for _, name := range []string{"f", "."} {
			var st unix.Stat_t
			must(t, unix.Stat(filepath.Join(path, name), &st))
			if got := time.Unix(st.Atim.Unix()); !got.Equal(then) {
				t.Errorf("access time of %s in %s: %v, want %v", name, path, got, then)
			}
		}
	}
}

func TestCopyCancel(t *testing.T) {
	from, to := tempDir(t), tempDir(t)
	must(t, os.WriteFile(filepath.Join(from, "f"), nil, 0o644))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var c Copy
	if err := c.Run(ctx, open(t, from), open(t, to)); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want canceled", err)
	}
}

// While a tree is copied, it is changed in all ways. The copy has what was not
// touched, and the source is left alone.
func TestCopyInUse(t *testing.T) {
	from, to := tempDir(t), tempDir(t)
	for i := range 20 {
		dir := filepath.Join(from, fmt.Sprint("dir", i), "below")
		must(t, os.MkdirAll(dir, 0o755))
		for k := range 20 {
			must(t, os.WriteFile(filepath.Join(dir, fmt.Sprint("kept", k)), []byte("kept"), 0o644),
				os.WriteFile(filepath.Join(dir, fmt.Sprint("file", k)), []byte("file"), 0o644))
		}
	}
	stop, stopped := make(chan struct{}), make(chan error)
	go func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				stopped <- nil
				return
			default:
			}
			time.Sleep(50 * time.Microsecond)
			dir := filepath.Join(from, fmt.Sprint("dir", i%20), "below")
			file := filepath.Join(dir, fmt.Sprint("file", i/20%20))
			var err error
			switch i % 7 % 5 {
			case 0:
				err = os.Remove(file)
			case 1:
				err = os.WriteFile(file, []byte(strings.Repeat("longer", i%1000)), 0o600)
			case 2:
				err = os.Truncate(file, 1)
			case 3:
				err = os.Rename(file, file+"moved")
			case 4:
				err = os.Mkdir(file+"dir", 0o755)
			}
			if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, os.ErrExist) &&
				!errors.Is(err, unix.ENOTDIR) && !errors.Is(err, unix.EISDIR) {
				stopped <- err
				return
			}
		}
	}()
	copyTree(t, from, to)
	close(stop)
	must(t, <-stopped)
	for i := range 20 {
		for k := range 20 {
			data, err := os.ReadFile(filepath.Join(to, fmt.Sprint("dir", i), "below", fmt.Sprint("kept", k)))
			if string(data) != "kept" {
				t.Errorf("dir%d, kept%d: %q, %v", i, k, data, err)
			}
		}
	}
	// Nothing changes now: what is behind is brought up.
	copyTree(t, from, to)
	same(t, from, to)
}

// A directory that is moved while the walk is in it does not lead it elsewhere.
func TestCopyMovedDirectory(t *testing.T) {
	for _, tt := range []struct{ name, moved, to string }{
		{"within the tree", "a/b/c", "moved"},
		{"out of the tree", "a/b/c", "../outside/c"},
		{"the one above", "a/b", "../outside/b"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, to := tempDir(t), tempDir(t)
			from := filepath.Join(dir, "from")
			must(t, os.MkdirAll(filepath.Join(from, "a/b/c"), 0o755), os.MkdirAll(filepath.Join(dir, "outside/secret"), 0o755),
				os.MkdirAll(filepath.Join(from, "z/y"), 0o755),
				os.WriteFile(filepath.Join(from, "a/b/c/file"), nil, 0o644))
			j := job{Copy: &Copy{}, ctx: t.Context(), linked: Inodes{}}
			must(t, j.to.begin(open(t, to)))
			defer j.to.close()
			j.walk = entries{Walker: Walker{Enter: j.enter, Leave: j.leave}, visit: func(e *Entry) error {
				if e.Name == "file" {
					must(t, os.Rename(filepath.Join(from, tt.moved), filepath.Join(from, tt.to)))
				}
				return j.entry(e)
			}}
			must(t, j.walk.run(t.Context(), open(t, from)))
			got := describe(t, to)
			for _, name := range []string{"a", "a/b", "a/b/c", "a/b/c/file", "z", "z/y"} {
				if got[name].text == "" {
					t.Errorf("%s is missing", name)
				}
				delete(got, name)
			}
			delete(got, ".")
			delete(got, "moved")      // found again there, or not
			delete(got, "moved/file") // with what is in it
			if len(got) > 0 {
				t.Errorf("more than there was: %v", got)
			}
		})
	}
}

func TestCopyLeavesNothingOpen(t *testing.T) {
	from, to := tempDir(t), tempDir(t)
	newGrower(t, 3).grow(from, 3)
	src, dst := open(t, from), open(t, to)
	count := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		must(t, err)
		return len(entries)
	}
	before := count()
	for _, files := range []int64{0, 5, 1 << 40} {
		_, _ = runFor(t, &Copy{}, from, to, files)
	}
	var c Copy
	must(t, c.Run(t.Context(), src, dst))
	// runFor opens both directories until the test ends.
	if after := count(); after != before+6 {
		t.Errorf("%d descriptors more than before", after-before-6)
	}
}
