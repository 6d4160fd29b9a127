package export

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/test/leaks"
	"github.com/podnas/podnas/test/testdisk"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// renameIn renames in one directory.
func renameIn(dir *File, name, newName string) error { return rename(dir, name, dir, newName) }

// rename is Rename, whatever it has changed.
func rename(from *File, name string, to *File, newName string) error {
	_, err := from.Rename(actas.AsProcess(), name, to, newName)
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
	if _, err := openerOf(t, table).OpenIn(v, disk.FileID{}, UseAttr); !errors.Is(err, unix.ESTALE) {
		t.Errorf("OpenIn after Remove: %v, want ESTALE", err)
	}
}

// Remove waits for what is under way, since the directory is then given away.
func TestRemoveWaits(t *testing.T) {
	table, v, _ := volumeAt(t)
	d, err := openerOf(t, table).OpenIn(v, disk.FileID{}, UseAttr)
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

func TestHandle(t *testing.T) {
	key := NewKey(bytes.Repeat([]byte{1}, 32))
	for n := 1; n <= disk.FileIDMax; n++ {
		file := disk.NewFileID(bytes.Repeat([]byte("f"), n))
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

	h := key.Handle(5, disk.NewFileID([]byte("file")))
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
	f.Add(key.Handle(1, disk.NewFileID([]byte("file"))))
	f.Add(make([]byte, HandleMax))
	f.Fuzz(func(t *testing.T, h []byte) {
		v, file, err := key.Parse(h)
		if err == nil && !bytes.Equal(h, key.Handle(v, file)) {
			t.Errorf("%x is not the handle of what it names", h)
		}
	})
}

// comesTrue waits for what happens soon.
func comesTrue(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in ten seconds: %s", what)
		}
	}
}
