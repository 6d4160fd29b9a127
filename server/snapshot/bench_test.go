package snapshot_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/podnas/podnas/internal/tree"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/server/snapshot"
)

// BenchmarkTake takes two snapshots of a volume with FILES files in the folder DISK, which is on an XFS or btrfs, while four
// writers write 4 KiB to files that they draw, of a hundredth of all. It reports how long a snapshot takes, what it takes of the disk, how long a write takes
// beside it and alone, how long one that met the cut did, and how long one waited for the file to be captured. With DIRTY MiB, so much is written and not synced before each snapshot.
//
// Then both are deleted, as podnas does it in the background: the first one's files are those of the second, too, so their inodes go with that.
//
// With CP=1, cp(1) clones the files instead, twice, so that the writes tell what the file system makes of it.
//
//	FILES=100000 DISK=/mnt go test -run '^$' -bench Take -benchtime 1x -timeout 1h ./server/snapshot
func BenchmarkTake(b *testing.B) {
	on := os.Getenv("DISK")
	if on == "" {
		b.Skip("DISK names no folder on an XFS or btrfs")
	}
	files, _ := strconv.Atoi(os.Getenv("FILES"))
	files = max(files, 1000)
	dirty, _ := strconv.Atoi(os.Getenv("DIRTY"))
	dir, err := os.MkdirTemp(on, "bench")
	mustDo(b, err)
	defer os.RemoveAll(dir)
	v := newVolume(b, dir)
	var ids []disk.FileID
	for n := range files { // on the disk itself, which is faster
		in := filepath.Join(v.dir, fmt.Sprint("d", n/1000))
		if n%1000 == 0 {
			mustDo(b, os.Mkdir(in, 0o755))
		}
		mustDo(b, os.WriteFile(filepath.Join(in, fmt.Sprint("f", n)), []byte("content"), 0o644))
		if n%100 == 0 {
			ids = append(ids, v.lookup(b, fmt.Sprint("d", n/1000), fmt.Sprint("f", n)))
		}
	}
	big, err := v.create(*v.Files.RootID(), "big")
	mustDo(b, err)
	alone := v.writeDuring(b, ids, func() { time.Sleep(3 * time.Second) })
	report(b, "alone", alone)
	var trees []string
	for _, which := range []string{"first", "second"} {
		var p snapshot.Progress
		blocks, inodes := used(b, dir)
		for mib := range dirty {
			mustDo(b, v.write(big, strings.Repeat("x", 1<<20), int64(mib)<<20))
		}
		began := time.Now()
		beside := v.writeDuring(b, ids, func() {
			if os.Getenv("CP") != "" {
				mustDo(b, exec.Command("cp", "-a", "--reflink=always", v.dir, filepath.Join(v.work, which)).Run())
				return
			}
			_, err := v.take(&p)
			mustDo(b, err)
		})
		b.ReportMetric(time.Since(began).Seconds(), which+"-s")
		report(b, which, beside)
		if v.last == nil {
			continue
		}
		pause := time.Duration(0)
		for _, w := range beside {
			if cut := time.Unix(0, p.Cut.Load()); !w.began.After(cut) && w.began.Add(w.took).After(cut) {
				pause = max(pause, w.took)
			}
		}
		b.ReportMetric(float64(pause.Microseconds())/1000, which+"-pause-ms")
		b.ReportMetric(float64(p.Waited.Load())/1e6, which+"-captured-longest-ms")
		b.ReportMetric(float64(p.Linked.Load()), which+"-linked")
		nowBlocks, nowInodes := used(b, dir)
		b.ReportMetric(float64(nowBlocks-blocks)/(1<<20), which+"-MiB")
		b.ReportMetric(float64(nowInodes-inodes), which+"-inodes")
		info, err := os.Stat(v.last.Catalogue)
		mustDo(b, err)
		b.ReportMetric(float64(info.Size())/(1<<20), which+"-catalogue-MiB")
		trees = append(trees, v.last.Tree)
	}
	for i, which := range []string{"first", "second"}[:len(trees)] {
		top, err := os.Open(trees[i])
		mustDo(b, err)
		began := time.Now()
		beside := v.writeDuring(b, ids, func() {
			_, err := tree.Empty(b.Context(), top)
			mustDo(b, err)
		})
		top.Close()
		b.ReportMetric(time.Since(began).Seconds(), which+"-deleted-s")
		report(b, which+"-deleted", beside)
	}
}

// lookup finds a file by its path.
func (v *volume) lookup(b testing.TB, names ...string) disk.FileID {
	b.Helper()
	id := *v.Files.RootID()
	for _, name := range names {
		dir, err := v.opener.OpenIn(v.Volume, id, inode.UseAttr)
		mustDo(b, err)
		f, err := dir.Lookup([]byte(name))
		mustDo(b, err)
		id = f.ID
		f.Close()
		dir.Close()
	}
	return id
}

// used is what the disk has in use, in bytes and inodes.
func used(b *testing.B, dir string) (size, inodes int64) {
	b.Helper()
	syscall.Sync()
	var st syscall.Statfs_t
	mustDo(b, syscall.Statfs(dir, &st))
	return int64(st.Blocks-st.Bfree) * st.Bsize, int64(st.Files - st.Ffree)
}

