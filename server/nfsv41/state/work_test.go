package state_test

import (
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/server/nfsv41/state"
)

// workMax is how many steps the lock may be held for, whatever there is: a millisecond. Most of
// it is for the locks of the owner itself in the way of what it locks, see ownMax.
const workMax = 30_000

// many is a state that one or a few nodes have filled.
type many struct {
	*world
	t     testing.TB
	nodes map[int]*node // by client
}

func (m *many) key(i int) (k state.FileKey) {
	k = file1(1)
	k.ID[1], k.ID[2], k.ID[3] = byte(i), byte(i>>8), byte(i>>16)
	return k
}

func (m *many) client(i int) *node {
	n := m.readyFrom(fmt.Sprintf("10.%d.%d.%d:700", i>>16, i>>8&255, i&255), fmt.Sprint("client", i))
	m.nodes[i] = n
	return n
}

// clientAgain returns a client that has come.
func (m *many) clientAgain(i int) *node { return m.nodes[i] }

func (m *many) readyFrom(address, owner string) *node {
	n := m.joinFrom(address, owner, 1)
	m.want(m.ReclaimComplete(n.c, false), nfs4.OK)
	return n
}

func (m *many) open(n *node, owner, file int) nfs4.Stateid {
	id, _, e := m.Open(n.c, state.OpenArgs{Owner: fmt.Append(nil, owner), File: m.key(file), Access: state.Both})
	m.want(e, nfs4.OK)
	return id
}

func (m *many) lock(n *node, id nfs4.Stateid, owner, file int, write bool, at, length uint64) (nfs4.Stateid, nfs4.Status) {
	got, _, e := m.Lock(n.c, state.LockArgs{
		Stateid: id, NewOwner: true, Owner: fmt.Append(nil, owner), File: m.key(file), Write: write, Wait: true, Offset: at, Length: length,
	})
	return got, e
}

// lockers has many lock owners of a client lock a byte each.
func (m *many) lockers(n *node, id nfs4.Stateid, file, owners int, write bool) {
	for i := range owners {
		at := uint64(0)
		if write {
			at = uint64(i)
		}
		_, e := m.lock(n, id, i, file, write, at, 1)
		m.want(e, nfs4.OK)
	}
}

