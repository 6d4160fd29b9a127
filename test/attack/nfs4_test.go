//go:build attack

package attack_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/nfs/xdr"
)

// Ways to have the server remember what clients of version 4.1 have, and to get at what is
// another's.
var nfs4Attacks = []attack{
	{
		name:  "clients that never come back",
		does:  "makes 20,000 clients of version 4.1, a third of them with a session of many slots, from many addresses",
		holds: "memory stays within its bound, others are served, another client can come after a lease at the latest",
		on:    isNative,
		run: func(a *assault) {
			var made, sessions, refused atomic.Int64
			a.beside(func() {
				var wg sync.WaitGroup
				for i := range 20 {
					wg.Go(func() {
						c := a.client4(i)
						for n := range a.many(1000, 5000) {
							if !c.introduce(fmt.Sprint("mallory ", i, " ", n)) {
								refused.Add(1)
								continue
							}
							made.Add(1)
							if n%3 == 0 && c.createSession() {
								sessions.Add(1)
							}
						}
					})
				}
				wg.Wait()
			})
			a.note("%d clients, %d sessions, %d refused", made.Load(), sessions.Load(), refused.Load())
			newcomer := a.client4(100)
			eventually(a, 90*time.Second, "nobody can come any more", func() bool {
				return newcomer.introduce("newcomer") && newcomer.createSession()
			})
		},
	},
	{
		name:  "opens and locks without end",
		does:  "clients of version 4.1 open a file by more and more owners, and lock every second byte",
		holds: "memory and descriptors stay within their bounds, another client can open and lock",
		on:    isNative,
		run: func(a *assault) {
			a.volume("prey", "64Mi")
			var opens, locks atomic.Int64
			a.beside(func() {
				var wg sync.WaitGroup
				for i := range 3 {
					wg.Go(func() {
						c := a.client4(i)
						if !c.introduce(fmt.Sprint("greedy ", i)) || !c.createSession() {
							a.Error("no session")
							return
						}
						id, status := c.open("prey", "file", "0")
						for n := 1; status == nfs4.OK && n < a.many(3000, 150_000); n++ {
							opens.Add(1)
							_, status = c.open("prey", "file", fmt.Sprint(n))
						}
						lock := nfs4.LockArgs{Type: nfs4.LockRead, Length: 1, NewOwner: true, OpenStateid: id, Owner: nfs4.StateOwner{ClientID: c.id, Owner: []byte("l")}}
						for status = nfs4.OK; status == nfs4.OK && lock.Offset < uint64(a.many(6000, 300_000)); lock.Offset += 2 {
							var got nfs4.Stateid
							if got, status = c.lock("prey", "file", lock); status == nfs4.OK {
								locks.Add(1)
								lock.NewOwner, lock.LockStateid = false, got
							}
						}
					})
				}
				wg.Wait()
			})
			a.note("%d opens, %d locks", opens.Load(), locks.Load())
			modest := a.client4(100)
			if !modest.introduce("modest") || !modest.createSession() {
				a.Fatal("no session for another client")
			}
			if _, status := modest.open("prey", "other", "x"); status != nfs4.OK {
				a.Errorf("OPEN of another client: %v", status)
			}
		},
	},
	{
		name:  "guessed sessions, clients and stateids",
		does:  "calls with session IDs, client IDs and stateids at random, and near those of a client with an open file",
		holds: "none is anybody's",
		on:    isNative,
		run: func(a *assault) {
			a.volume("prey", "64Mi")
			victim := a.client4(200)
			if !victim.introduce("victim") || !victim.createSession() {
				a.Fatal("no session")
			}
			theirs, status := victim.open("prey", "secret", "x")
			if status != nfs4.OK {
				a.Fatalf("OPEN: %v", status)
			}
			thief := a.client4(0)
			if !thief.introduce("thief") || !thief.createSession() {
				a.Fatal("no session")
			}
			mine := thief.session
			guesses := 0
			a.beside(func() {
				for until := time.Now().Add(a.window); time.Now().Before(until); guesses++ {
					thief.session = mine
					id := theirs
					if guesses > 0 { // first the right one, which is another client's
						id.Other[a.rng.IntN(12)] += byte(a.rng.IntN(3))
						id.Seqid = a.rng.Uint32N(3)
					}
					if status := thief.write("prey", "secret", id); status == nfs4.OK {
						a.Fatalf("WRITE with the stateid %x", id)
					}
					binary.BigEndian.PutUint64(thief.session[a.rng.IntN(9):], a.rng.Uint64())
					if status, _ := thief.call(nfs4.OpDestroySession, &nfs4.DestroySessionArgs{SessionID: thief.session}); thief.session != mine && status == nfs4.OK {
						a.Fatalf("DESTROY_SESSION of %x", thief.session)
					}
					if status, _ := thief.call(nfs4.OpDestroyClientID, &nfs4.ClientIDArgs{ClientID: victim.id + a.rng.Uint64N(5) - 2}); status == nfs4.OK {
						a.Fatal("DESTROY_CLIENTID of another")
					}
				}
			})
			if status := victim.write("prey", "secret", theirs); status != nfs4.OK {
				a.Errorf("the victim's WRITE: %v", status)
			}
			a.note("%d guesses", guesses)
		},
	},
	{
		name: "the client ID of another",
		does: "asks for a client's ID by a lock of its file and on the status page, and with it makes and ends sessions and the client from another " +
			"address, comes by its name as it does when it starts again, as another user, and with a verifier that is guessed",
		holds: "nobody tells the ID, nothing can be done with it, and the client keeps what it has open and locked",
		on:    isNative,
		run: func(a *assault) {
			a.volume("prey", "64Mi")
			const name = "Linux NFSv4.1 victim"
			victim := a.client4(200)
			if !victim.introduce(name) || !victim.createSession() {
				a.Fatal("no session")
			}
			id := victim.mustOpen("prey", "file")
			lock, status := victim.lockAll(id)
			if status != nfs4.OK {
				a.Fatalf("LOCK: %v", status)
			}
			thief := a.ready4(0, "thief")
			n, ops := at("prey", "file")
			args := nfs4.LocktArgs{Type: nfs4.LockWrite, Length: 1, Owner: nfs4.StateOwner{ClientID: thief.id, Owner: []byte("l")}}
			status, d := thief.sequenced(n+1, args.Append(nfs4.OpLockt.Append(ops)))
			result(&d, 2)
			var denied nfs4.LocktRes
			if denied.Decode(&d); status != nfs4.ErrDenied || d.Err() != nil || string(denied.Denied.Owner.Owner) != "all" {
				a.Fatalf("LOCKT: %v, %+v", status, denied)
			}
			if denied.Denied.Owner.ClientID == victim.id {
				a.Error("LOCKT tells the client ID of another")
			}
			var page []byte
			eventually(a, 10*time.Second, "the status page does not list the client", func() bool {
				resp, err := http.Get("http://" + httpAddress + "/")
				must(a, err)
				page, err = io.ReadAll(resp.Body)
				resp.Body.Close()
				must(a, err)
				return bytes.Contains(page, []byte("Linux NFSv4 victim"))
			})
			if bytes.Contains(page, fmt.Appendf(nil, "%x", victim.id)) {
				a.Error("the status page tells client IDs")
			}
			// All the same the thief has it, as from somebody who may list clients.
			tries := 0
			a.beside(func() {
				for until := time.Now().Add(a.window); time.Now().Before(until); tries++ {
					seq := victim.seq + uint32(tries%4) - 1
					status, d := thief.call(nfs4.OpCreateSession, &nfs4.CreateSessionArgs{ClientID: victim.id, SequenceID: seq, Fore: channel4, Back: channel4})
					var made nfs4.CreateSessionRes
					if made.Decode(&d); status == nfs4.OK {
						thief.call(nfs4.OpDestroySession, &nfs4.DestroySessionArgs{SessionID: made.SessionID})
						a.Fatalf("CREATE_SESSION %d of another", seq)
					}
					if status, _ := thief.call(nfs4.OpDestroyClientID, &nfs4.ClientIDArgs{ClientID: victim.id}); status == nfs4.OK {
						a.Fatal("DESTROY_CLIENTID of another")
					}
					thief.cred = caller(uint32(tries%2), 0)
					for _, verifier := range []nfs4.Verifier{{2}, {byte(a.rng.Uint32()), byte(a.rng.Uint32()) | 2}, {}, {255, 255, 255, 255, 255, 255, 255, 255}} {
						exchange := nfs4.ExchangeIDArgs{OwnerID: []byte(name), Verf: verifier}
						if tries%3 == 0 {
							exchange.Flags = nfs4.ExchangeUpdConfirmedRecA
						}
						if status, _ := thief.call(nfs4.OpExchangeID, &exchange); status == nfs4.OK {
							a.Fatalf("EXCHANGE_ID with the verifier %x by the name of another", verifier)
						}
					}
					thief.cred = caller(0, 0)
					if tries%100 == 0 { // as every client does within a lease
						if status := victim.write("prey", "file", id); status != nfs4.OK {
							a.Fatalf("the victim's WRITE: %v", status)
						}
					}
				}
			})
			if status := thief.write("prey", "file", lock); status == nfs4.OK {
				a.Errorf("WRITE with the lock's stateid %x", lock)
			}
			if status := victim.write("prey", "file", lock); status != nfs4.OK {
				a.Errorf("the victim's WRITE: %v", status)
			}
			if made, status := victim.addSession(); status != nfs4.OK || made.SequenceID != victim.seq {
				a.Errorf("another session of the victim: %v", status)
			}
			a.note("%d tries", tries)
		},
	},
	{
		name:  "absurd COMPOUNDs",
		does:  "COMPOUNDs of version 4.1 that announce 2^32-1 operations, have tens of thousands, long tags, unknown operations, slots that are not there, or end anywhere",
		holds: "others are served",
		on:    isNative,
		also:  kinds{race},
		run: func(a *assault) {
			c := a.client4(0)
			if !c.introduce("absurd") || !c.createSession() {
				a.Fatal("no session")
			}
			many := slices.Repeat(nfs4.OpPutrootfh.Append(nil), 60_000)
			sequence := func(slot, highest uint32) []byte {
				args := nfs4.SequenceArgs{SessionID: c.session, SequenceID: 1, SlotID: slot, HighestSlotID: highest}
				return args.Append(nfs4.OpSequence.Append(nil))
			}
			head := func(tag int, minor, n uint32) []byte {
				return (&nfs4.CompoundArgs{Tag: make([]byte, tag), MinorVersion: minor, NumOps: n}).Append(nil)
			}
			bodies := [][]byte{
				head(0, 1, 1<<32-1),
				append(head(0, 1, 1<<32-1), many...),
				append(head(0, 1, 60_000), many...),
				append(append(head(0, 1, 60_001), sequence(0, 0)...), many...),
				append(head(1024, 1, 1), sequence(1<<32-1, 1<<32-1)...),
				append(head(0, 1, 1), sequence(1<<31, 5)...),
				append(head(0, 0, 60_000), many...),
				append(head(0, 1<<32-1, 60_000), many...),
				append(head(0, 1, 2), nfs4.OpNum(7777).Append(nil)...),
				xdr.AppendUint32(nil, 1<<32-1),
			}
			for n := 1; n < len(bodies[4]); n += 3 {
				bodies = append(bodies, bodies[4][:n])
			}
			calls := 0
			a.beside(func() {
				for until := time.Now().Add(a.window); time.Now().Before(until); calls++ {
					ctx, cancel := context.WithTimeout(a.ctx, 10*time.Second)
					_, err := c.conn.Do(ctx, header4(c.cred), encoded(bodies[calls%len(bodies)]))
					cancel()
					var refused *rpc.RPCError
					if err != nil && !errors.As(err, &refused) {
						a.Fatalf("call %d is not answered: %v", calls%len(bodies), err)
					}
				}
			})
			a.note("%d calls", calls)
		},
	},
}