// write is one write.
type write struct {
	began time.Time
	took  time.Duration
}

// writeDuring returns the writes that four writers made during something, the shortest first.
func (v *volume) writeDuring(b *testing.B, ids []disk.FileID, something func()) (all []write) {
	b.Helper()
	stop := make(chan struct{})
	var writers sync.WaitGroup
	var mu sync.Mutex
	for range 4 {
		writers.Go(func() {
			var mine []write
			data := make([]byte, 4096)
			for {
				select {
				case <-stop:
					mu.Lock()
					all = append(all, mine...)
					mu.Unlock()
					return
				default:
				}
				f, err := v.opener.OpenIn(v.Volume, ids[rand.IntN(len(ids))], inode.UseWrite)
				if err != nil {
					b.Error(err)
					return
				}
				began := time.Now()
				if _, _, err := f.WriteAt(data, 0); err != nil {
					b.Error(err)
				}
				mine = append(mine, write{began, time.Since(began)})
				f.Close()
				time.Sleep(time.Millisecond)
			}
		})
	}
	something()
	close(stop)
	writers.Wait()
	slices.SortFunc(all, func(a, b write) int { return cmp.Compare(a.took, b.took) })
	return all
}

func report(b *testing.B, what string, all []write) {
	b.Helper()
	ms := func(w write) float64 { return float64(w.took.Microseconds()) / 1000 }
	b.ReportMetric(ms(all[len(all)/2]), what+"-write-p50-ms")
	b.ReportMetric(ms(all[len(all)*99/100]), what+"-write-p99-ms")
	b.ReportMetric(ms(all[len(all)-1]), what+"-write-longest-ms")
}

// BenchmarkGate is what a change pays while no snapshot is taken, on one processor and on several.
//
//	go test -run '^$' -bench Gate -cpu 1,2 ./server/snapshot
func BenchmarkGate(b *testing.B) {
	var v snapshot.Volume
	var turn atomic.Int64
	b.RunParallel(func(p *testing.PB) {
		file := disk.NewFileID([]byte{byte(turn.Add(1))})
		for p.Next() {
			entered, err := v.Enter(&file)
			if err != nil {
				b.Error(err)
				return
			}
			v.Before(&file)
			v.Leave(entered)
		}
	})
}

// BenchmarkCut takes a snapshot of a few files in the folder DISK while WRITERS clients write 1 MiB at a time, to files of their
// own, and do not sync. It reports how long all changes waited for the cut at a time, how long it took until there was one, and
// the longest write, and the same without a snapshot. With a limit on a device, which is a loop device here, the kernel holds each write:
//
//	echo 1 > /sys/class/bdi/7:0/strict_limit; echo 33554432 > /sys/class/bdi/7:0/max_bytes
//	echo 7:0 5242880 > /sys/fs/cgroup/blkio/blkio.throttle.write_bps_device
//	WRITERS=8 DISK=/mnt go test -run '^$' -bench Cut -benchtime 3x ./server/snapshot
func BenchmarkCut(b *testing.B) {
	on := os.Getenv("DISK")
	if on == "" {
		b.Skip("DISK names no folder on an XFS or btrfs")
	}
	n, _ := strconv.Atoi(os.Getenv("WRITERS"))
	n = max(n, 1)
	dir, err := os.MkdirTemp(on, "bench")
	mustDo(b, err)
	defer os.RemoveAll(dir)
	v := newVolume(b, dir)
	var longest [2]atomic.Int64 // before, and while snapshots are taken
	var now, stop atomic.Int32
	var writers sync.WaitGroup
	for i := range n {
		id, err := v.create(*v.Files.RootID(), fmt.Sprint("f", i))
		mustDo(b, err)
		writers.Go(func() {
			for at := int64(0); stop.Load() == 0; at = (at + 1) % 64 {
				began := time.Now()
				if err := v.write(id, strings.Repeat("x", 1<<20), at<<20); err != nil {
					b.Error(err)
				}
				l := &longest[now.Load()]
				l.Store(max(l.Load(), int64(time.Since(began))))
			}
		})
	}
	time.Sleep(20 * time.Second)
	now.Store(1)
	var paused, until time.Duration
	for range b.N {
		var p snapshot.Progress
		began := time.Now()
		tree, err := v.take(&p)
		if err != nil {
			b.Error(err)
			break
		}
		paused = max(paused, time.Duration(p.Paused.Load()))
		until = max(until, time.Unix(0, p.Cut.Load()).Sub(began))
		v.last = nil
		mustDo(b, os.RemoveAll(filepath.Dir(tree)))
	}
	stop.Store(1)
	writers.Wait()
	b.ReportMetric(float64(paused.Microseconds())/1000, "pause-ms")
	b.ReportMetric(until.Seconds(), "until-s")
	b.ReportMetric(float64(longest[0].Load())/1e6, "alone-write-longest-ms")
	b.ReportMetric(float64(longest[1].Load())/1e6, "write-longest-ms")
}
