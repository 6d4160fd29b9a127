package state

import (
	"testing"
	"time"
)

// While a client is taken off the client tracking it goes itself, by another way. It is removed once, and
// what came in its place stays.
func TestEvictedGoesMeanwhile(t *testing.T) {
	for name, goes := range map[string]func(w *world){
		"it comes again": func(w *world) {
			_, e := w.exchange("a", 3)
			w.want(e, OK)
		},
		"its time is over": func(w *world) {
			w.pass(lease + time.Second)
			w.Expire()
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, Limits{})
			w.ready("a", 1).mustOpen("x", 1)
			w.ready("b", 1).mustOpen("x", 1)
			w.crash()
			id, e := w.exchange("a", 2) // it has not come so far as to reclaim
			w.want(e, OK)
			w.events = nil
			once := true
			w.tracking.before = func(bool, TrackedClient) {
				if once {
					once = false
					goes(w)
				}
			}
			if e := w.Evict(id.ClientID); e != OK && e != ErrDelay {
				t.Errorf("evict: %v", e)
			}
			w.ok()
			if w.saw(ClientEvicted) > 1 {
				t.Errorf("events %+v", w.events)
			}
			// What it could have reclaimed is no longer on the disk.
			a := w.join("a", 3)
			_, _, e = w.Open(a.c, OpenArgs{Owner: []byte("x"), File: file1(1), Access: Both, Reclaim: true})
			w.want(e, ErrNoGrace)
			w.ok()
		})
	}
}
