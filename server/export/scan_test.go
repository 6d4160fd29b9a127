package export

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// uncounted exports a directory with an account whose scan has not begun.
func uncounted(t *testing.T, dir string) (*Opener, *Volume, *File) {
	t.Helper()
	needNative(t)
	table := &Table{}
	v, err := table.add(1, "/v", dir, Options{}, NewAccount(Limit{Bytes: 1 << 40}))
	mustDo(t, err)
	o := NewOpener(table, NewKey(make([]byte, 32)), slog.New(slog.DiscardHandler))
	handle, err := o.Root(v)
	mustDo(t, err)
	root, err := o.Open(netip.Addr{}, handle, UseNames)
	mustDo(t, err)
	t.Cleanup(func() {
		root.Close()
		o.Close()
		table.Remove(1)
	})
	return o, v, root
}

func quietScanner(v *Volume) *scanner { return newScanner(v, slog.New(slog.DiscardHandler)) }

// wantCounted compares an account with what du finds.
func wantCounted(t *testing.T, v *Volume, dir string) {
	t.Helper()
	u := v.account.Usage()
	if bytes, inodes := du(t, dir); u.Bytes != bytes || u.Inodes != inodes {
		t.Errorf("counted are %d bytes in %d inodes, du finds %d in %d", u.Bytes, u.Inodes, bytes, inodes)
	}
}

// A tree is counted however deep it is, with two descriptors.
func TestScanDeep(t *testing.T) {
	const levels = 300
	dir := t.TempDir()
	name := strings.Repeat("d", 200) // the whole path is far longer than PATH_MAX
	at, err := os.OpenRoot(dir)
	mustDo(t, err)
	for range levels {
		for _, child := range []string{name, "beside", "after"} { // some are entered before the deep one, some after
			mustDo(t, at.Mkdir(child, 0o755))
			mustDo(t, at.WriteFile(filepath.Join(child, "file"), []byte("text"), 0o600))
		}
		next, err := at.OpenRoot(name)
		mustDo(t, err)
		mustDo(t, at.Close())
		at = next
	}
	mustDo(t, at.WriteFile("bottom", make([]byte, 100_000), 0o600))
	mustDo(t, at.Close())

	_, v, _ := uncounted(t, dir)
	s := quietScanner(v)
	defer s.walk.Close()
	mustDo(t, s.walk.Begin(v.root))
	before, most, deepest := descriptors(t), 0, 0
	for s.walk.Depth() > 0 {
		mustDo(t, s.walk.Step())
		most, deepest = max(most, descriptors(t)), max(deepest, s.walk.Depth())
	}
	if deepest != levels+1 {
		t.Errorf("it went %d directories deep, want %d", deepest, levels+1)
	}
	if most > before+1 {
		t.Errorf("%d descriptors were open, %d at the beginning", most, before)
	}
	bytes, inodes := duDeep(t, dir)
	if u := v.account.Usage(); u.Bytes != bytes || u.Inodes != inodes || inodes != 1+levels*6+1 {
		t.Errorf("counted are %d bytes in %d inodes, there are %d in %d", u.Bytes, u.Inodes, bytes, inodes)
	}
}

