package app

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/quota"
	"github.com/podnas/podnas/server"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/test/conformance/nfstest"
	"github.com/podnas/podnas/test/testdisk"
)

// restored is a disk with a volume "v" that is restored while clients of NFS use it.
type restored struct {
	*testing.T
	root string
	mode quota.Mode
	// fault, if not nil, is called in place of RestoreSnapshot.
	fault func(context.Context) error
	// scans is exports.Table.Scans.
	scans chan struct{}

	table  *exports.Table
	store  *volume.Store
	client *nfstest.Client
	dir    nfs3.FH // of the volume
}

// faulty is an exporter that restores nothing.
type faulty struct {
	exporter
	disk *restored
}

func (f faulty) RestoreSnapshot(ctx context.Context, v volume.Volume, name string, p *volume.RestoreProgress) error {
	if f.disk.fault != nil {
		p.Changed.Store(true)
		return f.disk.fault(ctx)
	}
	return f.exporter.RestoreSnapshot(ctx, v, name, p)
}

// newRestored serves a volume of a size, for whose snapshots nothing is promised.
func newRestored(t *testing.T, root string, mode quota.Mode, size int64) *restored {
	t.Helper()
	d := &restored{T: t, root: root, mode: mode}
	t.Cleanup(func() { d.close() })
	d.open()
	none := 0
	_, err := d.store.Create(t.Context(), volume.Spec{Name: "v", Size: size, SnapshotReserve: &none})
	mustDo(t, err)
	d.mount()
	return d
}

// open is a start of podnas.
func (d *restored) open() {
	d.Helper()
	log := slog.New(slog.DiscardHandler)
	limits, err := quota.Select(d.mode, d.root)
	mustDo(d.T, err)
	if limits.Projects != nil {
		d.Cleanup(func() { _ = limits.Projects.Close() })
	}
	d.table = &exports.Table{Log: log, Scans: d.scans, ByIndex: testdisk.ByIndex()}
	d.table.GivesRoom = func(id uint64, bytes int64) bool { return d.store.GivesRoom(id, bytes) }
	var nfs *server.Server
	e := exporter{Table: d.table, Root: d.root, Engine: server.Choice{Engine: server.EngineNative, ByIndex: testdisk.ByIndex()}, Limits: limits, Log: log, NFS: func() *server.Server { return nfs }}
	d.store, err = volume.Open(volume.Config{Root: d.root, Exports: e, Snapshots: faulty{e, d}, Quota: limits, Counter: e.Counter(), Log: log})
	mustDo(d.T, err)
	nfs, err = server.New(server.Config{Engine: e.Engine, Exports: d.table, HandleKey: d.store.HandleKey(), Log: log})
	mustDo(d.T, err)
	d.store.ResumeRestores()
	address := nfstest.Serve(d.T, nfs).String()
	d.client, err = nfstest.Dial(d.Context(), address, address)
	mustDo(d.T, err)
}

func (d *restored) mount() {
	d.Helper()
	mounted, err := d.client.Mount(d.Context(), "/v")
	if err != nil || len(mounted.Handle) == 0 {
		d.Fatal(mounted.Status, err)
	}
	d.dir = mounted.Handle
}

// close ends podnas.
func (d *restored) close() {
	if d.store == nil {
		return
	}
	d.client.Close()
	mustDo(d.T, d.store.Close())
	for _, v := range d.table.Volumes() {
		d.table.Remove(v.ID)
	}
	d.store = nil
}

// write makes a file of one letter, and returns the first status that is not OK.
func (d *restored) write(name string, size int, letter byte) nfs3.Status {
	d.Helper()
	made, err := d.client.Create(d.Context(), nfs3.CreateArgs{
		Where: nfs3.DirOpArgs{Dir: d.dir, Name: []byte(name)}, Attr: nfs3.Sattr{Mode: nfs3.SetUint32{Set: true, Value: 0o644}},
	})
	mustDo(d.T, err)
	if made.Status != nfs3.OK {
		return made.Status
	}
	const piece = 256 << 10
	for at := 0; at < size; at += piece {
		data := bytes.Repeat([]byte{letter}, min(piece, size-at))
		res, err := d.client.Write(d.Context(), made.Object, uint64(at), nfs3.Unstable, data)
		mustDo(d.T, err)
		if res.Status != nfs3.OK || int(res.Count) != len(data) {
			return max(res.Status, nfs3.ErrDQuot)
		}
	}
	res, err := d.client.Commit(d.Context(), made.Object, 0, 0)
	mustDo(d.T, err)
	return res.Status
}

