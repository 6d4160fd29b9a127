package snapshot_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/server/snapshot"
	"github.com/podnas/podnas/test/testdisk"
)

// These tests have many clients change a volume at once, by a rule that holds between any two of their calls. So it must hold in
// each snapshot.

// clients calls each of these again and again, until the test has ended what it does meanwhile.
func clients(t *testing.T, meanwhile func(), all ...func(r *rand.Rand) error) {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	var stop atomic.Bool
	var running sync.WaitGroup
	defer func() {
		stop.Store(true)
		running.Wait()
	}()
	for i, client := range all {
		running.Go(func() {
			for r := rand.New(rand.NewPCG(seed, uint64(i))); !stop.Load(); {
				if err := client(r); err != nil {
					t.Errorf("client %d: %v", i, err)
					return
				}
				// A walk has to end on a disk with a few files, too.
				time.Sleep(time.Duration(r.IntN(200)) * time.Microsecond)
			}
		})
	}
	meanwhile()
}

// each takes snapshots, and checks each of them. One in ten comes when files may be linked.
func (v *volume) each(t *testing.T, check func(tree string)) {
	t.Helper()
	for round := range testdisk.Rounds(5, 50) {
		if round%10 == 4 {
			time.Sleep(age)
		}
		tree, err := v.take(new(snapshot.Progress))
		mustDo(t, err)
		check(tree)
	}
}

// writeSynced writes to a file, and syncs it.
func (v *volume) writeSynced(id disk.FileID, content string) error {
	f, err := v.opener.OpenIn(v.Volume, id, inode.UseWrite)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, _, err := f.WriteAt([]byte(content), 0); err != nil {
		return err
	}
	return f.Sync(false)
}

// rename renames by the way of clients.
func (v *volume) rename(from disk.FileID, name string, to disk.FileID, newName string) error {
	return v.changeNames(from, to, func(from, to *inode.File) error {
		_, err := from.Rename(actas.AsProcess(), name, to, newName)
		return err
	})
}

// mkdirs makes directories at the root of a volume.
func (v *volume) mkdirs(t *testing.T, n int) (ids []disk.FileID) {
	t.Helper()
	for i := range n {
		id, err := v.mkdir(*v.Files.RootID(), fmt.Sprint("d", i))
		mustDo(t, err)
		ids = append(ids, id)
	}
	return ids
}

// Clients move amounts from an account to another one, each by two synced writes: first it is taken, then given. So at any moment one
// amount of each client may be on the way. Client i moves 10^i at a time, so that the digits of what lacks say whose it is.
func TestBank(t *testing.T) {
	testdisk.Sharing(t, func(t *testing.T, on string) {
		v := newVolume(t, on)
		type account struct {
			mu      sync.Mutex
			id      disk.FileID
			balance int
		}
		const each = 1_000_000
		accounts := make([]*account, 40)
		text := func(n int) string { return fmt.Sprintf("%020d", n) }
		dirs := v.mkdirs(t, 5)
		for i := range accounts {
			id, err := v.create(dirs[i%len(dirs)], fmt.Sprint("a", i))
			mustDo(t, err)
			mustDo(t, v.write(id, text(each), 0))
			accounts[i] = &account{id: id, balance: each}
		}
		const moving = 4
		var all []func(*rand.Rand) error
		for i := range moving {
			amount := 1
			for range i {
				amount *= 10
			}
			add := func(a *account, n int) error {
				a.mu.Lock()
				defer a.mu.Unlock()
				a.balance += n
				return v.writeSynced(a.id, text(a.balance))
			}
			all = append(all, func(r *rand.Rand) error {
				if err := add(accounts[r.IntN(len(accounts))], -amount); err != nil {
					return err
				}
				return add(accounts[r.IntN(len(accounts))], amount)
			})
		}
		ways := map[int]bool{}
		clients(t, func() {
			v.each(t, func(tree string) {
				sum := 0
				for i := range accounts {
					b, err := os.ReadFile(filepath.Join(tree, fmt.Sprint("d", i%len(dirs)), fmt.Sprint("a", i)))
					mustDo(t, err)
					n, err := strconv.Atoi(string(b))
					mustDo(t, err)
					sum += n
				}
				lacks := each*len(accounts) - sum
				ways[lacks] = true
				if digits := fmt.Sprintf("%0*d", moving, lacks); len(digits) != moving || strings.Trim(digits, "01") != "" {
					t.Errorf("the bank lacks %s: more than one amount of a client", digits)
				}
			})
		}, all...)
		t.Logf("it lacked %v", ways)
	})
}

