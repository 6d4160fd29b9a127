package inode_test

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/server/locate"
	"github.com/podnas/podnas/test/leaks"
	"github.com/podnas/podnas/test/testdisk"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// renameIn renames in one directory.
func renameIn(dir *inode.File, name, newName string) error { return rename(dir, name, dir, newName) }

// rename is Rename, whatever it has changed.
func rename(from *inode.File, name string, to *inode.File, newName string) error {
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
func newTable(t *testing.T) *exports.Table {
	t.Helper()
	table := &exports.Table{ByIndex: testdisk.ByIndex()}
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
func patiently(open func() (*inode.File, error)) (f *inode.File, err error) {
	for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(time.Millisecond) {
		if f, err = open(); !errors.Is(err, unix.EAGAIN) {
			break
		}
	}
	return f, err
}

// walked has the index of a volume, if there is one, know what was made directly on the disk.
func walked(v *exports.Volume) {
	if x := v.Files.Index(); x != nil {
		x.WalkOnce()
	}
}

// openerOf is an Opener of the volumes in a table, until the end of the test.
func openerOf(t *testing.T, table *exports.Table) *inode.Opener {
	t.Helper()
	o := inode.NewOpener(table, locate.NewKey(make([]byte, 32)), slog.New(slog.DiscardHandler))
	t.Cleanup(o.Close)
	return o
}

// volumeAt exports a new directory.
func volumeAt(t *testing.T) (*exports.Table, *exports.Volume, string) {
	t.Helper()
	dir := t.TempDir()
	table := newTable(t)
	mustDo(t, table.Export(exports.Exported{ID: 7, Path: "/v", Dir: dir}))
	v, ok := table.ByID(7)
	if !ok {
		t.Fatal("not in the table")
	}
	return table, v, dir
}

// What is open does not outlive the export.
func TestOpenAfterRemove(t *testing.T) {
	table, v, _ := volumeAt(t)
	table.Remove(7)
	if _, err := openerOf(t, table).OpenIn(v, disk.FileID{}, inode.UseAttr); !errors.Is(err, unix.ESTALE) {
		t.Errorf("OpenIn after Remove: %v, want ESTALE", err)
	}
}

// Remove waits for what is under way, since the directory is then given away.
func TestRemoveWaits(t *testing.T) {
	table, v, _ := volumeAt(t)
	d, err := openerOf(t, table).OpenIn(v, disk.FileID{}, inode.UseAttr)
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

// comesTrue waits for what happens soon.
func comesTrue(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in ten seconds: %s", what)
		}
	}
}
