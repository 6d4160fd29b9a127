package inode_test

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
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
	"github.com/podnas/podnas/server/space"
)

var discard = slog.New(slog.DiscardHandler)

// What an account may be wrong by, or late.
const (
	blockSize   = 4096
	nameRoom    = 2 * blockSize   // what a name can take in a directory
	renameSlack = 128 << 10       // what directories may grow by renames in a full volume
	aheadMax    = 128 << 10       // what XFS may have allocated past the end of a file
	lookLate    = 6 * time.Minute // XFS has freed it by then
)

// countedAt exports a directory whose use is counted.
func countedAt(t *testing.T, dir string, limit int64) (*inode.Opener, *exports.Volume, []byte) {
	t.Helper()
	return countedTo(t, dir, quota.Limit{Bytes: limit})
}

func countedTo(t *testing.T, dir string, limit quota.Limit) (*inode.Opener, *exports.Volume, []byte) {
	t.Helper()
	needNative(t)
	table := newTable(t)
	mustDo(t, table.Export(exports.Exported{ID: 1, Path: "/v", Dir: dir, Account: space.NewAccount(limit)}))
	o := inode.NewOpener(table, locate.NewKey(make([]byte, 32)), discard)
	t.Cleanup(o.Close)
	v, _ := table.ByID(1)
	root := o.Root(v)
	return o, v, root
}

// counted waits for the scan.
func counted(t *testing.T, v *exports.Volume) quota.Usage {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); v.Account.Usage().Partial; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the scan does not end")
		}
	}
	return v.Account.Usage()
}

// du walks a directory as du(1) does, and adds what the inodes themselves take.
func du(t *testing.T, dir string) (bytes, inodes int64) {
	t.Helper()
	price := priceIn(t, dir)
	seen := map[disk.Inode]bool{}
	mustDo(t, filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		if i := (disk.Inode{Device: st.Dev, Number: st.Ino}); !seen[i] {
			seen[i] = true
			bytes += st.Blocks*512 + price.Inode
			if price.PerName && !d.IsDir() {
				bytes += int64(st.Nlink-1) * price.Inode
			}
			inodes++
		}
		return nil
	}))
	return bytes, inodes
}

// priceIn is what an inode takes on the disk of a directory.
func priceIn(t *testing.T, dir string) space.Prices {
	t.Helper()
	d, err := os.Open(dir)
	mustDo(t, err)
	defer d.Close()
	return space.PricesOf(d)
}

func write(t *testing.T, o *inode.Opener, handle []byte, offset int64, n int) (int, error) {
	t.Helper()
	f, err := o.Open(netip.Addr{}, handle, inode.UseWrite)
	mustDo(t, err)
	defer f.Close()
	wrote, _, err := f.WriteAt(make([]byte, n), offset)
	return wrote, err
}

func create(t *testing.T, o *inode.Opener, root []byte, name string) []byte {
	t.Helper()
	dir, err := o.Open(netip.Addr{}, root, inode.UseNames)
	mustDo(t, err)
	defer dir.Close()
	defer inode.LockNames(dir, dir).Unlock()
	f, err := dir.Create(actas.AsProcess(), name, 0o644, false)
	mustDo(t, err)
	defer f.Close()
	return f.Handle()
}

