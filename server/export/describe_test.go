package export

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What Describe remembers is what Lookup finds, whatever becomes of the names.
func TestDescribe(t *testing.T) {
	o, root, dir := openerAt(t)
	top, err := o.Open(netip.Addr{}, root)
	mustDo(t, err)
	defer top.Close()
	same := func(when, name string) []byte {
		t.Helper()
		child, lookupErr := top.Lookup([]byte(name))
		a, handle, err := top.Describe([]byte(name), []byte("before"))
		if lookupErr != nil || err != nil {
			if !errors.Is(err, errors.Unwrap(lookupErr)) && !errors.Is(err, lookupErr) {
				t.Errorf("%s: %v, Lookup says %v", when, err, lookupErr)
			}
			return nil
		}
		defer child.Close()
		handle, ok := bytes.CutPrefix(handle, []byte("before"))
		if !ok || !bytes.Equal(handle, child.Handle()) || a != child.Attr {
			t.Errorf("%s: handle %x and %+v, Lookup says %x and %+v", when, handle, a, child.Handle(), child.Attr)
		}
		return handle
	}
	write := func(name, data string) { mustDo(t, os.WriteFile(filepath.Join(dir, name), []byte(data), 0o644)) }
	write("a", "1")
	write("b", "22")
	mustDo(t, os.Symlink("a", filepath.Join(dir, "link")))
	mustDo(t, os.Mkdir(filepath.Join(dir, "sub"), 0o755))
	same("too young to be remembered", "a")
	if n := o.handles.counts().Remembered; n != 0 {
		t.Errorf("%d handles are remembered of files that were just made", n)
	}
	time.Sleep(bornBefore + 20*time.Millisecond)
	for _, name := range []string{"a", "b", "link", "sub", ".", "gone"} {
		same(name, name)
		same(name+" again", name)
	}
	if c := o.handles.counts(); c.Remembered != 5 || c.Hits != 4 { // "." is looked up, and remembered for its other name
		t.Errorf("%+v of five names", c)
	}
	write("a", "written")
	mustDo(t, os.Chmod(filepath.Join(dir, "a"), 0o600))
	old := same("changed", "a")
	mustDo(t, os.Rename(filepath.Join(dir, "b"), filepath.Join(dir, "a")))
	if now := same("replaced", "a"); bytes.Equal(now, old) {
		t.Error("what has replaced a file has its handle")
	}
	for i := range 50 { // the number is used again at once, on ext4
		mustDo(t, os.Remove(filepath.Join(dir, "a")))
		write("a", fmt.Sprint(i))
		same(fmt.Sprint("made anew, ", i), "a")
	}
	o.handles.forget()
	o.handles.forget()
	if n := o.handles.counts().Remembered; n != 0 {
		t.Errorf("%d handles are never forgotten", n)
	}
	same("after that", "sub")
	for _, name := range []string{"..", "", "a/b", "a\x00"} {
		if _, _, err := top.Describe([]byte(name), nil); err == nil {
			t.Errorf("%q is described", name)
		}
	}
	if _, _, err := top.Describe(bytes.Repeat([]byte("n"), 256), nil); !errors.Is(err, unix.ENAMETOOLONG) {
		t.Errorf("256 bytes: %v", err)
	}
}