// Of two counters, the second is written after the first. A third file has the larger number of both as its size.
func TestCountersInOrder(t *testing.T) {
	testdisk.Sharing(t, func(t *testing.T, on string) {
		v := newVolume(t, on)
		dirs := v.mkdirs(t, 2)
		const pairs = 4
		var all []func(*rand.Rand) error
		for i := range pairs {
			var ids []disk.FileID
			for _, dir := range []disk.FileID{dirs[i%2], dirs[1-i%2], *v.Files.RootID()} { // in another order of the walk
				id, err := v.create(dir, fmt.Sprint("c", i))
				mustDo(t, err)
				ids = append(ids, id)
			}
			count := 0
			all = append(all, func(*rand.Rand) error {
				count++
				text := fmt.Sprintf("%020d", count)
				size := v.withWrite(ids[2], func(f *inode.File) error { return f.Truncate(actas.AsProcess(), uint64(count)) })
				return errors.Join(size, v.write(ids[0], text, 0), v.write(ids[1], text, 0))
			})
		}
		clients(t, func() {
			v.each(t, func(tree string) {
				for i := range pairs {
					var have [2]int
					for n, dir := range []int{i % 2, 1 - i%2} {
						b, err := os.ReadFile(filepath.Join(tree, fmt.Sprint("d", dir), fmt.Sprint("c", i)))
						mustDo(t, err)
						have[n], _ = strconv.Atoi(string(b)) // it may be empty
					}
					info, err := os.Stat(filepath.Join(tree, fmt.Sprint("c", i)))
					mustDo(t, err)
					first, second, size := have[0], have[1], int(info.Size())
					if first < second || first > second+1 || size < first || size > second+1 {
						t.Errorf("pair %d: %d, then %d, and the size %d", i, first, second, size)
					}
				}
			})
		}, all...)
	})
}

// withWrite opens a file for writing, and calls do.
func (v *volume) withWrite(id disk.FileID, do func(f *inode.File) error) error {
	f, err := v.opener.OpenIn(v.Volume, id, inode.UseWrite)
	if err != nil {
		return err
	}
	defer f.Close()
	return do(f)
}

// A file is made under another name, written, and renamed over the one that is there. The old one is still open, and gets
// other data, as a removed file may. No snapshot has these, and each name is always there, with all of its data.
func TestReplacedWhileOpen(t *testing.T) {
	testdisk.Sharing(t, func(t *testing.T, on string) {
		v := newVolume(t, on)
		dirs := v.mkdirs(t, 4)
		whole := strings.Repeat("data", 5000)
		var all []func(*rand.Rand) error
		for i, dir := range dirs {
			old, err := v.create(dir, "f")
			mustDo(t, err)
			mustDo(t, v.write(old, whole, 0))
			other := dirs[(i+1)%len(dirs)]
			all = append(all, func(r *rand.Rand) error {
				made, err := v.create(other, fmt.Sprint("new-", i))
				if err != nil {
					return err
				}
				if err := v.write(made, whole, 0); err != nil {
					return err
				}
				err = v.withWrite(old, func(f *inode.File) error {
					if r.IntN(2) == 0 {
						err = v.rename(other, fmt.Sprint("new-", i), dir, "f")
					} else { // by two calls, of which the second is the last of the old one
						err = v.changeNames(dir, dir, func(in, _ *inode.File) error { return in.Remove(actas.AsProcess(), "f") })
						err = errors.Join(err, v.rename(other, fmt.Sprint("new-", i), dir, "f"))
					}
					if err != nil {
						return err
					}
					_, _, err := f.WriteAt([]byte(strings.Repeat("late", 6000)), 0)
					return err
				})
				old = made
				return err
			})
		}
		clients(t, func() {
			v.each(t, func(tree string) {
				for i := range dirs {
					f, err := os.ReadFile(filepath.Join(tree, fmt.Sprint("d", i), "f"))
					made, newErr := os.ReadFile(filepath.Join(tree, fmt.Sprint("d", (i+1)%len(dirs)), fmt.Sprint("new-", i)))
					switch {
					case err == nil && string(f) != whole:
						t.Errorf("file %d has %d bytes that begin in %.8q", i, len(f), f)
					case errors.Is(err, fs.ErrNotExist) && (newErr != nil || string(made) != whole):
						t.Errorf("file %d is not there, and the new one has %d bytes, %v", i, len(made), newErr)
					case newErr == nil && string(made) != whole && len(made) > 0:
						t.Errorf("the new file %d has %d bytes that begin in %.8q", i, len(made), made)
					}
				}
			})
		}, all...)
	})
}

