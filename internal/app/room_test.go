package app

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
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

// filling is a disk with a volume that is written to over NFS while snapshots are taken.
type filling struct {
	*testing.T
	root   string
	store  *volume.Store
	client *nfstest.Client
	file   nfs3.FH
	// waits counts the answers to try again.
	waits int
}

// newFilling serves a volume "v" with a file on a disk. The clock of schedules is an hour further at each look.
func newFilling(t *testing.T, root string, change func(*volume.Config, *volume.Spec)) *filling {
	t.Helper()
	log, hours := slog.New(slog.DiscardHandler), atomic.Int64{}
	table := &exports.Table{Log: log}
	limits, err := quota.Select(quota.Server, root)
	mustDo(t, err)
	var nfs *server.Server
	e := exporter{Table: table, Root: root, Engine: server.Choice{Engine: server.EngineNative}, Limits: limits, Log: log, NFS: func() *server.Server { return nfs }}
	f := &filling{T: t, root: root}
	table.GivesRoom = func(id uint64, bytes int64) bool { return f.store.GivesRoom(id, bytes) }
	cfg := volume.Config{Root: root, Exports: e, Snapshots: e, Quota: limits, Counter: e.Counter(), Log: log, Now: func() time.Time {
		return time.Now().Add(time.Duration(hours.Add(1)) * time.Hour)
	}}
	none := 0
	spec := volume.Spec{Name: "v", Size: 160 << 20, SnapshotReserve: &none}
	change(&cfg, &spec)
	f.store, err = volume.Open(cfg)
	mustDo(t, err)
	nfs, err = server.New(server.Config{Engine: e.Engine, Exports: table, HandleKey: f.store.HandleKey(), Log: log})
	mustDo(t, err)
	address := nfstest.Serve(t, nfs).String()
	v, err := f.store.Create(t.Context(), spec)
	mustDo(t, err)
	f.client, err = nfstest.Dial(t.Context(), address, address)
	mustDo(t, err)
	t.Cleanup(func() {
		f.client.Close()
		mustDo(t, f.store.Close())
		for _, v := range table.Volumes() {
			table.Remove(v.ID)
		}
	})
	mounted, err := f.client.Mount(t.Context(), "/"+v.Path)
	mustDo(t, err)
	made, err := f.client.Create(t.Context(), nfs3.CreateArgs{
		Where: nfs3.DirOpArgs{Dir: mounted.Handle, Name: []byte("file")}, Attr: nfs3.Sattr{Mode: nfs3.SetUint32{Set: true, Value: 0o644}},
	})
	if err != nil || made.Status != nfs3.OK {
		t.Fatal(made.Status, err)
	}
	f.file = made.Object
	return f
}

// fileSize is what write writes: with it the volume is within its size.
const fileSize = 100 << 20

// write writes the whole file with one letter, like the kernel's client: what is to be tried again is. It returns the first other
// status.
func (f *filling) write(letter byte) nfs3.Status {
	f.Helper()
	data := bytes.Repeat([]byte{letter}, 256<<10)
	for at := uint64(0); at < fileSize; at += uint64(len(data)) {
		deadline := time.Now().Add(30 * time.Second)
		for {
			res, err := f.client.Write(f.Context(), f.file, at, nfs3.Unstable, data)
			mustDo(f.T, err)
			if res.Status == nfs3.OK && int(res.Count) == len(data) {
				break
			}
			if res.Status != nfs3.OK && res.Status != nfs3.ErrJukebox || time.Now().After(deadline) {
				return res.Status
			}
			f.waits++
			time.Sleep(20 * time.Millisecond)
		}
	}
	res, err := f.client.Commit(f.Context(), f.file, 0, 0)
	mustDo(f.T, err)
	return res.Status
}

// keep runs what takes and deletes snapshots, until the test ends.
func (f *filling) keep() {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{}, 2)
	for _, run := range []func(context.Context){f.store.RunSchedules, f.store.KeepRoom} {
		go func() {
			run(ctx)
			ended <- struct{}{}
		}()
	}
	f.Cleanup(func() {
		cancel()
		<-ended
		<-ended
	})
}

