package state_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/server/nfsv41/state"
)

// concurrency is what the goroutines of TestConcurrency share.
type concurrency struct {
	locking      sync.RWMutex
	holder       [4]atomic.Int64 // of each byte's lock
	locked, lost atomic.Int64
}

// Many clients at once do all that they can, while others are evicted and the clock
// runs. No two hold one byte locked for writing, and afterwards nothing is left.
func TestConcurrency(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	var passed atomic.Int64
	tracking := &fakeTracking{}
	var freed atomic.Int64
	s := state.New(state.Config{
		Lease: lease, Boot: 1, Tracking: tracking, FairFor: time.Millisecond,
		Now:      func() time.Time { return start.Add(time.Duration(passed.Load())) },
		LockFree: func(state.LockFree) { freed.Add(1) },
		Limits:   state.Limits{Opens: 20, Locks: 50},
	})
	w := &world{State: s, t: t}
	stop := make(chan struct{})
	var workers, others sync.WaitGroup
	// Who makes calls reads; the check waits until nobody does, as a client that goes is removed in steps.
	var calls sync.RWMutex
	run := &concurrency{}
	for i := range 6 {
		workers.Add(1)
		go func() {
			defer workers.Done()
			r := rand.New(rand.NewPCG(uint64(i), 1))
			for round := range 40 {
				calls.RLock()
				run.client(w, r, fmt.Sprint("node", i), uint64(round+1), int64(i+1))
				calls.RUnlock()
			}
		}()
	}
	others.Add(2)
	go func() {
		defer others.Done()
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
			passed.Add(int64(time.Second))
			s.Expire()
			if i%4 != 0 {
				continue
			}
			calls.Lock()
			err := s.Verify()
			calls.Unlock()
			if err != nil {
				t.Error(err)
				return
			}
		}
	}()
	go func() {
		defer others.Done()
		for {
			select {
			case <-stop:
				return
			case <-time.After(300 * time.Microsecond):
			}
			calls.RLock()
			snap := s.Snapshot(100)
			if len(snap.Clients) > 0 {
				run.locking.Lock()
				s.Evict(snap.Clients[rand.IntN(len(snap.Clients))].ID)
				run.locking.Unlock()
			}
			calls.RUnlock()
		}
	}()
	workers.Wait()
	close(stop)
	others.Wait()
	t.Logf("%d locks, %d told, %d clients lost their state", run.locked.Load(), freed.Load(), run.lost.Load())
	if run.locked.Load() == 0 {
		t.Error("nobody got a lock")
	}
	for _, c := range s.Snapshot(0).Clients {
		w.want(s.Evict(c.ID), nfs4.OK)
	}
	if n := s.Counts(); n != (state.Counts{}) || len(tracking.list) != 0 {
		t.Errorf("%+v is left, and the client tracking %v", n, tracking.list)
	}
}

// client is one incarnation of a client. It stops when it lost its state.
func (run *concurrency) client(w *world, r *rand.Rand, owner string, v uint64, self int64) {
	id, e := w.exchange(owner, v)
	if e != nfs4.OK {
		return
	}
	conn := newConn(owner)
	defer w.ConnClosed(conn)
	ses, e := w.CreateSession(state.CreateSessionArgs{
		ClientID: id.ClientID, Seq: id.Seq, Principal: root, Fore: channel, Back: channel, BackChannel: true, Conn: conn,
	})
	if e != nfs4.OK {
		return
	}
	seq := uint32(0)
	// call sends a COMPOUND; it reports whether the session is still there.
	call := func(do func(c *state.Client)) bool {
		seq++
		got, e := w.Sequence(state.SequenceArgs{Session: ses.ID, Seq: seq, Ops: 3, Size: 100, Conn: conn})
		if e == nfs4.ErrDelay { // it is being evicted
			return false
		}
		if e != nfs4.OK {
			run.lost.Add(1)
			return false
		}
		do(got.Slot.Client())
		got.Slot.Done([]byte("reply"), r.IntN(2) == 0)
		return true
	}
	if !call(func(c *state.Client) { w.ReclaimComplete(c, false) }) {
		return
	}
	for range 30 {
		f, offset := file1(r.IntN(2)), r.IntN(4)
		done := call(func(c *state.Client) {
			args := state.OpenArgs{Owner: []byte{byte(r.IntN(3))}, File: f, Access: state.Both, Descriptor: newHeld(w.t)}
			var reserved state.Reservation
			if r.IntN(2) == 0 && w.Reserve(c, args, &reserved) == nfs4.OK {
				defer w.Unreserve(&reserved)
				args.Reserved = &reserved
			}
			open, _, e := w.Open(c, args)
			if e != nfs4.OK {
				return
			}
			if held, e := w.Check(c, open, f, state.Write); e == nfs4.OK {
				held.Release()
			}
			checked := f == file1(0)
			if checked {
				// Nobody is evicted between LOCK and LOCKU, so no other can have the byte.
				run.locking.RLock()
				defer run.locking.RUnlock()
			}
			lock, _, e := w.Lock(c, state.LockArgs{
				Stateid: nfs4.Stateid{Other: open.Other}, NewOwner: true, Owner: []byte{byte(r.IntN(2))}, File: f,
				Write: true, Wait: true, Offset: uint64(offset), Length: 1,
			})
			if e != nfs4.OK {
				return
			}
			if checked {
				run.locked.Add(1)
				if !run.holder[offset].CompareAndSwap(0, self) {
					w.t.Errorf("byte %d is locked by two", offset)
				}
				run.holder[offset].CompareAndSwap(self, 0)
			}
			_, _ = w.Unlock(c, nfs4.Stateid{Other: lock.Other}, f, 0, toEOF)
			if r.IntN(2) == 0 {
				w.Close(c, nfs4.Stateid{Other: open.Other}, f)
			}
		})
		if !done {
			return
		}
	}
}