func (d *restored) remove(name string) {
	d.Helper()
	res, err := d.client.Remove(d.Context(), d.dir, name)
	if err != nil || res.Status != nfs3.OK {
		d.Fatal(res.Status, err)
	}
}

// has checks that a file is so many times one letter.
func (d *restored) has(name string, size int, letter byte) {
	d.Helper()
	data, err := os.ReadFile(filepath.Join(d.root, "v", name))
	if err != nil || len(data) != size || bytes.Count(data, []byte{letter}) != size {
		d.Errorf("%s has %d bytes, %d of them %c, not %d: %v", name, len(data), bytes.Count(data, []byte{letter}), letter, size, err)
	}
}

// await returns the end of the restore.
func (d *restored) await() error {
	d.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if r, err := d.store.GetRestore("v"); err != nil || r.Done {
			return err
		}
		if time.Now().After(deadline) {
			d.Fatal("it does not end")
		}
	}
}

// names returns the names of the volume's snapshots.
func (d *restored) names() (names []string) {
	d.Helper()
	list, err := d.store.Snapshots("v")
	mustDo(d.T, err)
	for i := range list {
		names = append(names, list[i].Name)
	}
	return names
}

// eachMode runs a test for each way to count what a volume uses.
func eachMode(t *testing.T, test func(t *testing.T, root string, mode quota.Mode)) {
	t.Run("the server counts", func(t *testing.T) { test(t, testdisk.OneXFS(t), quota.Server) })
	t.Run("the kernel counts", func(t *testing.T) {
		xfs := os.Getenv("PODNAS_TEST_XFS")
		if xfs == "" {
			t.Skip("PODNAS_TEST_XFS does not name a directory on an XFS with prjquota; `make vm` runs this test")
		}
		root, err := os.MkdirTemp(xfs, "restored")
		mustDo(t, err)
		t.Cleanup(func() { mustDo(t, os.RemoveAll(root)) })
		test(t, root, quota.Kernel)
	})
}

const (
	restoredSize = 40 << 20
	restoredFile = 24 << 20 // two of them are too much
	restoredLine = 1000
)

// fillOther has a volume with a large file and a small one, a snapshot "one" of that, and then the other file be the large one. first is
// the large one, and second the other.
func (d *restored) fillOther(first, second string) {
	d.Helper()
	for _, status := range []nfs3.Status{d.write(first, restoredFile, 'a'), d.write(second, restoredLine, 'b')} {
		if status != nfs3.OK {
			d.Fatal(status)
		}
	}
	_, err := d.store.CreateSnapshot(d.Context(), "v", "one")
	mustDo(d.T, err)
	d.remove(first)
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(100 * time.Millisecond) { // XFS frees it in the background
		if status := d.write(second, restoredFile, 'c'); status == nfs3.OK {
			break
		} else if time.Now().After(deadline) {
			d.Fatal(status)
		}
	}
}

