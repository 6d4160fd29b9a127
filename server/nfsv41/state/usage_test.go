package state_test

import (
	"fmt"
	"testing"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/server/nfsv41/state"
)

// A client that takes all it can leaves others something.
func TestRoomOfAll(t *testing.T) {
	w := newWorld(t, state.Limits{AllOpens: 16, AllLocks: 32, AllOwnerBytes: 4096})
	greedy, modest := w.ready("greedy", 1), w.ready("modest", 1)
	for i := range 100 { // who holds nothing has no share
		_, e := w.exchange(fmt.Sprint(i), 1)
		w.want(e, nfs4.OK)
		w.ready(fmt.Sprint("idle", i), 1)
	}
	opens, second := 0, nfs4.Stateid{}
	for ; ; opens++ {
		id, e := greedy.open("x", opens, state.Both, 0)
		w.ok()
		if e != nfs4.OK {
			w.want(e, nfs4.ErrNoSpc)
			break
		}
		if opens == 2 {
			second = id
		}
	}
	if opens != 12 {
		t.Errorf("%d opens of 16", opens)
	}
	id := modest.mustOpen("x", 1)
	modest.mustOpen("x", 2)
	_, e := modest.open("x", 3, state.Both, 0)
	w.want(e, nfs4.ErrNoSpc) // its half of the last quarter
	lock, _, e := modest.lock(id, "l", 1, true, 0, 1)
	w.want(e, nfs4.OK)
	locks := 0
	for ; ; locks++ {
		_, _, e = greedy.lock(second, "l", 2, true, uint64(2*locks+10), 1)
		w.ok()
		if e != nfs4.OK {
			w.want(e, nfs4.ErrServerFault)
			break
		}
	}
	if locks == 0 || locks > 24 {
		t.Errorf("%d locks of 32", locks)
	}
	_, _, e = w.Lock(modest.c, state.LockArgs{Stateid: lock, File: file1(1), Write: true, Offset: 2, Length: 1})
	w.want(e, nfs4.OK)
	w.ok()
}

// Many clients of one address, or of one network of IPv6, in which a machine can have any number, take no more than an eighth beyond
// what all may have: the rest is for other addresses.
func TestRoomByAddress(t *testing.T) {
	for name, from := range map[string]func(i int) string{
		"one address":     func(int) string { return "10.0.0.1:700" },
		"one /64 network": func(i int) string { return fmt.Sprintf("[fd00::%x]:700", i+1) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, state.Limits{AllOpens: 64})
			ready := func(address, owner string) *node {
				n := w.joinFrom(address, owner, 1)
				w.want(w.ReclaimComplete(n.c, false), nfs4.OK)
				return n
			}
			taken := 0
			for i := range 100 {
				if _, e := ready(from(i), fmt.Sprint("greedy", i)).open("x", i, state.Both, 0); e == nfs4.OK {
					taken++
				}
				w.ok()
			}
			if taken != 56 {
				t.Errorf("it has %d opens of 64", taken)
			}
			for i, address := range []string{"10.0.1.0:700", "[fd00:0:0:1::1]:700"} {
				n := ready(address, fmt.Sprint("modest", i))
				n.mustOpen("x", 1)
				n.mustOpen("x", 2)
				w.ok()
			}
		})
	}
}
