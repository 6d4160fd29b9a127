package snapshot_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/server/locate"
	"github.com/podnas/podnas/server/snapshot"
	"github.com/podnas/podnas/test/testdisk"
)

// newVolumes makes volumes of one process.
func newVolumes(t testing.TB, disk string, count int) (all []*volume) {
	t.Helper()
	table := &exports.Table{ByIndex: testdisk.ByIndex()}
	o := inode.NewOpener(table, locate.NewKey(make([]byte, 32)), slog.New(slog.DiscardHandler))
	t.Cleanup(o.Close)
	for i := range count {
		name := fmt.Sprint("v", i)
		dir, work := filepath.Join(disk, name), filepath.Join(disk, "work of "+name)
		for _, d := range []string{dir, work} {
			mustDo(t, os.Mkdir(d, 0o755))
		}
		mustDo(t, os.WriteFile(filepath.Join(dir, "f"), []byte("content"), 0o644))
		id := uint64(i + 1)
		mustDo(t, table.Export(exports.Exported{ID: id, Path: "/" + name, Dir: dir}))
		t.Cleanup(func() { table.Remove(id) })
		v, _ := table.ByID(id)
		all = append(all, &volume{Volume: v, opener: o, dir: dir, work: work})
	}
	return all
}

// logForces returns how often an XFS has written its log because somebody waits for it, as a sync of the disk does once.
func logForces(t *testing.T, disk string) (n int) {
	t.Helper()
	var st unix.Stat_t
	mustDo(t, unix.Stat(disk, &st))
	device, err := os.Readlink(fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev)))
	mustDo(t, err)
	stats, err := os.ReadFile(filepath.Join("/sys/fs/xfs", filepath.Base(device), "stats/stats"))
	mustDo(t, err)
	_, line, _ := strings.Cut(string(stats), "\nlog ") // writes, blocks, noiclogs, force: fs/xfs/xfs_stats.c
	_, err = fmt.Sscan(line, new(int), new(int), new(int), &n)
	mustDo(t, err)
	return n
}

// In a round of schedules, each snapshot syncs the disk once: the next one needs no sync before it.
func TestRoundOfSnapshots(t *testing.T) {
	t.Parallel()
	on := testdisk.OneXFS(t)
	const count = 20
	volumes := newVolumes(t, on, count)
	before := logForces(t, on)
	for _, v := range volumes {
		_, err := v.take(new(snapshot.Progress))
		mustDo(t, err)
	}
	if n := logForces(t, on) - before; n < count || n > 3*count/2 {
		t.Errorf("%d snapshots have synced the disk %d times", count, n)
	}
}

// BenchmarkRound takes a snapshot of each of VOLUMES small volumes in the folder DISK, which is on an XFS or btrfs, one after
// the other, beside a writer of another volume, and when the disk is idle.
//
//	VOLUMES=50 DISK=/mnt go test -run '^$' -bench Round -benchtime 1x ./server/snapshot
func BenchmarkRound(b *testing.B) {
	on := os.Getenv("DISK")
	if on == "" {
		b.Skip("DISK names no folder on an XFS or btrfs")
	}
	count := 50
	_, _ = fmt.Sscan(os.Getenv("VOLUMES"), &count)
	dir, err := os.MkdirTemp(on, "bench")
	mustDo(b, err)
	defer os.RemoveAll(dir)
	volumes := newVolumes(b, dir, count)
	round := func(what string) {
		began := time.Now()
		for _, v := range volumes {
			_, err := v.take(new(snapshot.Progress))
			mustDo(b, err)
		}
		b.ReportMetric(float64(time.Since(began).Milliseconds())/float64(count), what+"-ms/snapshot")
	}
	round("idle")
	var writer sync.WaitGroup
	end := make(chan struct{})
	writer.Go(func() { writeUntil(b, filepath.Join(dir, "other"), end) })
	time.Sleep(3 * time.Second)
	round("beside-a-writer")
	close(end)
	writer.Wait()
}

// writeUntil writes to a file of 200 MiB until end is closed.
func writeUntil(b *testing.B, name string, end <-chan struct{}) {
	f, err := os.Create(name)
	if err != nil {
		b.Error(err)
		return
	}
	defer f.Close()
	data := make([]byte, 1<<20)
	for i := 0; ; i++ {
		select {
		case <-end:
			return
		default:
		}
		if _, err := f.WriteAt(data, int64(i%200)<<20); err != nil {
			b.Error(err)
			return
		}
	}
}
