package gonfs

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/server/locate"
	"github.com/podnas/podnas/test/testdisk"
)

// testFilesystem is the library's view of a new volume.
func testFilesystem(t *testing.T) (f *filesystem, dir string) {
	t.Helper()
	dir = t.TempDir()
	table := &exports.Table{ByIndex: testdisk.ByIndex()}
	t.Cleanup(func() { table.Remove(1) })
	if err := table.Export(exports.Exported{ID: 1, Path: "/volume", Dir: dir}); err != nil {
		t.Fatal(err)
	}
	volume, _ := table.ByID(1)
	opener := inode.NewOpener(table, locate.NewKey(make([]byte, 32)), slog.New(slog.DiscardHandler))
	t.Cleanup(opener.Close)
	return &filesystem{id: 1, opener: opener, volume: volume}, dir
}

// named is the path of a client's name in the volume's root.
func named(t *testing.T, f *filesystem, name string) string {
	t.Helper()
	root, err := f.opener.OpenIn(f.volume, disk.FileID{}, inode.UseAttr)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	return f.Join(append(elements(root.ID), name)...)
}

// A SETATTR of a file that is removed at that moment must not succeed: the library takes
// an error of Lstat that it does not know for success.
func TestLstatOfRemoved(t *testing.T) {
	f, dir := testFilesystem(t)
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	open, err := f.open(named(t, f, "file"), inode.UseAttr)
	if err != nil {
		t.Fatal(err)
	}
	file := f.Join(elements(open.ID)...)
	open.Close()
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

// A symbolic link has no mode of its own, and that of its target is not the client's.
func TestChmodLeavesLinkTargets(t *testing.T) {
	f, dir := testFilesystem(t)
	target := filepath.Join(t.TempDir(), "target")
	if err := errors.Join(os.WriteFile(target, nil, 0o600), os.Symlink(target, filepath.Join(dir, "link")),
		os.WriteFile(filepath.Join(dir, "file"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Chmod(named(t, f, "link"), 0o777), f.Chmod(named(t, f, "file"), 0o640)); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(target); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("a link's target: %v, %v", info, err)
	}
	if info, err := os.Stat(filepath.Join(dir, "file")); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("a file: %v, %v", info, err)
	}
}

// What the library passes on of a client's call is one name in a directory, or a file.
func TestJoin(t *testing.T) {
	at := elements(disk.NewFileID([]byte("file")))
	for _, name := range []string{"name", "..name", "a\nb", "\xff"} {
		l, err := parseLocation(join(append(at, name)))
		if err != nil || l.name != name || l.parent || string(l.file.Bytes()) != "file" {
			t.Errorf("%q is %+v, %v", name, l, err)
		}
	}
	for _, elems := range [][]string{append(at, ""), append(at, "."), append(at, ".."), append(at, "a/b"), append(at, "a\x00"), append(at, "a", "b")} {
		if l, err := parseLocation(join(elems)); err == nil {
			t.Errorf("%q is %+v", elems, l)
		}
	}
	if l, err := parseLocation(join(at)); err != nil || l.name != "" || l.parent || string(l.file.Bytes()) != "file" {
		t.Errorf("a file is %+v, %v", l, err)
	}
	if l, err := parseLocation(join(at[:1])); err != nil || l.name != "" || !l.parent || string(l.file.Bytes()) != "file" {
		t.Errorf("a file's directory is %+v, %v", l, err)
	}
}
