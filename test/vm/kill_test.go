//go:build vm

package vm_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestKillUnderLoad kills podnas ten times, at random moments, under clients that
// write, sync, make, rename and remove: they go on and meet no error, and all
// that was acknowledged is there.
func TestKillUnderLoad(t *testing.T) {
	nativeOnly(t, "TestRestart kills it under a writer")
	a := serve(t)
	pv := a.volume("killed", "512Mi")
	mnt := mount(t, pv)
	log, other := startLog(t, filepath.Join(mnt, "log")), startLog(t, filepath.Join(mnt, "other"))
	names := startChurn(t, filepath.Join(mnt, "names"))
	for range 10 {
		log.grows(t, 1+rand.Int64N(40))
		names.grows(t, 1+rand.IntN(10))
		a.prepare()
		acked := log.acked.Load()
		a.kill()
		checkLog(t, filepath.Join(a.dir(pv), "log"), acked)
		a.start()
	}
	log.grows(t, 1)
	if err := names.end(t); err != nil {
		t.Error(err)
	}
	lengths := map[string]int64{"log": log.stop(t), "other": other.stop(t)}
	dropCaches(t)
	for _, at := range []string{mnt, a.dir(pv)} {
		for name, n := range lengths {
			checkLog(t, filepath.Join(at, name), n)
		}
		check(t, filepath.Join(at, "names"), names.expect())
	}
	t.Logf("%d and %d records, %d steps with names", lengths["log"], lengths["other"], names.steps)
}

// TestPowerCutNames: names that were made, renamed or removed before the disk
// lost all that had not reached it are so afterwards.
func TestPowerCutNames(t *testing.T) {
	nativeOnly(t, "it does not sync names")
	root, dev := loopXFS(t, "prjquota")
	a := newAppliance(t, settings{root: root})
	a.start()
	pv := a.volume("names", "64Mi")
	mnt := mount(t, pv)
	for round := range 3 {
		var churns []*churn
		for i := range 3 {
			churns = append(churns, startChurn(t, filepath.Join(mnt, fmt.Sprintf("%d-%d", round, i))))
		}
		for _, c := range churns {
			c.grows(t, 60+rand.IntN(50))
		}
		a.prepare()
		cutPower(t, root)
		// What is acknowledged from here on was on the disk before the cut.
		a.kill()
		var want []map[string]bool
		for _, c := range churns {
			want = append(want, c.expect())
		}
		if err := unix.Unmount(root, 0); err != nil {
			t.Fatal(err)
		}
		mountDisk(t, dev, root, "xfs", "prjquota")
		for i, c := range churns {
			check(t, filepath.Join(a.dir(pv), filepath.Base(c.dir)), want[i])
		}
		a.start()
		for _, c := range churns {
			// It may have met the dead disk before podnas was killed.
			if err := c.end(t); err != nil && !errors.Is(err, unix.EIO) {
				t.Error(err)
			}
		}
	}
}