// A volume is restored however full it is, and whichever name comes first. Its limit holds afterwards.
func TestRestoreOfAFullVolume(t *testing.T) {
	eachMode(t, func(t *testing.T, root string, mode quota.Mode) {
		d := newRestored(t, root, mode, restoredSize)
		for _, names := range [][2]string{{"a", "b"}, {"d", "c"}} {
			d.fillOther(names[0], names[1])
			_, err := d.store.StartRestore(t.Context(), "v", "one", false)
			mustDo(t, err)
			mustDo(t, d.await())
			d.has(names[0], restoredFile, 'a')
			d.has(names[1], restoredLine, 'b')
			if status := d.write("more", restoredFile, 'x'); status != nfs3.ErrDQuot && status != nfs3.ErrNoSpc {
				t.Errorf("beyond its size: %v", status)
			}
			df, err := d.client.Fsstat(t.Context(), d.dir)
			if err != nil || df.TBytes != restoredSize {
				t.Errorf("df shows %d bytes, %v", df.TBytes, err)
			}
			for _, name := range []string{"more", names[0], names[1]} {
				d.remove(name)
			}
			for _, name := range d.names() {
				mustDo(t, d.store.DeleteSnapshot(t.Context(), "v", name))
			}
		}
	})
}

// The next start goes on with a restore, also of a volume that is not counted yet, of which it is not known what else it has room for.
func TestRestoreResumedBeforeCounted(t *testing.T) {
	eachMode(t, func(t *testing.T, root string, mode quota.Mode) {
		d := newRestored(t, root, mode, restoredSize)
		d.fillOther("a", "b")
		inside := make(chan struct{})
		d.fault = func(ctx context.Context) error {
			close(inside)
			<-ctx.Done()
			return ctx.Err()
		}
		_, err := d.store.StartRestore(t.Context(), "v", "one", false)
		mustDo(t, err)
		<-inside
		d.close()
		d.fault = nil
		d.scans = make(chan struct{}, 1)
		d.scans <- struct{}{} // none begins
		d.open()
		mustDo(t, d.await())
		if u, err := d.store.Usage("v"); mode == quota.Server && (err != nil || !u.Partial) {
			t.Errorf("it is counted before it is restored: %+v, %v", u, err)
		}
		<-d.scans
		d.mount()
		d.has("a", restoredFile, 'a')
		d.has("b", restoredLine, 'b')
		if names := d.names(); len(names) != 2 {
			t.Errorf("there are %v", names)
		}
		if status := d.write("more", restoredFile, 'x'); status != nfs3.ErrDQuot && status != nfs3.ErrNoSpc && status != nfs3.ErrJukebox {
			t.Errorf("beyond its size: %v", status)
		}
	})
}

// A disk without room for a restore refuses it, and nothing has changed.
func TestRestoreOnAFullDisk(t *testing.T) {
	eachMode(t, func(t *testing.T, root string, mode quota.Mode) {
		d := newRestored(t, root, mode, restoredSize)
		d.fillOther("a", "b")
		_, err := d.store.Create(t.Context(), volume.Spec{Name: "other", Size: 1 << 20})
		mustDo(t, err)
		space, err := d.store.Space()
		mustDo(t, err)
		filler, err := os.Create(filepath.Join(root, "filler"))
		mustDo(t, err)
		defer filler.Close()
		mustDo(t, syscall.Fallocate(int(filler.Fd()), 0, 0, space.Free-8<<20))
		_, err = d.store.StartRestore(t.Context(), "v", "one", false)
		var noSpace *volume.NoSpaceError
		if !errors.As(err, &noSpace) || !strings.Contains(err.Error(), "nothing has changed") {
			t.Fatalf("on a full disk: %v", err)
		}
		d.has("b", restoredFile, 'c')
		if names := d.names(); len(names) != 1 {
			t.Errorf("there are %v", names)
		}
		if status := d.write("b", restoredLine, 'd'); status != nfs3.OK { // it goes on
			t.Errorf("a client writes: %v", status)
		}
		mustDo(t, filler.Truncate(0))
		_, err = d.store.StartRestore(t.Context(), "v", "one", false)
		mustDo(t, err)
		mustDo(t, d.await())
		d.has("a", restoredFile, 'a')
	})
}