func TestLimit(t *testing.T) {
	const limit = 1 << 20
	o, v, root := countedAt(t, t.TempDir(), limit)
	counted(t, v)
	file := create(t, o, root, "file")
	n, err := write(t, o, file, 0, 2*limit)
	if !errors.Is(err, unix.EDQUOT) || n == 0 || n > limit {
		t.Fatalf("%d bytes of %d were written below a limit of %d: %v", n, 2*limit, limit, err)
	}
	if u := v.Account.Usage(); u.Bytes > limit || u.Bytes < limit-3*blockSize {
		t.Errorf("%d bytes are used of %d", u.Bytes, limit)
	}
	if _, err := write(t, o, file, int64(n), 1); !errors.Is(err, unix.EDQUOT) {
		t.Errorf("one byte more: %v", err)
	}
	if wrote, err := write(t, o, file, 0, n); wrote != n || err != nil {
		t.Errorf("what is there can't be written again: %d, %v", wrote, err)
	}
	st, err := v.Statfs()
	mustDo(t, err)
	if st.Size != limit || st.Available > 3*blockSize {
		t.Errorf("Statfs: %+v", st)
	}
	dir, err := o.Open(netip.Addr{}, root, inode.UseNames)
	mustDo(t, err)
	defer dir.Close()
	for what, make := range map[string]func() (*inode.File, error){
		"Create":  func() (*inode.File, error) { return dir.Create(actas.AsProcess(), "new", 0o644, false) },
		"Mkdir":   func() (*inode.File, error) { return dir.Mkdir(actas.AsProcess(), "new", 0o755) },
		"Mknod":   func() (*inode.File, error) { return dir.Mknod(actas.AsProcess(), "new", inode.TypeFIFO, 0o644, 0, 0) },
		"Symlink": func() (*inode.File, error) { return dir.Symlink(actas.AsProcess(), "to", "new") },
	} {
		if _, err := make(); !errors.Is(err, unix.EDQUOT) {
			t.Errorf("%s past the limit: %v", what, err)
		}
	}

	if _, err := dir.Create(actas.AsProcess(), "file", 0o644, false); !errors.Is(err, unix.EEXIST) {
		t.Errorf("Create of what is there: %v", err) // as CREATE UNCHECKED wants to hear
	}

	// A hole takes nothing, and what is taken away can be written again.
	f, err := o.Open(netip.Addr{}, file, inode.UseWrite)
	mustDo(t, err)
	mustDo(t, f.Truncate(actas.AsProcess(), 1<<30))
	mustDo(t, f.Truncate(actas.AsProcess(), 0))
	f.Close()
	if wrote, err := write(t, o, file, 1<<40, 4096); wrote != 4096 || err != nil {
		t.Errorf("after truncation: %d, %v", wrote, err)
	}
	// A raised limit holds at once.
	v.Account.SetLimit(quota.Limit{Bytes: 4 * limit})
	if wrote, err := write(t, o, file, 0, 2*limit); wrote != 2*limit || err != nil {
		t.Errorf("after a raise: %d, %v", wrote, err)
	}
	mustDo(t, dir.Remove(actas.AsProcess(), "file"))
	if u := v.Account.Usage(); u.Bytes > 2*blockSize || u.Inodes != 1 {
		t.Errorf("after removal: %+v", u)
	}
}

// Nothing is refused for what others write meanwhile where they need no room.
func TestNoFalseRefusal(t *testing.T) {
	const limit, piece = 4 << 20, 256 << 10
	o, v, root := countedAt(t, t.TempDir(), limit)
	counted(t, v)
	old, next := create(t, o, root, "old"), create(t, o, root, "next")
	if _, err := write(t, o, old, 0, limit/2); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for i := range int64(8) {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := write(t, o, old, i*piece, piece); err != nil {
					t.Errorf("over what is there: %v", err)
				}
			}
		})
	}
	dir, err := o.Open(netip.Addr{}, root, inode.UseNames)
	mustDo(t, err)
	defer dir.Close()
	for range 100 {
		if n, err := write(t, o, next, 0, limit/2-64<<10); err != nil {
			t.Fatalf("%d bytes, then: %v", n, err)
		}
		if _, err := dir.Create(actas.AsProcess(), "next", 0o644, false); !errors.Is(err, unix.EEXIST) {
			t.Errorf("Create: %v", err)
		}
		made, err := dir.Create(actas.AsProcess(), "small", 0o644, false)
		if err != nil {
			t.Fatal(err)
		}
		made.Close()
		mustDo(t, dir.Remove(actas.AsProcess(), "small"))
		f, err := o.Open(netip.Addr{}, next, inode.UseWrite)
		mustDo(t, err)
		mustDo(t, f.Truncate(actas.AsProcess(), 0))
		f.Close()
	}
	close(stop)
	wg.Wait()
}

