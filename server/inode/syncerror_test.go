package inode_test

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/server/locate"
	"github.com/podnas/podnas/test/faultydisk"
)

// What was written and not synced is synced before it is closed, as the kernel might have
// told its error to that descriptor alone.
func TestUnsyncedIsSyncedBeforeItIsClosed(t *testing.T) {
	o, root, dir := openerAt(t)
	write := func(name string) inode.Cached {
		mustDo(t, os.WriteFile(filepath.Join(dir, name), nil, 0o644))
		f, err := o.Open(netip.Addr{}, handleOf(t, o, root, name), inode.UseWrite)
		mustDo(t, err)
		defer f.Close()
		if f.Cached().Unsynced() {
			t.Error("nothing is written, and it has to be synced")
		}
		_, _, err = f.WriteAt([]byte("data"), 0)
		mustDo(t, err)
		return f.Cached()
	}
	file := write("file")
	syncs := func() uint64 { return o.Table().Syncs.Durations.Snapshot().Count }
	idle := func() {
		o.PassIdle()
		o.Sweep()
	}
	before := syncs()
	idle()
	if !file.IsKept() || file.Unsynced() || syncs() != before+1 {
		t.Errorf("idle and written: open %v, to be synced %v, after %d syncs; want it synced and open", file.IsKept(), file.Unsynced(), syncs()-before)
	}
	idle()
	if file.IsKept() || syncs() != before+1 {
		t.Errorf("idle and synced: open %v, after %d syncs; want it closed", file.IsKept(), syncs()-before)
	}

	const most, files = inode.ShardsMax, 5 * inode.ShardsMax
	o.KeepAtMost(most)
	before = syncs()
	for i := range files {
		write(fmt.Sprint("file", i))
		if n := o.CacheCounts().Files.Open; n > 2*most { // one more in each shard, until another file is opened there
			t.Fatalf("%d files are open, of %d", n, most)
		}
	}
	if n := syncs() - before; n < files/2 {
		t.Errorf("%d files were written, and %d synced to make room", files, n)
	}
}

// What must be synced to make room for a new file's descriptor is synced when the names are unlocked: a file may be large, all
// changes of the directory would wait for it, and so would a snapshot.
func TestNoSyncWithNamesLocked(t *testing.T) {
	const files = 5 * inode.ShardsMax
	o, root, dir := openerAt(t)
	for i := range files {
		name := fmt.Sprint("file", i)
		mustDo(t, os.WriteFile(filepath.Join(dir, name), nil, 0o644))
		_, err := write(t, o, handleOf(t, o, root, name), 0, 1)
		mustDo(t, err)
	}
	o.KeepAtMost(inode.ShardsMax)
	syncs := func() uint64 { return o.Table().Syncs.Durations.Snapshot().Count }
	before := syncs()
	for i := range files {
		inDir(t, o, root, func(d *inode.File) error {
			was := syncs()
			made, err := d.Create(actas.AsProcess(), fmt.Sprint("new", i), 0o644, false)
			if syncs() != was {
				t.Error("Create has synced another file")
			}
			if err == nil {
				made.Close()
			}
			return err
		})
	}
	if n := syncs() - before; n < files/2 {
		t.Errorf("%d files were made where too many are open, and %d synced to make room", files, n)
	}
}

// A file that loses one of its names stays open until it is synced, with its last one it is closed at once.
func TestUnsyncedStaysWithAnotherName(t *testing.T) {
	o, root, dir := openerAt(t)
	for name, lose := range map[string]func(d *inode.File) error{
		"REMOVE": func(d *inode.File) error { return d.Remove(actas.AsProcess(), "link") },
		"RENAME": func(d *inode.File) error { return renameIn(d, "other", "link") },
	} {
		for _, f := range []string{"file", "other"} {
			mustDo(t, os.WriteFile(filepath.Join(dir, f), nil, 0o644))
		}
		mustDo(t, os.Link(filepath.Join(dir, "file"), filepath.Join(dir, "link")))
		f, err := o.Open(netip.Addr{}, handleOf(t, o, root, "file"), inode.UseWrite)
		mustDo(t, err)
		_, _, err = f.WriteAt([]byte("data"), 0)
		mustDo(t, err)
		file := f.Cached()
		inDir(t, o, root, lose)
		if !file.IsKept() {
			t.Errorf("%s of one of two names while it is written: its next call opens it anew", name)
		}
		f.Close()
		if !file.IsKept() || !file.Unsynced() {
			t.Errorf("%s of one of two names: open %v, to be synced %v, want both", name, file.IsKept(), file.Unsynced())
		}
		inDir(t, o, root, func(d *inode.File) error { return d.Remove(actas.AsProcess(), "file") })
		if file.IsKept() {
			t.Errorf("%s, and then REMOVE of the last: the file is kept open", name)
		}
	}
}

// The kernel writes back in the background, and that fails; somebody else who syncs the
// file is told first. The clients learn it by the verifier, however long they wait with
// COMMIT.
func TestFailureInTheBackground(t *testing.T) {
	if faultydisk.OwnMounts(t) {
		return
	}
	for _, kind := range faultydisk.Kinds() {
		t.Run(kind.Name, func(t *testing.T) {
			disk := faultydisk.NewThin(t, kind)
			table := newTable(t)
			mustDo(t, table.Export(exports.Exported{ID: 1, Path: "/volume", Dir: disk.Dir}))
			v, _ := table.ByID(1)
			o := inode.NewOpener(table, locate.NewKey(make([]byte, 32)), slog.New(slog.DiscardHandler))
			t.Cleanup(o.Close)
			root := o.Root(v)
			mustDo(t, os.WriteFile(filepath.Join(disk.Dir, "file"), nil, 0o644))
			f, err := o.Open(netip.Addr{}, handleOf(t, o, root, "file"), inode.UseWrite)
			mustDo(t, err)
			file := f.Cached()
			verifier := v.Durable.WriteVerifier()
			disk.Fail()
			for block := range int64(1000) { // more than is held by what mkfs has laid out
				_, _, err = f.WriteAt(fmt.Appendf(nil, "block %d", block), block*blockSize)
				mustDo(t, err)
			}
			f.Close()
			other, err := os.OpenFile(filepath.Join(disk.Dir, "file"), os.O_WRONLY, 0)
			mustDo(t, err)
			if err := other.Sync(); err == nil {
				t.Error("the disk has taken it")
			}
			mustDo(t, other.Close())
			disk.Mend()
			for deadline := time.Now().Add(30 * time.Second); file.IsKept(); time.Sleep(10 * time.Millisecond) {
				o.PassIdle()
				if time.Now().After(deadline) {
					t.Fatal("the file is not closed")
				}
			}
			if v.Durable.WriteVerifier() == verifier {
				t.Error("what was written is lost, and COMMIT would say that it is on the disk")
			}
		})
	}
}
