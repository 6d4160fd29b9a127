package inode_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/server/inode"
)

// All calls lock two directories in the same order, and one that is given twice only once.
func TestLockNames(t *testing.T) {
	o, root, dir := openerAt(t)
	var open []*inode.File
	for _, name := range []string{"a", "b"} {
		mustDo(t, os.Mkdir(filepath.Join(dir, name), 0o755))
		f, err := o.Open(netip.Addr{}, handleOf(t, o, root, name), inode.UseNames)
		mustDo(t, err)
		t.Cleanup(f.Close)
		open = append(open, f)
	}
	a, b := open[0], open[1]
	var inA, inB int // guarded by the locks
	const rounds = 1000
	var wg sync.WaitGroup
	for _, pair := range [][2]*inode.File{{a, b}, {b, a}, {a, a}, {b, b}} {
		wg.Go(func() {
			for range rounds {
				locked := inode.LockNames(pair[0], pair[1])
				if pair[0] == a || pair[1] == a {
					inA++
				}
				if pair[0] == b || pair[1] == b {
					inB++
				}
				locked.Unlock()
			}
		})
	}
	wg.Wait()
	if inA != 3*rounds || inB != 3*rounds {
		t.Errorf("counted %d and %d under the locks, want %d", inA, inB, 3*rounds)
	}
}

// A call that locks a directory after another call has changed it gets the new attributes.
func TestStatLocked(t *testing.T) {
	o, root, _ := openerAt(t)
	open := func() *inode.File {
		f, err := o.Open(netip.Addr{}, root, inode.UseNames)
		mustDo(t, err)
		t.Cleanup(f.Close)
		return f
	}
	first, second := open(), open()
	for i, f := range []*inode.File{first, second} {
		locked := inode.LockNames(f, f)
		got, err := f.StatLocked()
		mustDo(t, err)
		want, err := f.Stat()
		mustDo(t, err)
		if got.Nlink != want.Nlink || !got.Mtime.Equal(want.Mtime) {
			t.Errorf("directory %d: %+v, is %+v", i, got, want)
		}
		made, err := f.Mkdir(actas.AsProcess(), []string{"a", "b"}[i], 0o755)
		mustDo(t, err)
		made.Close()
		locked.Unlock()
	}
}

// The attributes before a change are those that the last call has found after its own, without a look at
// the disk, unless that call has found none.
func TestStatLockedAfterAnother(t *testing.T) {
	o, root, dir := openerAt(t)
	for _, found := range []bool{true, false} {
		first, err := o.Open(netip.Addr{}, root, inode.UseNames)
		mustDo(t, err)
		second, err := o.Open(netip.Addr{}, root, inode.UseNames)
		mustDo(t, err)
		locked := inode.LockNames(first, first)
		after, err := first.Stat()
		mustDo(t, err)
		if found {
			first.RememberLocked(after)
		}
		locked.Unlock()
		info, err := os.Stat(dir)
		mustDo(t, err)
		mode := info.Mode().Perm() ^ 0o010 // not by a client
		mustDo(t, os.Chmod(dir, mode))
		locked = inode.LockNames(second, second)
		before, err := second.StatLocked()
		mustDo(t, err)
		locked.Unlock()
		if remembered := before == after; remembered != found {
			t.Errorf("the other call found its attributes: %t; they are those before the next change: %t", found, remembered)
		}
		first.Close()
		second.Close()
	}
}

// A directory is opened from the cache without a look at it: that it was removed shows when it is locked.
func TestStatLockedRemoved(t *testing.T) {
	o, root, dir := openerAt(t)
	for name, look := range map[string]func(*inode.File) error{
		"StatLocked":       func(f *inode.File) error { _, err := f.StatLocked(); return err },
		"StatChangeLocked": func(f *inode.File) error { _, _, err := f.StatChangeLocked(); return err },
	} {
		mustDo(t, os.Mkdir(filepath.Join(dir, "d"), 0o755))
		handle := handleOf(t, o, root, "d")
		first, err := o.Open(netip.Addr{}, handle, inode.UseNames)
		mustDo(t, err)
		first.Close()
		mustDo(t, os.Remove(filepath.Join(dir, "d"))) // not by a client
		again := func() (*inode.File, error) { return o.Open(netip.Addr{}, handle, inode.UseNames) }
		f, err := patiently(again)
		if err == nil {
			locked := inode.LockNames(f, f)
			err = look(f)
			locked.Unlock()
			f.Close()
		}
		if !errors.Is(err, unix.ESTALE) {
			t.Errorf("%s: a removed directory: %v, want ESTALE", name, err)
		}
		if _, err := patiently(again); !errors.Is(err, unix.ESTALE) {
			t.Errorf("%s: opened again: %v, want ESTALE", name, err)
		}
	}
}

// Calls that open a directory at the same time, when its descriptor is not cached, do not
// take the attributes of before another's change for those of after it.
func TestStatLockedAtFirst(t *testing.T) {
	o, root, _ := openerAt(t)
	for round := range 200 {
		var calls sync.WaitGroup
		for call := range 4 {
			calls.Go(func() {
				f, err := o.Open(netip.Addr{}, root, inode.UseNames)
				if err != nil {
					t.Error(err)
					return
				}
				defer f.Close()
				defer inode.LockNames(f, f).Unlock()
				got, err := f.StatLocked()
				if err != nil {
					t.Error(err)
				}
				if want, err := f.Stat(); err != nil || got.Nlink != want.Nlink {
					t.Errorf("round %d: %d links, want %d, %v", round, got.Nlink, want.Nlink, err)
				}
				made, err := f.Mkdir(actas.AsProcess(), fmt.Sprintf("%d-%d", round, call), 0o755)
				if err != nil {
					t.Error(err)
					return
				}
				made.Close()
			})
		}
		calls.Wait()
		if t.Failed() {
			return
		}
		o.CloseCached() // none of them is cached
	}
}
