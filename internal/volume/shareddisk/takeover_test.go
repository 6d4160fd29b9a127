package shareddisk

import (
	"testing"
	"testing/synctest"
	"time"
)

// active returns the machine whose podnas is active, nil if there is none.
func (w *world) active() *node {
	for _, n := range w.nodes {
		if n.p.isActive() {
			return n
		}
	}
	return nil
}

// TestTakeovers has two machines, with what happens to the active one or to the storage, and wants the other to take the
// disk over within a time, or not at all.
func TestTakeovers(t *testing.T) {
	for _, tt := range []struct {
		name   string
		do     func(w *world, active, standby *node)
		within time.Duration // 0: never
	}{
		{"nothing", func(*world, *node, *node) {}, 0},
		{"the machine dies", func(_ *world, active, _ *node) { active.reset() }, 8 * time.Second},
		{"podnas ends", func(_ *world, active, _ *node) { close(active.p.clean) }, time.Second},
		{"podnas is stopped", func(_ *world, active, _ *node) { active.stop() }, 8 * time.Second},
		{"podnas is stopped for a moment", func(_ *world, active, _ *node) {
			active.stop()
			time.Sleep(5 * time.Second)
			active.cont()
		}, 0},
		{"the active one is cut off", func(w *world, active, _ *node) { w.cut(active, true) }, 8 * time.Second},
		{"the standby is cut off", func(w *world, _, standby *node) {
			w.cut(standby, true)
			time.Sleep(20 * time.Second)
			w.cut(standby, false)
		}, 0},
		{"the standby is stopped", func(_ *world, _, standby *node) {
			standby.stop()
			time.Sleep(20 * time.Second)
			standby.cont()
		}, 0},
		{"the storage is away", func(w *world, _, _ *node) {
			w.away(true)
			time.Sleep(20 * time.Second)
			w.away(false)
		}, 0},
		{"the storage hangs, and goes on for the standby first", func(w *world, active, standby *node) {
			goOn := []func(){w.hang(active), w.hang(standby)}
			time.Sleep(20 * time.Second)
			goOn[1]()
			time.Sleep(3 * time.Second)
			goOn[0]()
		}, 0},
		{"the storage restarts", func(w *world, _, _ *node) { w.disk.restart(true) }, 0},
		{"the active one is silent elsewhere", func(_ *world, _, standby *node) { standby.setSilent(quiet) }, time.Second},
		{"the active one is silent elsewhere, but not for long", func(_ *world, _, standby *node) { standby.setSilent(quiet - 1) }, 0},
		{"podnas is killed, and the one before it is silent elsewhere", func(_ *world, active, standby *node) {
			active.p.die(0)
			<-active.p.ended
			active.start()
			time.Sleep(200 * time.Millisecond)
			standby.setSilent(quiet)
			time.Sleep(5 * time.Second)
			standby.setSilent(0)
		}, 0},
		{"podnas is killed, and starts again with its disk unmounted", func(_ *world, active, _ *node) {
			active.p.die(0)
			<-active.p.ended
			active.start()
		}, 0},
		{"podnas is killed, and starts again with its disk mounted for long", func(_ *world, active, _ *node) {
			active.p.die(20 * time.Second)
			<-active.p.ended
			active.start()
		}, 8 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 0, 2, true, true)
				time.Sleep(time.Second)
				active := w.active()
				if active == nil {
					t.Fatal("nobody is active after a second")
				}
				standby := w.nodes[0]
				if standby == active {
					standby = w.nodes[1]
				}
				time.Sleep(20 * time.Second)
				began := time.Now()
				tt.do(w, active, standby)
				took := time.Duration(0)
				for range 300 {
					if took == 0 && standby.p.isActive() {
						took = time.Since(began)
					}
					time.Sleep(100 * time.Millisecond)
				}
				if took > tt.within || tt.within > 0 && took == 0 {
					t.Errorf("the standby took over after %v, want it within %v", took, tt.within)
				}
				if w.disk.violations() != nil {
					t.Errorf("%q", w.disk.violations())
				}
				w.end()
			})
		})
	}
}

// A podnas whose machine has lost the disk as a device ends, as its descriptor never leads to the disk again: the next one opens it anew.
func TestDeviceRemoved(t *testing.T) {
	for _, tt := range []struct {
		name            string
		active, standby bool // whose machine it is
	}{{"the active one's", true, false}, {"the standby's", false, true}, {"of both", true, true}} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 0, 2, true, true)
				time.Sleep(20 * time.Second)
				active, standby := w.active(), w.nodes[0]
				if standby == active {
					standby = w.nodes[1]
				}
				w.remove(active, tt.active)
				w.remove(standby, tt.standby)
				time.Sleep(2 * time.Second)
				for n, lost := range map[*node]bool{active: tt.active, standby: tt.standby} {
					ended := false
					select {
					case <-n.p.ended:
						ended = true
					default:
					}
					if ended != lost {
						t.Errorf("podnas on %s has ended: %v", n.name, ended)
					}
					w.remove(n, false)
					if ended {
						n.start()
					}
				}
				time.Sleep(10 * time.Second)
				if w.active() == nil {
					t.Error("nobody is active")
				}
				if w.disk.violations() != nil {
					t.Errorf("%q", w.disk.violations())
				}
				w.end()
			})
		})
	}
}

func (w *world) remove(n *node, gone bool) {
	w.disk.mu.Lock()
	defer w.disk.mu.Unlock()
	w.disk.gone[n.name] = gone
}

func (w *world) cut(n *node, cut bool) {
	w.disk.mu.Lock()
	defer w.disk.mu.Unlock()
	w.disk.cut[n.name] = cut
}

// hang has the storage hang for a machine, until what it returns is called.
func (w *world) hang(n *node) (goOn func()) {
	w.disk.mu.Lock()
	defer w.disk.mu.Unlock()
	hung := make(chan struct{})
	w.disk.hung[n.name] = hung
	return func() {
		w.disk.mu.Lock()
		defer w.disk.mu.Unlock()
		delete(w.disk.hung, n.name)
		close(hung)
	}
}

func (w *world) away(away bool) {
	w.disk.mu.Lock()
	defer w.disk.mu.Unlock()
	w.disk.away = away
}

// TestStorageForgets wants the active podnas to end when the storage has forgotten its reservation, which nothing protects
// any more, and one to be active again soon.
func TestStorageForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0, 2, false, true)
		time.Sleep(20 * time.Second)
		before := w.active()
		w.disk.restart(false)
		time.Sleep(1200 * time.Millisecond)
		if before.p.isActive() {
			t.Error("podnas goes on with a disk that nothing protects")
		}
		before.start()
		time.Sleep(10 * time.Second)
		if w.active() == nil {
			t.Error("nobody is active")
		}
		w.end()
	})
}

// TestCutOffForLong wants a machine that was stopped while it had the disk mounted to be kept from it also when the one that
// has taken over has ended since.
func TestCutOffForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0, 2, true, true)
		time.Sleep(20 * time.Second)
		old := w.active()
		old.stop()
		time.Sleep(20 * time.Second)
		for _, n := range w.nodes {
			if n != old {
				close(n.p.clean)
				<-n.p.ended
			}
		}
		if old.p.target.canWrite() {
			t.Error("a machine can write that has lost the disk, and has it mounted")
		}
		old.cont()
		time.Sleep(2 * time.Second)
		if old.p.isActive() {
			t.Error("a podnas goes on that has lost the disk")
		}
		w.end()
	})
}

func (n *nexus) canWrite() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.canWriteLocked(n.name)
}