// newest returns the moment of the volume's latest snapshot, and how many of all there were.
func (f *filling) newest() (at time.Time, names []string) {
	f.Helper()
	list, err := f.store.Snapshots("v")
	mustDo(f.T, err)
	for i := range list {
		at, names = list[i].Created, append(names, list[i].Name)
	}
	return at, names
}

// A volume within its size never meets a full disk because of scheduled snapshots: the oldest are deleted. What somebody has asked
// for stays.
func TestRoomOfSnapshots(t *testing.T) {
	testdisk.XFS(t, func(t *testing.T, root string) {
		f := newFilling(t, root, func(_ *volume.Config, s *volume.Spec) { s.Schedule = volume.Schedule{Hourly: 100} })
		if status := f.write('a'); status != nfs3.OK {
			t.Fatal(status)
		}
		taken, err := f.store.CreateSnapshot(t.Context(), "v", "by-hand")
		mustDo(t, err)
		f.keep()
		const rounds = 10
		for round := range rounds {
			f.changed(byte('b' + round))
		}
		given, all := f.store.Given(0)
		_, names := f.newest()
		t.Logf("%d rounds of %d MiB: %d snapshots were deleted for room, writes were put off %d times, there are %v", rounds, fileSize>>20, all, f.waits, names)
		if all == 0 || len(given) != all || !slices.Contains(names, "by-hand") {
			t.Errorf("deleted for room: %v; there are %v", given, names)
		}
		if data, err := os.ReadFile(filepath.Join(root, taken.Directory(), "file")); err != nil || len(data) != fileSize || data[0] != 'a' || data[fileSize-1] != 'a' {
			t.Errorf("what was asked for has %d bytes, %v", len(data), err)
		}

		// Without any to give, the disk is full.
		_, err = f.store.SetSchedule(t.Context(), "v", volume.Schedule{})
		mustDo(t, err)
		for n := 0; ; n++ {
			_, err := f.store.CreateSnapshot(t.Context(), "v", "")
			if err != nil || n == 10 {
				break
			}
			if status := f.write('z'); status == nfs3.ErrNoSpc {
				return
			} else if status != nfs3.OK {
				t.Fatal(status)
			}
		}
		if status := f.write('y'); status != nfs3.ErrNoSpc {
			t.Errorf("with nothing to give: %v", status)
		}
	})
}

// changed writes the file anew between two scheduled snapshots, so that they hold room.
func (f *filling) changed(letter byte) {
	f.Helper()
	before, _ := f.newest()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if _, err := f.store.SetSchedule(f.Context(), "v", volume.Schedule{Hourly: 100}); err != nil {
			f.Fatal(err)
		}
		if now, _ := f.newest(); now.After(before) { // while room is made, none is taken
			break
		}
		if time.Now().After(deadline) {
			f.Fatalf("no snapshot was taken: %+v", f.store.Schedules())
		}
	}
	if status := f.write(letter); status != nfs3.OK {
		space, _ := f.store.Space()
		f.Fatalf("%v, with %d MiB free", status, space.Free>>20)
	}
}

// What is asked for at once gets the room that scheduled snapshots hold. For what can't be had they stay.
func TestMuchRoomOfSnapshots(t *testing.T) {
	testdisk.XFS(t, func(t *testing.T, root string) {
		f := newFilling(t, root, func(_ *volume.Config, s *volume.Spec) { s.Schedule = volume.Schedule{Hourly: 100} })
		other, err := f.store.Create(t.Context(), volume.Spec{Name: "other", Size: 300 << 20})
		mustDo(t, err)
		v, err := f.store.Get("v")
		mustDo(t, err)
		if status := f.write('a'); status != nfs3.OK {
			t.Fatal(status)
		}
		f.keep()
		f.changed('b')
		f.changed('c')
		space, err := f.store.Space()
		mustDo(t, err)
		need := space.Free + 64<<20
		for _, tt := range []struct {
			what   string
			volume uint64
			bytes  int64
		}{
			{"more than the disk has", other.ID, space.Size + 1},
			{"more than snapshots hold", other.ID, space.Free + 299<<20},
			{"more than the volume may have", v.ID, need},
			{"what there is", other.ID, space.Free / 2},
		} {
			if f.store.GivesRoom(tt.volume, tt.bytes) {
				t.Errorf("room is made for %s", tt.what)
			}
		}
		if _, all := f.store.Given(0); all != 0 {
			t.Fatalf("%d snapshots were deleted", all)
		}
		waits := 0
		for deadline := time.Now().Add(30 * time.Second); f.store.GivesRoom(other.ID, need); time.Sleep(20 * time.Millisecond) {
			waits++
			if time.Now().After(deadline) {
				t.Fatal("it takes too long")
			}
		}
		if space, err = f.store.Space(); err != nil || space.Free < need || waits == 0 {
			t.Errorf("%d MiB are free, %d are needed; asked %d times; %v", space.Free>>20, need>>20, waits, err)
		}
	})
}