// Two files are written, cut to some size, made longer by a hole, and emptied, each step first in one and then in the other.
func TestTruncated(t *testing.T) {
	testdisk.Sharing(t, func(t *testing.T, on string) {
		v := newVolume(t, on)
		dirs := v.mkdirs(t, 4)
		const long, short = 64 << 10, 5000
		x := func(n int) string { return strings.Repeat("x", n) }
		states := []string{x(long), x(short), x(short) + strings.Repeat("\x00", long-short), ""}
		var all []func(*rand.Rand) error
		for i := range dirs {
			var pair [2]disk.FileID
			for n, dir := range []int{i, (i + 1) % len(dirs)} {
				var err error
				pair[n], err = v.create(dirs[dir], fmt.Sprint("f", i))
				mustDo(t, err)
			}
			all = append(all, func(*rand.Rand) error {
				for _, state := range states {
					for _, id := range pair {
						err := v.withWrite(id, func(f *inode.File) error {
							if state == states[0] {
								_, _, err := f.WriteAt([]byte(state), 0)
								return err
							}
							return f.Truncate(actas.AsProcess(), uint64(len(state)))
						})
						if err != nil {
							return err
						}
					}
				}
				return nil
			})
		}
		clients(t, func() {
			v.each(t, func(tree string) {
				for i := range dirs {
					var at [2]int
					for n, dir := range []int{i, (i + 1) % len(dirs)} {
						b, err := os.ReadFile(filepath.Join(tree, fmt.Sprint("d", dir), fmt.Sprint("f", i)))
						mustDo(t, err)
						if at[n] = slices.Index(states, string(b)); at[n] < 0 {
							t.Errorf("file %d has %d bytes, of which %d are data", i, len(b), strings.Count(string(b), "x"))
						}
					}
					if ahead := (at[0] - at[1] + len(states)) % len(states); ahead > 1 {
						t.Errorf("files %d are %d steps from each other", i, ahead)
					}
				}
			})
		}, all...)
	})
}

// Files and directories with files are moved between directories, and over others that are empty. Each is in a snapshot once, and
// has what it had.
func TestStormOfRenames(t *testing.T) {
	testdisk.Sharing(t, func(t *testing.T, on string) {
		v := newVolume(t, on)
		dirs := v.mkdirs(t, 6)
		const movers, each = 4, 8
		var all []func(*rand.Rand) error
		for i := range movers {
			file, dir := fmt.Sprint("file-", i, "-"), fmt.Sprint("dir-", i, "-")
			in := make([]int, 2*each) // where each is: files, then directories
			for n := range each {
				id, err := v.create(dirs[0], file+strconv.Itoa(n))
				mustDo(t, err)
				mustDo(t, v.write(id, file, 0))
				id, err = v.mkdir(dirs[0], dir+strconv.Itoa(n))
				mustDo(t, err)
				_, err = v.create(id, "in-"+dir+strconv.Itoa(n))
				mustDo(t, err)
			}
			all = append(all, func(r *rand.Rand) error {
				n, to := r.IntN(2*each), r.IntN(len(dirs))
				name := file + strconv.Itoa(n)
				if n >= each {
					name = dir + strconv.Itoa(n-each)
					if in[n] != to && r.IntN(2) == 0 { // over an empty one
						if _, err := v.mkdir(dirs[to], name); err != nil {
							return err
						}
					}
				}
				from := in[n]
				in[n] = to
				return v.rename(dirs[from], name, dirs[to], name)
			})
		}
		clients(t, func() {
			v.each(t, func(tree string) {
				found := map[string]int{}
				mustDo(t, filepath.WalkDir(tree, func(at string, d fs.DirEntry, err error) error {
					if err != nil {
						return err
					}
					found[d.Name()]++
					if inside, ok := strings.CutPrefix(d.Name(), "in-"); ok && filepath.Base(filepath.Dir(at)) != inside {
						t.Errorf("%s is in another directory", at)
					}
					if strings.HasPrefix(d.Name(), "file-") {
						if b, err := os.ReadFile(at); err != nil || !strings.HasPrefix(d.Name(), string(b)) || len(b) == 0 {
							t.Errorf("%s has %q, %v", at, b, err)
						}
					}
					return nil
				}))
				for i := range movers {
					for n := range each {
						for _, name := range []string{fmt.Sprintf("file-%d-%d", i, n), fmt.Sprintf("in-dir-%d-%d", i, n)} {
							if found[name] != 1 {
								t.Errorf("%s is there %d times", name, found[name])
							}
						}
						// An empty one may be there, too, over which it is moved.
						if name := fmt.Sprintf("dir-%d-%d", i, n); found[name] < 1 || found[name] > 2 {
							t.Errorf("%s is there %d times", name, found[name])
						}
					}
				}
			})
		}, all...)
	})
}

