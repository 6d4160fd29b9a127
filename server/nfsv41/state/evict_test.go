package state_test

import (
	"testing"
	"time"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/server/nfsv41/state"
)

// While a client is taken off the client tracking it goes itself, by another way. It is removed once, and
// what came in its place stays.
func TestEvictedGoesMeanwhile(t *testing.T) {
	for name, goes := range map[string]func(w *world){
		"it comes again": func(w *world) {
			_, e := w.exchange("a", 3)
			w.want(e, nfs4.OK)
		},
		"its time is over": func(w *world) {
			w.pass(lease + time.Second)
			w.Expire()
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, state.Limits{})
			w.ready("a", 1).mustOpen("x", 1)
			w.ready("b", 1).mustOpen("x", 1)
			w.crash()
			id, e := w.exchange("a", 2) // it has not come so far as to reclaim
			w.want(e, nfs4.OK)
			w.events = nil
			once := true
			w.tracking.before = func(bool, state.TrackedClient) {
				if once {
					once = false
					goes(w)
				}
			}
			if e := w.Evict(id.ClientID); e != nfs4.OK && e != nfs4.ErrDelay {
				t.Errorf("evict: %v", e)
			}
			w.ok()
			if w.saw(state.ClientEvicted) > 1 {
				t.Errorf("events %+v", w.events)
			}
			// What it could have reclaimed is no longer on the disk.
			a := w.join("a", 3)
			_, _, e = w.Open(a.c, state.OpenArgs{Owner: []byte("x"), File: file1(1), Access: state.Both, Reclaim: true})
			w.want(e, nfs4.ErrNoGrace)
			w.ok()
		})
	}
}
