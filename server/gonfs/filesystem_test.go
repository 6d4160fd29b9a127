package gonfs

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/podnas/podnas/server/export"
)

// A SETATTR of a file that is removed at that moment must not succeed: the library takes
// an error of Lstat that it does not know for success.
func TestLstatOfRemoved(t *testing.T) {
	dir := t.TempDir()
	table := &export.Table{}
	t.Cleanup(func() { table.Remove(1) })
	if err := table.Add(1, "/volume", dir, export.Options{}); err != nil {
		t.Fatal(err)
	}
	volume, _ := table.ByID(1)
	opener := export.NewOpener(table, export.NewKey(make([]byte, 32)), slog.New(slog.DiscardHandler))
	t.Cleanup(opener.Close)
	f := &filesystem{id: 1, opener: opener, volume: volume, tree: newTree(opener, volume)}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	id, err := f.identify("file")
	if err != nil {
		t.Fatal(err)
	}
	file := f.Join(location{path: "file", file: id}.elements()...)
	if _, err := f.Lstat(file); err != nil {
		t.Fatal(err)
	}
	// Another file has its name, and it has none.
	if err := os.Mkdir(filepath.Join(dir, "other"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(filepath.Join(dir, "file")), os.Rename(filepath.Join(dir, "other"), filepath.Join(dir, "file"))); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Lstat(file); !errors.Is(err, fs.ErrPermission) && !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v, which the library does not know", err)
	}
}
