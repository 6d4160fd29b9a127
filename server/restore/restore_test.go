package restore_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/quota"
	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/server/locate"
	"github.com/podnas/podnas/server/restore"
	"github.com/podnas/podnas/server/snapshot"
	"github.com/podnas/podnas/server/space"
	"github.com/podnas/podnas/test/leaks"
	"github.com/podnas/podnas/test/testdisk"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// volume is an exported directory with a folder for snapshots.
type volume struct {
	*exports.Volume
	table  *exports.Table
	opener *inode.Opener
	dir    string // on the disk
	ready  string // the complete snapshots
	last   *snapshot.Earlier
	taken  []exports.Snapshot

	progress *restore.Progress // of the last restore
}

func newVolume(t *testing.T, disk string) *volume {
	t.Helper()
	return newVolumeWith(t, disk, exports.Options{})
}

func newVolumeWith(t *testing.T, disk string, options exports.Options) *volume {
	t.Helper()
	v := &volume{dir: filepath.Join(disk, "volume"), ready: filepath.Join(disk, "ready"), table: &exports.Table{ByIndex: testdisk.ByIndex()}}
	for _, d := range []string{v.dir, v.ready} {
		must(t, os.Mkdir(d, 0o755))
	}
	must(t, v.table.Export(exports.Exported{ID: 7, Path: "/v", Dir: v.dir, Options: options, Account: space.NewAccount(quota.Limit{Bytes: 1 << 30})}))
	v.Volume, _ = v.table.ByID(7)
	v.opener = inode.NewOpener(v.table, locate.NewKey(make([]byte, 32)), slog.New(slog.DiscardHandler))
	t.Cleanup(func() {
		v.table.Remove(7)
		v.opener.Close()
	})
	return v
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// take takes a snapshot.
func (v *volume) take(t *testing.T, name string) {
	t.Helper()
	work := v.ready + "-" + name
	must(t, os.Mkdir(work, 0o700))
	root, err := os.OpenRoot(work)
	must(t, err)
	defer root.Close()
	var p snapshot.Progress
	must(t, v.Snapshots.Take(t.Context(), &v.Files, v.OwnFiles(), root, v.last, &p))
	must(t, os.Rename(filepath.Join(work, snapshot.Tree), filepath.Join(v.ready, name)))
	v.last = &snapshot.Earlier{
		Tree: filepath.Join(v.ready, name), Catalogue: filepath.Join(work, snapshot.Catalogue), Cut: time.Unix(0, p.Cut.Load()),
	}
	v.taken = append(v.taken, exports.Snapshot{Name: name, At: time.Unix(0, p.Cut.Load())})
	must(t, v.table.ShowSnapshots(7, v.ready, v.taken))
}

// restore restores a snapshot as the process does that serves the volume.
func (v *volume) restore(t *testing.T, ctx context.Context, name string) error {
	t.Helper()
	release, err := v.Snapshots.Hold(ctx)
	must(t, err)
	defer release()
	v.progress = new(restore.Progress)
	return restore.Run(ctx, v.opener, v.Volume, name, v.progress)
}

// walked has the index know what was changed on the disk itself.
func (v *volume) walked() {
	for _, v := range []*exports.Volume{v.Volume, v.Shown()} {
		if v == nil {
			continue
		}
		if x := v.Files.Index(); x != nil {
			x.WalkOnce()
		}
	}
}

// describe says what is in a tree, a line for each name.
func describe(t *testing.T, root string) string {
	t.Helper()
	var lines []string
	first := map[uint64]string{}
	must(t, filepath.WalkDir(root, func(at string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(at, root)
		var st unix.Stat_t
		if err := unix.Lstat(at, &st); err != nil {
			return err
		}
		line := fmt.Sprintf("%s %o %d:%d %d %d.%d", name, st.Mode, st.Uid, st.Gid, st.Rdev, st.Mtim.Sec, st.Mtim.Nsec)
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFLNK:
			target, err := os.Readlink(at)
			if err != nil {
				return err
			}
			line += " -> " + target
		case unix.S_IFREG:
			content, err := os.ReadFile(at)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %d links %q", st.Nlink, content)
		}
		if same := first[st.Ino]; same != "" {
			line += " = " + same
		} else {
			first[st.Ino] = name
		}
		for _, attr := range []string{"user.a", "user.b", "system.posix_acl_access", "system.posix_acl_default"} {
			buf := make([]byte, 1000)
			if n, err := unix.Lgetxattr(at, attr, buf); err == nil {
				line += fmt.Sprintf(" %s=%x", attr, buf[:n])
			}
		}
		lines = append(lines, line)
		return nil
	}))
	return strings.Join(lines, "\n")
}