func isNative(s setup) bool { return s.engine == "native" }

// encoded are arguments as they are.
type encoded []byte

func (e encoded) Append(b []byte) []byte { return append(b, e...) }

// client4 is a client of version 4.1, or 4.2, which makes one call at a time.
type client4 struct {
	a        *assault // nil: a victim's
	ctx      context.Context
	conn     *rpc.Client
	cred     rpc.Auth // of its calls
	verifier byte
	in42     bool // its calls
	id       uint64
	seq      uint32 // of CREATE_SESSION
	session  nfs4.SessionID
	slots    uint32 // of the session
	slot     uint32 // the sequence of slot 0
	lanes    []*lane4
	exists   bool  // the files that it opens
	err      error // of the last call of a victim that had no reply
}

// channel4 is what clients ask for.
var channel4 = nfs4.ChannelAttrs{MaxRequestSize: 1 << 20, MaxResponseSize: 1 << 20, MaxResponseSizeCached: 8192, MaxOperations: 16, MaxRequests: 64}

// client4 connects from the attacker's nth address.
func (a *assault) client4(n int) *client4 { return a.client4From(mallory(n)) }

func (a *assault) client4From(address string) *client4 {
	conn, err := dialFrom(a.ctx, address, nfsAddress)
	if err != nil {
		a.Errorf("connect: %v", err)
		conn, _ = net.Pipe()
	}
	c := &client4{a: a, ctx: a.ctx, conn: rpc.NewClient(conn), cred: caller(0, 0), verifier: 1}
	a.Cleanup(func() { c.conn.Close() })
	return c
}

