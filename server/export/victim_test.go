package export

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
)

// inNames calls do with a directory whose names are locked.
func inNames(t *testing.T, o *Opener, dir []byte, do func(*File) error) error {
	t.Helper()
	d, err := o.Open(netip.Addr{}, dir, UseNames)
	mustDo(t, err)
	defer d.Close()
	defer LockNames(d, d).Unlock()
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
						f, err := o.Open(netip.Addr{}, handle, UseAttr)
						if err != nil {
							return // it was removed before
						}
						defer f.Close()
						_ = inNames(t, o, handles["b"], func(d *File) error { return f.Link(AsProcess(), d, name) })
						if i%2 == 0 {
							_ = inNames(t, o, handles["b"], func(d *File) error { return d.Remove(AsProcess(), name) })
						}
					})
					changing.Go(func() {
						if err := inNames(t, o, handles["a"], func(d *File) error { return d.Remove(AsProcess(), name) }); err != nil {
							t.Error(err)
						}
					})
					changing.Wait()
				}
			})
		}
		working.Wait()
		for _, name := range []string{"a", "b"} { // their own size
			f, err := o.Open(netip.Addr{}, handles[name], UseNames)
			mustDo(t, err)
			_, err = f.Stat()
			mustDo(t, err)
			f.Close()
		}
		bytes, inodes := du(t, dir)
		if u := v.Account().Usage(); u.Bytes != bytes || u.Inodes != inodes {
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
					err := inNames(t, o, own, func(d *File) error {
						if i > 0 {
							if err := d.Remove(AsProcess(), fmt.Sprint(i-1)); err != nil {
								return err
							}
						}
						made, err := d.Symlink(AsProcess(), "target", fmt.Sprint(i))
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
		if _, inodes := du(t, dir); v.Account().Usage().Inodes != inodes {
			t.Errorf("%d inodes are counted, there are %d", v.Account().Usage().Inodes, inodes)
		}
	})
}

// A removed file is not open any more, whether or not it was before, and a new one with its inode's number is.
func TestRemovedIsNotOpen(t *testing.T) {
	onEachDisk(t, func(t *testing.T, dir string) {
		o, v, root := countedAt(t, dir, 1<<30)
		counted(t, v)
		numbered := v.disk.numberIn(&v.rootID) != 0 // on tmpfs all are found by their IDs
		for range 20 {
			create(t, o, root, "file") // and it stays open
			st := statIn(t, dir, "file")
			if numbered && o.files.idOf(v, st.Ino).IsZero() {
				t.Fatal("a new file is not open")
			}
			mustDo(t, inNames(t, o, root, func(d *File) error { return d.Remove(AsProcess(), "file") }))
			if !o.files.idOf(v, st.Ino).IsZero() {
				t.Fatal("a removed file is open")
			}
			again := create(t, o, root, "other")
			if id := o.files.removed(v, statIn(t, dir, "other").Ino); !id.IsZero() {
				t.Fatal("a file that is there counts as removed")
			}
			mustDo(t, inNames(t, o, root, func(d *File) error { return d.Remove(AsProcess(), "other") }))
			if _, err := o.Open(netip.Addr{}, again, UseAttr); err == nil {
				t.Fatal("a removed file can be opened")
			}
		}
	})
}

func statIn(t *testing.T, dir, name string) (st unix.Stat_t) {
	t.Helper()
	mustDo(t, unix.Stat(filepath.Join(dir, name), &st))
	return st
}

