package snapshot_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/server/snapshot"
	"github.com/podnas/podnas/test/testdisk"
)

// atOnce has n clients make changes, without a pause between, while a snapshot is taken.
func (v *volume) atOnce(t *testing.T, n int, change func(client int, r *rand.Rand)) *snapshot.Progress {
	t.Helper()
	var stop atomic.Bool
	var running sync.WaitGroup
	for i := range n {
		running.Go(func() {
			for r := rand.New(rand.NewPCG(1, uint64(i))); !stop.Load(); {
				change(i, r)
			}
		})
	}
	time.Sleep(300 * time.Millisecond) // until all are at it
	p := &snapshot.Progress{}
	_, err := v.take(p)
	stop.Store(true)
	running.Wait()
	mustDo(t, err)
	return p
}

// The kernel holds each write of several clients for up to 200 ms when they write more than the disk takes. There is a cut all the
// same, and it is told how long it has held all changes.
func TestCutUnderSlowChanges(t *testing.T) {
	v := newVolume(t, testdisk.OneXFS(t))
	p := v.atOnce(t, 8, func(_ int, r *rand.Rand) {
		part, err := v.Snapshots.Enter(v.Files.RootID())
		if err != nil {
			t.Error(err)
		}
		time.Sleep(time.Duration(100+r.IntN(100)) * time.Millisecond)
		v.Snapshots.Leave(part)
	})
	if paused := time.Duration(p.Paused.Load()); paused < 50*time.Millisecond {
		t.Errorf("the pause was %v", paused)
	}
}

// Changes that take longer than any pause, so that one of them is always under way, wait for a cut before they begin, and others
// go on meanwhile.
func TestCutBetweenLongChanges(t *testing.T) {
	v := newVolume(t, testdisk.OneXFS(t))
	const long = 3 * time.Second
	var changes, longest atomic.Int64
	change := func(takes time.Duration) {
		began := time.Now()
		part, err := v.Snapshots.Enter(v.Files.RootID())
		if err != nil {
			t.Error(err)
		}
		if takes > 0 {
			time.Sleep(takes)
		} else {
			longest.Store(max(longest.Load(), int64(time.Since(began))))
			changes.Add(1)
		}
		v.Snapshots.Leave(part)
	}
	p := v.atOnce(t, 3, func(client int, r *rand.Rand) {
		if client == 0 {
			change(0)
			time.Sleep(time.Millisecond)
			return
		}
		part := v.Snapshots.EnterLong(v.Files.RootID())
		defer v.Snapshots.LeaveLong(part)
		change(time.Duration(float64(long) * (0.5 + r.Float64())))
	})
	if paused := time.Duration(p.Paused.Load()); paused >= long/2 {
		t.Errorf("the pause was %v", paused)
	}
	if wait := time.Duration(longest.Load()); wait >= long/2 || changes.Load() < 100 {
		t.Errorf("of %d other changes one waited %v", changes.Load(), wait)
	}
}

// What a call has just made at the cut is in the snapshot.
func TestMadeAtTheCut(t *testing.T) {
	v := newVolume(t, testdisk.OneXFS(t))
	root := *v.Files.RootID()
	var stop atomic.Bool
	var running sync.WaitGroup
	running.Go(func() {
		for !stop.Load() {
			err := v.changeNames(root, root, func(in, _ *inode.File) error {
				f, err := in.Mknod(actas.AsProcess(), "f", inode.TypeFIFO, 0o600, 0, 0)
				if err != nil {
					return err
				}
				f.Close()
				return in.Remove(actas.AsProcess(), "f")
			})
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	for range testdisk.Rounds(300, 2000) {
		tree, err := v.take(new(snapshot.Progress))
		if err != nil {
			t.Error(err)
			break
		}
		v.last = nil
		mustDo(t, os.RemoveAll(filepath.Dir(tree)))
	}
	stop.Store(true)
	running.Wait()
}
