package nfstest4

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/nfs/xdr"
)

// clientTests are the records that a server has of its clients: RFC 8881 sections 2.4, 18.35 to 18.37
// and 18.50.
var clientTests = []test{
	{"records", testRecords},
	{"records updated", testRecordsUpdated},
	{"exchange id arguments", testExchangeIDArgs},
	{"exchange id in a session", testExchangeIDInSession},
	{"session of another principal", testSessionPrincipal},
	{"create session arguments", testCreateSessionArgs},
	{"channels too small", testChannelsTooSmall},
	{"smallest channels", testSmallestChannels},
	{"create session in a session", testCreateSessionInSession},
	{"failure is no session", testFailureNoSession},
	{"destroy session elsewhere", testDestroySessionElsewhere},
	{"destroy session with others", testDestroySessionOthers},
	{"destroy unconfirmed client", testDestroyUnconfirmed},
}

// other is the client with another principal.
func (c *client) other() *client { return c.as(1000, 1000) }

// gone makes the server forget the client when the test ends.
func (c *client) gone() *client {
	c.Cleanup(func() {
		if err := c.leave(); err != nil {
			c.Errorf("clean up: %v", err)
		}
	})
	return c
}

// Section 18.35.4 cases 1 to 5: who comes, after whom, with which verifier and principal.
func testRecords(e *env) {
	idle := func(c *client) { // confirmed, and without state
		c.start()
		c.wants(c.bare(destroySession(c.session)), nfs4.OpDestroySession, 1, nfs4.OK)
	}
	for _, tt := range []struct {
		name              string
		before            func(c *client)
		verifier, another bool // those of the second EXCHANGE_ID differ from the first
		want              nfs4.Status
		same              bool // the client ID is that of the first
		stays             bool // so does the first record
	}{
		{"unconfirmed", func(c *client) { c.exchangeID() }, false, false, nfs4.OK, false, false},
		{"unconfirmed, verifier", func(c *client) { c.exchangeID() }, true, false, nfs4.OK, false, false},
		{"unconfirmed, principal", func(c *client) { c.exchangeID() }, false, true, nfs4.OK, false, false},
		{"unconfirmed, both", func(c *client) { c.exchangeID() }, true, true, nfs4.OK, false, false},
		{"confirmed", (*client).start, false, false, nfs4.OK, true, true},
		{"confirmed, verifier", (*client).start, true, false, nfs4.OK, false, true},
		{"confirmed, principal", (*client).start, false, true, nfs4.ErrClidInUse, false, true},
		{"confirmed, both", (*client).start, true, true, nfs4.ErrClidInUse, false, true},
		{"idle", idle, false, false, nfs4.OK, true, true},
		{"idle, verifier", idle, true, false, nfs4.OK, false, true},
		{"idle, principal", idle, false, true, nfs4.OK, false, false},
		{"idle, both", idle, true, true, nfs4.OK, false, false},
	} {
		e.Run(strings.ReplaceAll(tt.name, " ", "-"), func(t *testing.T) {
			first := e.stranger(t).gone()
			tt.before(first)
			second := *first
			if tt.another {
				second = *first.other()
			}
			if tt.verifier {
				second.verf[3]++
			}
			r := second.bare(exchangeID(second.exchangeIDArgs()))
			second.wants(r, nfs4.OpExchangeID, 1, tt.want)
			if r.status == nfs4.OK {
				res := get[nfs4.ExchangeIDRes](t, r)
				if same := res.ClientID == first.id; same != tt.same || res.Flags&nfs4.ExchangeConfirmedR != 0 != tt.same {
					t.Errorf("client ID %x, flags %#x; the first was %x", res.ClientID, res.Flags, first.id)
				}
			}
			args := first.createSessionArgs()
			r = first.bare(createSession(args))
			if tt.stays {
				first.wants(r, nfs4.OpCreateSession, 1, nfs4.OK)
			} else {
				first.wants(r, nfs4.OpCreateSession, 1, nfs4.ErrStaleClientID)
			}
		})
	}
}