func TestTwoVolumesHaveTheirOwnLimits(t *testing.T) {
	a, av, aRoot := countedAt(t, t.TempDir(), 1<<20)
	b, bv, bRoot := countedAt(t, t.TempDir(), 1<<20)
	counted(t, av)
	before := counted(t, bv).Bytes
	if _, err := write(t, a, create(t, a, aRoot, "file"), 0, 2<<20); !errors.Is(err, unix.EDQUOT) {
		t.Errorf("past the limit: %v", err)
	}
	if u := bv.Account.Usage(); u.Bytes != before {
		t.Errorf("the other volume uses %d bytes more", u.Bytes-before)
	}
	if _, err := write(t, b, create(t, b, bRoot, "file"), 0, 512<<10); err != nil {
		t.Error(err)
	}
}

// What the disk changes by itself after a write is found by one more look, and
// then nothing is remembered.
func TestLookAgain(t *testing.T) {
	dir := t.TempDir()
	o, v, root := countedAt(t, dir, 1<<30)
	counted(t, v)
	file := create(t, o, root, "file")
	if _, err := write(t, o, file, 0, 1<<20); err != nil {
		t.Fatal(err)
	}
	o.CloseCached() // the last use
	mustDo(t, os.Truncate(filepath.Join(dir, "file"), 4096))
	now := time.Now()
	v.SettleDue(now)
	if u := v.Account.Usage(); u.Bytes < 1<<20 {
		t.Errorf("looked at too early: %d bytes", u.Bytes)
	}
	v.SettleDue(now.Add(space.LookAfter + time.Second))
	if u, _ := du(t, dir); v.Account.Usage().Bytes != u {
		t.Errorf("%d bytes are counted, du finds %d", v.Account.Usage().Bytes, u)
	}
	if n := v.Account.Held().Charges; n != 0 {
		t.Errorf("%d charges are kept", n)
	}
}

// TestCountKeepsUp: the count is what du finds, after many clients have done all
// that changes it, from before the scan's end on.
func TestCountKeepsUp(t *testing.T) {
	dir := t.TempDir()
	for i := range 200 {
		sub := filepath.Join(dir, fmt.Sprint("old", i%10), fmt.Sprint(i))
		mustDo(t, os.MkdirAll(sub, 0o755))
		mustDo(t, os.WriteFile(filepath.Join(sub, "file"), make([]byte, i*100), 0o644))
		mustDo(t, os.Link(filepath.Join(sub, "file"), filepath.Join(sub, "link")))
		mustDo(t, os.Symlink("file", filepath.Join(sub, "symlink")))
	}
	o, v, root := countedAt(t, dir, 1<<40)
	var wg sync.WaitGroup
	for client := range 8 {
		wg.Go(func() { churn(t, o, root, rand.New(rand.NewPCG(1, uint64(client))), fmt.Sprint("c", client)) })
	}
	wg.Wait()
	u := counted(t, v)
	o.CloseCached() // the last use of every file
	bytes, inodes := du(t, dir)
	if diff := u.Bytes - bytes; diff > 1<<20 || diff < -1<<20 {
		t.Errorf("%d bytes are counted, du finds %d", u.Bytes, bytes)
	}
	if u.Inodes != inodes {
		t.Errorf("%d inodes are counted, there are %d", u.Inodes, inodes)
	}
	if reserved := v.Account.Held().Reserved; reserved != (space.Amount{}) {
		t.Errorf("%+v are still reserved", reserved)
	}
	// What is charged twice, or never, shows when all is gone.
	top, err := o.Open(netip.Addr{}, root, inode.UseNames)
	mustDo(t, err)
	removeAll(t, o, top)
	top.Close()
	if u := v.Account.Usage(); u.Inodes != 1 || u.Bytes > 16*blockSize || u.Bytes < 0 {
		t.Errorf("of an empty volume: %+v", u)
	}
}