// In a directory with very many files some are renamed, some are replaced, and others come and go.
func TestLargeDirectory(t *testing.T) {
	testdisk.Sharing(t, func(t *testing.T, on string) {
		v := newVolume(t, on)
		dir := v.mkdirs(t, 1)[0]
		files := testdisk.Rounds(5000, 100_000)
		if strings.HasSuffix(t.Name(), "btrfs") {
			files = min(files, 20_000) // it is smaller
		}
		for i := range files {
			mustDo(t, os.WriteFile(filepath.Join(v.dir, "d0", fmt.Sprint("f", i)), nil, 0o644))
		}
		if x := v.Files.Index(); x != nil {
			x.WalkOnce()
		}
		const movers = 3
		var all []func(*rand.Rand) error
		for i := range movers {
			renamed := map[int]bool{}
			all = append(all, func(r *rand.Rand) error {
				n := r.IntN(files/movers)*movers + i
				from, to := fmt.Sprint("f", n), fmt.Sprint("g", n)
				if renamed[n] {
					from, to = to, from
				}
				renamed[n] = !renamed[n]
				return v.rename(dir, from, dir, to)
			})
		}
		all = append(all, func(r *rand.Rand) error {
			name := fmt.Sprint("new-", r.IntN(1000))
			if _, err := v.create(dir, name); err != nil {
				return err
			}
			return v.changeNames(dir, dir, func(in, _ *inode.File) error { return in.Remove(actas.AsProcess(), name) })
		})
		clients(t, func() {
			for range 3 {
				tree, err := v.take(new(snapshot.Progress))
				mustDo(t, err)
				entries, err := os.ReadDir(filepath.Join(tree, "d0"))
				mustDo(t, err)
				seen := map[string]bool{}
				made := 0
				for _, e := range entries {
					if strings.HasPrefix(e.Name(), "new-") {
						made++
						continue
					}
					if number := e.Name()[1:]; seen[number] {
						t.Errorf("file %s has two names", number)
					} else {
						seen[number] = true
					}
				}
				if len(seen) != files || made > 1 {
					t.Errorf("there are %d of %d files, and %d new ones", len(seen), files, made)
				}
				v.last = nil // the disk has room for one
				mustDo(t, os.RemoveAll(filepath.Dir(tree)))
			}
		}, all...)
	})
}

// When there is no room for all clones, the walk finds none, or a change does. Then the snapshot fails, and no change.
func TestNoRoomForClones(t *testing.T) {
	testdisk.Small(t, func(t *testing.T, on string) {
		if strings.HasSuffix(t.Name(), "ext4") {
			t.Skip("the file system shares no blocks")
		}
		v := newVolume(t, on)
		dirs := v.mkdirs(t, 4)
		const files = 4000 // of the 6,000 that there may be
		var ids []disk.FileID
		for i := range files {
			id, err := v.create(dirs[i%len(dirs)], fmt.Sprint("f", i))
			mustDo(t, err)
			mustDo(t, v.write(id, "content", 0))
			ids = append(ids, id)
		}
		writer := func(r *rand.Rand) error { return v.write(ids[r.IntN(files)], "CONTENT", 0) }
		all := slices.Repeat([]func(*rand.Rand) error{writer}, 4)
		clients(t, func() {
			for range testdisk.Rounds(3, 20) {
				if _, err := v.take(new(snapshot.Progress)); !errors.Is(err, syscall.ENOSPC) {
					t.Errorf("a snapshot without room: %v, want ENOSPC", err)
				}
				if v.Snapshots.IsTaking() {
					t.Error("it is taken still")
				}
				mustDo(t, os.RemoveAll(filepath.Join(v.work, fmt.Sprint(v.taken))))
			}
		}, all...)
		mustDo(t, os.RemoveAll(filepath.Join(v.dir, "d0")))
		mustDo(t, os.RemoveAll(filepath.Join(v.dir, "d1")))
		tree, err := v.take(new(snapshot.Progress))
		for began := time.Now(); errors.Is(err, syscall.ENOSPC) && time.Since(began) < 20*time.Second; { // XFS frees inodes later
			mustDo(t, os.RemoveAll(filepath.Join(v.work, fmt.Sprint(v.taken))))
			time.Sleep(100 * time.Millisecond)
			tree, err = v.take(new(snapshot.Progress))
		}
		mustDo(t, err)
		if b, err := os.ReadFile(filepath.Join(tree, "d3", "f3")); err != nil || !strings.EqualFold(string(b), "content") {
			t.Errorf("afterwards: %q, %v", b, err)
		}
	})
}