// No call holds the lock for longer than a bound, with each table at its limit.
func TestWork(t *testing.T) {
	l := state.New(state.Config{}).LimitsOf()
	cases := map[string]func(m *many, step func(string, func())){
		"a search for a deadlock": func(m *many, step func(string, func())) {
			// 2,000 owners of 8 clients have a lock of one file, and wait for another, for which
			// as many others wait.
			for c := range 8 {
				a := m.client(c)
				ids := [2]nfs4.Stateid{m.open(a, 0, 0), m.open(a, 0, 1)}
				for i := range l.Waiters {
					_, e := m.lock(a, ids[c%2], i, c%2, false, 0, 1)
					m.want(e, nfs4.OK)
				}
			}
			for c := range 8 {
				a := m.client(100 + c)
				id := m.open(a, 0, c%2)
				for i := range l.FileWaiters / 8 {
					_, e := m.lock(a, id, i, c%2, true, 0, 1)
					m.want(e, nfs4.ErrDenied)
				}
			}
			for c := 1; c < 8; c++ {
				a := m.clientAgain(c)
				id := m.open(a, 0, (c+1)%2)
				for i := range l.FileWaiters / 8 {
					step("LOCK", func() {
						if _, e := m.lock(a, id, i, (c+1)%2, true, 0, 1); e != nfs4.ErrDenied {
							m.want(e, nfs4.ErrDeadlock)
						}
					})
				}
			}
		},
		"waiters": func(m *many, step func(string, func())) {
			holder := m.client(0)
			files := l.AllWaiters/l.FileWaiters + 1
			var locks []nfs4.Stateid
			for f := range files {
				lock, e := m.lock(holder, m.open(holder, 0, f), 0, f, true, 0, toEOF)
				m.want(e, nfs4.OK)
				locks = append(locks, lock)
			}
			for c := range l.AllWaiters / l.Waiters {
				b := m.client(c + 1)
				f := c * l.Waiters / l.FileWaiters
				id := m.open(b, 0, f)
				for i := range l.Waiters {
					_, e := m.lock(b, id, i, f, i%2 == 0, uint64(i), 1)
					m.want(e, nfs4.ErrDenied)
				}
			}
			if n := m.Counts().Waiters; n < l.AllWaiters*3/4 {
				m.t.Fatalf("%d waiters", n)
			}
			step("Expire", func() { m.Expire() })
			step("LOCKU", func() {
				_, e := m.Unlock(holder.c, locks[0], m.key(0), 0, toEOF)
				m.want(e, nfs4.OK)
			})
			m.pass(2 * fairFor)
			step("the end of turns", func() { m.Expire() })
			m.pass(2 * state.WaitFor)
			step("the end of all", func() { m.Expire() })
		},
		"a lock of silent clients that is waited for": func(m *many, step func(string, func())) {
			for c := range 2000 {
				a := m.client(c)
				_, e := m.lock(a, m.open(a, 0, 0), 0, 0, false, 0, 1)
				m.want(e, nfs4.OK)
			}
			b := m.client(2000)
			id := m.open(b, 0, 0)
			_, e := m.lock(b, id, 0, 0, true, 0, 1)
			m.want(e, nfs4.ErrDenied)
			m.pass(lease + 1)
			_, e = b.renew()
			m.want(e, nfs4.OK)
			step("Expire", func() { m.Expire() })
			_, e = m.lock(b, id, 0, 0, true, 0, 1)
			m.want(e, nfs4.OK)
		},
		"sessions of a connection": func(m *many, step func(string, func())) {
			conn := newConn("10.0.0.1:700")
			for c := range l.MoreSessions * 3 / 4 / (l.Sessions - 1) {
				a := m.client(c)
				for range l.Sessions - 1 {
					a.create.Seq++
					r, e := m.CreateSession(a.create)
					m.want(e, nfs4.OK)
					_, _, e = m.BindConn(r.ID, conn, state.Fore)
					m.want(e, nfs4.OK)
				}
			}
			if n := m.Counts().Sessions; n < 7000 {
				m.t.Fatalf("%d sessions", n)
			}
			step("the end of the connection", func() { m.ConnClosed(conn) })
		},
		"lock owners": func(m *many, step func(string, func())) {
			a := m.client(0)
			id := m.open(a, 0, 0)
			m.lockers(a, id, 0, l.Locks/2-100, true)
			b := m.client(1)
			step("LOCK", func() {
				_, e := m.lock(b, m.open(b, 0, 0), 0, 0, true, 0, toEOF)
				m.want(e, nfs4.ErrDenied)
			})
			step("CLOSE", func() { m.want(m.Close(a.c, id, m.key(0)), nfs4.OK) })
			m.pass(2 * fairFor) // it is the other's turn
			id = m.open(a, 0, 0)
			m.lockers(a, id, 0, l.Locks/2-100, true)
			step("a restart", func() { m.want(m.ReclaimComplete(m.joinFrom("10.0.0.0:700", "client0", 2).c, false), nfs4.OK) })
			_, e := m.lock(b, m.open(b, 0, 0), 0, 0, true, 0, toEOF)
			m.want(e, nfs4.OK)
		},
		"lock owners of one range": func(m *many, step func(string, func())) {
			for c := range 3 {
				a := m.client(c)
				m.lockers(a, m.open(a, 0, 0), 0, l.Locks/2-100, false)
			}
			b := m.client(3)
			id := m.open(b, 0, 0)
			step("LOCK to read", func() {
				_, e := m.lock(b, id, 0, 0, false, 0, toEOF)
				m.want(e, nfs4.OK)
			})
			step("LOCK to write", func() {
				_, e := m.lock(b, id, 1, 0, true, 0, toEOF)
				m.want(e, nfs4.ErrDenied)
			})
			step("LOCKT", func() {
				_, e := m.TestLock(b.c, []byte("other"), m.key(0), true, 0, toEOF)
				m.want(e, nfs4.ErrDenied)
			})
			m.pass(lease + 1)
			_, e := b.renew()
			m.want(e, nfs4.OK)
			step("LOCK of what silent ones have", func() {
				_, e := m.lock(b, id, 0, 0, true, 0, toEOF)
				m.want(e, nfs4.OK)
			})
		},
		"ranges of an owner": func(m *many, step func(string, func())) {
			a := m.client(0)
			id := m.open(a, 0, 0)
			for i := range l.Ranges {
				_, e := m.lock(a, id, 0, 0, true, uint64(2*i), 1)
				m.want(e, nfs4.OK)
			}
			_, e := m.lock(a, id, 0, 0, true, uint64(2*l.Ranges), 1)
			m.want(e, nfs4.ErrServerFault)
			step("a LOCK of all", func() {
				_, e := m.lock(a, id, 0, 0, true, 0, toEOF)
				m.want(e, nfs4.OK)
			})
		},
		"opens of a client": func(m *many, step func(string, func())) {
			a := m.client(0)
			for i := range l.Opens {
				m.open(a, 0, i)
			}
			b := m.client(1)
			m.open(b, 0, l.Opens)
			step("Snapshot", func() { m.Snapshot(1000) })
			m.pass(lease + 1)
			_, e := b.renew()
			m.want(e, nfs4.OK)
			step("an eviction", func() { m.want(m.Evict(a.c.ID()), nfs4.OK) })
			if n := m.Counts().Opens; n != 1 {
				m.t.Errorf("%d opens are left", n)
			}
		},
		"opens of a volume that ends": func(m *many, step func(string, func())) {
			a, b := m.client(0), m.client(1)
			for i := range l.Opens - 1 {
				m.open(a, 0, i)
			}
			m.lockers(a, m.open(a, 1, 0), 0, l.Locks/2-100, true)
			_, e := m.lock(b, m.open(b, 0, 0), 0, 0, true, 0, toEOF)
			m.want(e, nfs4.ErrDenied)
			step("ForgetVolume", func() { m.ForgetVolume(m.key(0).Volume) })
			m.ok()
			if n := m.Counts(); n.Opens != 0 || n.Locks != 0 || n.Waiters != 0 {
				m.t.Errorf("left are %+v", n)
			}
		},
		"opens of a file": func(m *many, step func(string, func())) {
			a := m.client(0)
			for i := range l.Opens - 1 {
				_, _, e := m.Open(a.c, state.OpenArgs{Owner: fmt.Append(nil, i), File: m.key(0), Access: state.Read, Deny: state.Access(i%2) << 1})
				m.want(e, nfs4.OK)
			}
			b := m.client(1)
			step("OPEN that denies", func() {
				_, _, e := m.Open(b.c, state.OpenArgs{Owner: []byte("o"), File: m.key(0), Access: state.Write, Deny: state.Read})
				m.want(e, nfs4.ErrShareDenied)
			})
			step("WRITE of version 3", func() { m.Denies(m.key(0), state.Write) })
			step("Find", func() { m.Find(m.key(0)) })
			m.pass(lease + 1)
			step("OPEN that takes it", func() {
				_, _, e := m.Open(b.c, state.OpenArgs{Owner: []byte("o"), File: m.key(0), Access: state.Both, Deny: state.Both})
				m.want(e, nfs4.OK)
			})
		},
		"a log that has become long": func(m *many, step func(string, func())) {
			m.fill()
			log := &longLog{}
			if err := m.StartLog(log); err != nil {
				m.t.Fatal(err)
			}
			size := log.copied
			a := m.clientAgain(0)
			m.open(a, 1, 0) // the log says that it is long
			step("a copy", func() {
				if err := m.CopyLog(); err != nil {
					m.t.Error(err)
				}
			})
			if log.replaced != 2 || log.copied < 2*size {
				m.t.Errorf("replaced %d times, %d bytes, of which %d at first", log.replaced, log.copied, size)
			}
			m.t.Logf("the log has %d MiB: %+v", size>>20, m.Counts())
		},
		"clients": func(m *many, step func(string, func())) {
			for c := range l.Clients {
				m.client(c)
			}
			step("Expire", func() { m.Expire() })
			step("Counts", func() { m.Counts() })
			step("Snapshot", func() { m.Snapshot(1000) })
			step("one too many", func() {
				_, e := m.exchangeFrom("11.0.0.1:700", "new", 1)
				m.want(e, nfs4.ErrDelay)
			})
			m.pass(lease + 1)
			step("the end of leases", func() { m.Expire() })
			step("a new one", func() { m.readyFrom("11.0.0.1:700", "new") })
			m.pass(2 * courtesy)
			step("the end of all", func() { m.Expire() })
			if n := m.Counts().Clients; n != 0 {
				m.t.Errorf("%d are left", n)
			}
		},
		"clients that are not confirmed": func(m *many, step func(string, func())) {
			for c := range l.Clients * 2 {
				_, e := m.exchange(fmt.Sprint(c), 1)
				m.want(e, nfs4.OK)
			}
			step("one more", func() {
				_, e := m.exchangeFrom("11.0.0.1:700", "new", 1)
				m.want(e, nfs4.OK)
			})
			m.pass(lease + 1)
			step("the end of leases", func() { m.Expire() })
		},
	}
	for name, fill := range cases {
		t.Run(name, func(t *testing.T) {
			m := &many{newWorld(t, state.Limits{}).unlogged(), t, map[int]*node{}}
			most, longest := map[string]int{}, map[string]time.Duration{}
			fill(m, func(what string, do func()) {
				t.Helper()
				begin := time.Now()
				steps := m.MostSteps(do)
				longest[what] = max(longest[what], time.Since(begin))
				if most[what] = max(most[what], steps); steps > workMax || steps == 0 {
					t.Errorf("%s takes %d steps under one lock", what, steps)
				}
			})
			t.Logf("steps under one lock: %v; the whole calls took at most: %v", most, longest)
		})
	}
}