// churn makes, writes, links, renames and removes files in a directory of its
// own and, with all others, in the first old ones.
func churn(t *testing.T, o *inode.Opener, root []byte, random *rand.Rand, own string) {
	top, err := o.Open(netip.Addr{}, root, inode.UseNames)
	if err != nil {
		t.Error(err)
		return
	}
	defer top.Close()
	locked := inode.LockNames(top, top)
	made, err := top.Mkdir(actas.AsProcess(), own, 0o755)
	locked.Unlock()
	if err != nil {
		t.Error(err)
		return
	}
	handle := made.Handle()
	made.Close()
	old, err := top.Lookup([]byte("old1"))
	if err != nil {
		t.Error(err)
		return
	}
	shared := old.Handle()
	old.Close()
	for range 400 {
		where := handle
		if random.IntN(3) == 0 {
			where = shared
		}
		d, err := o.Open(netip.Addr{}, where, inode.UseNames)
		if err != nil {
			t.Error(err)
			return
		}
		name, other := fmt.Sprint("n", random.IntN(12)), fmt.Sprint("n", random.IntN(12))
		var child *inode.File
		locked := inode.LockNames(d, d)
		// Of two clients only one succeeds with a name; either is right.
		switch random.IntN(8) {
		case 0, 1, 2:
			if child, err = d.Create(actas.AsProcess(), name, 0o644, false); errors.Is(err, unix.EEXIST) {
				child, err = d.Lookup([]byte(name))
			}
			if err == nil && child.Attr.IsRegular() {
				if f, err := o.Open(netip.Addr{}, child.Handle(), inode.UseWrite); err == nil {
					_, _, _ = f.WriteAt(make([]byte, random.IntN(200_000)), int64(random.IntN(1<<20)))
					if random.IntN(4) == 0 {
						_ = f.Truncate(actas.AsProcess(), uint64(random.IntN(100_000)))
					}
					f.Close()
				}
			}
		case 3:
			child, _ = d.Mkdir(actas.AsProcess(), name, 0o755)
		case 4:
			_ = d.Remove(actas.AsProcess(), name)
		case 5:
			_ = d.Rmdir(actas.AsProcess(), name)
		case 6:
			_, _ = d.Rename(actas.AsProcess(), name, d, other)
		case 7:
			if child, err = d.Lookup([]byte(name)); err == nil {
				_ = child.Link(actas.AsProcess(), d, other)
			}
		}
		if child != nil {
			child.Close()
		}
		_, _ = d.Stat() // as every procedure does for its reply
		locked.Unlock()
		d.Close()
	}
}

func removeAll(t *testing.T, o *inode.Opener, dir *inode.File) {
	t.Helper()
	for again := true; again; {
		again = false
		list, err := dir.List(actas.AsProcess(), 0, 1<<16)
		mustDo(t, err)
		for {
			e, ok, err := list.Next()
			mustDo(t, err)
			if !ok {
				break
			}
			name := string(e.Name)
			if name == "." || name == ".." {
				continue
			}
			again = true
			if err := dir.Remove(actas.AsProcess(), name); errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EPERM) {
				child, err := dir.Lookup([]byte(name))
				mustDo(t, err)
				below, err := o.Open(netip.Addr{}, child.Handle(), inode.UseNames)
				mustDo(t, err)
				child.Close()
				removeAll(t, o, below)
				below.Close()
				mustDo(t, dir.Rmdir(actas.AsProcess(), name))
			} else {
				mustDo(t, err)
			}
			_, _ = dir.Stat()
		}
		list.Close()
	}
}

// Each name of a file is counted by the call that makes it, which need not look at the file again, and until it is removed.
func TestLinksAreCounted(t *testing.T) {
	const links = 100
	onEachDisk(t, func(t *testing.T, dir string) {
		o, v, root := countedAt(t, dir, 1<<30)
		counted(t, v)
		f, err := o.Open(netip.Addr{}, create(t, o, root, "file"), inode.UseAttr)
		mustDo(t, err)
		file := f.ID
		f.Close()
		is := func(when string) {
			t.Helper()
			bytes, inodes := du(t, dir)
			if u := v.Account.Usage(); u.Bytes < bytes-2*blockSize || u.Bytes > bytes+2*blockSize || u.Inodes != inodes {
				t.Errorf("%s: %d bytes in %d inodes are counted, du finds %d in %d", when, u.Bytes, u.Inodes, bytes, inodes)
			}
		}
		each := func(change func(f, d *inode.File, name string) error) {
			for i := range links {
				f, err := o.OpenIn(v, file, inode.UseAttr) // an index, which remembers few of the names, may have to find it
				mustDo(t, err)
				inDir(t, o, root, func(d *inode.File) error {
					defer func() { _, _ = d.Stat() }()
					return change(f, d, fmt.Sprint(i))
				})
				f.Close()
				o.CloseCached() // the last use
			}
		}
		for range 2 {
			each(func(f, d *inode.File, name string) error { return f.Link(actas.AsProcess(), d, name) })
			is("with links")
			each(func(_, d *inode.File, name string) error { return d.Remove(actas.AsProcess(), name) })
			is("without")
		}
	})
}

