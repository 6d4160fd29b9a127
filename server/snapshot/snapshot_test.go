package snapshot_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
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
	if err := v.Snapshots.Take(context.Background(), &v.Files, root, v.last, p); err != nil {
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

// describe says what is in a tree: a line for each name, with type, mode, content, and which other name is the same file.
func describe(root string) ([]string, error) {
	var lines []string
	first := map[uint64]string{}
	names := map[uint64]int{} // in this tree: a file may have others in other snapshots
	count := func(_ string, info os.FileInfo, err error) error {
		if err == nil {
			names[info.Sys().(*syscall.Stat_t).Ino]++
		}
		return err
	}
	if err := filepath.Walk(root, count); err != nil {
		return nil, err
	}
	err := filepath.Walk(root, func(at string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(at, root)
		st := info.Sys().(*syscall.Stat_t)
		line := fmt.Sprintf("%s %v", name, info.Mode())
		switch {
		case info.Mode()&os.ModeSymlink != 0:
			target, err := os.Readlink(at)
			if err != nil {
				return err
			}
			line += " -> " + target
		case info.Mode().IsRegular():
			content, err := os.ReadFile(at)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %d links %q", names[st.Ino], content)
			if same := first[st.Ino]; same != "" {
				line += " = " + same
			} else {
				first[st.Ino] = name
			}
		}
		lines = append(lines, line)
		return nil
	})
	return lines, err
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

// node is a file of the model.
type node struct {
	id      disk.FileID
	mode    os.FileMode
	content string
	links   int
	names   map[string]*node // of a directory
}

// model is what a volume should have.
type model struct {
	v    *volume
	root *node
	r    *rand.Rand
	made int
}

// pick returns a directory, and one of its names, which may be empty.
func (m *model) pick() (dir *node, name string) {
	var dirs []*node
	m.root.each("", func(_ string, n *node) {
		if n.names != nil {
			dirs = append(dirs, n)
		}
	})
	dir = dirs[m.r.IntN(len(dirs))]
	if names := slices.Sorted(maps.Keys(dir.names)); len(names) > 0 {
		name = names[m.r.IntN(len(names))]
	}
	return dir, name
}

// each calls do for a node and all below it, in the order of filepath.Walk.
func (n *node) each(at string, do func(string, *node)) {
	do(at, n)
	for _, name := range slices.Sorted(maps.Keys(n.names)) {
		n.names[name].each(at+"/"+name, do)
	}
}

func (n *node) has(other *node) (is bool) {
	n.each("", func(_ string, x *node) { is = is || x == other })
	return is
}

func (m *model) describe() string {
	var lines []string
	first := map[*node]string{}
	m.root.each("", func(at string, n *node) {
		line := fmt.Sprintf("%s %v", at, n.mode)
		if n.names == nil {
			line += fmt.Sprintf(" %d links %q", n.links, n.content)
			if same := first[n]; same != "" {
				line += " = " + same
			} else {
				first[n] = at
			}
		}
		lines = append(lines, line)
	})
	return strings.Join(lines, "\n")
}

func (m *model) newName() string {
	m.made++
	return fmt.Sprintf("n%d", m.made)
}

// step is one call that changes something, on the disk and in the model.
func (m *model) step() error {
	v, as := m.v, actas.AsProcess()
	dir, name := m.pick()
	n := dir.names[name]
	kind := m.r.IntN(100)
	switch {
	case kind < 20 || n == nil && kind < 90:
		name := m.newName()
		id, err := v.create(dir.id, name)
		dir.names[name] = &node{id: id, mode: 0o644, links: 1}
		return err
	case kind < 26 || n == nil:
		name := m.newName()
		id, err := v.mkdir(dir.id, name)
		dir.names[name] = &node{id: id, mode: os.ModeDir | 0o755, names: map[string]*node{}}
		return err
	case kind < 45 && n.names == nil:
		content := fmt.Sprintf("at %d", m.r.IntN(1000))
		n.content += content
		return v.write(n.id, content, int64(len(n.content)-len(content)))
	case kind < 50 && n.names == nil:
		n.content = n.content[:m.r.IntN(len(n.content)+1)]
		f, err := v.opener.OpenIn(v.Volume, n.id, inode.UseWrite)
		if err != nil {
			return err
		}
		defer f.Close()
		return f.Truncate(as, uint64(len(n.content)))
	case kind < 55:
		mode := os.FileMode(0o600 + m.r.IntN(0o100))
		n.mode = n.mode&os.ModeDir | mode
		f, err := v.opener.OpenIn(v.Volume, n.id, inode.UseAttr)
		if err != nil {
			return err
		}
		defer f.Close()
		return f.Chmod(as, uint32(mode))
	case kind < 80:
		return m.rename(dir, name)
	case kind < 86 && n.names == nil:
		to, _ := m.pick()
		newName := m.newName()
		err := v.changeNames(to.id, to.id, func(to, _ *inode.File) error {
			f, err := v.opener.OpenIn(v.Volume, n.id, inode.UseAttr)
			if err != nil {
				return err
			}
			defer f.Close()
			return f.Link(as, to, newName)
		})
		n.links++
		to.names[newName] = n
		return err
	case len(n.names) == 0:
		err := v.changeNames(dir.id, dir.id, func(in, _ *inode.File) error {
			if n.names != nil {
				return in.Rmdir(as, name)
			}
			return in.Remove(as, name)
		})
		n.links--
		delete(dir.names, name)
		return err
	}
	return nil
}

// rename renames something, half of the times over what is there.
func (m *model) rename(dir *node, name string) error {
	n := dir.names[name]
	to, newName := m.pick()
	old := to.names[newName]
	if m.r.IntN(2) == 0 || old == nil {
		newName, old = m.newName(), nil
	}
	if n.has(to) || old == n || old != nil && (len(old.names) > 0 || (old.names == nil) != (n.names == nil) || old.has(dir)) {
		return nil // rename(2) would refuse it, or do nothing
	}
	err := m.v.changeNames(dir.id, to.id, func(in, to *inode.File) error {
		_, err := in.Rename(actas.AsProcess(), name, to, newName)
		return err
	})
	if old != nil {
		old.links--
	}
	delete(dir.names, name)
	to.names[newName] = n
	return err
}

// kept is a snapshot, and what it has.
type kept struct {
	tree string
	has  string
}

// check has a test fail if a snapshot is not any more what it was.
func (k *kept) check(t *testing.T, seed uint64, when string) {
	t.Helper()
	lines, err := describe(k.tree)
	mustDo(t, err)
	if now := strings.Join(lines, "\n"); now != k.has {
		t.Fatalf("seed %d: %s, the snapshot %s has\n%s\nand before\n%s", seed, when, k.tree, now, k.has)
	}
}

// A snapshot is what a volume had between two changes, whatever is changed while it is taken. So is each in a chain of
// snapshots that have files in common, and it stays so when others are removed.
func TestBetweenTwoChanges(t *testing.T) {
	testdisk.Sharing(t, func(t *testing.T, disk string) {
		v := newVolume(t, disk)
		root := *v.Files.RootID()
		seed := uint64(time.Now().UnixNano())
		m := &model{v: v, root: &node{id: root, mode: os.ModeDir | 0o755, names: map[string]*node{}}, r: rand.New(rand.NewPCG(seed, 0))}
		for range 300 {
			mustDo(t, m.step())
		}
		var chain []kept
		linked := int64(0)
		for round := range testdisk.Rounds(6, 50) {
			if round%5 == 0 {
				time.Sleep(2100 * time.Millisecond) // what has changed a moment ago is cloned again
			}
			states := []string{m.describe()}
			var taken sync.WaitGroup
			var tree string
			var takeErr error
			var p snapshot.Progress
			done := make(chan struct{})
			taken.Go(func() {
				defer close(done)
				tree, takeErr = v.take(&p)
			})
			for ended := false; !ended; {
				select {
				case <-done:
					ended = true
				default:
				}
				if err := m.step(); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				states = append(states, m.describe())
			}
			taken.Wait()
			if takeErr != nil {
				t.Fatalf("seed %d, round %d: %v", seed, round, takeErr)
			}
			lines, err := describe(tree)
			mustDo(t, err)
			has := strings.Join(lines, "\n")
			at := slices.Index(states, has)
			if at < 0 {
				t.Fatalf("seed %d, round %d: of %d states the snapshot is none; it has\n%s\nthe first was\n%s", seed, round, len(states), has, states[0])
			}
			linked += p.Linked.Load()
			t.Logf("it is state %d of %d, with %d names, of which %d are linked", at, len(states), len(lines), p.Linked.Load())
			chain = append(chain, kept{tree, has})
			if len(chain) > 3 {
				gone := m.r.IntN(len(chain))
				mustDo(t, os.RemoveAll(path.Dir(chain[gone].tree)))
				chain = slices.Delete(chain, gone, gone+1)
			}
			for i := range chain {
				chain[i].check(t, seed, fmt.Sprint("after round ", round))
			}
		}
		if linked == 0 {
			t.Error("no snapshot has a file of an earlier one")
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
		go func() { ended <- v.Snapshots.Take(ctx, &v.Files, work, nil, &p) }()
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
