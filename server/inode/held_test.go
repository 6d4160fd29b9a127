package inode_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/podnas/podnas/server/inode"
)

// Where a file is that a client holds open is told by the path that it has now, or had.
func TestWhere(t *testing.T) {
	o, root, dir := openerAt(t)
	mustDo(t, os.Mkdir(filepath.Join(dir, "dir"), 0o755))
	mustDo(t, os.WriteFile(filepath.Join(dir, "dir", "file"), nil, 0o600))
	f, err := o.Open(netip.Addr{}, handleOf(t, o, root, "dir/file"), inode.UseWrite)
	mustDo(t, err)
	h := f.Hold()
	f.Close()
	defer h.Close()
	wants := func(path string, removed bool) {
		t.Helper()
		got, ino, gone := h.Where()
		if got != path || ino == 0 || gone != removed {
			t.Errorf("it is at %q, inode %d, removed %v; want %q, removed %v", got, ino, gone, path, removed)
		}
	}
	wants("dir/file", false)
	mustDo(t, os.Rename(filepath.Join(dir, "dir", "file"), filepath.Join(dir, "moved (deleted)")))
	wants("moved (deleted)", false)
	mustDo(t, os.Remove(filepath.Join(dir, "moved (deleted)")))
	wants("moved (deleted)", true)
}
