package inode_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/quota"
	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/server/space"
)

// What these tests do is what a client does that wants more than its volume has. Each
// holds the account against what du finds on the disk.

// aboutLargest are sizes, offsets and counts around what 63 bits hold, as a client's 64
// bits become numbers with a sign, and around where disks end.
func aboutLargest(random *rand.Rand) int64 {
	around := []uint64{1 << 63, 1 << 63, 1 << 62, 1<<44 - 4096, 1 << 32, 1 << 20, 0}
	at := around[random.IntN(len(around))] + random.Uint64N(256<<10) - 128<<10
	if random.IntN(8) == 0 {
		at = math.MaxInt64 - random.Uint64N(3)
	}
	return int64(at)
}

// sound fails where the account is not what the disk has: the slack is for what the
// kernel allocates later, and for what XFS allocates past the ends of files, which is
// twice as much again at most.
func sound(t *testing.T, v *exports.Volume, dir, when string) {
	t.Helper()
	u := v.Account.Usage()
	bytes, inodes := du(t, dir)
	slack := int64(1 << 20)
	if xfs(t, dir) {
		slack += bytes * 2 / 3
	}
	if u.Bytes < 0 || u.Bytes < bytes-slack || u.Bytes > bytes+1<<20 || u.Inodes != inodes {
		t.Errorf("%s: %d bytes in %d inodes are counted, du finds %d in %d", when, u.Bytes, u.Inodes, bytes, inodes)
	}
}

func xfs(t *testing.T, dir string) bool {
	t.Helper()
	var st unix.Statfs_t
	mustDo(t, unix.Statfs(dir, &st))
	return st.Type == unix.XFS_SUPER_MAGIC
}

// below fails where a volume has more on the disk than its limit and so much.
func below(t *testing.T, dir string, limit, slack int64) {
	t.Helper()
	if xfs(t, dir) {
		slack += 2 * limit // what XFS allocates ahead
	}
	if bytes, _ := du(t, dir); bytes > limit+slack {
		t.Errorf("%d bytes are on the disk, the limit is %d", bytes, limit)
	}
}

// TestLargestSizes: whatever size a file is given, and wherever it is written to, the
// account stays what the disk has, and the limit holds afterwards.
func TestLargestSizes(t *testing.T) {
	const limit, files = 8 << 20, 6
	onEachDisk(t, func(t *testing.T, dir string) {
		o, v, root := countedAt(t, dir, limit)
		counted(t, v)
		random := rand.New(rand.NewPCG(1, 1))
		var handles [][]byte
		for i := range files {
			handles = append(handles, create(t, o, root, fmt.Sprint(i)))
		}
		p := make([]byte, 256<<10)
		for i := range 3000 {
			n := random.IntN(len(handles))
			f, err := o.Open(netip.Addr{}, handles[n], inode.UseWrite)
			mustDo(t, err)
			at := aboutLargest(random)
			count := random.IntN(3) * random.IntN(len(p)/2)
			what := "WriteAt"
			switch random.IntN(4) {
			case 0:
				what, _ = "Truncate", f.Truncate(actas.AsProcess(), uint64(at)) // which the disk may refuse
			case 1:
				what, _ = "Truncate to 0, not", f.Truncate(actas.AsProcess(), 0)
			default:
				_, _, err := f.WriteAt(p[:count], at)
				if err == nil && count > 0 && (at < 0 || at > math.MaxInt64-int64(count)) {
					t.Fatalf("%d bytes were written at %d", count, at)
				}
			}
			f.Close()
			u := v.Account.Usage()
			if u.Bytes < 0 || u.Bytes > limit+2<<20 {
				t.Fatalf("%s at %d, number %d: %d bytes are used", what, at, i, u.Bytes)
			}
		}
		sound(t, v, dir, "after all")
		for i := range handles {
			_, _ = write(t, o, handles[i], 0, 2*limit)
		}
		below(t, dir, limit, 1<<20)

		// The scan counts the same.
		table := newTable(t)
		mustDo(t, table.Export(exports.Exported{ID: 2, Path: "/again", Dir: dir, Account: space.NewAccount(quota.Limit{Bytes: limit})}))
		again, _ := table.ByID(2)
		counted(t, again)
		sound(t, again, dir, "by the scan")
		table.Remove(2)
	})
}

// TestSparseWindow: many write at once behind the ends of their files, far and near.
func TestSparseWindow(t *testing.T) {
	const limit, clients = 16 << 20, 24
	onEachDisk(t, func(t *testing.T, dir string) {
		o, v, root := countedAt(t, dir, limit)
		counted(t, v)
		var files [clients][]byte
		for i := range files {
			files[i] = create(t, o, root, fmt.Sprint(i))
		}
		var wg sync.WaitGroup
		for client, own := range files {
			wg.Go(func() {
				random := rand.New(rand.NewPCG(2, uint64(client)))
				p := make([]byte, 128<<10)
				for i := range 100 {
					f, err := o.Open(netip.Addr{}, own, inode.UseWrite)
					if err != nil {
						t.Error(err)
						return
					}
					at := int64(i) << 36 // a hole between all
					switch client % 2 {
					case 0:
						at = 1<<43 - int64(random.IntN(1<<30))*blockSize
					case 1: // of which two together are more than 63 bits hold
						at += 1 << 62
					}
					_, _, err = f.WriteAt(p, at)
					f.Close()
					if err != nil && !errors.Is(err, unix.EDQUOT) && !errors.Is(err, unix.EFBIG) {
						t.Errorf("at %d: %v", at, err)
					}
				}
			})
		}
		wg.Wait()
		sound(t, v, dir, "after all")
		below(t, dir, limit, 1<<20)
	})
}

