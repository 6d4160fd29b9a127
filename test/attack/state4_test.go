//go:build attack

package attack_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/nfs/xdr"
)

// Work that grows with what one client of version 4.1 holds, and tables that it fills. A client of 4.1 on another
// address and volume opens, locks, unlocks and closes a file meanwhile: the victims' "open4".
// What it waits longer than the machine itself delays a process that sleeps is the server's.
var state4Attacks = []attack{
	{
		name:  "a search for a deadlock",
		does:  "lock owners of 8 nodes each have a lock of one of two files and wait for the other, and ask again",
		holds: "another client never waits for long",
		on:    isNative,
		run: func(a *assault) {
			a.volume("prey", "64Mi")
			var all []*client4
			for i := range 8 {
				c := a.ready4(i, "deadlock")
				all = append(all, c)
				mine := c.mustOpen("prey", fmt.Sprint("file", i%2))
				c.each(a.many(250, 1000), func(l *lane4, n int) {
					l.lock(fmt.Sprint("file", i%2), mine, fmt.Sprint(n), nfs4.LockRead, 0, 1)
				})
			}
			a.patiently(func() {
				until := time.Now().Add(3 * a.window)
				for i, c := range all {
					other := fmt.Sprint("file", (i+1)%2)
					id := c.mustOpen("prey", other)
					for time.Now().Before(until) {
						c.each(250, func(l *lane4, n int) { l.lock(other, id, fmt.Sprint(n), nfs4.LockWriteWait, 0, 1) })
						if i < len(all)-1 {
							break
						}
					}
				}
			})
		},
	},
	{
		name:  "waiters of a lock",
		does:  "64 nodes wait for locks of one file, as many as they may, while it is locked and unlocked",
		holds: "another client never waits for long",
		on:    isNative,
		run: func(a *assault) {
			a.volume("prey", "64Mi")
			holder := a.ready4(100, "holder")
			id := holder.mustOpen("prey", "file")
			if _, status := holder.lockAll(id); status != nfs4.OK {
				a.Fatalf("LOCK: %v", status)
			}
			var refused atomic.Int64
			a.patiently(func() {
				for i := range a.many(16, 64) {
					c := a.ready4(i, "waiter")
					id := c.mustOpen("prey", "file")
					c.each(a.many(256, 1000), func(l *lane4, n int) {
						if l.lock("file", id, fmt.Sprint(n), nfs4.LockWriteWait, uint64(n), 1) != nfs4.ErrDenied {
							refused.Add(1)
						}
					})
				}
				for until := time.Now().Add(3 * a.window); time.Now().Before(until); {
					got, status := holder.lockAll(id)
					if status == nfs4.OK {
						holder.unlockAll(got)
					}
				}
			})
			if refused.Load() > 0 {
				a.Errorf("%d LOCKs did not say DENIED", refused.Load())
			}
		},
	},
	{
		name:  "sessions of one connection",
		does:  "makes thousands of sessions on a connection, without a volume, and closes it, again and again",
		holds: "another client never waits for long",
		on:    isNative,
		run: func(a *assault) {
			made := 0
			a.patiently(func() {
				for round := range a.many(2, 5) {
					c := a.client4(round)
					for i := range a.many(500, 1000) {
						if !c.introduce(fmt.Sprint("sessions ", round, " ", i)) {
							break
						}
						for j := range 16 {
							if j == 0 && !c.createSession() || j > 0 && !c.moreSession() {
								break
							}
							made++
						}
					}
					c.conn.Close()
				}
				time.Sleep(a.window / 2)
			})
			if made < 5000 {
				a.Errorf("%d sessions", made)
			}
			a.note("%d sessions", made)
		},
	},
	{
		name:  "an open with many lock owners",
		does:  "locks by 20,000 owners through one open and closes it; again, and starts again",
		holds: "another client never waits for long",
		on:    isNative,
		run: func(a *assault) {
			a.volume("prey", "64Mi")
			locks := a.many(8_000, 20_000)
			var got atomic.Int64
			a.patiently(func() {
				c := a.ready4(0, "owners")
				for round := range 2 {
					id := c.mustOpen("prey", "file")
					c.each(locks, func(l *lane4, n int) {
						if l.lock("file", id, fmt.Sprint(n), nfs4.LockWrite, uint64(2*n), 1) == nfs4.OK {
							got.Add(1)
						}
					})
					if round == 0 {
						c.close("file", id)
						continue
					}
					c.verifier++
					if !c.introduce("owners 0") || !c.createSession() {
						a.Error("it can't start again")
					}
				}
			})
			if got.Load() < int64(2*locks) {
				a.Errorf("%d of %d locks", got.Load(), 2*locks)
			}
		},
	},
	{
		name:  "all clients and sessions",
		does:  "one address takes as many clients as it gets, each with sessions and an open file",
		holds: "a node from another address gets in at once, with sessions, and so does one that starts again; memory stays within its bound",
		on:    isNative,
		run: func(a *assault) {
			a.volume("prey", "64Mi")
			again := a.ready4(200, "restarts")
			clients, sessions := 0, 0
			a.patiently(func() {
				c := a.client4(0)
				for i := range a.many(1500, 12_000) {
					if !c.introduce(fmt.Sprint("taker ", i)) {
						break
					}
					clients++
					for j := range 16 {
						if j == 0 && !c.createSession() || j > 0 && !c.moreSession() {
							break
						}
						sessions++
						if j == 0 && i%10 == 0 {
							c.open("prey", "file", "x")
						}
					}
				}
				for i := range 20 {
					node := a.client4(201 + i)
					if !node.introduce(fmt.Sprint("node ", i)) || !node.createSession() {
						a.Fatal("a node from another address does not get in")
					}
					for range 9 {
						if !node.moreSession() {
							a.Fatal("a node from another address gets no sessions")
						}
					}
					if _, status := node.open("prey", "other", "x"); status != nfs4.OK {
						a.Errorf("OPEN of a node from another address: %v", status)
					}
				}
				again.verifier++
				if !again.introduce("restarts 200") || !again.createSession() {
					a.Error("a node that starts again does not get in")
				}
			})
			a.note("%d clients, %d sessions", clients, sessions)
		},
	},
	{
		name:  "an honest cluster",
		does:  "1,000 nodes come with 10 sessions each, and open a file",
		holds: "each gets them",
		on:    isNative,
		run: func(a *assault) {
			a.volume("prey", "64Mi")
			a.patiently(func() {
				var wg sync.WaitGroup
				for lane := range 8 {
					wg.Go(func() {
						c := a.client4(lane)
						for i := lane; i < a.many(400, 1000); i += 8 {
							if !c.introduce(fmt.Sprint("honest ", i)) || !c.createSession() {
								a.Errorf("node %d does not get in", i)
								return
							}
							for range 9 {
								if !c.moreSession() {
									a.Errorf("node %d gets no session", i)
									return
								}
							}
							if _, status := c.open("prey", "file", fmt.Sprint(i)); status != nfs4.OK {
								a.Errorf("OPEN of node %d: %v", i, status)
								return
							}
						}
					})
				}
				wg.Wait()
			})
		},
	},
	{
		name:  "what is another client's",
		does:  "uses another client's stateids in each operation, its session, its slots; sends calls again, whole and changed",
		holds: "nothing of another's changes; a call that comes again gets the same bytes, and is not done again",
		on:    isNative,
		run: func(a *assault) {
			a.volume("prey", "64Mi")
			victim, thief := a.ready4(200, "owner"), a.ready4(0, "thief")
			theirs := victim.mustOpen("prey", "file")
			lock, status := victim.lockAll(theirs)
			if status != nfs4.OK {
				a.Fatalf("LOCK: %v", status)
			}
			for _, id := range []nfs4.Stateid{theirs, lock} {
				for name, op := range map[string][]byte{
					"READ":           (&nfs4.ReadArgs{Stateid: id, Count: 1}).Append(nfs4.OpRead.Append(nil)),
					"WRITE":          (&nfs4.WriteArgs{Stateid: id, Data: []byte("x")}).Append(nfs4.OpWrite.Append(nil)),
					"CLOSE":          (&nfs4.CloseArgs{Stateid: id}).Append(nfs4.OpClose.Append(nil)),
					"LOCKU":          (&nfs4.LockuArgs{Type: nfs4.LockWrite, Stateid: id, Length: 1}).Append(nfs4.OpLocku.Append(nil)),
					"FREE_STATEID":   (&nfs4.FreeStateidArgs{Stateid: id}).Append(nfs4.OpFreeStateid.Append(nil)),
					"OPEN_DOWNGRADE": (&nfs4.OpenDowngradeArgs{Stateid: id, ShareAccess: nfs4.ShareAccessRead}).Append(nfs4.OpOpenDowngrade.Append(nil)),
					"LOCK": (&nfs4.LockArgs{Type: nfs4.LockWrite, Length: 1, NewOwner: true, OpenStateid: id, Owner: nfs4.StateOwner{Owner: []byte("t")}}).Append(
						nfs4.OpLock.Append(nil)),
				} {
					n, ops := at("prey", "file")
					if status, _ := thief.sequenced(n+1, append(ops, op...)); status == nfs4.OK {
						a.Errorf("%s with another client's stateid", name)
					}
				}
			}
			if status := victim.write("prey", "file", theirs); status != nfs4.OK {
				a.Errorf("the owner's WRITE: %v", status)
			}
			// A retry has the same bytes; one of other operations, or a skipped sequence, is refused.
			retry := nfs4.SequenceArgs{SessionID: victim.session, CacheThis: true}
			again := func(seq uint32, name string) string {
				retry.SequenceID = seq
				n, ops := at("prey")
				ops = (&nfs4.NameArgs{Name: []byte(name)}).Append(nfs4.OpRemove.Append(ops))
				status, d := victim.compound(n+2, append(retry.Append(nfs4.OpSequence.Append(nil)), ops...))
				return fmt.Sprintf("%v %x", status, d.Rest())
			}
			victim.mustOpen("prey", "removed")
			seq := victim.slot + 1
			first := again(seq, "removed")
			for range 5 {
				if got := again(seq, "removed"); got != first {
					a.Errorf("a call that comes again gets %s, and had %s", got, first)
				}
			}
			if got := again(seq, "file"); got == first || got[:3] == "OK " {
				a.Errorf("another call of the same sequence gets %s", got)
			}
			if got := again(seq+5, "file"); got[:3] == "OK " {
				a.Errorf("a call of a later sequence gets %s", got)
			}
			victim.slot = seq
			if status := victim.write("prey", "file", theirs); status != nfs4.OK {
				a.Errorf("the owner's WRITE: %v", status)
			}
		},
	},
}