// fill has the tables of opens, locks and waiters be near their limits. Client 0 has nothing.
func (m *many) fill() {
	l := m.LimitsOf()
	m.client(0)
	for i := range l.AllOpens * 3 / 4 {
		n := i % 1000
		if i < 1000 {
			m.client(n + 1)
		}
		a := m.clientAgain(n + 1)
		id := m.open(a, i, i)
		if i < l.AllLocks/3 {
			_, e := m.lock(a, id, i, i, true, 0, 1)
			m.want(e, nfs4.OK)
		}
	}
	a := m.client(1001) // a lock owner with many ranges
	id := m.open(a, 0, l.AllOpens)
	for i := range l.Ranges {
		_, e := m.lock(a, id, 0, l.AllOpens, true, uint64(2*i), 1)
		m.want(e, nfs4.OK)
	}
	for c := range l.AllWaiters / l.Waiters * 3 / 4 {
		a, f := m.client(1002+c), c*l.Waiters/l.FileWaiters
		id := m.open(a, 0, f)
		for i := range l.Waiters {
			_, e := m.lock(a, id, i, f, true, 0, 1)
			m.want(e, nfs4.ErrDenied)
		}
	}
}

// longLog is a log that is always long.
type longLog struct{ copied, replaced int }

func (l *longLog) Append([]byte) (bool, error) { return true, nil }
func (l *longLog) Begin() error                { return nil }
func (l *longLog) Copy(frame []byte) error     { l.copied += len(frame); return nil }
func (l *longLog) Replace() (io.Closer, error) { l.replaced++; return nil, nil }