func header4(cred rpc.Auth) rpc.CallHeader {
	return rpc.CallHeader{RPCVersion: rpc.Version, Prog: nfs4.Program, Vers: nfs4.Version, Proc: nfs4.ProcCompound, Cred: cred}
}

// send makes a COMPOUND by a connection, and returns its reply.
func (c *client4) send(conn *rpc.Client, n uint32, ops []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(c.ctx, 30*time.Second)
	defer cancel()
	minor := uint32(1)
	if c.in42 {
		minor = 2
	}
	return conn.Do(ctx, header4(c.cred), encoded(append((&nfs4.CompoundArgs{MinorVersion: minor, NumOps: n}).Append(nil), ops...)))
}

// compound calls, and returns the status of the last operation and what follows it.
func (c *client4) compound(n uint32, ops []byte) (nfs4.Status, xdr.Decoder) {
	b, err := c.send(c.conn, n, ops)
	if err != nil {
		if c.err = err; c.a != nil {
			c.a.Errorf("COMPOUND: %v", err)
		}
		return nfs4.ErrServerFault, xdr.Decoder{}
	}
	d := xdr.NewDecoder(b)
	var head nfs4.CompoundRes
	head.Decode(&d)
	return head.Status, d
}

// call does one operation without SEQUENCE, and returns what its result has after the status.
func (c *client4) call(op nfs4.OpNum, args rpc.Args) (nfs4.Status, xdr.Decoder) {
	status, d := c.compound(1, args.Append(op.Append(nil)))
	d.Uint32() // the operation
	return status, d
}

