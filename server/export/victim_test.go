package export

import (
	"errors"
	"fmt"
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
						_ = inNames(t, o, handles["b"], func(d *File) error { return f.Link(d, name) })
						if i%2 == 0 {
							_ = inNames(t, o, handles["b"], func(d *File) error { return d.Remove(name) })
						}
					})
					changing.Go(func() {
						if err := inNames(t, o, handles["a"], func(d *File) error { return d.Remove(name) }); err != nil {
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
							if err := d.Remove(fmt.Sprint(i - 1)); err != nil {
								return err
							}
						}
						made, err := d.Symlink("target", fmt.Sprint(i))
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
			mustDo(t, inNames(t, o, root, func(d *File) error { return d.Remove("file") }))
			if !o.files.idOf(v, st.Ino).IsZero() {
				t.Fatal("a removed file is open")
			}
			again := create(t, o, root, "other")
			if id := o.files.removed(v, statIn(t, dir, "other").Ino); !id.IsZero() {
				t.Fatal("a file that is there counts as removed")
			}
			mustDo(t, inNames(t, o, root, func(d *File) error { return d.Remove("other") }))
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

// The file of a name that a client has made is known when it is renamed, but not that of one that has gone, or is
// another's.
func TestMoving(t *testing.T) {
	o, root, dir := openerAt(t)
	known := func(name string) (id FileID) {
		mustDo(t, inNames(t, o, root, func(d *File) error { id = o.named.get(d, name); return nil }))
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
			changed, err := d.Rename(name, d, newName)
			if !changed {
				t.Errorf("%s is not renamed to %s", name, newName)
			}
			return err
		}))
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
	if known("here") != is("here") {
		t.Error("a file that was there before is not known by its new name")
	}
	mustDo(t, os.WriteFile(filepath.Join(dir, "taken"), nil, 0o644))
	rename("here", "taken")
	if known("taken") != is("taken") {
		t.Error("a name that was there before is not known to be another file's")
	}
	mustDo(t, inNames(t, o, root, func(d *File) error { return d.Remove("taken") }))
	if !known("taken").IsZero() {
		t.Error("a name that is removed is known")
	}
	err := inNames(t, o, root, func(d *File) error { _, err := d.Rename("none", d, "other"); return err })
	if !errors.Is(err, unix.ENOENT) {
		t.Errorf("a name that is not there is renamed: %v", err)
	}
}