// A disk without free inodes is full, too.
func TestInodesOfSnapshots(t *testing.T) {
	testdisk.Small(t, func(t *testing.T, root string) {
		if !exports.HasClones(root) {
			t.Skip("the file system shares no blocks")
		}
		const files = 1200
		f := newFilling(t, root, func(_ *volume.Config, s *volume.Spec) {
			s.Size, s.BytesPerInode, s.Schedule = 100<<20, 16<<10, volume.Schedule{Hourly: 100}
		})
		space, err := f.store.Space()
		mustDo(t, err)
		if space.Inodes > 8*files {
			t.Fatalf("the disk has %d inodes", space.Inodes)
		}
		mounted, err := f.client.Mount(t.Context(), "/v")
		mustDo(t, err)
		create := func(name string) {
			t.Helper()
			for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
				made, err := f.client.Create(t.Context(), nfs3.CreateArgs{Where: nfs3.DirOpArgs{Dir: mounted.Handle, Name: []byte(name)}})
				mustDo(t, err)
				if made.Status == nfs3.OK {
					return
				}
				if made.Status != nfs3.ErrJukebox || time.Now().After(deadline) {
					space, _ := f.store.Space()
					t.Fatalf("%s: %v, with %d inodes free", name, made.Status, space.InodesFree)
				}
				f.waits++
			}
		}
		f.keep()
		for round := range 6 { // each has files of its own, which the snapshots keep
			for n := range files {
				create(fmt.Sprintf("%d-%d", round, n))
			}
			before, _ := f.newest()
			for deadline := time.Now().Add(3 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
				if _, err := f.store.SetSchedule(t.Context(), "v", volume.Schedule{Hourly: 100}); err != nil {
					t.Fatal(err)
				}
				if now, _ := f.newest(); now.After(before) { // while room is made, none is taken
					break
				}
			}
			for n := range files {
				res, err := f.client.Remove(t.Context(), mounted.Handle, fmt.Sprintf("%d-%d", round, n))
				if err != nil || res.Status != nfs3.OK {
					t.Fatal(res.Status, err)
				}
			}
		}
		if _, all := f.store.Given(0); all == 0 {
			t.Error("no snapshot was deleted for room")
		} else {
			t.Logf("%d snapshots were deleted for inodes, calls were put off %d times", all, f.waits)
		}
	})
}

// On a full disk no snapshot is taken, nothing is left of it, and writers go on with what needs no room.
func TestSnapshotOnAFullDisk(t *testing.T) {
	testdisk.XFS(t, func(t *testing.T, root string) {
		f := newFilling(t, root, func(*volume.Config, *volume.Spec) {})
		if status := f.write('a'); status != nfs3.OK {
			t.Fatal(status)
		}
		_, err := f.store.Create(t.Context(), volume.Spec{Name: "filled", Size: 1 << 20})
		mustDo(t, err)
		testdisk.Fill(t, filepath.Join(root, "filled"), false)
		// XFS gives back a little when it writes out what was full: then there may be room for one, until it is taken again.
		for tries := 0; ; tries++ {
			if _, err := f.store.CreateSnapshot(t.Context(), "v", "none"); err != nil {
				break
			} else if tries == 10 {
				t.Fatal("snapshots on a full disk")
			}
			mustDo(t, f.store.DeleteSnapshot(t.Context(), "v", "none"))
			time.Sleep(100 * time.Millisecond)
		}
		if _, names := f.newest(); len(names) != 0 {
			t.Errorf("there are %v", names)
		}
		if left, _ := filepath.Glob(filepath.Join(root, ".podnas/snapshots/*/*/*")); len(left) != 0 {
			t.Errorf("what is left: %v", left)
		}
		if status := f.write('b'); status != nfs3.OK {
			t.Errorf("a write to the file that has its room: %v", status)
		}
	})
}

