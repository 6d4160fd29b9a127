package state_test

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/server/nfsv41/state"
)

// copySomeThings goes on with the copy of the log, or begins one. It reports whether the copy is in the place of the log.
func (w *world) copySomeThings(n int) (done bool) {
	w.t.Helper()
	done, err := w.CopySome(n)
	if err != nil {
		w.t.Fatal(err)
	}
	return done
}

// A log has several frames, and says what there is.
func TestLogReplaced(t *testing.T) {
	w := newWorld(t, state.Limits{})
	n, other := w.ready("node", 1), w.ready("other", 1)
	for i := range 1000 {
		id, owner := n.mustOpen(fmt.Sprint("o", i), i%3), fmt.Sprintf("\x00%d", i/100)
		_, _, e := n.lock(id, owner, i%3, i%2 == 0, uint64(4*i), 2)
		w.want(e, nfs4.OK)
		_, _, e = n.lock(id, owner, i%3, false, toEOF-uint64(4*i)-8, 2)
		w.want(e, nfs4.OK)
	}
	_, _, e := other.lock(other.mustOpen("x", 0), "l", 0, true, 0, toEOF)
	w.want(e, nfs4.ErrDenied)
	<-w.LogGrown()
	if err := w.CopyLog(); err != nil {
		t.Error(err)
	}
	if l := w.logged; l.replaced < 2 || l.frames < 3 {
		t.Errorf("%d frames, replaced %d times", l.frames, l.replaced)
	}
	w.ok()
	w.dies()
	if n := w.Counts(); n.Opens != 1001 || n.Locks != 2000 || n.Waiters != 1 {
		t.Errorf("%+v", n)
	}
}

// Each thing that happens while the log is copied is in the new one, wherever the copy has come to.
func TestLogCopy(t *testing.T) {
	// Of node: opens 0 to 2 of files 0 to 2; each has two lock owners.
	type scene struct {
		*world
		node, waiter *node
		renewAll     func()
		opens, locks []nfs4.Stateid
	}
	begin := func(t *testing.T) *scene {
		w := newWorld(t, state.Limits{})
		s := &scene{world: w, node: w.ready("node", 1), waiter: w.ready("waiter", 1)}
		third := w.ready("third", 1)
		s.renewAll = func() {
			for _, n := range []*node{s.node, s.waiter, third} {
				_, e := n.renew()
				w.want(e, nfs4.OK)
			}
		}
		if _, e := w.exchange("unconfirmed", 1); e != nfs4.OK {
			t.Fatal(e)
		}
		for f := range 3 {
			s.opens = append(s.opens, s.node.mustOpen("o", f))
			for l := range 2 {
				id, _, e := s.node.lock(s.opens[f], fmt.Sprint("l", l), f, true, uint64(10*l), 5)
				w.want(e, nfs4.OK)
				s.locks = append(s.locks, id)
			}
			id := s.waiter.mustOpen("o", f)
			for l := range 2 {
				_, _, e := s.waiter.lock(id, fmt.Sprint("l", l), f, true, uint64(10*l), 5)
				w.want(e, nfs4.ErrDenied)
			}
		}
		return s
	}
	for name, do := range map[string]func(s *scene){
		"nothing": func(*scene) {},
		"CLOSE":   func(s *scene) { s.want(s.Close(s.node.c, s.opens[1], file1(1)), nfs4.OK) },
		"OPEN":    func(s *scene) { s.node.mustOpen("new", 4) },
		"OPEN again": func(s *scene) {
			_, e := s.node.open("o", 1, state.Read, state.Write)
			s.want(e, nfs4.ErrShareDenied)
			s.node.mustOpen("o", 1)
		},
		"OPEN and CLOSE": func(s *scene) { s.want(s.Close(s.node.c, s.node.mustOpen("new", 4), file1(4)), nfs4.OK) },
		"OPEN_DOWNGRADE": func(s *scene) {
			id, e := s.node.open("o", 1, state.Read, 0)
			s.want(e, nfs4.OK)
			_, e = s.Downgrade(s.node.c, id, file1(1), state.Read, 0)
			s.want(e, nfs4.OK)
		},
		"LOCK": func(s *scene) {
			for f := range 3 {
				_, _, e := s.node.lock(s.opens[f], "l0", f, true, 100, 5)
				s.want(e, nfs4.OK)
				_, _, e = s.node.lock(s.opens[f], "new", f, true, 200, 5)
				s.want(e, nfs4.OK)
			}
		},
		"LOCKU": func(s *scene) {
			for i, id := range s.locks {
				_, e := s.Unlock(s.node.c, id, file1(i/2), 0, 12)
				s.want(e, nfs4.OK)
			}
		},
		"FREE_STATEID": func(s *scene) {
			for i, id := range s.locks {
				id, e := s.Unlock(s.node.c, id, file1(i/2), 0, toEOF)
				s.want(e, nfs4.OK)
				s.want(s.FreeStateid(s.node.c, id), nfs4.OK)
			}
		},
		"an eviction":                func(s *scene) { s.want(s.Evict(s.node.c.ID()), nfs4.OK) },
		"an eviction of who waits":   func(s *scene) { s.want(s.Evict(s.waiter.c.ID()), nfs4.OK) },
		"a restart":                  func(s *scene) { s.ready("node", 2).mustOpen("o", 1) },
		"a new client":               func(s *scene) { s.ready("new", 1).mustOpen("o", 1) },
		"a client that is confirmed": func(s *scene) { s.ready("unconfirmed", 1).mustOpen("o", 1) },
		"a wait": func(s *scene) {
			id := s.waiter.mustOpen("o", 1)
			_, _, e := s.waiter.lock(id, "new", 1, true, 0, toEOF)
			s.want(e, nfs4.ErrDenied)
		},
		"a wait of a file that had none": func(s *scene) {
			_, _, e := s.node.lock(s.node.mustOpen("o", 5), "l", 5, true, 0, toEOF)
			s.want(e, nfs4.OK)
			_, _, e = s.waiter.lock(s.waiter.mustOpen("o", 5), "l", 5, true, 0, toEOF)
			s.want(e, nfs4.ErrDenied)
		},
		"the end of all waits": func(s *scene) { s.pass(2 * state.WaitFor); s.renewAll(); s.Expire() },
	} {
		t.Run(name, func(t *testing.T) {
			for at := 0; ; at++ {
				s := begin(t)
				over := s.copySomeThings(at)
				do(s)
				for range 1000 {
					if over || s.copySomeThings(1) {
						break
					}
				}
				if _, copied := s.Logs(); copied {
					t.Fatal("the copy does not end")
				}
				s.ok()
				s.dies()
				if over {
					return
				}
			}
		})
	}
}