// plant makes a tree with files of all kinds.
func plant(t *testing.T, root string) {
	t.Helper()
	in := func(name string) string { return filepath.Join(root, name) }
	for _, d := range []string{"a", "a/b", "a/b/c", "gone", "gone/deep", "becomes a file"} {
		must(t, os.Mkdir(in(d), 0o755))
	}
	for _, f := range []string{"stays", "grows", "shrinks", "empty", "a/b/c/deep", "gone/deep/file", "twice", "moves", "becomes a directory", "was one", "two"} {
		must(t, os.WriteFile(in(f), []byte("first "+f), 0o640))
	}
	must(t, os.Truncate(in("empty"), 0))
	must(t, os.Link(in("twice"), in("a/twice")))
	must(t, os.Symlink("target", in("link")))
	must(t, os.Symlink("same", in("same link")))
	must(t, unix.Mkfifo(in("fifo"), 0o600))
	must(t, os.Chown(in("a/b"), 12, 34))
	must(t, unix.Setxattr(in("stays"), "user.a", []byte("first"), 0))
	must(t, unix.Setxattr(in("a/b"), "user.b", []byte("of a directory"), 0))
	for _, at := range []string{"a/b/c", "a/b", "a", "stays"} {
		must(t, os.Chtimes(in(at), time.Unix(1e9, 1), time.Unix(1e9, 2)))
	}
	must(t, os.Chmod(in("a/b/c"), 0o500))
}

// spoil changes it in many ways.
func spoil(t *testing.T, root string) {
	t.Helper()
	in := func(name string) string { return filepath.Join(root, name) }
	must(t, os.WriteFile(in("stays"), []byte("second one"), 0o640))
	must(t, os.Chmod(in("stays"), 0o777))
	must(t, unix.Setxattr(in("stays"), "user.b", []byte("second"), 0))
	must(t, unix.Removexattr(in("stays"), "user.a"))
	must(t, os.WriteFile(in("grows"), []byte(strings.Repeat("much longer ", 10000)), 0o640))
	must(t, os.Truncate(in("shrinks"), 3))
	must(t, os.WriteFile(in("empty"), []byte("full"), 0o640))
	must(t, os.RemoveAll(in("gone")))
	must(t, os.WriteFile(in("a/twice"), []byte("by either name"), 0o640))
	must(t, os.Remove(in("twice")))
	must(t, os.Rename(in("moves"), in("a/moved")))
	must(t, os.Remove(in("becomes a directory")))
	must(t, os.MkdirAll(in("becomes a directory/with/more"), 0o700))
	must(t, os.WriteFile(in("becomes a directory/with/a file"), nil, 0o600))
	must(t, os.Remove(in("becomes a file")))
	must(t, os.WriteFile(in("becomes a file"), nil, 0o600))
	must(t, os.Remove(in("two")))
	must(t, os.Link(in("was one"), in("two")))
	must(t, os.Remove(in("link")))
	must(t, os.Symlink("elsewhere", in("link")))
	must(t, os.Chown(in("a/b"), 0, 0))
	must(t, os.WriteFile(in("new"), []byte("new"), 0o600))
	must(t, os.MkdirAll(in("new dir/a/b/c"), 0o755))
	must(t, os.WriteFile(in("new dir/a/b/c/file"), []byte("new"), 0o600))
}

func inodeOf(t *testing.T, name string) uint64 {
	t.Helper()
	var st unix.Stat_t
	must(t, unix.Lstat(name, &st))
	return st.Ino
}

// A volume has afterwards what the snapshot has, and the same files where names have stayed.
func TestRestore(t *testing.T) {
	testdisk.Sharing(t, func(t *testing.T, disk string) {
		v := newVolume(t, disk)
		plant(t, v.dir)
		v.walked()
		want := describe(t, v.dir)
		before := inodeOf(t, filepath.Join(v.dir, "stays"))
		v.take(t, "one")
		if got := describe(t, filepath.Join(v.ready, "one")); got != want {
			t.Fatalf("the snapshot has\n%s\nwant\n%s", got, want)
		}
		for round := range 2 { // the second finds nothing to do
			if round == 0 {
				spoil(t, v.dir)
			}
			v.walked()
			must(t, v.restore(t, t.Context(), "one"))
			if got := describe(t, v.dir); got != want {
				t.Fatalf("restored:\n%s\nwant\n%s", got, want)
			}
		}
		if after := inodeOf(t, filepath.Join(v.dir, "stays")); after != before {
			t.Error("a file that has kept its name is another one now: its handles are stale")
		}
		if got := describe(t, filepath.Join(v.ready, "one")); got != want {
			t.Errorf("the snapshot has changed:\n%s", got)
		}
	})
}

// used is what a volume takes on the disk: what it should have counted.
func (v *volume) used(t *testing.T) (u quota.Usage) {
	t.Helper()
	root, err := os.Open(v.dir)
	must(t, err)
	defer root.Close()
	price := space.PricesOf(root)
	seen := map[uint64]bool{}
	must(t, filepath.WalkDir(v.dir, func(at string, _ fs.DirEntry, err error) error {
		var st unix.Stat_t
		if err := errors.Join(err, unix.Lstat(at, &st)); err != nil || seen[st.Ino] {
			return err
		}
		seen[st.Ino] = true
		u.Inodes++
		u.Bytes += st.Blocks*512 + price.Inode
		if price.PerName && st.Mode&unix.S_IFMT != unix.S_IFDIR {
			u.Bytes += int64(st.Nlink-1) * price.Inode
		}
		return nil
	}))
	return u
}