// releasing calls back when it is released: in the middle of what removes an open.
type releasing func()

func (releasing) Retain()    {}
func (r releasing) Release() { r() }

// What a client held excludes nobody from the moment on at which the client is gone, though it goes in steps;
// and none of it can be found any more.
func TestVoid(t *testing.T) {
	const opens = 4 * state.StepWork
	for name, end := range map[string]func(m *many, a *node){
		"evicted":       func(m *many, a *node) { m.want(m.Evict(a.c.ID()), nfs4.OK) },
		"started again": func(m *many, _ *node) { m.ready("a", 2) },
		"silent":        func(m *many, _ *node) { m.pass(2 * courtesy); m.Expire() },
	} {
		t.Run(name, func(t *testing.T) {
			m := &many{newWorld(t, state.Limits{}), t, map[int]*node{}}
			a := m.ready("a", 1)
			ids, locks := make([]nfs4.Stateid, opens), make([]nfs4.Stateid, opens)
			within := 0
			for i := range opens {
				held := releasing(func() {
					if within++; within != state.StepWork {
						return
					}
					n := m.Counts().Opens
					if n < opens/2 {
						t.Errorf("%d opens are left: not in the middle", n)
					}
					b := m.ready("b", 1)
					for i := range opens {
						id, _, e := m.Open(b.c, state.OpenArgs{Owner: []byte("b"), File: m.key(i), Access: state.Both, Deny: state.Both})
						m.want(e, nfs4.OK)
						if _, e := m.lock(b, id, 0, i, true, 0, toEOF); e != nfs4.OK {
							t.Fatalf("LOCK of file %d: %v", i, e)
						}
						m.want(m.TestStateid(a.c, ids[i]), nfs4.ErrBadStateid)
						m.want(m.TestStateid(a.c, locks[i]), nfs4.ErrBadStateid)
						m.want(m.FreeStateid(a.c, locks[i]), nfs4.ErrDeadSession)
						_, e = m.Unlock(a.c, locks[i], m.key(i), 0, 1)
						m.want(e, nfs4.ErrDeadSession)
					}
				})
				id, _, e := m.Open(a.c, state.OpenArgs{Owner: []byte("a"), File: m.key(i), Access: state.Read, Deny: state.Both, Descriptor: held})
				m.want(e, nfs4.OK)
				lock, e := m.lock(a, id, 0, i, false, 0, 1)
				m.want(e, nfs4.OK)
				ids[i], locks[i] = id, lock
			}
			end(m, a)
			if within < opens || m.Counts().Opens != opens {
				t.Errorf("%d were released, there are %d opens", within, m.Counts().Opens)
			}
			m.ok()
		})
	}
}

// A CLOSE releases its locks in steps, and at once.
func TestVoidLocks(t *testing.T) {
	m := &many{newWorld(t, state.Limits{}).unlogged(), t, map[int]*node{}}
	a, b := m.ready("a", 1), m.ready("b", 1)
	const waiting = 100
	id := m.open(a, 0, 0)
	m.lockers(a, id, 0, 4*state.StepWork, true)
	idb := m.open(b, 0, 0)
	for i := range waiting {
		_, e := m.lock(b, idb, i, 0, true, uint64(i), 1)
		m.want(e, nfs4.ErrDenied)
	}
	m.want(m.Close(a.c, id, m.key(0)), nfs4.OK)
	if len(m.free) != waiting {
		t.Errorf("%d of %d waiters were told", len(m.free), waiting)
	}
	m.ok()
}
