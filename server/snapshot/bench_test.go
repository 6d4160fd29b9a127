package snapshot_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/server/snapshot"
)

// BenchmarkTake takes two snapshots of a volume with FILES files in the folder DISK, which is on an XFS or btrfs, while four
// writers write 4 KiB to files that they draw. It reports how long a snapshot takes, and how long a write does, beside it and
// alone.
//
//	FILES=100000 DISK=/mnt go test -run '^$' -bench Take -benchtime 1x ./server/snapshot
func BenchmarkTake(b *testing.B) {
	on := os.Getenv("DISK")
	if on == "" {
		b.Skip("DISK names no folder on an XFS or btrfs")
	}
	files, _ := strconv.Atoi(os.Getenv("FILES"))
	files = max(files, 1000)
	dir, err := os.MkdirTemp(on, "bench")
	mustDo(b, err)
	defer os.RemoveAll(dir)
	v := newVolume(b, dir)
	var ids []disk.FileID
	var in disk.FileID
	for n := range files {
		if n%1000 == 0 {
			in, err = v.mkdir(*v.Files.RootID(), fmt.Sprint("d", n/1000))
			mustDo(b, err)
		}
		id, err := v.create(in, fmt.Sprint("f", n))
		mustDo(b, err)
		mustDo(b, v.write(id, "content", 0))
		ids = append(ids, id)
	}
	alone := v.writeDuring(b, ids, func() { time.Sleep(2 * time.Second) })
	report(b, "alone", alone)
	for _, which := range []string{"first", "second"} {
		var p snapshot.Progress
		var tree string
		began := time.Now()
		beside := v.writeDuring(b, ids, func() {
			tree, err = v.take(&p)
			mustDo(b, err)
		})
		b.ReportMetric(time.Since(began).Seconds(), which+"-s")
		report(b, which, beside)
		mustDo(b, os.Rename(tree, filepath.Join(dir, which)))
	}
}

// writeDuring returns how long the writes took that four writers made during something, sorted.
func (v *volume) writeDuring(b *testing.B, ids []disk.FileID, something func()) (took []time.Duration) {
	b.Helper()
	stop := make(chan struct{})
	var all sync.WaitGroup
	var mu sync.Mutex
	for range 4 {
		all.Go(func() {
			var mine []time.Duration
			data := make([]byte, 4096)
			for {
				select {
				case <-stop:
					mu.Lock()
					took = append(took, mine...)
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
				mine = append(mine, time.Since(began))
				f.Close()
				time.Sleep(time.Millisecond)
			}
		})
	}
	something()
	close(stop)
	all.Wait()
	slices.Sort(took)
	return took
}

func report(b *testing.B, what string, took []time.Duration) {
	b.Helper()
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	b.ReportMetric(ms(took[len(took)/2]), what+"-write-p50-ms")
	b.ReportMetric(ms(took[len(took)*99/100]), what+"-write-p99-ms")
	b.ReportMetric(ms(took[len(took)-1]), what+"-write-longest-ms")
}