// The file of a name that a client has made is known while it is open, but not that of one that has gone, is another's,
// or has two names.
func TestNamed(t *testing.T) {
	o, root, dir := openerAt(t)
	known := func(name string) (id FileID) {
		mustDo(t, inNames(t, o, root, func(d *File) error {
			id, _ = o.files.idNamed(d.Volume, o.files.nameSum(d, name), 0)
			return nil
		}))
		return id
	}
	is := func(name string) FileID {
		_, id, err := o.key.Parse(handleOf(t, o, root, name))
		mustDo(t, err)
		return id
	}
	rename := func(name, newName string) {
		t.Helper()
		mustDo(t, inNames(t, o, root, func(d *File) error {
			changed, err := d.Rename(AsProcess(), name, d, newName)
			if !changed {
				t.Errorf("%s is not renamed to %s", name, newName)
			}
			return err
		}))
	}
	remove := func(name string) {
		t.Helper()
		mustDo(t, inNames(t, o, root, func(d *File) error { return d.Remove(AsProcess(), name) }))
	}
	link := func(name, newName string) {
		t.Helper()
		f, err := o.Open(netip.Addr{}, handleOf(t, o, root, name), UseAttr)
		mustDo(t, err)
		defer f.Close()
		mustDo(t, inNames(t, o, root, func(d *File) error { return f.Link(AsProcess(), d, newName) }))
	}
	create(t, o, root, "new")
	if known("new") != is("new") || known("new").IsZero() {
		t.Error("a new file's name is not known")
	}
	rename("new", "free")
	if !known("new").IsZero() || known("free") != is("free") {
		t.Error("after a rename the file is not known by its new name alone")
	}
	create(t, o, root, "second")
	rename("second", "free") // which is not free
	if !known("second").IsZero() || known("free") != is("free") {
		t.Error("a name that was replaced is not known to be another file's")
	}
	mustDo(t, os.WriteFile(filepath.Join(dir, "found"), nil, 0o644))
	rename("found", "here")
	rename("here", "free")
	if id := known("free"); !id.IsZero() {
		t.Error("a name that was replaced is known to be the file's that it was")
	}
	remove("free")
	create(t, o, root, "one")
	link("one", "two")
	if !known("one").IsZero() || !known("two").IsZero() {
		t.Error("one of two names is known")
	}
	remove("one")
	if !known("two").IsZero() {
		t.Error("a name is known that the file was not made with")
	}
	create(t, o, root, "gone")
	handle := handleOf(t, o, root, "gone")
	remove("gone")
	if !known("gone").IsZero() {
		t.Error("a name that is removed is known")
	}
	if _, err := o.Open(netip.Addr{}, handle, UseAttr); !errors.Is(err, unix.ESTALE) {
		t.Errorf("a removed file: %v", err)
	}
	err := inNames(t, o, root, func(d *File) error { _, err := d.Rename(AsProcess(), "none", d, "other"); return err })
	if !errors.Is(err, unix.ENOENT) {
		t.Errorf("a name that is not there is renamed: %v", err)
	}
	// What the disk itself has lost.
	create(t, o, root, "lost")
	mustDo(t, os.Remove(filepath.Join(dir, "lost")))
	create(t, o, root, "lost")
	if known("lost") != is("lost") {
		t.Error("a name is known to be the file's that was there before")
	}
	mustDo(t, os.Remove(filepath.Join(dir, "lost")))
	mustDo(t, inNames(t, o, root, func(d *File) error {
		made, err := d.Mkdir(AsProcess(), "lost", 0o755)
		if err == nil {
			made.Close()
		}
		return err
	}))
	if !known("lost").IsZero() {
		t.Error("a directory's name is known to be a file's")
	}
	create(t, o, root, "left")
	mustDo(t, os.Remove(filepath.Join(dir, "left")))
	mustDo(t, os.WriteFile(filepath.Join(dir, "found"), nil, 0o644))
	rename("found", "left")
	if !known("left").IsZero() {
		t.Error("a name is known to be the file's that was there before a rename")
	}
	// What it has renamed: a rename must not be taken for one that does nothing, which is not synced.
	create(t, o, root, "old")
	mustDo(t, os.Rename(filepath.Join(dir, "old"), filepath.Join(dir, "new")))
	mustDo(t, os.WriteFile(filepath.Join(dir, "old"), nil, 0o644))
	rename("old", "new")
}