// Section 18.35.4 cases 6 to 9: the same of an update. Of two that are both right any will do.
func testRecordsUpdated(e *env) {
	unconfirmed := func(c *client) { c.exchangeID() }
	for _, tt := range []struct {
		name              string
		before            func(c *client)
		verifier, another bool
		want              []nfs4.Status
	}{
		{"of nobody", func(*client) {}, false, false, is(nfs4.ErrNoEnt)},
		{"unconfirmed", unconfirmed, false, false, is(nfs4.ErrNoEnt)},
		{"unconfirmed, verifier", unconfirmed, true, false, is(nfs4.ErrNoEnt)},
		{"unconfirmed, principal", unconfirmed, false, true, is(nfs4.ErrNoEnt)},
		{"unconfirmed, both", unconfirmed, true, true, is(nfs4.ErrNoEnt)},
		{"confirmed", (*client).start, false, false, is(nfs4.OK)},
		{"confirmed, verifier", (*client).start, true, false, is(nfs4.ErrNotSame)},
		{"confirmed, principal", (*client).start, false, true, is(nfs4.ErrPerm)},
		{"confirmed, both", (*client).start, true, true, is(nfs4.ErrNotSame, nfs4.ErrPerm)},
	} {
		e.Run(strings.ReplaceAll(tt.name, " ", "-"), func(t *testing.T) {
			first := e.stranger(t).gone()
			tt.before(first)
			second := *first
			if tt.another {
				second = *first.other()
			}
			if tt.verifier {
				second.verf[3]++
			}
			args := second.exchangeIDArgs()
			args.Flags |= nfs4.ExchangeUpdConfirmedRecA
			r := second.bare(exchangeID(args))
			second.wants(r, nfs4.OpExchangeID, 1, tt.want...)
			if r.status == nfs4.OK && get[nfs4.ExchangeIDRes](t, r).ClientID != first.id {
				t.Error("it has another client ID")
			}
			if first.session != (nfs4.SessionID{}) {
				first.ok(putrootfh()) // it is as it was
			}
		})
	}
}

// Section 18.35.3.
func testExchangeIDArgs(e *env) {
	for _, tt := range []struct {
		name   string
		change func(a *nfs4.ExchangeIDArgs)
	}{
		{"no flags", func(a *nfs4.ExchangeIDArgs) { a.Flags = 0 }},
		{"all flags", func(a *nfs4.ExchangeIDArgs) {
			a.Flags = nfs4.ExchangeSuppMovedRefer | nfs4.ExchangeSuppMovedMigr | nfs4.ExchangeBindPrincStateid | nfs4.ExchangeMaskPNFS
		}},
		{"implementation", func(a *nfs4.ExchangeIDArgs) {
			a.HasImpl, a.Impl = true, nfs4.ImplID{Domain: []byte("example.org"), Name: []byte("a client"), Date: nfs4.Time{Sec: 1, Nsec: 2}}
		}},
		{"owner of one byte", func(a *nfs4.ExchangeIDArgs) { a.OwnerID = []byte{7} }},
		{"longest owner", func(a *nfs4.ExchangeIDArgs) {
			a.OwnerID = append(bytes.Clone(a.OwnerID), make([]byte, nfs4.OpaqueLimit-len(a.OwnerID))...)
		}},
	} {
		e.Run(strings.ReplaceAll(tt.name, " ", "-"), func(t *testing.T) {
			c := e.stranger(t)
			args := c.exchangeIDArgs()
			tt.change(&args)
			r := c.bare(exchangeID(args))
			c.wants(r, nfs4.OpExchangeID, 1, nfs4.OK)
			if id := get[nfs4.ExchangeIDRes](t, r).ClientID; r.status == nfs4.OK {
				c.wants(c.bare(destroyClientID(id)), nfs4.OpDestroyClientID, 1, nfs4.OK)
			}
		})
	}
	// Bits that are not defined.
	defined := uint32(nfs4.ExchangeSuppMovedRefer | nfs4.ExchangeSuppMovedMigr | nfs4.ExchangeBindPrincStateid | nfs4.ExchangeMaskPNFS | nfs4.ExchangeUpdConfirmedRecA)
	if e.minor == 2 {
		defined |= nfs4.ExchangeSuppFenceOps
	}
	for bit := range 32 {
		if flag := uint32(1) << bit; flag&defined == 0 {
			c := e.stranger(e.T)
			args := c.exchangeIDArgs()
			args.Flags |= flag
			if r := c.bare(exchangeID(args)); r.status != nfs4.ErrInval {
				e.Errorf("flag %#x: %v", flag, r.status)
			}
		}
	}
	// What has more than its type: two implementations, an owner of 1025 bytes.
	c := e.stranger(e.T)
	args := c.exchangeIDArgs()
	impl := xdr.AppendUint64(xdr.AppendOpaque(xdr.AppendOpaque(nil, nil), nil), 0) // and nanoseconds
	two := (&args).Append(nil)
	two = xdr.AppendUint32(two[:len(two)-4], 2)
	for range 2 {
		two = xdr.AppendUint32(append(two, impl...), 0)
	}
	long := args
	long.OwnerID = make([]byte, nfs4.OpaqueLimit+1)
	for name, args := range map[string]rpc.Args{"two implementations": raw(two), "owner of 1025 bytes": &long} {
		c.malformed(name, op{nfs4.OpExchangeID, args, &nfs4.ExchangeIDRes{}})
	}
}