// TestInodesTakeRoom: what has no blocks has its inode, and there is a limit of those.
func TestInodesTakeRoom(t *testing.T) {
	onEachDisk(t, func(t *testing.T, dir string) {
		const limit, most = 1 << 20, 300
		price := priceIn(t, dir).Inode
		o, v, root := countedTo(t, dir, quota.Limit{Bytes: limit})
		counted(t, v)
		top, err := o.Open(netip.Addr{}, root, inode.UseNames)
		mustDo(t, err)
		defer top.Close()
		made := 0
		for err == nil && made < 10_000 {
			var d *inode.File
			if d, err = top.Mkdir(actas.AsProcess(), fmt.Sprint(made), 0o755); err == nil {
				d.Close()
				made++
			}
			_, _ = top.Stat()
		}
		if !errors.Is(err, unix.EDQUOT) || int64(made) > limit/price {
			t.Fatalf("%d directories in 1 MiB, where an inode takes %d: %v", made, price, err)
		}
		sound(t, v, dir, "after all")

		// Exactly as many as the limit allows, whatever call makes them.
		for i := range made {
			mustDo(t, top.Rmdir(actas.AsProcess(), fmt.Sprint(i)))
		}
		v.Account.SetLimit(quota.Limit{Bytes: 1 << 30, Inodes: most})
		var wg sync.WaitGroup
		for client := range 8 {
			wg.Go(func() {
				dir, err := o.Open(netip.Addr{}, root, inode.UseNames)
				if err != nil {
					t.Error(err)
					return
				}
				defer dir.Close()
				for i := range most {
					name := fmt.Sprint("c", client, "-", i)
					var f *inode.File
					locked := inode.LockNames(dir, dir)
					switch i % 4 {
					case 0:
						f, err = dir.Create(actas.AsProcess(), name, 0o644, false)
					case 1:
						f, err = dir.Mkdir(actas.AsProcess(), name, 0o755)
					case 2:
						f, err = dir.Symlink(actas.AsProcess(), "to", name)
					case 3:
						f, err = dir.Mknod(actas.AsProcess(), name, inode.TypeFIFO, 0o644, 0, 0)
					}
					locked.Unlock()
					if err == nil {
						f.Close()
					} else if !errors.Is(err, unix.EDQUOT) {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if _, n := du(t, dir); n != most {
			t.Errorf("%d inodes, the limit is %d", n, most)
		}
		st, err := v.Statfs()
		mustDo(t, err)
		if st.Files != most || st.FreeFiles != 0 {
			t.Errorf("Statfs tells of %d, and %d free", st.Files, st.FreeFiles)
		}

		// Far past both limits, what is there can be written, cut and removed.
		v.Account.SetLimit(quota.Limit{Bytes: 1 << 10, Inodes: 10})
		list, err := filepath.Glob(filepath.Join(dir, "c*-0"))
		mustDo(t, err)
		name := filepath.Base(list[0])
		f, err := top.Lookup([]byte(name))
		mustDo(t, err)
		handle := f.Handle()
		f.Close()
		data, err := o.Open(netip.Addr{}, handle, inode.UseWrite)
		mustDo(t, err)
		if _, _, err := data.WriteAt([]byte("text"), 0); !errors.Is(err, unix.EDQUOT) {
			t.Errorf("past the limit: %v", err)
		}
		mustDo(t, data.Truncate(actas.AsProcess(), 0))
		data.Close()
		mustDo(t, renameIn(top, name, "another"))
		mustDo(t, top.Remove(actas.AsProcess(), "another"))
	})
}

// TestNamesTakeRoom: links and renames make directories grow, which is refused when
// there is no room; a name that is replaced takes none.
func TestNamesTakeRoom(t *testing.T) {
	const limit = 2 << 20
	onEachDisk(t, func(t *testing.T, dir string) {
		o, v, root := countedAt(t, dir, limit)
		counted(t, v)
		top, err := o.Open(netip.Addr{}, root, inode.UseNames)
		mustDo(t, err)
		for _, name := range []string{"a", "b", "c", "d"} {
			d, err := top.Mkdir(actas.AsProcess(), name, 0o755)
			mustDo(t, err)
			d.Close()
		}
		for i := range 300 {
			create(t, o, root, fmt.Sprint("f", i))
		}
		_, _ = top.Stat()
		file := create(t, o, root, "file")
		_, _ = write(t, o, file, 0, limit)
		rename := func(from, name, to, newName string) error {
			f, d := dirAt(t, o, top, from), dirAt(t, o, top, to)
			defer f.Close()
			defer d.Close()
			_, err := f.Rename(actas.AsProcess(), name, d, newName)
			_, _ = f.Stat()
			_, _ = d.Stat()
			return err
		}
		before, _ := du(t, dir)
		mustDo(t, rename(".", "file", ".", "other")) // as every program that writes a file anew
		// Directories keep the blocks that they had for names which moved on.
		at, refused := ".", 0
		for _, to := range []string{"a", "b", "c", "d"} {
			for i := range 300 {
				if rename(at, fmt.Sprint("f", i), to, fmt.Sprint("f", i)) != nil {
					refused++
				}
			}
			for i := range 300 {
				if rename(to, fmt.Sprint("f", i), to, fmt.Sprintf("%0200d", i)) != nil {
					refused++
				}
			}
			for i := range 300 {
				if rename(to, fmt.Sprintf("%0200d", i), to, fmt.Sprint("f", i)) != nil {
					refused++
				}
			}
			at = to
		}
		after, _ := du(t, dir)
		if after > before+renameSlack+nameRoom {
			t.Errorf("renames have taken %d bytes past the limit, and %d were refused", after-before, refused)
		}
		// A name that is there takes none.
		if names, _ := filepath.Glob(filepath.Join(dir, "?", "f*")); len(names) > 1 {
			mustDo(t, rename(filepath.Base(filepath.Dir(names[0])), filepath.Base(names[0]), filepath.Base(filepath.Dir(names[1])), filepath.Base(names[1])))
		}
		before, _ = du(t, dir)
		f, err := top.Lookup([]byte("other"))
		mustDo(t, err)
		links, refusedLinks := 0, 0
		for i := range 2000 {
			err := f.Link(actas.AsProcess(), top, fmt.Sprintf("%0100d", i))
			_, _ = top.Stat()
			_, _ = f.Stat()
			switch {
			case err == nil:
				links++
			case errors.Is(err, unix.EDQUOT):
				refusedLinks++
			default:
				t.Fatal(err)
			}
		}
		if err := f.Link(actas.AsProcess(), top, "a"); !errors.Is(err, unix.EEXIST) {
			t.Errorf("a link where there is something: %v", err)
		}
		f.Close()
		if after, _ := du(t, dir); refusedLinks == 0 || after > max(before, limit)+nameRoom {
			t.Errorf("%d links were made in a full volume, which has %d bytes more for them", links, after-before)
		}
		sound(t, v, dir, "after all")
		mustDo(t, top.Remove(actas.AsProcess(), "other"))
		top.Close()
	})
}

func dirAt(t *testing.T, o *inode.Opener, top *inode.File, name string) *inode.File {
	t.Helper()
	f, err := top.Lookup([]byte(name))
	mustDo(t, err)
	defer f.Close()
	d, err := o.Open(netip.Addr{}, f.Handle(), inode.UseNames)
	mustDo(t, err)
	return d
}

// TestAllocatedAhead tells what XFS allocates past the ends of files, beyond a volume's
// limit, and that it is given back when they are closed, or the disk is full.
func TestAllocatedAhead(t *testing.T) {
	const limit, files = 64 << 20, 16
	onEachDisk(t, func(t *testing.T, dir string) {
		o, v, root := countedAt(t, dir, limit)
		counted(t, v)
		for i := range files {
			f, err := o.Open(netip.Addr{}, create(t, o, root, fmt.Sprint(i)), inode.UseWrite)
			mustDo(t, err)
			for at := int64(0); err == nil && at < limit/files; at += 256 << 10 {
				_, _, err = f.WriteAt(make([]byte, 256<<10), at)
			}
			f.Close()
		}
		open, _ := du(t, dir)
		t.Logf("%d MiB are on the disk of %d, and %d counted", open>>20, limit>>20, v.Account.Usage().Bytes>>20)
		below(t, dir, limit, 1<<20)
		if !xfs(t, dir) {
			return
		}
		if !strings.HasSuffix(t.Name(), "/here") { // on a disk of its own
			filler, err := os.Create(filepath.Join(filepath.Dir(dir), "filler"))
			mustDo(t, err)
			n := 0
			for err == nil {
				n++
				_, err = filler.Write(make([]byte, 1<<20))
			}
			mustDo(t, errors.Join(filler.Close(), os.Remove(filler.Name())))
			full, _ := du(t, dir)
			t.Logf("%d MiB when another has filled the disk, with %d MiB", full>>20, n)
			if full > limit+files*aheadMax {
				t.Errorf("%d bytes are left to the volume when another can write nothing", full)
			}
		}
		o.CloseCached()
		eventually(t, func() bool {
			closed, _ := du(t, dir)
			return closed <= limit+files*aheadMax
		}, "XFS has given back what it has allocated ahead")
	})
}