// What is removed is forgotten at once, however fast files come and go.
func TestRemovedIsForgotten(t *testing.T) {
	o, v, root := countedAt(t, t.TempDir(), 1<<30)
	before := counted(t, v)
	dir, err := o.Open(netip.Addr{}, root, inode.UseAttr)
	mustDo(t, err)
	names := make([]string, 100)
	for i := range names {
		names[i] = fmt.Sprint("file-", i)
		if _, err := write(t, o, create(t, o, root, names[i]), 0, 8192); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range names {
		mustDo(t, dir.Remove(actas.AsProcess(), name))
	}
	dir.Close()
	o.CloseCached()
	if n := v.Account.Held().Charges; n > 1 { // the directory's
		t.Errorf("%d charges are kept", n)
	}
	if after := v.Account.Usage(); after.Inodes != before.Inodes {
		t.Errorf("%d inodes are counted, there are %d", after.Inodes, before.Inodes)
	}
}

// A file that somebody still looks at after its charge is forgotten is not charged
// for, or given back, again.
func TestLookAtWhatIsGone(t *testing.T) {
	dir := t.TempDir()
	o, v, root := countedAt(t, dir, 1<<30)
	counted(t, v)
	file := create(t, o, root, "file")
	if _, err := write(t, o, file, 0, 8192); err != nil {
		t.Fatal(err)
	}
	open, err := os.Open(filepath.Join(dir, "file"))
	mustDo(t, err)
	defer open.Close()
	f, err := o.Open(netip.Addr{}, root, inode.UseAttr)
	mustDo(t, err)
	mustDo(t, f.Remove(actas.AsProcess(), "file"))
	f.Close()
	o.CloseCached()
	want := v.Account.Usage()
	var st unix.Stat_t
	mustDo(t, unix.Fstat(int(open.Fd()), &st))
	for range 2 {
		c := v.Account.Enter(disk.InodeOf(&st))
		mustDo(t, c.Stat(int(open.Fd()), &st, false))
		c.Leave("")
	}
	if got := v.Account.Usage(); got != want {
		t.Errorf("the volume uses %+v, want %+v", got, want)
	}
	if u, n := du(t, dir); want.Bytes != u || want.Inodes != n {
		t.Errorf("%+v, du finds %d bytes in %d inodes", want, u, n)
	}
}

// A charge that a file's descriptor is kept with is given back once, however the file
// is opened meanwhile.
func TestChargeIsGivenBack(t *testing.T) {
	o, v, root := countedAt(t, t.TempDir(), 1<<30)
	counted(t, v)
	file := create(t, o, root, "file")                     // is kept, open for writing
	dir, err := o.Open(netip.Addr{}, root, inode.UseNames) // so is the directory
	mustDo(t, err)
	dir.Close()
	want := v.Account.Held().Charges
	for name, use := range map[string]func() error{
		"REMOVEXATTR": func() error {
			f, err := o.Open(netip.Addr{}, file, inode.UseAttr)
			mustDo(t, err)
			defer f.Close()
			return f.RemoveXattr(actas.AsProcess(), []byte("nothing"))
		},
		"REMOVE": func() error {
			dir, err := o.Open(netip.Addr{}, root, inode.UseNames)
			mustDo(t, err)
			defer dir.Close()
			return dir.Remove(actas.AsProcess(), "nothing")
		},
	} {
		for range 3 {
			if err := use(); !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENODATA) {
				t.Error(err)
			}
			if n := v.Account.Held().Charges; n != want {
				t.Errorf("%s: %d charges, want those of %d descriptors", name, n, want)
			}
		}
	}
	o.CloseCached()
	if n := v.Account.Held().Charges; n != 0 {
		t.Errorf("%d charges are not given back", n)
	}
}