// malformed checks that an operation that stands alone can't be decoded: section 15.1.1.1 has
// BADXDR, or an error of RPC where all is decoded first. also are other statuses that are right.
func (c *client) malformed(name string, o op, also ...nfs4.Status) {
	c.Helper()
	r, err := c.try(&call{minor: c.minor, ops: []op{o}})
	var refused *rpc.RPCError
	switch {
	case errors.As(err, &refused) && refused.Accept == rpc.GarbageArgs:
	case err != nil:
		c.Errorf("%s: %v", name, err)
	case r.status != nfs4.ErrBadXDR && !slices.Contains(also, r.status):
		c.Errorf("%s: %v, want BADXDR", name, r.status)
	}
}

// Section 18.35.3: it may come within a session, for whatever client.
func testExchangeIDInSession(e *env) {
	c := e.stranger(e.T)
	args := c.exchangeIDArgs()
	args.Flags = nfs4.ExchangeUsePNFSDS
	res := get[nfs4.ExchangeIDRes](e, e.ok(exchangeID(args), putrootfh()))
	if res.ClientID == e.id || res.Flags&nfs4.ExchangeMaskPNFS == 0 {
		e.Errorf("%+v", res)
	}
	e.ok(destroyClientID(res.ClientID), putrootfh())
	if res := get[nfs4.ExchangeIDRes](e, e.ok(exchangeID(e.exchangeIDArgs()))); res.ClientID != e.id || res.Flags&nfs4.ExchangeConfirmedR == 0 {
		e.Errorf("of the session's own client %x: %+v", e.id, res)
	}
}

// Section 18.36.4: it takes the principal of EXCHANGE_ID to confirm a client ID. When it is, any of
// the client's may make a session.
func testSessionPrincipal(e *env) {
	c := e.stranger(e.T).gone()
	c.exchangeID()
	args := c.createSessionArgs()
	for range 2 { // which does not move the sequence
		c.wants(c.other().bare(createSession(args)), nfs4.OpCreateSession, 1, nfs4.ErrClidInUse)
	}
	first := c.bare(createSession(args))
	c.wants(first, nfs4.OpCreateSession, 1, nfs4.OK)
	if again := c.other().bare(createSession(args)); !bytes.Equal(first.bytes, again.bytes) {
		e.Errorf("a retransmission by another principal: %v", again.status)
	}
	c.use(get[nfs4.CreateSessionRes](e, first))
	c.ok(putrootfh())
	second := *c.other()
	second.createSession(second.createSessionArgs())
	second.ok(putrootfh())
	c.createSeq = second.createSeq
	c.wants(second.bare(destroySession(second.session)), nfs4.OpDestroySession, 1, nfs4.OK)
	c.ok(putrootfh())
}

