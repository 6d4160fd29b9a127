package inode_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/server/inode"
)

// inNames calls do with a directory whose names are locked.
func inNames(t *testing.T, o *inode.Opener, dir []byte, do func(*inode.File) error) error {
	t.Helper()
	d, err := o.Open(netip.Addr{}, dir, inode.UseNames)
	mustDo(t, err)
	defer d.Close()
	defer inode.LockNames(d, d).Unlock()
	return do(d)
}

// Files get a second name while they lose their first, and some lose that, too: those are charged that have one.
func TestLastNames(t *testing.T) {
	onEachDisk(t, func(t *testing.T, dir string) {
		o, v, root := countedAt(t, dir, 1<<30)
		counted(t, v)
		handles := map[string][]byte{}
		for _, name := range []string{"a", "b"} {
			mustDo(t, os.Mkdir(filepath.Join(dir, name), 0o755))
			handles[name] = handleOf(t, o, root, name)
		}
		var working sync.WaitGroup
		for n := range 8 {
			working.Go(func() {
				for i := range 100 {
					name := fmt.Sprintf("%d.%d", n, i)
					handle := create(t, o, handles["a"], name)
					if i%5 == 0 {
						_, err := write(t, o, handle, 0, 5000)
						mustDo(t, err)
					}
					var changing sync.WaitGroup
					changing.Go(func() {
						f, err := o.Open(netip.Addr{}, handle, inode.UseAttr)
						if err != nil {
							return // it was removed before
						}
						defer f.Close()
						_ = inNames(t, o, handles["b"], func(d *inode.File) error { return f.Link(actas.AsProcess(), d, name) })
						if i%2 == 0 {
							_ = inNames(t, o, handles["b"], func(d *inode.File) error { return d.Remove(actas.AsProcess(), name) })
						}
					})
					changing.Go(func() {
						if err := inNames(t, o, handles["a"], func(d *inode.File) error { return d.Remove(actas.AsProcess(), name) }); err != nil {
							t.Error(err)
						}
					})
					changing.Wait()
				}
			})
		}
		working.Wait()
		for _, name := range []string{"a", "b"} { // their own size
			f, err := o.Open(netip.Addr{}, handles[name], inode.UseNames)
			mustDo(t, err)
			_, err = f.Stat()
			mustDo(t, err)
			f.Close()
		}
		bytes, inodes := du(t, dir)
		if u := v.Account.Usage(); u.Bytes != bytes || u.Inodes != inodes {
			t.Errorf("%d bytes and %d inodes are counted, there are %d and %d", u.Bytes, u.Inodes, bytes, inodes)
		}
	})
}