// A volume that is as large as it may be: what its snapshot keeps is not of the volume, so one is taken, and what is written over what
// was there is written.
func TestSnapshotOfAFullVolume(t *testing.T) {
	testdisk.XFS(t, func(t *testing.T, root string) {
		f := newFilling(t, root, func(_ *volume.Config, s *volume.Spec) { s.Size = fileSize + 4<<20 })
		if status := f.write('a'); status != nfs3.OK {
			t.Fatal(status)
		}
		more := func() nfs3.Status {
			for at := uint64(fileSize); at < fileSize+8<<20; at += 256 << 10 {
				res, err := f.client.Write(t.Context(), f.file, at, nfs3.FileSync, make([]byte, 256<<10))
				mustDo(t, err)
				if res.Status != nfs3.OK {
					return res.Status
				}
			}
			return nfs3.OK
		}
		if status := more(); status == nfs3.OK {
			t.Fatal("there is more in the volume than it may have")
		}
		taken, err := f.store.CreateSnapshot(t.Context(), "v", "full")
		mustDo(t, err)
		if status := f.write('b'); status != nfs3.OK {
			t.Errorf("a write over what was there: %v", status)
		}
		if status := more(); status == nfs3.OK {
			t.Error("with a snapshot, there may be more in the volume")
		}
		if data, err := os.ReadFile(filepath.Join(root, taken.Directory(), "file")); err != nil || len(data) < fileSize || data[0] != 'a' || data[fileSize-1] != 'a' {
			t.Errorf("the snapshot has %d bytes, %v", len(data), err)
		}
	})
}

// What a snapshot may come to take is promised: it is refused where there is too little, and says what to do.
func TestPromiseOfSnapshots(t *testing.T) {
	testdisk.XFS(t, func(t *testing.T, root string) {
		f := newFilling(t, root, func(c *volume.Config, s *volume.Spec) { c.Overcommit, s.SnapshotReserve = 0.65, nil })
		if status := f.write('a'); status != nfs3.OK {
			t.Fatal(status)
		}
		before, err := f.store.Space()
		mustDo(t, err)
		taken, err := f.store.CreateSnapshot(t.Context(), "v", "first")
		mustDo(t, err)
		after, err := f.store.Space()
		mustDo(t, err)
		if taken.Reserve < fileSize || after.Promised != before.Promised+taken.Reserve {
			t.Errorf("promised %d, of all %d, and %d before", taken.Reserve, after.Promised, before.Promised)
		}
		_, err = f.store.CreateSnapshot(t.Context(), "v", "second")
		if err == nil || !strings.Contains(err.Error(), "podnas volume set v --snapshot-reserve 20%") || !strings.Contains(err.Error(), "overcommit 0.65") {
			t.Errorf("beyond what can be promised: %v", err)
		}
		if _, err := f.store.Create(t.Context(), volume.Spec{Name: "other", Size: 100 << 20}); err == nil {
			t.Error("a volume got what is promised for a snapshot")
		}
		_, err = f.store.SetSnapshotReserve(t.Context(), "v", 20)
		mustDo(t, err)
		second, err := f.store.CreateSnapshot(t.Context(), "v", "second")
		if err != nil || second.Reserve != second.Bytes/5 {
			t.Errorf("with a smaller promise: %+v, %v", second, err)
		}
		mustDo(t, f.store.DeleteSnapshot(t.Context(), "v", "first"))
		if space, err := f.store.Space(); err != nil || space.Promised != before.Promised+second.Reserve {
			t.Errorf("after a deletion: %+v, %v", space, err)
		}
	})
}