// Section 18.36.3.
func testCreateSessionArgs(e *env) {
	sys := nfs4.CallbackSec{Flavor: rpc.AuthSys, Sys: rpc.SysCred{Stamp: 5, MachineName: []byte("a machine"), UID: 7, GID: 11}}
	sys.Sys.SetGroups(13, 17, 19)
	gss := nfs4.CallbackSec{Flavor: rpc.AuthGSS, GSSService: 3, GSSFromServer: []byte("server's"), GSSFromClient: []byte("client's")}
	none := nfs4.CallbackSec{Flavor: rpc.AuthNone}
	for _, tt := range []struct {
		name   string
		change func(a *nfs4.CreateSessionArgs)
	}{
		{"no callback", func(a *nfs4.CreateSessionArgs) { a.SecParms = nil }},
		{"callbacks by all", func(a *nfs4.CreateSessionArgs) { a.SecParms = []nfs4.CallbackSec{none, sys, gss} }},
		{"callbacks by all, another order", func(a *nfs4.CreateSessionArgs) { a.SecParms = []nfs4.CallbackSec{none, gss, sys} }},
		{"rdma", func(a *nfs4.CreateSessionArgs) {
			a.Fore.RDMA, a.Fore.RDMAIRD, a.Back.RDMA, a.Back.RDMAIRD = true, 57, true, 57
		}},
		{"padding", func(a *nfs4.CreateSessionArgs) { a.Fore.HeaderPadSize = 64 }},
		{"one slot", func(a *nfs4.CreateSessionArgs) { a.Fore.MaxRequests = 1 }},
		{"many slots", func(a *nfs4.CreateSessionArgs) { a.Fore.MaxRequests = 500 }},
		{"persistent", func(a *nfs4.CreateSessionArgs) { a.Flags = nfs4.SessionPersist }},
		{"on rdma", func(a *nfs4.CreateSessionArgs) { a.Flags = nfs4.SessionConnRDMA }},
	} {
		e.Run(strings.ReplaceAll(tt.name, " ", "-"), func(t *testing.T) {
			c := e.with(t)
			args := c.createSessionArgs()
			tt.change(&args)
			r := c.bare(createSession(args))
			c.wants(r, nfs4.OpCreateSession, 1, nfs4.OK)
			res := get[nfs4.CreateSessionRes](t, r)
			e.createSeq++
			if res.SequenceID != args.SequenceID || res.Flags&^args.Flags != 0 || res.Flags&nfs4.SessionConnRDMA != 0 || res.Fore.MaxRequests > args.Fore.MaxRequests {
				t.Errorf("%+v", res)
			}
			c.use(res)
			c.ok(putrootfh())
			c.wants(c.bare(destroySession(c.session)), nfs4.OpDestroySession, 1, nfs4.OK)
		})
	}
	for _, flags := range []uint32{0x8, 0xf, 0x80000000} {
		args := e.createSessionArgs()
		args.Flags = flags
		if r := e.bare(createSession(args)); r.status != nfs4.ErrInval {
			e.Errorf("flags %#x: %v", flags, r.status)
		}
	}
	// Two values of ca_rdma_ird, and a flavor that has no parameters.
	args := e.createSessionArgs()
	args.Fore.RDMA, args.Fore.RDMAIRD = true, 57
	b := (&args).Append(nil)
	const ird = 8 + 4 + 4 + 6*4 // where the array begins
	two := append(xdr.AppendUint32(bytes.Clone(b[:ird]), 2), b[ird+4:ird+8]...)
	e.malformed("two of rdma", op{nfs4.OpCreateSession, raw(append(two, b[ird+4:]...)), &nfs4.CreateSessionRes{}})
	args = e.createSessionArgs()
	args.SecParms = []nfs4.CallbackSec{{Flavor: 99}}
	e.malformed("flavor 99", op{nfs4.OpCreateSession, &args, &nfs4.CreateSessionRes{}}, nfs4.ErrInval)
	e.createSession(e.createSessionArgs()) // the sequence is where it was
	e.ok(putrootfh())
}

