package heartbeat_test

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/podnas/podnas/internal/heartbeat"
	"github.com/podnas/podnas/internal/statedir"
)

// BenchmarkBusyDisk measures how long beats take in the folder DISK, while WRITERS goroutines create, write, sync,
// rename and remove files there, and STREAMS others write files of 1 GiB, without syncs. A beat is made every 20 ms, for
// more of them.
//
//	DISK=/mnt WRITERS=64 STREAMS=2 go test -run '^$' -bench BusyDisk -benchtime 1x -timeout 1h ./internal/heartbeat
func BenchmarkBusyDisk(b *testing.B) {
	on := os.Getenv("DISK")
	if on == "" {
		b.Skip("DISK names no folder")
	}
	dir, err := os.MkdirTemp(on, "busy")
	mustDo(b, err)
	defer os.RemoveAll(dir)
	state, err := statedir.Open(filepath.Join(dir, "state"), nil, slog.New(slog.DiscardHandler))
	mustDo(b, err)
	stop := make(chan struct{})
	var working sync.WaitGroup
	writers, _ := strconv.Atoi(os.Getenv("WRITERS"))
	for i := range writers {
		working.Go(func() { churn(b, filepath.Join(dir, fmt.Sprint("w", i)), stop) })
	}
	streams, _ := strconv.Atoi(os.Getenv("STREAMS"))
	for i := range streams {
		working.Go(func() { stream(b, filepath.Join(dir, fmt.Sprint("s", i)), stop) })
	}
	minutes := 1
	if m, err := strconv.Atoi(os.Getenv("MINUTES")); err == nil {
		minutes = m
	}
	var took []time.Duration
	for end := time.Now().Add(time.Duration(minutes) * time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		began := time.Now()
		mustDo(b, heartbeat.Overwrite(state, make([]byte, 4096)))
		took = append(took, time.Since(began))
	}
	close(stop)
	working.Wait()
	mustDo(b, state.Close())
	slices.Sort(took)
	for _, q := range []struct {
		name string
		of   float64
	}{{"p50-ms", 0.5}, {"p99-ms", 0.99}, {"p99.9-ms", 0.999}, {"max-ms", 1}} {
		at := min(int(q.of*float64(len(took))), len(took)-1)
		b.ReportMetric(float64(took[at].Microseconds())/1000, q.name)
	}
	b.ReportMetric(float64(len(took)), "beats")
}

// churn makes files and changes them, in a folder of its own.
func churn(b *testing.B, dir string, stop <-chan struct{}) {
	mustDo(b, os.Mkdir(dir, 0o755))
	data := make([]byte, 64<<10)
	for n := 0; ; n++ {
		select {
		case <-stop:
			return
		default:
		}
		name := filepath.Join(dir, fmt.Sprint(n%100))
		f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o644)
		mustDo(b, err)
		_, err = f.WriteAt(data[:1+rand.IntN(len(data))], rand.Int64N(1<<20))
		mustDo(b, err)
		mustDo(b, f.Sync())
		mustDo(b, f.Close())
		switch n % 3 {
		case 0:
			mustDo(b, os.Rename(name, filepath.Join(dir, fmt.Sprint((n+50)%100))))
		case 1:
			mustDo(b, os.Remove(name))
		}
	}
}

// stream writes a large file again and again, as fast as it can.
func stream(b *testing.B, name string, stop <-chan struct{}) {
	f, err := os.Create(name)
	mustDo(b, err)
	defer f.Close()
	data := make([]byte, 1<<20)
	for n := int64(0); ; n++ {
		select {
		case <-stop:
			return
		default:
		}
		if n%1024 == 0 {
			mustDo(b, f.Truncate(0))
		}
		_, err := f.WriteAt(data, n%1024<<20)
		mustDo(b, err)
	}
}

// BenchmarkPasses is what the check costs a reply.
func BenchmarkPasses(b *testing.B) {
	h := open(b, b.TempDir(), heartbeat.Config{Every: every, Hold: long, Close: long})
	b.ReportAllocs()
	for b.Loop() {
		if !h.Passes() {
			b.Fatal("held")
		}
	}
}