// patienceMax is how long an honest client may wait at most beside these attacks, in addition to what the machine
// itself delays: a process that only sleeps tells how long.
const patienceMax = 100 * time.Millisecond

// patiently is beside with that bound.
func (a *assault) patiently(attack func()) {
	a.Helper()
	a.beside(attack)
	open, machine := a.row.during["open4"], a.row.during["machine"]
	if open == nil || machine == nil {
		a.Errorf("a client of version 4.1 was not measured: %v", a.row.during)
		return
	}
	a.note("open4 at most %s, median %s; the machine's own delays at most %s", short(open.Max), short(open.P50), short(machine.Max))
	limit := patienceMax + 2*machine.Max // the client and the server may both be delayed
	if a.race {
		limit *= 4
	}
	if open.Max > limit {
		a.Errorf("a client of version 4.1 waited for %s, and the machine's own delays are %s at most", short(open.Max), short(machine.Max))
	}
}

// ready4 is a client with a session from the attacker's nth address.
func (a *assault) ready4(n int, name string) *client4 {
	a.Helper()
	c := a.client4(n)
	if !c.introduce(fmt.Sprint(name, " ", n)) || !c.createSession() {
		a.Fatalf("client %s %d gets no session", name, n)
	}
	return c
}

func (c *client4) mustOpen(volume, name string) nfs4.Stateid {
	c.a.Helper()
	id, status := c.open(volume, name, "x")
	if status != nfs4.OK {
		c.a.Fatalf("OPEN: %v", status)
	}
	return id
}

