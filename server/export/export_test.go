package export

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/test/leaks"
	"github.com/podnas/podnas/test/testdisk"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// renameIn renames in one directory.
func renameIn(dir *File, name, newName string) error { return rename(dir, name, dir, newName) }

// rename is Rename, whatever it has changed.
func rename(from *File, name string, to *File, newName string) error {
	_, err := from.Rename(AsProcess(), name, to, newName)
	return err
}

func mustDo(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newTable is a table whose volumes are removed at the end of the test, which must have
// closed all files by then.
func newTable(t *testing.T) *Table {
	t.Helper()
	table := &Table{ByIndex: testdisk.ByIndex()}
	t.Cleanup(func() {
		for _, v := range table.Volumes() {
			go table.Remove(v.ID)
			select {
			case <-v.Closed():
			case <-time.After(20 * time.Second):
				t.Errorf("%s does not end: the test has left a file open", v.Path)
			}
		}
	})
	return table
}

// patiently opens a file as a client does that waits as long as it is asked to.
func patiently(open func() (*File, error)) (f *File, err error) {
	for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(time.Millisecond) {
		if f, err = open(); !errors.Is(err, unix.EAGAIN) {
			break
		}
	}
	return f, err
}

// walked has the index of a volume, if there is one, know what was made directly on the disk.
func walked(v *Volume) {
	if x := v.index.Load(); x != nil {
		x.walkOnce()
	}
}

// openerOf is an Opener of the volumes in a table, until the end of the test.
func openerOf(t *testing.T, table *Table) *Opener {
	t.Helper()
	o := NewOpener(table, NewKey(make([]byte, 32)), slog.New(slog.DiscardHandler))
	t.Cleanup(o.Close)
	return o
}

// volumeAt exports a new directory.
func volumeAt(t *testing.T) (*Table, *Volume, string) {
	t.Helper()
	dir := t.TempDir()
	table := newTable(t)
	mustDo(t, table.Export(Exported{ID: 7, Path: "/v", Dir: dir}))
	v, ok := table.ByID(7)
	if !ok {
		t.Fatal("not in the table")
	}
	return table, v, dir
}

func TestTable(t *testing.T) {
	table, v, dir := volumeAt(t)
	for path, want := range map[string]bool{"/v": true, "/v/": true, "v": true, "//v": true, "/": false, "/v/sub": false, "/w": false, "/v/../v": true} {
		if got, ok := table.ByPath(path); ok != want || ok && got != v {
			t.Errorf("ByPath(%q) = %v, %v", path, got, ok)
		}
	}
	if err := table.Export(Exported{ID: 8, Path: "/v", Dir: dir}); !errors.Is(err, ErrExists) {
		t.Errorf("same path: %v", err)
	}
	if err := table.Export(Exported{ID: 7, Path: "/w", Dir: dir}); !errors.Is(err, ErrExists) {
		t.Errorf("same number: %v", err)
	}
	if err := table.Export(Exported{ID: 8, Path: "/w", Dir: filepath.Join(dir, "missing")}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing directory: %v", err)
	}
	mustDo(t, table.Export(Exported{ID: 9, Path: "/a", Dir: dir}))
	if vs := table.Volumes(); len(vs) != 2 || vs[0].Path != "/a" || vs[1].Path != "/v" {
		t.Errorf("Volumes() = %v", vs)
	}
	table.Remove(7)
	table.Remove(7)
	if _, ok := table.ByPath("/v"); ok {
		t.Error("found after Remove")
	}
	if _, err := openerOf(t, table).OpenIn(v, FileID{}, UseAttr); !errors.Is(err, unix.ESTALE) {
		t.Errorf("OpenIn after Remove: %v, want ESTALE", err)
	}
}

// Remove waits for what is under way, since the directory is then given away.
func TestRemoveWaits(t *testing.T) {
	table, v, _ := volumeAt(t)
	d, err := openerOf(t, table).OpenIn(v, FileID{}, UseAttr)
	mustDo(t, err)
	removed := make(chan struct{})
	go func() {
		table.Remove(7)
		close(removed)
	}()
	select {
	case <-removed:
		t.Error("Remove returned while a directory was open")
	case <-time.After(50 * time.Millisecond):
	}
	select {
	case <-v.Closed():
		t.Error("closed while a directory was open")
	default:
	}
	d.Close()
	<-removed
	<-v.Closed()
}

func TestValidName(t *testing.T) {
	for name, want := range map[string]bool{
		"a": true, "...": true, "..a": true, " ": true, "\xff": true, strings.Repeat("n", 300): true,
		"": false, ".": false, "..": false, "a/b": false, "/": false, "a\x00": false,
	} {
		if ValidName(name) != want {
			t.Errorf("ValidName(%q) = %v", name, !want)
		}
	}
}

// Both ways to name a file keep the same promises.
func TestIdentify(t *testing.T) {
	for _, way := range []struct {
		name     string
		identify func(*os.File, string) (FileID, error)
	}{
		{"by inode and birth", func(dir *os.File, name string) (FileID, error) {
			return inodes{&disk{}}.identify(int(dir.Fd()), []byte(name))
		}},
		{"by handle", func(dir *os.File, name string) (FileID, error) {
			return kernelHandles{}.identify(int(dir.Fd()), []byte(name))
		}},
	} {
		t.Run(way.name, func(t *testing.T) {
			dir, err := os.Open(t.TempDir())
			mustDo(t, err)
			defer dir.Close()
			if _, err := way.identify(dir, ""); errors.Is(err, ErrNoFileID) {
				t.Skipf("the temporary directory's file system can't: %v", err)
			}
			id := func(name string) FileID {
				t.Helper()
				id, err := way.identify(dir, name)
				mustDo(t, err)
				if id.IsZero() {
					t.Errorf("FileID of %q is zero", name)
				}
				return id
			}
			name := filepath.Join(dir.Name(), "file")
			mustDo(t, os.WriteFile(name, nil, 0o600))
			mustDo(t, os.Symlink("file", filepath.Join(dir.Name(), "link")))
			file := id("file")
			if id("link") == file {
				t.Error("followed a symbolic link")
			}
			if id("") != id(".") || id("") == file {
				t.Error("the directory itself")
			}
			f, err := os.Open(name)
			mustDo(t, err)
			if open, err := way.identify(f, ""); err != nil || open != file {
				t.Errorf("an open file: %x, %v, by name %x", open, err, file)
			}
			mustDo(t, f.Close())
			mustDo(t, os.Rename(name, filepath.Join(dir.Name(), "renamed")))
			if id("renamed") != file {
				t.Error("changed with a rename")
			}
			mustDo(t, os.Remove(filepath.Join(dir.Name(), "renamed")))
			if _, err := way.identify(dir, "renamed"); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("a removed file: %v", err)
			}
			// A file system may give the inode number to the next file.
			time.Sleep(20 * time.Millisecond)
			for range 100 {
				mustDo(t, os.WriteFile(name, nil, 0o600))
				if id("file") == file {
					t.Fatal("a new file has the FileID of a removed one")
				}
				mustDo(t, os.Remove(name))
			}
		})
	}
}