// introduce is EXCHANGE_ID.
func (c *client4) introduce(owner string) bool {
	status, d := c.call(nfs4.OpExchangeID, &nfs4.ExchangeIDArgs{OwnerID: []byte(owner), Verf: nfs4.Verifier{c.verifier}})
	var res nfs4.ExchangeIDRes
	res.Decode(&d)
	c.id, c.seq = res.ClientID, res.SequenceID
	return status == nfs4.OK && d.Err() == nil
}

func (c *client4) createSession() bool {
	status, d := c.call(nfs4.OpCreateSession, &nfs4.CreateSessionArgs{ClientID: c.id, SequenceID: c.seq, Fore: channel4, Back: channel4})
	var res nfs4.CreateSessionRes
	res.Decode(&d)
	c.session, c.slots, c.slot, c.lanes = res.SessionID, res.Fore.MaxRequests, 0, nil
	if status != nfs4.OK || d.Err() != nil {
		return false
	}
	status, _ = c.sequenced(1, (&nfs4.ReclaimCompleteArgs{}).Append(nfs4.OpReclaimComplete.Append(nil)))
	return status == nfs4.OK
}

// sequenced does operations after SEQUENCE.
func (c *client4) sequenced(n uint32, ops []byte) (nfs4.Status, xdr.Decoder) {
	c.slot++
	args := nfs4.SequenceArgs{SessionID: c.session, SequenceID: c.slot}
	return c.compound(n+1, append(args.Append(nfs4.OpSequence.Append(nil)), ops...))
}

