package snapshot_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/server/locate"
	"github.com/podnas/podnas/server/snapshot"
	"github.com/podnas/podnas/test/leaks"
	"github.com/podnas/podnas/test/testdisk"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// volume is an exported directory, which a test changes as the server does.
type volume struct {
	*exports.Volume
	opener *inode.Opener
	dir    string // on the disk
	work   string // for snapshots
	taken  int
	last   *snapshot.Earlier
}

func newVolume(t testing.TB, disk string) *volume {
	t.Helper()
	dir, work := filepath.Join(disk, "volume"), filepath.Join(disk, "work")
	for _, d := range []string{dir, work} {
		mustDo(t, os.Mkdir(d, 0o755))
	}
	table := &exports.Table{ByIndex: testdisk.ByIndex()}
	mustDo(t, table.Export(exports.Exported{ID: 7, Path: "/v", Dir: dir}))
	v, _ := table.ByID(7)
	o := inode.NewOpener(table, locate.NewKey(make([]byte, 32)), slog.New(slog.DiscardHandler))
	t.Cleanup(func() {
		table.Remove(7)
		o.Close()
	})
	return &volume{Volume: v, opener: o, dir: dir, work: work}
}

func mustDo(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// take takes a snapshot, and returns where it is. The next one links to it.
func (v *volume) take(p *snapshot.Progress) (string, error) {
	v.taken++
	work := filepath.Join(v.work, fmt.Sprint(v.taken))
	if err := os.Mkdir(work, 0o700); err != nil {
		return "", err
	}
	root, err := os.OpenRoot(work)
	if err != nil {
		return "", err
	}
	defer root.Close()
	tree := filepath.Join(work, snapshot.Tree)
	if err := v.Snapshots.Take(context.Background(), &v.Files, v.OwnFiles(), root, v.last, p); err != nil {
		return "", err
	}
	v.last = &snapshot.Earlier{Tree: tree, Catalogue: filepath.Join(work, snapshot.Catalogue), Cut: time.Unix(0, p.Cut.Load())}
	return tree, nil
}

// changeNames calls do with directories whose names are locked.
func (v *volume) changeNames(a, b disk.FileID, do func(a, b *inode.File) error) error {
	in, err := v.opener.OpenIn(v.Volume, a, inode.UseNames)
	if err != nil {
		return err
	}
	defer in.Close()
	to, err := v.opener.OpenIn(v.Volume, b, inode.UseNames)
	if err != nil {
		return err
	}
	defer to.Close()
	names := inode.LockNames(in, to)
	defer names.Unlock()
	return do(in, to)
}

// write writes to a file.
func (v *volume) write(id disk.FileID, content string, offset int64) error {
	f, err := v.opener.OpenIn(v.Volume, id, inode.UseWrite)
	if err != nil {
		return err
	}
	defer f.Close()
	_, _, err = f.WriteAt([]byte(content), offset)
	return err
}

// create makes a file.
func (v *volume) create(dir disk.FileID, name string) (id disk.FileID, err error) {
	err = v.changeNames(dir, dir, func(dir, _ *inode.File) error {
		f, err := dir.Create(actas.AsProcess(), name, 0o644, false)
		if err != nil {
			return err
		}
		id = f.ID
		f.Close()
		return nil
	})
	return id, err
}

func (v *volume) mkdir(dir disk.FileID, name string) (id disk.FileID, err error) {
	err = v.changeNames(dir, dir, func(dir, _ *inode.File) error {
		made, err := dir.Mkdir(actas.AsProcess(), name, 0o755)
		if err != nil {
			return err
		}
		id = made.ID
		made.Close()
		return nil
	})
	return id, err
}

// Everything of a file is kept, and what comes later is not.
func TestAllOfAFile(t *testing.T) {
	testdisk.Sharing(t, func(t *testing.T, disk string) {
		v := newVolume(t, disk)
		old := time.Date(2001, 2, 3, 4, 5, 6, 789, time.UTC)
		in := func(name string) string { return filepath.Join(v.dir, name) }
		mustDo(t, os.WriteFile(in("file"), []byte("content"), 0o600))
		mustDo(t, os.Mkdir(in("dir"), 0o2750))
		mustDo(t, os.WriteFile(in("dir/big"), make([]byte, 3<<20), 0o4755))
		mustDo(t, os.Truncate(in("dir/big"), 1<<30))
		mustDo(t, os.Link(in("dir/big"), in("other name")))
		mustDo(t, os.Symlink("../no such file", in("link")))
		mustDo(t, unix.Mkfifo(in("fifo"), 0o640))
		mustDo(t, unix.Mknod(in("null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
		mustDo(t, os.Mkdir(in("empty"), 0o000))
		mustDo(t, unix.Setxattr(in("file"), "user.note", []byte("kept"), 0))
		mustDo(t, unix.Setxattr(in("dir"), "user.note", []byte("of a directory"), 0))
		for _, name := range []string{"file", "dir", "dir/big", "link", "fifo", "null", "empty"} {
			mustDo(t, os.Lchown(in(name), 1234, 5678))
		}
		mustDo(t, os.Chmod(in("dir/big"), 0o755|os.ModeSetuid)) // which chown(2) has cleared
		for _, name := range []string{"file", "dir/big", "fifo", "dir", "empty", "."} {
			mustDo(t, os.Chtimes(in(name), old, old))
		}
		if x := v.Files.Index(); x != nil {
			x.WalkOnce()
		}
		var p snapshot.Progress
		tree, err := v.take(&p)
		mustDo(t, err)
		mustDo(t, os.WriteFile(in("file"), []byte("changed"), 0o600))
		if n := p.Files.Load(); n != 8 {
			t.Errorf("it counts %d files, want 8", n)
		}
		for _, name := range []string{"file", "dir", "dir/big", "other name", "link", "fifo", "null", "empty", "."} {
			var was, is unix.Stat_t
			mustDo(t, unix.Lstat(in(name), &was))
			mustDo(t, unix.Lstat(filepath.Join(tree, name), &is))
			if is.Ino == was.Ino {
				t.Errorf("%s: it is the same file", name)
			}
			is.Ino, is.Ctim, is.Atim, is.Blocks = was.Ino, was.Ctim, was.Atim, was.Blocks
			if name == "file" {
				is.Mtim = was.Mtim
			}
			if name != "." && is != was {
				t.Errorf("%s: %+v, want %+v", name, is, was)
			}
		}
		got, err := os.ReadFile(filepath.Join(tree, "file"))
		if string(got) != "content" {
			t.Errorf("the file has %q, %v", got, err)
		}
		for name, want := range map[string]string{"file": "kept", "dir": "of a directory"} {
			buf := make([]byte, 100)
			n, err := unix.Getxattr(filepath.Join(tree, name), "user.note", buf)
			if err != nil || string(buf[:n]) != want {
				t.Errorf("%s: the attribute is %q, %v", name, buf[:max(n, 0)], err)
			}
		}
		var st unix.Stat_t
		mustDo(t, unix.Stat(tree, &st))
		if st.Mtim.Sec != old.Unix() {
			t.Errorf("the root was changed at %v", st.Mtim)
		}
	})
}

// One snapshot of a volume is taken at a time, and one that is ended early ends soon.
func TestOneAtATime(t *testing.T) {
	testdisk.Sharing(t, func(t *testing.T, disk string) {
		v := newVolume(t, disk)
		for i := range 2000 {
			mustDo(t, os.WriteFile(filepath.Join(v.dir, fmt.Sprint(i)), nil, 0o644))
		}
		work, err := os.OpenRoot(v.work)
		mustDo(t, err)
		defer work.Close()
		ctx, cancel := context.WithCancelCause(context.Background())
		ended := make(chan error, 1)
		var p snapshot.Progress
		go func() { ended <- v.Snapshots.Take(ctx, &v.Files, nil, work, nil, &p) }()
		for p.Files.Load() < 10 {
			time.Sleep(time.Millisecond)
		}
		if _, err := v.take(new(snapshot.Progress)); !errors.Is(err, snapshot.ErrBusy) {
			t.Errorf("a second one meanwhile: %v, want ErrBusy", err)
		}
		enough := errors.New("enough")
		cancel(enough)
		if err := <-ended; !errors.Is(err, enough) {
			t.Errorf("it ends with %v, want the reason", err)
		}
		if _, err := v.take(new(snapshot.Progress)); err != nil {
			t.Errorf("after it: %v", err)
		}
	})
}

// While a volume is about to be held, no snapshot is cut within a change that is still under way.
func TestNoCutBeforeHeld(t *testing.T) {
	testdisk.Sharing(t, func(t *testing.T, disk string) {
		v := newVolume(t, disk)
		change, err := v.Snapshots.Enter(v.Files.RootID())
		mustDo(t, err)
		held, taken := make(chan error, 1), make(chan error, 1)
		go func() {
			release, err := v.Snapshots.Hold(context.Background())
			if err == nil {
				defer release()
			}
			held <- err
		}()
		for again := true; again; { // until the gate is closed
			var p snapshot.Part
			if p, err = v.Snapshots.Enter(v.Files.RootID()); err == nil {
				v.Snapshots.Leave(p)
			}
			again = !errors.Is(err, syscall.EAGAIN)
		}
		var p snapshot.Progress
		go func() {
			_, err := v.take(&p)
			taken <- err
		}()
		select {
		case err := <-taken:
			t.Errorf("a snapshot was taken within a change: %v", err)
			taken <- err
		case <-time.After(500 * time.Millisecond):
		}
		if p.Cut.Load() != 0 {
			t.Error("there was a cut within a change")
		}
		v.Snapshots.Leave(change)
		mustDo(t, <-held)
		mustDo(t, <-taken)
	})
}