// moreSession makes a session, which is not used.
func (c *client4) moreSession() bool {
	_, status := c.addSession()
	return status == nfs4.OK
}

func (c *client4) addSession() (res nfs4.CreateSessionRes, status nfs4.Status) {
	c.seq++
	status, d := c.call(nfs4.OpCreateSession, &nfs4.CreateSessionArgs{ClientID: c.id, SequenceID: c.seq, Fore: channel4, Back: channel4})
	res.Decode(&d)
	return res, status
}

func (c *client4) lockAll(id nfs4.Stateid) (nfs4.Stateid, nfs4.Status) {
	return c.lock("prey", "file", nfs4.LockArgs{
		Type: nfs4.LockWrite, Length: 1<<64 - 1, NewOwner: true, OpenStateid: id, Owner: nfs4.StateOwner{ClientID: c.id, Owner: []byte("all")},
	})
}

func (c *client4) unlockAll(id nfs4.Stateid) {
	n, ops := at("prey", "file")
	c.sequenced(n+1, (&nfs4.LockuArgs{Type: nfs4.LockWrite, Stateid: id, Length: 1<<64 - 1}).Append(nfs4.OpLocku.Append(ops)))
}

func (c *client4) close(name string, id nfs4.Stateid) {
	n, ops := at("prey", name)
	if status, _ := c.sequenced(n+1, (&nfs4.CloseArgs{Stateid: id}).Append(nfs4.OpClose.Append(ops))); status != nfs4.OK {
		c.a.Errorf("CLOSE: %v", status)
	}
}

