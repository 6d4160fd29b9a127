package state_test

import (
	"testing"
	"time"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/server/nfsv41/state"
)

// What a client held that is gone is left to Config.Abandoned, whoever has dismissed it. What a client gives back itself,
// and what is of a volume that has ended, is released by the call.
func TestAbandoned(t *testing.T) {
	for name, tt := range map[string]struct {
		do        func(w *world, a, b *node, id nfs4.Stateid)
		abandoned bool
		deny      state.Access
	}{
		"evicted": {func(w *world, a, _ *node, _ nfs4.Stateid) { w.want(w.Evict(a.c.ID()), nfs4.OK) }, true, 0},
		"another opens": {func(w *world, _, b *node, _ nfs4.Stateid) {
			w.pass(lease + 1)
			_, e := b.renew()
			w.want(e, nfs4.OK)
			_, e = b.open("x", 1, state.Write, 0)
			w.want(e, nfs4.OK)
		}, true, state.Write},
		"another locks": {func(w *world, a, b *node, id nfs4.Stateid) {
			_, _, e := a.lock(id, "l", 1, true, 0, 1)
			w.want(e, nfs4.OK)
			own, e := b.open("x", 1, state.Read, 0)
			w.want(e, nfs4.OK)
			w.pass(lease + 1)
			_, e = b.renew()
			w.want(e, nfs4.OK)
			_, _, e = b.lock(own, "l", 1, false, 0, 1)
			w.want(e, nfs4.OK)
		}, true, 0},
		"it starts again": {func(w *world, _, _ *node, _ nfs4.Stateid) { w.ready("a", 2) }, true, 0},
		"it is silent for too long": {func(w *world, _, b *node, _ nfs4.Stateid) {
			w.pass(25 * time.Hour)
			_, e := b.renew()
			w.want(e, nfs4.OK)
			w.Expire()
		}, true, 0},
		"it closes":       {func(w *world, a, _ *node, id nfs4.Stateid) { w.want(w.Close(a.c, id, file1(1)), nfs4.OK) }, false, 0},
		"the volume ends": {func(w *world, _, _ *node, _ nfs4.Stateid) { w.ForgetVolume(file1(1).Volume) }, false, 0},
		"the server ends": {func(w *world, _, _ *node, _ nfs4.Stateid) { w.Stop() }, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, state.Limits{}).unlogged()
			var got []state.Abandoned
			config := w.config()
			config.Abandoned = func(more []state.Abandoned) { got = append(got, more...) }
			w.State = state.New(config)
			a, b := w.ready("a", 1), w.ready("b", 1)
			h := newHeld(t)
			id, _, e := w.Open(a.c, state.OpenArgs{Owner: []byte("x"), File: file1(1), Access: state.Both, Deny: tt.deny, Descriptor: h})
			w.want(e, nfs4.OK)
			tt.do(w, a, b, id)
			if name != "the server ends" {
				w.ok()
			}
			for _, a := range got {
				if a.Descriptor != h || a.Volume != file1(1).Volume || h.users.Load() < 1 {
					t.Errorf("got %+v, which has %d users", a, h.users.Load())
				}
				a.Release()
			}
			if (len(got) > 0) != tt.abandoned || h.users.Load() != 0 {
				t.Errorf("got %d, want some: %t; %d users are left", len(got), tt.abandoned, h.users.Load())
			}
		})
	}
}
