//go:build attack

package attack_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/test/conformance/nfstest"
	"github.com/podnas/podnas/test/testdisk"
)

var killAttacks = []attack{
	{
		name:  "killed under load",
		does:  "6 connections write, cut, link, rename and remove at random in a volume that is nearly full; the server is killed in the middle of it and started again, twice",
		holds: "what the server says is used is what is on the disk; nothing that was synced is lost; handles stay",
		on:    func(s setup) bool { return s.engine == "native" },
		also:  kinds{xfs, race},
		run: func(a *assault) {
			a.volume("prey", "64Mi")
			_, root := a.client("prey")
			k := &killed{assault: a, synced: map[string][]byte{}}
			rounds := 3 * a.factor
			for round := range rounds {
				var wg sync.WaitGroup
				stop := make(chan struct{})
				for i := range 6 {
					rng := rand.New(rand.NewPCG(a.rng.Uint64(), 2))
					wg.Go(func() { k.load(i, rng, root, stop) })
				}
				time.Sleep(a.window / 2)
				if round == 1 { // without a kill, for once
					close(stop)
					wg.Wait()
					k.settled("after the load", root, false)
					continue
				}
				a.server.kill()
				close(stop)
				wg.Wait()
				a.server.serve()
				k.settled("after a kill", root, round == rounds-1)
			}
			lost := 0
			for name, want := range k.synced {
				got, err := os.ReadFile(a.path("prey", name))
				if err != nil || !bytes.Equal(got, want) {
					lost++
					a.Errorf("%s was synced with %d bytes, and holds %d (%v)", name, len(want), len(got), err)
				}
			}
			a.note("%d calls, %d files synced, %d lost, off by %v at most", k.calls.Load(), len(k.synced), lost, mib(k.drift))
		},
	},
}

// A file that was written is looked at once more some 45 seconds after the last use. XFS
// has taken back by then, when it has written the file, what it had allocated between two
// writes.
const (
	lookedAgain = 90 * time.Second
	// driftMax is how far from the truth a count may be after that, for what is taken
	// back between two looks; driftSoon is before, on XFS.
	driftMax  = 64 << 10
	driftSoon = 4 << 20
	// takenBack is when XFS is told to take it back: by itself it may keep that of a file that was cut, or
	// closed while it was being written, for 5 minutes. Most of it, which is past the end, is not counted.
	takenBack = 10 * time.Second
)

// killed is the load and what it has been promised.
type killed struct {
	*assault
	calls atomic.Int64
	drift int64

	mu     sync.Mutex
	synced map[string][]byte
}

// load does random things until stop is closed or the server is gone.
func (k *killed) load(i int, rng *rand.Rand, root nfs3.FH, stop chan struct{}) {
	c, _, err := mountFrom(k.ctx, mallory(i), "prey")
	if err != nil {
		return
	}
	defer c.Close()
	file := func() string { return fmt.Sprintf("f-%d-%d", i, rng.IntN(20)) }
	for n := 0; ; n++ {
		select {
		case <-stop:
			return
		default:
		}
		k.calls.Add(1)
		var err error
		switch name := file(); rng.IntN(7) {
		case 0, 1, 2:
			var res nfs3.CreateRes
			if res, err = c.Create(k.ctx, nfs3.CreateArgs{Where: where(root, name), Attr: mode(0o666)}); err == nil && res.Status == nfs3.OK {
				data := pattern(n, 1+rng.IntN(256<<10))
				_, err = c.Write(k.ctx, res.Object, rng.Uint64N(1<<20), nfs3.StableHow(rng.IntN(3)), data)
			}
		case 3:
			var res nfs3.LookupRes
			if res, err = c.Lookup(k.ctx, root, name); err == nil && res.Status == nfs3.OK {
				_, err = c.Setattr(k.ctx, nfs3.SetattrArgs{Object: res.Object, Attr: size(rng.Uint64N(2 << 20))})
				_, _ = c.Link(k.ctx, res.Object, root, file())
			}
		case 4:
			_, err = c.Rename(k.ctx, root, name, root, file())
		case 5:
			_, err = c.Remove(k.ctx, root, name)
		case 6:
			err = k.promise(c, root, fmt.Sprintf("synced-%d-%d-%d", i, n, rng.Uint32()), pattern(n, 1+rng.IntN(8<<10)))
		}
		if err != nil {
			return
		}
	}
}

// promise has a file written and synced, and notes it once the server has said so.
func (k *killed) promise(c *nfstest.Client, root nfs3.FH, name string, data []byte) error {
	made, err := c.Create(k.ctx, nfs3.CreateArgs{Where: where(root, name), Attr: mode(0o666)})
	if err != nil || made.Status != nfs3.OK {
		return err
	}
	res, err := c.Write(k.ctx, made.Object, 0, nfs3.FileSync, data)
	if err == nil && res.Status == nfs3.OK && int(res.Count) == len(data) {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.synced[name] = data
	}
	return err
}

// settled compares what the server says is used with what is on the disk. At the end it
// waits until both stand still.
func (k *killed) settled(when string, root nfs3.FH, end bool) {
	k.Helper()
	c, again := k.client("prey")
	if !bytes.Equal(root, again) {
		k.Errorf("%s the volume's root has another handle", when)
	}
	var said, has int64
	most, limit := int64(driftMax), 20*time.Second
	switch {
	case end:
		limit = lookedAgain
	case k.fs == "xfs":
		most = driftSoon
	}
	began, taken := time.Now(), false
	for ; time.Since(began) < limit; time.Sleep(100 * time.Millisecond) {
		if end && k.fs == "xfs" && !taken && time.Since(began) > takenBack {
			testdisk.TakeBack(k, k.path("prey"))
			taken = true
		}
		unix.Sync()
		res, err := c.Fsstat(k.ctx, root)
		ok(k, "FSSTAT", res.Status, err)
		said = int64(res.TBytes - res.FBytes)
		var inodes int64
		has, inodes = holds(k, k.path("prey"))
		has += inodes * inodePrice[k.fs]
		if max(said-has, has-said) < most {
			break
		}
	}
	off := max(said-has, has-said)
	k.drift = max(k.drift, off)
	if off >= most {
		k.Errorf("%s the server says that %v are used, and the disk has %v", when, mib(said), mib(has))
	}
	if has > 64<<20+spaceSlack {
		k.Errorf("%s a volume of 64 MiB has %v", when, mib(has))
	}
}