// On a disk that takes A and a for one name, a file is known by the one that it was made with, until it is renamed by the
// other.
func TestNamedTwice(t *testing.T) {
	o, root, _ := openerAt(t)
	create(t, o, root, "A")
	mustDo(t, inNames(t, o, root, func(d *File) error {
		sum := func(name string) nameSum { return o.files.nameSum(d, name) }
		id, _ := o.files.idNamed(d.Volume, sum("A"), 0)
		o.files.renamed(d.Volume, id, sum("a"), sum("b"))
		for _, name := range []string{"A", "a", "b"} {
			if id, _ := o.files.idNamed(d.Volume, sum(name), 0); !id.IsZero() {
				t.Errorf("the file is known as %s", name)
			}
		}
		return nil
	}))
}

// A file that gets another name as soon as it is there, before its first one could be told, is not known by that.
func TestLinkedAtOnce(t *testing.T) {
	o, root, _ := openerAt(t)
	create(t, o, root, "other")
	mustDo(t, inNames(t, o, root, func(d *File) error {
		only := o.files.onlyName(d, "new")
		made, err := d.Create(AsProcess(), "new", 0o644)
		mustDo(t, err)
		defer made.Close()
		mustDo(t, made.Link(AsProcess(), d, "second"))
		f := o.keep(fileKey{made.Volume, made.ID}, UseWrite, descriptor{}, nil, only)
		defer o.files.release(f)
		if id, _ := o.files.idNamed(d.Volume, o.files.nameSum(d, "new"), 0); !id.IsZero() {
			t.Error("one of two names is known")
		}
		return nil
	}))
}

// Clients make, link, rename and remove files at the same time: what is known of names is what the disk has, and files
// are counted that have a name.
func TestNamesMatch(t *testing.T) {
	onEachDisk(t, func(t *testing.T, dir string) {
		o, v, root := countedAt(t, dir, 1<<30)
		counted(t, v)
		var dirs [2][]byte
		for i := range dirs {
			mustDo(t, inNames(t, o, root, func(d *File) error {
				made, err := d.Mkdir(AsProcess(), fmt.Sprint(i), 0o755)
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
					from, err := o.Open(netip.Addr{}, dirs[r.IntN(2)], UseNames)
					mustDo(t, err)
					to, err := o.Open(netip.Addr{}, dirs[r.IntN(2)], UseNames)
					mustDo(t, err)
					file, _ := from.Lookup([]byte(name())) // without a lock, as a client's call before
					locked := LockNames(from, to)
					switch r.IntN(5) { // each may fail
					case 0, 1:
						if made, err := to.Create(AsProcess(), name(), 0o644); err == nil {
							made.Close()
						}
					case 2:
						_ = from.Remove(AsProcess(), name())
					case 3:
						_, _ = from.Rename(AsProcess(), name(), to, name())
					case 4:
						if file != nil {
							_ = file.Link(AsProcess(), to, name())
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
		for i, at := range dirs {
			mustDo(t, inNames(t, o, at, func(d *File) error {
				for c := range 4 {
					name := string(rune('a' + c))
					id, _ := o.files.idNamed(v, o.files.nameSum(d, name), 0)
					if id.IsZero() {
						continue
					}
					file, err := d.Lookup([]byte(name))
					if err != nil {
						t.Errorf("%d/%s is known, and not there: %v", i, name, err)
						continue
					}
					if file.ID != id || file.Attr.Nlink != 1 {
						t.Errorf("%d/%s is known as another file, or has %d names", i, name, file.Attr.Nlink)
					}
					file.Close()
				}
				return nil
			}))
		}
		if _, inodes := du(t, dir); v.Account().Usage().Inodes != inodes {
			t.Errorf("%d inodes are counted, there are %d", v.Account().Usage().Inodes, inodes)
		}
	})
}