// Section 18.36.3: channels by which nothing could be said. The back channel's attributes count
// though there is none yet: BIND_CONN_TO_SESSION may make one.
func testChannelsTooSmall(e *env) {
	for name, change := range map[string]func(*nfs4.CreateSessionArgs){
		"requests":           func(a *nfs4.CreateSessionArgs) { a.Fore.MaxRequestSize = 20 },
		"responses":          func(a *nfs4.CreateSessionArgs) { a.Fore.MaxResponseSize = 0 },
		"callbacks":          func(a *nfs4.CreateSessionArgs) { a.Back.MaxRequestSize = 10 },
		"callbacks of one":   func(a *nfs4.CreateSessionArgs) { a.Back.MaxOperations = 1 },
		"callbacks' replies": func(a *nfs4.CreateSessionArgs) { a.Back.MaxResponseSize = 10 },
	} {
		e.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			c := e.stranger(t).gone()
			c.exchangeID()
			args := c.createSessionArgs()
			change(&args)
			for range 3 {
				c.wants(c.bare(createSession(args)), nfs4.OpCreateSession, 1, nfs4.ErrTooSmall)
			}
			// Section 18.36.4 has the failure move the sequence, and a server may remember it.
			args = c.createSessionArgs()
			if r := c.bare(createSession(args)); r.status != nfs4.OK {
				c.wants(r, nfs4.OpCreateSession, 1, nfs4.ErrTooSmall)
				args.SequenceID++
				c.createSession(args)
			} else {
				c.use(get[nfs4.CreateSessionRes](t, r))
			}
			c.ok(putrootfh())
		})
	}
}

// Section 18.36.3: what SEQUENCE and some more fits in will do.
func testSmallestChannels(e *env) {
	args := e.createSessionArgs()
	args.Fore = nfs4.ChannelAttrs{MaxRequestSize: 400, MaxResponseSize: 400, MaxResponseSizeCached: 400, MaxOperations: 16, MaxRequests: 1}
	e.createSession(args)
	if f := e.fore; f.MaxRequestSize > 400 || f.MaxResponseSize > 400 || f.MaxResponseSizeCached > 400 || f.MaxRequests != 1 {
		e.Errorf("more than was asked: %+v", f)
	}
	e.ok(putrootfh(), getfh())
	all := []uint32{nfs4.AttrSupportedAttrs, nfs4.AttrType, nfs4.AttrFHExpireType, nfs4.AttrChange, nfs4.AttrSize, nfs4.AttrFSID, nfs4.AttrLeaseTime, nfs4.AttrFileID}
	ops := []op{putrootfh()}
	for range 6 {
		ops = append(ops, getattrs(all...))
	}
	for _, cache := range []bool{false, true} {
		*e.seq++
		seq := sequence(nfs4.SequenceArgs{SessionID: e.session, SequenceID: *e.seq, CacheThis: cache})
		r := e.bare(append([]op{seq}, ops...)...)
		const header = 24 // of RPC, which counts
		if r.status != nfs4.ErrRepTooBig && (!cache || r.status != nfs4.ErrRepTooBigToCache) || r.last() != nfs4.OpGetattr || header+len(r.bytes) > 400 {
			e.Errorf("to be cached %t: %v at %v, %d bytes", cache, r.status, r.last(), header+len(r.bytes))
		}
	}
	e.ok(putrootfh(), getfh())
}

// Section 18.36.3: it may come within a session, of whatever client. Its sequence is the client
// ID's, and not the session's.
func testCreateSessionInSession(e *env) {
	within := *e.client
	args := e.createSessionArgs()
	r := within.ok(createSession(args), putrootfh())
	res := get[nfs4.CreateSessionRes](e, r)
	if again := get[nfs4.CreateSessionRes](e, e.bare(createSession(args))); again.SessionID != res.SessionID || again.Fore != res.Fore {
		e.Errorf("sent again without SEQUENCE: %+v, it was %+v", again, res)
	}
	if again := get[nfs4.CreateSessionRes](e, within.ok(createSession(args))); again.SessionID != res.SessionID {
		e.Errorf("sent again after another SEQUENCE: %+v, it was %+v", again, res)
	}
	e.use(res)
	e.ok(putrootfh())
	within.ok(putrootfh())

	c := e.stranger(e.T).gone()
	c.exchangeID()
	c.use(get[nfs4.CreateSessionRes](e, within.ok(createSession(c.createSessionArgs()))))
	c.ok(putrootfh())
}