// A restore counts what it makes and what it removes, and what directories grow and shrink by.
func TestCounts(t *testing.T) {
	testdisk.Sharing(t, func(t *testing.T, disk string) {
		const dirs, files = 40, 100
		v := newVolume(t, disk)
		for v.Account.Usage().Partial {
			time.Sleep(time.Millisecond)
		}
		for name, files := range map[string]int{"empty": 0, "full": files} { // snapshots that nobody has taken: the volume never had them
			for i := range dirs {
				dir := filepath.Join(v.ready, name, fmt.Sprint("dir", i))
				must(t, os.MkdirAll(dir, 0o755))
				for n := range files {
					must(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%0100d", n)), nil, 0o644))
				}
			}
			for n := range files {
				must(t, os.Link(filepath.Join(v.ready, name, "dir0", fmt.Sprintf("%0100d", 0)), filepath.Join(v.ready, name, fmt.Sprint("link", n))))
			}
			v.taken = append(v.taken, exports.Snapshot{Name: name, At: time.Now()})
		}
		must(t, v.table.ShowSnapshots(7, v.ready, v.taken))
		for _, name := range []string{"full", "empty", "full"} {
			v.walked()
			must(t, v.restore(t, t.Context(), name))
			got, want := v.Account.Usage(), v.used(t)
			if diff := got.Bytes - want.Bytes; diff > 16<<10 || diff < -16<<10 || got.Inodes != want.Inodes {
				t.Errorf("%s: %d bytes in %d inodes are counted, want %d in %d", name, got.Bytes, got.Inodes, want.Bytes, want.Inodes)
			}
		}
	})
}

// What was interrupted can be done again.
func TestInterrupted(t *testing.T) {
	testdisk.Sharing(t, func(t *testing.T, disk string) {
		v := newVolume(t, disk)
		plant(t, v.dir)
		v.walked()
		want := describe(t, v.dir)
		v.take(t, "one")
		spoil(t, v.dir)
		v.walked()
		ended := errors.New("ended")
		for calls := 1; ; calls += 7 {
			ctx := &endsAfter{Context: t.Context(), left: calls, err: ended}
			err := v.restore(t, ctx, "one")
			if err == nil {
				break
			}
			if !errors.Is(err, ended) {
				t.Fatal(err)
			}
		}
		if got := describe(t, v.dir); got != want {
			t.Fatalf("restored:\n%s\nwant\n%s", got, want)
		}
	})
}

// endsAfter is a context that ends after so many looks at it.
type endsAfter struct {
	context.Context
	left int
	err  error
}

func (c *endsAfter) Err() error {
	if c.left--; c.left < 0 {
		return c.err
	}
	return nil
}

// Meanwhile a client's change fails, with an error for which it tries again, and what it has open stays.
func TestHeld(t *testing.T) {
	testdisk.Sharing(t, func(t *testing.T, on string) {
		v := newVolume(t, on)
		plant(t, v.dir)
		v.walked()
		v.take(t, "one")
		root, err := v.opener.OpenIn(v.Volume, disk.FileID{}, inode.UseNames)
		must(t, err)
		defer root.Close()
		found, err := root.Lookup([]byte("stays"))
		must(t, err)
		defer found.Close()
		f, err := v.opener.OpenIn(v.Volume, found.ID, inode.UseWrite)
		must(t, err)
		defer f.Close()
		release, err := v.Snapshots.Hold(t.Context())
		must(t, err)
		if _, err := v.Snapshots.Hold(t.Context()); !errors.Is(err, snapshot.ErrBusy) {
			t.Errorf("to hold it twice: %v", err)
		}
		changes := map[string]func() error{
			"write": func() error {
				_, _, err := f.WriteAt([]byte("x"), 0)
				return err
			},
			"chmod":  func() error { return found.Chmod(actas.AsProcess(), 0o600) },
			"remove": func() error { return root.Remove(actas.AsProcess(), "stays") },
			"rename": func() error {
				_, err := root.Rename(actas.AsProcess(), "stays", root, "other")
				return err
			},
			"mkdir": func() error {
				made, err := root.Mkdir(actas.AsProcess(), "new", 0o700)
				if err == nil {
					made.Close()
				}
				return err
			},
		}
		for name, do := range changes {
			if err := do(); !errors.Is(err, syscall.EAGAIN) {
				t.Errorf("%s: %v, want EAGAIN", name, err)
			}
		}
		v.take(t, "two") // before a restore, what there is can be kept
		release()
		for _, name := range []string{"write", "chmod", "mkdir", "rename"} {
			if err := changes[name](); err != nil {
				t.Errorf("%s afterwards: %v", name, err)
			}
		}
		if err := v.restore(t, t.Context(), "none"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("a snapshot that is not there: %v", err)
		}
	})
}