func TestHandle(t *testing.T) {
	key := NewKey(bytes.Repeat([]byte{1}, 32))
	for n := 1; n <= FileIDMax; n++ {
		file := NewFileID(bytes.Repeat([]byte("f"), n))
		h := key.Handle(1<<63+5, file)
		if len(h) > HandleMax || len(h)%4 != 0 {
			t.Fatalf("handle of %d bytes", len(h))
		}
		if v, f, err := key.Parse(h); v != 1<<63+5 || f != file || err != nil {
			t.Errorf("Parse = %d, %q, %v", v, f, err)
		}
		if !bytes.Equal(h, key.Handle(1<<63+5, file)) {
			t.Error("not the same twice")
		}
	}

	h := key.Handle(5, NewFileID([]byte("file")))
	for i := range h {
		for bit := range 8 {
			forged := slices.Clone(h)
			forged[i] ^= 1 << bit
			if v, f, err := key.Parse(forged); !errors.Is(err, ErrBadHandle) {
				t.Fatalf("bit %d of byte %d turned: %d, %q, %v", bit, i, v, f, err)
			}
		}
	}
	for _, bad := range [][]byte{nil, {}, h[:8], h[:len(h)-1], append(slices.Clone(h), 0), make([]byte, 28), make([]byte, 65), make([]byte, 1000)} {
		if _, _, err := key.Parse(bad); !errors.Is(err, ErrBadHandle) {
			t.Errorf("Parse(%x): %v", bad, err)
		}
	}
	if _, _, err := NewKey(bytes.Repeat([]byte{2}, 32)).Parse(h); !errors.Is(err, ErrBadHandle) {
		t.Errorf("another key: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	key := NewKey(make([]byte, 32))
	f.Add(key.Handle(1, NewFileID([]byte("file"))))
	f.Add(make([]byte, HandleMax))
	f.Fuzz(func(t *testing.T, h []byte) {
		v, file, err := key.Parse(h)
		if err == nil && !bytes.Equal(h, key.Handle(v, file)) {
			t.Errorf("%x is not the handle of what it names", h)
		}
	})
}