// After a restore that has failed half way, clients wait, also those of the next start, until it is restored.
func TestClientsWaitForAHalfRestoredVolume(t *testing.T) {
	d := newRestored(t, testdisk.OneXFS(t), quota.Server, restoredSize)
	d.fillOther("a", "b")
	d.fault = func(context.Context) error { return syscall.ENOSPC }
	for range 2 {
		_, err := d.store.StartRestore(t.Context(), "v", "one", false)
		mustDo(t, err)
		if err := d.await(); !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "changes by its clients wait") {
			t.Fatalf("its end: %v", err)
		}
		if status := d.write("new", 10, 'n'); status != nfs3.ErrJukebox {
			t.Errorf("a client writes: %v", status)
		}
	}
	names := d.names()
	if len(names) != 2 || !strings.HasPrefix(names[1], "before-restore-") {
		t.Errorf("there are %v", names)
	}
	d.close()
	d.open()
	d.mount()
	if err := d.await(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("after a start: %v", err)
	}
	if status := d.write("new", 10, 'n'); status != nfs3.ErrJukebox {
		t.Errorf("a client writes after a start: %v", status)
	}
	d.fault = nil
	_, err := d.store.StartRestore(t.Context(), "v", names[1], false)
	mustDo(t, err)
	mustDo(t, d.await())
	if status := d.write("new", 10, 'n'); status != nfs3.OK {
		t.Errorf("a client writes when it is restored: %v", status)
	}
	d.has("b", restoredFile, 'c')
	if again := d.names(); len(again) != 2 {
		t.Errorf("there are %v", again)
	}
}

// What a restore keeps is promised as any snapshot that somebody asks for.
func TestSafetyIsPromised(t *testing.T) {
	d := newRestored(t, testdisk.OneXFS(t), quota.Server, 300<<20)
	const large = 200 << 20
	if status := d.write("a", large, 'a'); status != nfs3.OK {
		t.Fatal(status)
	}
	_, err := d.store.CreateSnapshot(t.Context(), "v", "one")
	mustDo(t, err)
	space, err := d.store.Space()
	mustDo(t, err)
	filler, err := os.Create(filepath.Join(d.root, "filler"))
	mustDo(t, err)
	defer filler.Close()
	mustDo(t, syscall.Fallocate(int(filler.Fd()), 0, 0, space.Free-80<<20))
	_, err = d.store.SetSnapshotReserve(t.Context(), "v", 100)
	mustDo(t, err)
	_, err = d.store.StartRestore(t.Context(), "v", "one", false)
	var refused *volume.SnapshotSpaceError
	if !errors.As(err, &refused) {
		t.Errorf("without room for what it keeps: %v", err)
	}
	if names := d.names(); len(names) != 1 {
		t.Errorf("there are %v", names)
	}
	_, err = d.store.SetSnapshotReserve(t.Context(), "v", 20)
	mustDo(t, err)
	_, err = d.store.StartRestore(t.Context(), "v", "one", false)
	mustDo(t, err)
	mustDo(t, d.await())
	list, err := d.store.Snapshots("v")
	if err != nil || len(list) != 2 || list[1].Reserve < large/5 {
		t.Errorf("promised: %+v, %v", list, err)
	}
}

// Where nobody counts what a volume uses, it is found out while the snapshot is taken.
func TestPromiseOfWhatNobodyCounts(t *testing.T) {
	d := newRestored(t, testdisk.OneXFS(t), quota.Off, 300<<20)
	_, err := d.store.SetSnapshotReserve(t.Context(), "v", 100)
	mustDo(t, err)
	if status := d.write("a", 300<<20, 'a'); status != nfs3.OK {
		t.Fatal(status)
	}
	var refused *volume.SnapshotSpaceError
	if _, err := d.store.CreateSnapshot(t.Context(), "v", "one"); !errors.As(err, &refused) || refused.Space.Requested < 300<<20 {
		t.Errorf("without room for it: %v", err)
	}
	if names := d.names(); len(names) != 0 {
		t.Errorf("there are %v", names)
	}
	_, err = d.store.SetSnapshotReserve(t.Context(), "v", 20)
	mustDo(t, err)
	taken, err := d.store.CreateSnapshot(t.Context(), "v", "one")
	if err != nil || taken.Reserve < 60<<20 {
		t.Errorf("with a smaller promise: %+v, %v", taken, err)
	}
}