// at begins operations on a file of a volume.
func at(path ...string) (n uint32, ops []byte) {
	ops = nfs4.OpPutrootfh.Append(nil)
	for _, name := range path {
		ops = (&nfs4.NameArgs{Name: []byte(name)}).Append(nfs4.OpLookup.Append(ops))
	}
	return uint32(1 + len(path)), ops
}

// ops4 are operations of a COMPOUND.
type ops4 struct {
	n     uint32
	bytes []byte
}

// on begins operations on a file of a volume, and onFH on that of a handle.
func on(path ...string) (o ops4) {
	o.n, o.bytes = at(path...)
	return o
}

func onFH(fh nfs4.FH) ops4 { return ops4{}.do(nfs4.OpPutfh, &nfs4.PutfhArgs{FH: fh}) }

// do adds an operation. args is nil if it has none.
func (o ops4) do(num nfs4.OpNum, args rpc.Args) ops4 {
	o.n++
	if o.bytes = num.Append(slices.Clip(o.bytes)); args != nil {
		o.bytes = args.Append(o.bytes)
	}
	return o
}

// name adds one that has a name.
func (o ops4) name(num nfs4.OpNum, name string) ops4 {
	return o.do(num, &nfs4.NameArgs{Name: []byte(name)})
}

// and adds others.
func (o ops4) and(p ops4) ops4 { return ops4{o.n + p.n, slices.Concat(o.bytes, p.bytes)} }

// result skips to the result of the last operation, if the others were as at has them.
func result(d *xdr.Decoder, names int) {
	d.Fixed(4 + 4 + 16 + 5*4) // SEQUENCE
	d.Fixed((1 + names) * 8)  // PUTROOTFH, LOOKUP
	d.Uint32()                // the operation
}

func (c *client4) open(volume, name, owner string) (nfs4.Stateid, nfs4.Status) {
	n, ops := at(volume)
	args := nfs4.OpenArgs{
		ShareAccess: nfs4.ShareAccessBoth, Owner: nfs4.StateOwner{ClientID: c.id, Owner: []byte(owner)},
		Create: !c.exists, Mode: nfs4.Unchecked, Attr: nfs4.Sattr{Mask: nfs4.BitmapOf(nfs4.AttrMode), Mode: 0o600},
		Claim: nfs4.ClaimNull, Name: []byte(name),
	}
	status, d := c.sequenced(n+1, args.Append(nfs4.OpOpen.Append(ops)))
	var res nfs4.OpenRes
	if status == nfs4.OK {
		result(&d, 1)
		res.Decode(&d)
	}
	return res.Stateid, status
}

func (c *client4) lock(volume, name string, args nfs4.LockArgs) (nfs4.Stateid, nfs4.Status) {
	n, ops := at(volume, name)
	status, d := c.sequenced(n+1, args.Append(nfs4.OpLock.Append(ops)))
	var res nfs4.LockRes
	if status == nfs4.OK {
		result(&d, 2)
		res.Decode(&d)
	}
	return res.Stateid, status
}

func (c *client4) write(volume, name string, id nfs4.Stateid) nfs4.Status {
	n, ops := at(volume, name)
	args := nfs4.WriteArgs{Stateid: id, Data: []byte("x")}
	status, _ := c.sequenced(n+1, args.Append(nfs4.OpWrite.Append(ops)))
	return status
}