// A process that dies in the grace period, after the log was copied in it.
func TestLogCopyGrace(t *testing.T) {
	for at := 0; ; at++ {
		w := newWorld(t, state.Limits{})
		for i := range 3 {
			w.ready(fmt.Sprint("node", i), 1).mustOpen("o", i)
		}
		w.crash()
		over := w.copySomeThings(at)
		n := w.join("node1", 1)
		w.want(w.ReclaimComplete(n.c, false), nfs4.OK)
		n = w.join("node2", 1)
		w.want(w.Evict(n.c.ID()), nfs4.OK)
		for !over && !w.copySomeThings(1) {
		}
		w.ok()
		w.dies()
		if n := w.Counts(); !n.InGrace || n.Awaited != 1 {
			t.Fatalf("after %d things: %+v", at, n)
		}
		if over {
			return
		}
	}
}

// A copy that fails is given up, wherever it has come to, and the log goes on: the next one is whole.
func TestLogCopyFails(t *testing.T) {
	for _, tt := range []struct {
		name   string
		things int
		do     func(w *world) error
	}{
		{"begin", 0, func(w *world) error {
			for i := range 1000 {
				select {
				case <-w.LogGrown():
					return w.CopyLog()
				default:
					w.ready(fmt.Sprint("long", i), 1)
				}
			}
			return errors.New("nobody is told that the log has grown")
		}},
		{"a step", 1, func(w *world) error {
			_, err := w.StepOfCopy()()
			return err
		}},
		{"a call", 3, func(w *world) error {
			w.ready(fmt.Sprint("new", len(w.Snapshot(0).Clients)), 1)
			return io.ErrShortWrite
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, n, _, _ := busyWorld(t)
			for range 3 {
				if tt.things > 0 {
					w.copySomeThings(tt.things)
				}
				w.logged.copyErr = io.ErrShortWrite
				if err := tt.do(w); !errors.Is(err, io.ErrShortWrite) {
					t.Errorf("%v", err)
				}
				w.logged.copyErr = nil
				if written, copied := w.Logs(); !written || copied {
					t.Errorf("log %t, copy %t", written, copied)
				}
				n.mustOpen("after", 7)
				w.ok()
			}
			for !w.copySomeThings(1) {
			}
			w.ok()
			w.dies()
		})
	}
}

// A log that fails while it is copied is no more used.
func TestLogFailsMeanwhile(t *testing.T) {
	w, n, _, _ := busyWorld(t)
	w.copySomeThings(1)
	step := w.StepOfCopy()
	w.logged.err = io.ErrShortWrite
	n.mustOpen("after", 7)
	if written, copied := w.Logs(); written || copied {
		t.Error("the log is used still")
	}
	more, err := step()
	if more || err != nil {
		t.Errorf("the copy goes on: %t, %v", more, err)
	}
	w.logged = nil
	w.ok()
}
