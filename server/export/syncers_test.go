package export

import (
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"
)

// After many syncs at a time some of their goroutines wait for the next, until the Opener is closed.
func TestSyncersWait(t *testing.T) {
	needNative(t)
	table, v, dir := volumeAt(t)
	o := NewOpener(table, NewKey(make([]byte, 32)), slog.New(slog.DiscardHandler))
	root, err := o.Root(v)
	mustDo(t, err)
	const calls = 2 * syncersKept
	all, release := sync.WaitGroup{}, make(chan struct{})
	all.Add(calls)
	var ended sync.WaitGroup
	var files []*File
	for i := range calls {
		name := strconv.Itoa(i)
		mustDo(t, os.WriteFile(filepath.Join(dir, name), nil, 0o644))
		f, err := o.Open(netip.Addr{}, handleOf(t, o, root, name), UseWrite)
		mustDo(t, err)
		files = append(files, f)
		ended.Add(1)
		f.SyncThen(false, waiterFunc(func(err error) {
			mustBeNil(t, err)
			all.Done()
			<-release
			ended.Done()
		}))
	}
	all.Wait()
	if n := o.syncersIdle.Load(); n != 0 {
		t.Errorf("%d goroutines wait while all sync", n)
	}
	close(release)
	ended.Wait()
	waiting := func(want int32) {
		t.Helper()
		for range 200 {
			if o.syncersIdle.Load() == want {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Errorf("%d goroutines wait, want %d", o.syncersIdle.Load(), want)
	}
	waiting(syncersKept)
	for _, f := range files {
		f.Close()
	}
	o.Close()
	waiting(0)
}