// lane4 makes calls by a slot of its own.
type lane4 struct {
	*client4
	slotID, seq uint32
}

// each makes n calls, as many at a time as the session has slots, at most 16. Slot 0 is c's own.
func (c *client4) each(n int, do func(l *lane4, i int)) {
	var wg sync.WaitGroup
	var next atomic.Int64
	if c.lanes == nil {
		for id := range max(1, min(c.slots-1, 16)) {
			c.lanes = append(c.lanes, &lane4{client4: c, slotID: id + min(1, c.slots-1)})
		}
	}
	for _, l := range c.lanes {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				do(l, i)
			}
		})
	}
	wg.Wait()
}

func (l *lane4) sequenced(n uint32, ops []byte) (nfs4.Status, xdr.Decoder) {
	if l.slotID == 0 {
		return l.client4.sequenced(n, ops)
	}
	l.seq++
	args := nfs4.SequenceArgs{SessionID: l.session, SequenceID: l.seq, SlotID: l.slotID, HighestSlotID: l.slotID}
	return l.compound(n+1, append(args.Append(nfs4.OpSequence.Append(nil)), ops...))
}

// lock locks through an open by a new owner.
func (l *lane4) lock(name string, open nfs4.Stateid, owner string, kind nfs4.LockType, offset, length uint64) nfs4.Status {
	n, ops := at("prey", name)
	args := nfs4.LockArgs{Type: kind, Offset: offset, Length: length, NewOwner: true, OpenStateid: open, Owner: nfs4.StateOwner{ClientID: l.id, Owner: []byte(owner)}}
	status, _ := l.sequenced(n+1, args.Append(nfs4.OpLock.Append(ops)))
	return status
}