// Section 18.36.4: without a session no record changes.
func testFailureNoSession(e *env) {
	next := e.client.with(e.T)
	next.verf[3]++
	next.exchangeID()
	args := next.createSessionArgs()
	args.Fore.MaxRequestSize = 0
	next.wants(next.bare(createSession(args)), nfs4.OpCreateSession, 1, nfs4.ErrTooSmall)
	e.ok(putrootfh())
	if res := e.exchangeID(); res.Flags&nfs4.ExchangeConfirmedR == 0 {
		e.Error("the record is not confirmed any more")
	}
}

// Section 18.37.3: it comes by a connection of the session.
func testDestroySessionElsewhere(e *env) {
	keep := *e.client
	e.createSession(e.createSessionArgs())
	defer func() { keep.createSeq = e.createSeq }()
	stranger := *e.client
	stranger.conn = e.dial()
	stranger.wants(stranger.bare(destroySession(e.session)), nfs4.OpDestroySession, 1, nfs4.ErrConnNotBoundToSession)
	e.ok(putrootfh())
	stranger.ok(putrootfh()) // which makes it one
	stranger.wants(stranger.bare(destroySession(e.session)), nfs4.OpDestroySession, 1, nfs4.OK)
	e.wants(e.bare(e.next()), nfs4.OpSequence, 1, nfs4.ErrBadSession)
	keep.ok(putrootfh())
}

// Section 18.37.3: the session of another client, in any place; and its own in none but the last.
func testDestroySessionOthers(e *env) {
	c := e.stranger(e.T).gone()
	c.conn = e.conn
	c.start()
	e.ok(destroySession(c.session), putrootfh(), getfh())
	c.wants(c.bare(c.next()), nfs4.OpSequence, 1, nfs4.ErrBadSession)
	e.refused([]op{destroySession(c.session)}, nfs4.ErrBadSession)
	e.refused([]op{destroySession(nfs4.SessionID{})}, nfs4.ErrBadSession)
	e.wants(e.do(putrootfh(), destroySession(e.session), putrootfh()), nfs4.OpDestroySession, 3, nfs4.ErrNotOnlyOp)
	e.ok(putrootfh())
}

// Section 18.50.3.
func testDestroyUnconfirmed(e *env) {
	for _, how := range []func(id uint64) nfs4.Status{
		func(id uint64) nfs4.Status { return e.bare(destroyClientID(id)).status },
		func(id uint64) nfs4.Status { return e.do(destroyClientID(id)).status },
	} {
		c := e.stranger(e.T)
		c.exchangeID()
		for _, want := range is(nfs4.OK, nfs4.ErrStaleClientID, nfs4.ErrStaleClientID) {
			if got := how(c.id); got != want {
				e.Errorf("%v, want %v", got, want)
			}
		}
		c.wants(c.bare(createSession(c.createSessionArgs())), nfs4.OpCreateSession, 1, nfs4.ErrStaleClientID)
	}
	e.wants(e.bare(destroyClientID(0)), nfs4.OpDestroyClientID, 1, nfs4.ErrStaleClientID)
	// A client without a session, and with what it has open.
	c := e.newClient(e.T)
	c.ok(reclaimComplete(false))
	c.open(e.dir, opening{name: "f", create: true})
	c.wants(c.bare(destroySession(c.session)), nfs4.OpDestroySession, 1, nfs4.OK)
	c.wants(c.bare(destroyClientID(c.id)), nfs4.OpDestroyClientID, 1, nfs4.ErrClientIDBusy)
}