// duDeep is du without paths.
func duDeep(t *testing.T, dir string) (bytes, inodes int64) {
	t.Helper()
	price := priceIn(t, dir).inode
	root, err := os.Open(dir)
	mustDo(t, err)
	var walk func(d *os.File)
	walk = func(d *os.File) {
		defer d.Close()
		var st unix.Stat_t
		mustDo(t, unix.Fstat(int(d.Fd()), &st))
		bytes, inodes = bytes+st.Blocks*512+price, inodes+1
		names, err := d.Readdirnames(-1)
		mustDo(t, err)
		for _, name := range names {
			mustDo(t, unix.Fstatat(int(d.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW))
			if st.Mode&unix.S_IFMT != unix.S_IFDIR {
				bytes, inodes = bytes+st.Blocks*512+price, inodes+1
				continue
			}
			fd, err := unix.Openat(int(d.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
			mustDo(t, err)
			walk(os.NewFile(uintptr(fd), name))
		}
	}
	walk(root)
	return bytes, inodes
}

// What clients move while a volume is counted, from where the scan has not been to
// where it has been, is counted all the same.
func TestMovedWhileCounted(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"a", "b", "c"} {
		for _, sub := range []string{"x", "y"} {
			mustDo(t, os.MkdirAll(filepath.Join(dir, d, d+sub), 0o755))
			for i := range 3 {
				mustDo(t, os.WriteFile(filepath.Join(dir, d, d+sub, fmt.Sprint(i)), make([]byte, 5000), 0o600))
			}
		}
		mustDo(t, os.WriteFile(filepath.Join(dir, d, d+"-file"), make([]byte, 50_000), 0o600))
	}
	o, v, root := uncounted(t, dir)
	s := quietScanner(v)
	defer s.walk.Close()
	mustDo(t, s.walk.Begin(v.root))
	mustDo(t, s.walk.Step())
	done := s.walk.Path(".")
	var others []string
	for _, d := range []string{"a", "b", "c"} {
		if d != done {
			others = append(others, d)
		}
	}
	open := func(name string) *File {
		f, err := root.Lookup([]byte(name))
		mustDo(t, err)
		defer f.Close()
		d, err := o.Open(netip.Addr{}, f.Handle(), UseNames)
		mustDo(t, err)
		t.Cleanup(d.Close)
		return d
	}
	from, to := open(others[0]), open(done)
	before := v.account.Usage().Inodes
	mustDo(t, from.Rename(others[0]+"-file", to, "moved-file"))
	if n := v.account.Usage().Inodes; n != before+1 {
		t.Errorf("%d inodes are counted after a file was moved, %d before", n, before)
	}
	if v.account.again.Load() {
		t.Error("for a file all is counted once more")
	}
	mustDo(t, from.Rename(others[0]+"x", to, "moved-directory"))
	// The one that the scan is in goes too, so that there is no way back.
	for s.walk.Depth() != 3 {
		mustDo(t, s.walk.Step())
	}
	in, below, _ := strings.Cut(s.walk.Path("."), "/")
	elsewhere := others[0]
	if in == elsewhere {
		elsewhere = others[1]
	}
	mustDo(t, open(in).Rename(below, open(elsewhere), "moved-while-in-it"))
	for s.walk.Depth() > 0 {
		mustDo(t, s.walk.Step())
	}
	if !v.account.again.Load() {
		t.Error("directories were moved, and nothing would look for them")
	}
	mustDo(t, quietScanner(v).run())
	wantCounted(t, v, dir)
	// Nothing is counted twice.
	mustDo(t, quietScanner(v).run())
	wantCounted(t, v, dir)
}

// The portable engine moves by names.
func TestMovedByNameWhileCounted(t *testing.T) {
	dir := t.TempDir()
	mustDo(t, os.MkdirAll(filepath.Join(dir, "from", "sub"), 0o755))
	mustDo(t, os.Mkdir(filepath.Join(dir, "to"), 0o755))
	mustDo(t, os.WriteFile(filepath.Join(dir, "from", "file"), make([]byte, 5000), 0o600))
	_, v, _ := uncounted(t, dir)
	from, err := v.OpenDir("from")
	mustDo(t, err)
	defer from.Close()
	to, err := v.OpenDir("to")
	mustDo(t, err)
	defer to.Close()
	mustDo(t, from.Rename("file", to, "file"))
	known := v.account.Usage().Inodes
	if known != 4 { // the root, which was opened to be changed, both directories, and the file
		t.Errorf("%d inodes are counted, want 4", known)
	}
	if v.account.again.Load() {
		t.Error("for a file all is counted once more")
	}
	mustDo(t, from.Rename("sub", to, "sub"))
	if !v.account.again.Load() {
		t.Error("a directory was moved, and nothing would look for it")
	}
}

// A scan ends with its export, which waits for it.
func TestScanEndsWithExport(t *testing.T) {
	dir := t.TempDir()
	for i := range 30 {
		mustDo(t, os.MkdirAll(filepath.Join(dir, fmt.Sprint(i), "sub"), 0o755))
	}
	_, v, _ := uncounted(t, dir)
	s := quietScanner(v)
	defer s.walk.Close()
	mustDo(t, s.walk.Begin(v.root))
	close(v.ending)
	if err := s.walk.Step(); !errors.Is(err, errEnding) {
		t.Errorf("%v, want the end", err)
	}
	v.ending = make(chan struct{}) // the clean-up closes it
}

// Volumes take turns to be counted; one that waits can be removed.
func TestScansTakeTurns(t *testing.T) {
	table, log := &Table{}, slog.New(slog.DiscardHandler)
	add := func(id uint64) *Volume {
		dir := t.TempDir()
		mustDo(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600)) // an empty volume does not wait
		mustDo(t, table.AddCounted(id, fmt.Sprint("/", id), dir, Options{}, NewAccount(Limit{Bytes: 1 << 30}), log))
		t.Cleanup(func() { table.Remove(id) })
		v, _ := table.ByID(id)
		return v
	}
	counted(t, add(1))
	for range scansAtOnce {
		table.scans <- struct{}{}
	}
	waits, removed := add(2), add(3)
	table.Remove(3)
	time.Sleep(50 * time.Millisecond)
	if waits.Account().Usage().Complete {
		t.Error("it was counted while as many as may be were")
	}
	<-table.scans
	counted(t, waits)
	if removed.Account().Usage().Complete {
		t.Error("a volume that was removed was counted")
	}
}

// Numbers of inodes are kept 64 to an entry.
func TestInodeSet(t *testing.T) {
	s := inodeSet{}
	for i := range uint64(1 << 20) {
		if !s.add(inode{1, i}) || s.add(inode{1, i}) {
			t.Fatalf("inode %d is not new, and then known", i)
		}
	}
	if !s.add(inode{2, 0}) {
		t.Error("another device's inode is known")
	}
	if len(s) > 1<<20/64+1 {
		t.Errorf("%d entries", len(s))
	}
	for i := range uint64(1 << 20) {
		s.remove(inode{1, i})
	}
	s.remove(inode{3, 5})
	if len(s) != 1 || s.add(inode{2, 0}) || !s.add(inode{1, 7}) {
		t.Errorf("after removal: %v", s)
	}
	inodeSet(nil).remove(inode{1, 1}) // as of an account whose scan has ended
}
