package export

import (
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// Two directories are locked in the same order whoever comes first, and one that is
// given twice is locked once.
func TestLockNames(t *testing.T) {
	o, root, dir := openerAt(t)
	var open []*File
	for _, name := range []string{"a", "b"} {
		mustDo(t, os.Mkdir(filepath.Join(dir, name), 0o755))
		f, err := o.OpenDir(netip.Addr{}, handleOf(t, o, root, name))
		mustDo(t, err)
		t.Cleanup(f.Close)
		open = append(open, f)
	}
	a, b := open[0], open[1]
	if a.kept == nil || b.kept == nil {
		t.Skip("the descriptors of directories are not kept on this disk")
	}
	var inA, inB int // guarded by the locks
	const rounds = 1000
	var wg sync.WaitGroup
	for _, pair := range [][2]*File{{a, b}, {b, a}, {a, a}, {b, b}} {
		wg.Go(func() {
			for range rounds {
				locked, ok := LockNames(pair[0], pair[1])
				if !ok {
					t.Error("not locked")
				}
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

// Who locks a directory after another has changed it is told what it is by then.
func TestStatLocked(t *testing.T) {
	o, root, _ := openerAt(t)
	open := func() *File {
		f, err := o.OpenDir(netip.Addr{}, root)
		mustDo(t, err)
		t.Cleanup(f.Close)
		return f
	}
	first, second := open(), open()
	if first.kept == nil {
		t.Skip("the descriptors of directories are not kept on this disk")
	}
	for i, f := range []*File{first, second} {
		locked, _ := LockNames(f, f)
		got, err := f.StatLocked()
		mustDo(t, err)
		want, err := f.Stat()
		mustDo(t, err)
		if got.Nlink != want.Nlink || !got.Mtime.Equal(want.Mtime) {
			t.Errorf("directory %d: %+v, is %+v", i, got, want)
		}
		made, err := f.Mkdir([]string{"a", "b"}[i], 0o755)
		mustDo(t, err)
		made.Close()
		locked.Unlock()
	}
}