// An inode's number may be another's as soon as its last name is gone: what has it then is charged.
func TestReusedNumbers(t *testing.T) {
	onEachDisk(t, func(t *testing.T, dir string) {
		o, v, root := countedAt(t, dir, 1<<30)
		counted(t, v)
		var working sync.WaitGroup
		for n := range 8 {
			name := fmt.Sprint(n)
			mustDo(t, os.Mkdir(filepath.Join(dir, name), 0o755))
			own := handleOf(t, o, root, name)
			working.Go(func() {
				for i := range 500 {
					err := inNames(t, o, own, func(d *inode.File) error {
						if i > 0 {
							if err := d.Remove(actas.AsProcess(), fmt.Sprint(i-1)); err != nil {
								return err
							}
						}
						made, err := d.Symlink(actas.AsProcess(), "target", fmt.Sprint(i))
						if err == nil {
							made.Close()
						}
						return err
					})
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		working.Wait()
		if _, inodes := du(t, dir); v.Account.Usage().Inodes != inodes {
			t.Errorf("%d inodes are counted, there are %d", v.Account.Usage().Inodes, inodes)
		}
	})
}

// A removed file's descriptors are closed, and its handle opens nothing: not the next file either, which often has its
// inode's number.
func TestRemovedIsNotOpen(t *testing.T) {
	onEachDisk(t, func(t *testing.T, dir string) {
		o, v, root := countedAt(t, dir, 1<<30)
		counted(t, v)
		for range 20 {
			handle := create(t, o, root, "file") // and it stays open
			open := o.CacheCounts().Files.Open
			mustDo(t, inNames(t, o, root, func(d *inode.File) error { return d.Remove(actas.AsProcess(), "file") }))
			if n := o.CacheCounts().Files.Open; n != open-1 {
				t.Fatalf("%d files are open after a removal, and %d before", n, open)
			}
			other := create(t, o, root, "other")
			if _, err := o.Open(netip.Addr{}, handle, inode.UseAttr); !errors.Is(err, unix.ESTALE) {
				t.Fatalf("a removed file: %v", err)
			}
			f, err := o.Open(netip.Addr{}, other, inode.UseAttr)
			mustDo(t, err)
			f.Close()
			mustDo(t, inNames(t, o, root, func(d *inode.File) error { return d.Remove(actas.AsProcess(), "other") }))
		}
	})
}

// A rename moves the file that has the name on the disk, whatever the server knew of the name: one that does nothing, as
// both names are of one file, is not synced.
func TestRenameOfChangedName(t *testing.T) {
	o, root, dir := openerAt(t)
	create(t, o, root, "old")
	mustDo(t, os.Rename(filepath.Join(dir, "old"), filepath.Join(dir, "new")))
	put(t, "other", dir, "old")
	rename := func(wants bool) {
		t.Helper()
		mustDo(t, inNames(t, o, root, func(d *inode.File) error {
			changed, err := d.Rename(actas.AsProcess(), "old", d, "new")
			if changed != wants {
				t.Errorf("a rename says that it changes something: %t", changed)
			}
			return err
		}))
	}
	rename(true)
	if got, err := os.ReadFile(filepath.Join(dir, "new")); string(got) != "other" || err != nil {
		t.Errorf("after the rename: %q, %v", got, err)
	}
	mustDo(t, os.Link(filepath.Join(dir, "new"), filepath.Join(dir, "old")))
	rename(false)
	mustDo(t, os.Remove(filepath.Join(dir, "old")))
	err := inNames(t, o, root, func(d *inode.File) error { return renameIn(d, "old", "new") })
	if !errors.Is(err, unix.ENOENT) {
		t.Errorf("a name that is not there is renamed: %v", err)
	}
}

// Clients make, link, rename and remove files at the same time: files are counted that have a name.
func TestNamesRace(t *testing.T) {
	onEachDisk(t, func(t *testing.T, dir string) {
		o, v, root := countedAt(t, dir, 1<<30)
		counted(t, v)
		var dirs [2][]byte
		for i := range dirs {
			mustDo(t, inNames(t, o, root, func(d *inode.File) error {
				made, err := d.Mkdir(actas.AsProcess(), fmt.Sprint(i), 0o755)
				if err == nil {
					dirs[i] = made.Handle()
					made.Close()
				}
				return err
			}))
		}
		var working sync.WaitGroup
		for seed := range uint64(4) {
			working.Go(func() {
				r := rand.New(rand.NewPCG(seed, 0))
				name := func() string { return string(rune('a' + r.IntN(4))) }
				for range 1500 {
					from, err := o.Open(netip.Addr{}, dirs[r.IntN(2)], inode.UseNames)
					mustDo(t, err)
					to, err := o.Open(netip.Addr{}, dirs[r.IntN(2)], inode.UseNames)
					mustDo(t, err)
					file, _ := from.Lookup([]byte(name())) // without a lock, as a client's call before
					locked := inode.LockNames(from, to)
					switch r.IntN(5) { // each may fail
					case 0, 1:
						if made, err := to.Create(actas.AsProcess(), name(), 0o644, false); err == nil {
							made.Close()
						}
					case 2:
						_ = from.Remove(actas.AsProcess(), name())
					case 3:
						_, _ = from.Rename(actas.AsProcess(), name(), to, name())
					case 4:
						if file != nil {
							_ = file.Link(actas.AsProcess(), to, name())
						}
					}
					locked.Unlock()
					if file != nil {
						file.Close()
					}
					from.Close()
					to.Close()
				}
			})
		}
		working.Wait()
		if _, inodes := du(t, dir); v.Account.Usage().Inodes != inodes {
			t.Errorf("%d inodes are counted, there are %d", v.Account.Usage().Inodes, inodes)
		}
	})
}
