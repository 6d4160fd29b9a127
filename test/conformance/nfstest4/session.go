package nfstest4

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/podnas/podnas/nfs/nfs4"
)

// sessionTests are clients and sessions: RFC 8881 sections 2.10 and 18.33 to 18.37, 18.46,
// 18.50 and 18.51.
var sessionTests = []test{
	{"exchange id", testExchangeID},
	{"exchange id refused", testExchangeIDRefused},
	{"exchange id update", testExchangeIDUpdate},
	{"another incarnation", testIncarnation},
	{"another principal", testPrincipal},
	{"create session", testCreateSession},
	{"create session limits", testSessionLimits},
	{"sequence refused", testSequenceRefused},
	{"sequence", testSequence},
	{"cached reply", testCachedReply},
	{"uncached reply", testUncachedReply},
	{"write sent again", testWriteAgain},
	{"false retry", testFalseRetry},
	{"retry of an error", testRetryOfError},
	{"retry at the same time", testRetryAtOnce},
	{"slots", testSlots},
	{"sequence wraps", testNoWrap},
	{"sizes", testSizes},
	{"less than was asked for", testLessThanAsked},
	{"bind connection", testBindConn},
	{"destroy session", testDestroySession},
	{"destroy client", testDestroyClientID},
	{"reclaim complete", testReclaimComplete},
}

func testExchangeID(e *env) {
	c := e.stranger(e.T)
	res := c.exchangeID()
	// Section 18.35.3: the server says what it is for, and whether it knows the client.
	if res.Flags&nfs4.ExchangeMaskPNFS == 0 {
		e.Errorf("flags %#x: neither of pNFS nor without it", res.Flags)
	}
	if res.Flags&(nfs4.ExchangeConfirmedR|nfs4.ExchangeUpdConfirmedRecA) != 0 {
		e.Errorf("flags %#x of a client that is not confirmed", res.Flags)
	}
	if len(res.MajorID) == 0 || len(res.Scope) == 0 || res.StateProtect.How != nfs4.ProtectNone {
		e.Errorf("owner %q, scope %q, protection %v", res.MajorID, res.Scope, res.StateProtect.How)
	}
	first := c.id
	c.createSession(c.createSessionArgs())
	// Section 18.35.4 case 2: the same again is the same client, confirmed now.
	again := c.exchangeID()
	if again.ClientID != first || again.Flags&nfs4.ExchangeConfirmedR == 0 {
		e.Errorf("again: client %x, flags %#x; it was %x", again.ClientID, again.Flags, first)
	}
	if !bytes.Equal(again.MajorID, res.MajorID) || !bytes.Equal(again.Scope, res.Scope) {
		e.Errorf("the server's owner and scope were %q, %q and are %q, %q", res.MajorID, res.Scope, again.MajorID, again.Scope)
	}
	c.ok(putrootfh()) // the session is as it was
	// Section 2.10.5: another owner is another client.
	other := e.stranger(e.T)
	if o := other.exchangeID(); o.ClientID == first {
		e.Errorf("two owners have the client ID %x", first)
	}
	if err := c.leave(); err != nil {
		e.Error(err)
	}
}

// Section 18.35.3 and .4.
func testExchangeIDRefused(e *env) {
	for _, tt := range []struct {
		name   string
		change func(a *nfs4.ExchangeIDArgs)
		want   []nfs4.Status
	}{
		{"unknown flag", func(a *nfs4.ExchangeIDArgs) { a.Flags |= 0x10 }, is(nfs4.ErrInval)},
		{"flag of the server", func(a *nfs4.ExchangeIDArgs) { a.Flags |= nfs4.ExchangeConfirmedR }, is(nfs4.ErrInval)},
		{"ssv", func(a *nfs4.ExchangeIDArgs) { a.StateProtect.How = nfs4.ProtectSSV }, is(nfs4.ErrEncrAlgUnsupp, nfs4.ErrHashAlgUnsupp, nfs4.ErrInval)},
		{"protection without rpcsec_gss", func(a *nfs4.ExchangeIDArgs) { a.StateProtect.How = nfs4.ProtectMachCred }, is(nfs4.ErrInval)},
		{"update of nobody", func(a *nfs4.ExchangeIDArgs) { a.Flags |= nfs4.ExchangeUpdConfirmedRecA }, is(nfs4.ErrNoEnt)}, // case 7
	} {
		e.Run(strings.ReplaceAll(tt.name, " ", "-"), func(t *testing.T) {
			c := e.stranger(t)
			args := c.exchangeIDArgs()
			tt.change(&args)
			c.wants(c.bare(exchangeID(args)), nfs4.OpExchangeID, 1, tt.want...)
		})
	}
}

// Section 18.35.4 cases 6, 8 and 9.
func testExchangeIDUpdate(e *env) {
	args := e.exchangeIDArgs()
	args.Flags |= nfs4.ExchangeUpdConfirmedRecA
	r := e.bare(exchangeID(args))
	if res := get[nfs4.ExchangeIDRes](e, r); r.status != nfs4.OK || res.ClientID != e.id || res.Flags&nfs4.ExchangeConfirmedR == 0 {
		e.Errorf("update: %v, %+v", r.status, res)
	}
	other := args
	other.Verf[0] ^= 1
	e.wants(e.bare(exchangeID(other)), nfs4.OpExchangeID, 1, nfs4.ErrNotSame)
	e.wants(e.as(1000, 1000).bare(exchangeID(args)), nfs4.OpExchangeID, 1, nfs4.ErrPerm)
}

// Section 18.35.4 case 5: another verifier is the client after its restart. The one before
// is there until CREATE_SESSION, and then all of it is gone.
func testIncarnation(e *env) {
	fh, id := e.client.open(e.dir, opening{name: "f", create: true, deny: nfs4.ShareDenyBoth})
	before := *e.client
	now := e.client.with(e.T)
	now.verf[0] ^= 1
	if res := now.exchangeID(); res.ClientID == before.id || res.Flags&nfs4.ExchangeConfirmedR != 0 {
		e.Errorf("another incarnation: %x, flags %#x; the one before is %x", res.ClientID, res.Flags, before.id)
	}
	before.ok(putfh(fh), read(id, 0, 1))
	now.createSession(now.createSessionArgs())
	now.ok(reclaimComplete(false))
	next := before.next()
	before.wants(before.bare(next, putrootfh()), nfs4.OpSequence, 1, nfs4.ErrBadSession)
	args := before.createSessionArgs()
	before.wants(before.bare(createSession(args)), nfs4.OpCreateSession, 1, nfs4.ErrStaleClientID)
	now.open(e.dir, opening{name: "f"}) // nobody denies it
	now.refused([]op{putfh(fh), read(id, 0, 1)}, nfs4.ErrBadStateid)
}

// Section 18.35.4 case 3, section 18.36.3: an owner belongs to its principal.
func testPrincipal(e *env) {
	e.client.open(e.dir, opening{name: "f", create: true})
	e.wants(e.as(1000, 1000).bare(exchangeID(e.exchangeIDArgs())), nfs4.OpExchangeID, 1, nfs4.ErrClidInUse)
	c := e.stranger(e.T)
	c.exchangeID()
	c.wants(c.as(1000, 1000).bare(createSession(c.createSessionArgs())), nfs4.OpCreateSession, 1, nfs4.ErrClidInUse)
	c.createSession(c.createSessionArgs())
	// Users of the node share its session.
	r := c.as(1000, 1000).ok(putrootfh())
	if r.status != nfs4.OK {
		e.Errorf("another user of the node: %v", r.status)
	}
	if err := c.leave(); err != nil {
		e.Error(err)
	}
}

// Section 18.36.4.
func testCreateSession(e *env) {
	c := e.stranger(e.T)
	c.exchangeID()
	bad := c.createSessionArgs()
	bad.SequenceID++
	c.wants(c.bare(createSession(bad)), nfs4.OpCreateSession, 1, nfs4.ErrSeqMisordered)
	bad = c.createSessionArgs()
	bad.SequenceID--
	c.wants(c.bare(createSession(bad)), nfs4.OpCreateSession, 1, nfs4.ErrSeqMisordered)
	bad = c.createSessionArgs()
	bad.ClientID ^= 1
	c.wants(c.bare(createSession(bad)), nfs4.OpCreateSession, 1, nfs4.ErrStaleClientID)
	bad = c.createSessionArgs()
	bad.Flags = 0x80
	c.wants(c.bare(createSession(bad)), nfs4.OpCreateSession, 1, nfs4.ErrInval)

	args := c.createSessionArgs()
	first := c.bare(createSession(args))
	c.use(get[nfs4.CreateSessionRes](c, first))
	c.ok(putrootfh())
	again := c.bare(createSession(args))
	if !bytes.Equal(first.bytes, again.bytes) {
		e.Errorf("the replay has other bytes:\n%x\n%x", first.bytes, again.bytes)
	}
	c.ok(putrootfh())
	// A replay on another connection, and a second session.
	c.reconnect()
	if again = c.bare(createSession(args)); !bytes.Equal(first.bytes, again.bytes) {
		e.Error("the replay on another connection has other bytes")
	}
	one := *c
	c.createSession(c.createSessionArgs())
	if c.session == one.session {
		e.Error("two sessions have the same ID")
	}
	c.ok(putrootfh())
	one.ok(putrootfh())
	if err := c.leave(); err != nil {
		e.Error(err)
	}
}

// Section 18.36.3: the server may take less than was asked, never more; what is useless is
// TOOSMALL.
func testSessionLimits(e *env) {
	args := e.createSessionArgs()
	args.Fore = nfs4.ChannelAttrs{MaxRequestSize: 1 << 31, MaxResponseSize: 1 << 31, MaxResponseSizeCached: 1 << 31, MaxOperations: 1 << 31, MaxRequests: 1 << 31}
	e.createSession(args)
	for what, n := range map[string]uint32{
		"requests": e.fore.MaxRequestSize, "responses": e.fore.MaxResponseSize, "operations": e.fore.MaxOperations, "slots": e.fore.MaxRequests,
	} {
		if n == 0 || n >= 1<<31 {
			e.Errorf("%s: %d", what, n)
		}
	}
	args = e.createSessionArgs()
	args.Fore = nfs4.ChannelAttrs{MaxRequestSize: 4096, MaxResponseSize: 4096, MaxResponseSizeCached: 1024, MaxOperations: 8, MaxRequests: 3}
	e.createSession(args)
	if f := e.fore; f.MaxRequestSize > 4096 || f.MaxResponseSize > 4096 || f.MaxResponseSizeCached > 1024 || f.MaxOperations > 8 || f.MaxRequests > 3 {
		e.Errorf("more than was asked: %+v", f)
	}
	e.ok(putrootfh())
	for name, change := range map[string]func(*nfs4.ChannelAttrs){
		"requests":  func(c *nfs4.ChannelAttrs) { c.MaxRequestSize = 20 },
		"responses": func(c *nfs4.ChannelAttrs) { c.MaxResponseSize = 20 },
		"no sizes":  func(c *nfs4.ChannelAttrs) { c.MaxRequestSize, c.MaxResponseSize = 0, 0 },
	} {
		e.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			c := e.with(t)
			args := e.createSessionArgs()
			change(&args.Fore)
			r := c.bare(createSession(args))
			c.wants(r, nfs4.OpCreateSession, 1, nfs4.ErrTooSmall)
			if again := c.bare(createSession(args)); !bytes.Equal(r.bytes, again.bytes) {
				t.Error("the replay of the failure has other bytes")
			}
			e.createSeq++ // section 18.36.4: a failure is cached as well
		})
	}
	e.createSession(e.createSessionArgs())
	e.ok(putrootfh())
}

// Section 18.46.3. None of these moves the slot.
func testSequenceRefused(e *env) {
	highest := e.fore.MaxRequests - 1
	e.ok(putrootfh())
	for _, tt := range []struct {
		name string
		args nfs4.SequenceArgs // with the difference to the last sequence for slot 0
		want nfs4.Status
	}{
		{"session", nfs4.SequenceArgs{SessionID: nfs4.SessionID{1, 2, 3}, SequenceID: 1}, nfs4.ErrBadSession},
		{"slot", nfs4.SequenceArgs{SessionID: e.session, SequenceID: 1, SlotID: highest + 1}, nfs4.ErrBadSlot},
		{"huge slot", nfs4.SequenceArgs{SessionID: e.session, SequenceID: 1, SlotID: 0xffffffff}, nfs4.ErrBadSlot},
		{"highest slot", nfs4.SequenceArgs{SessionID: e.session, SequenceID: 1, HighestSlotID: highest + 1}, nfs4.ErrBadHighSlot},
		{"too late", nfs4.SequenceArgs{SessionID: e.session, SequenceID: ^uint32(0)}, nfs4.ErrSeqMisordered},
		{"too early", nfs4.SequenceArgs{SessionID: e.session, SequenceID: 2}, nfs4.ErrSeqMisordered},
		{"unused slot", nfs4.SequenceArgs{SessionID: e.session, SequenceID: 0, SlotID: highest, HighestSlotID: highest}, nfs4.ErrSeqMisordered},
		{"unused slot's second", nfs4.SequenceArgs{SessionID: e.session, SequenceID: 2, SlotID: highest, HighestSlotID: highest}, nfs4.ErrSeqMisordered},
	} {
		e.Run(strings.ReplaceAll(tt.name, " ", "-"), func(t *testing.T) {
			c := e.with(t)
			if tt.args.SlotID == 0 {
				tt.args.SequenceID += *e.seq
			}
			c.wants(c.bare(sequence(tt.args), putrootfh()), nfs4.OpSequence, 1, tt.want)
			c.ok(putrootfh())
		})
	}
}

// Section 18.46.4: the result has the request's own numbers.
func testSequence(e *env) {
	args := nfs4.SequenceArgs{SessionID: e.session, SequenceID: 1, SlotID: 2, HighestSlotID: 2}
	r := e.bare(sequence(args))
	res := get[nfs4.SequenceRes](e, r)
	if r.status != nfs4.OK || res.SessionID != e.session || res.SequenceID != 1 || res.SlotID != 2 {
		e.Errorf("%v: %+v", r.status, res)
	}
	if res.HighestSlotID >= e.fore.MaxRequests || res.TargetHighestSlotID >= e.fore.MaxRequests {
		e.Errorf("slots up to %d, and %d aimed at, of %d", res.HighestSlotID, res.TargetHighestSlotID, e.fore.MaxRequests)
	}
	if res.StatusFlags&^(nfs4.SeqCBPathDown|nfs4.SeqCBPathDownSession) != 0 {
		e.Errorf("status flags %#x", res.StatusFlags)
	}
}

// same reports whether two replies are, but for what SEQUENCE says of the session as it is now:
// its highest slots and its status flags.
func same(a, b *reply) bool {
	const now, after = 4 + 4 + 4 + 4 + 4 + 16 + 4 + 4, 12 // where that is, without a tag
	x, y := slices.Clone(a.bytes), slices.Clone(b.bytes)
	for _, r := range [][]byte{x, y} {
		if len(r) >= now+after {
			clear(r[now : now+after])
		}
	}
	return bytes.Equal(x, y)
}

// Section 2.10.6.1: a retry gets the first reply, and is not done again, on whatever
// connection.
func testCachedReply(e *env) {
	ops := []op{e.next(), putfh(e.dir), mkdir("made"), getfh()}
	first := e.bare(ops...)
	if first.status != nfs4.OK {
		e.Fatal(first.status)
	}
	for _, how := range []string{"the same connection", "another connection", "a connection after the first has ended"} {
		switch how {
		case "another connection":
			e.conn = e.dial()
		case "a connection after the first has ended":
			e.reconnect()
		}
		if again := e.bare(ops...); !same(first, again) {
			e.Errorf("on %s: %v\n%x\n%x", how, again.status, first.bytes, again.bytes)
		}
	}
	e.ok(putfh(e.dir), lookup("made"))
	if got := e.names(e.dir); len(got) != 1 {
		e.Errorf("%q", got)
	}
}

// Section 2.10.6.1.3: what was not to be cached may be gone; it is not done again.
func testUncachedReply(e *env) {
	*e.seq++
	ops := []op{sequence(nfs4.SequenceArgs{SessionID: e.session, SequenceID: *e.seq}), putfh(e.dir), mkdir("made")}
	first := e.bare(ops...)
	if first.status != nfs4.OK {
		e.Fatal(first.status)
	}
	again := e.bare(ops...)
	if !same(first, again) { // a server may cache it all the same
		e.wants(again, nfs4.OpPutfh, 2, nfs4.ErrRetryUncachedRep)
	}
	e.ok(putfh(e.dir), lookup("made"))
	// SEQUENCE alone has a reply, cached or not.
	*e.seq++
	alone := sequence(nfs4.SequenceArgs{SessionID: e.session, SequenceID: *e.seq})
	for range 2 {
		if r := e.bare(alone); r.status != nfs4.OK {
			e.Errorf("SEQUENCE alone: %v", r.status)
		}
	}
	e.ok(putrootfh())
}

// Section 2.10.6.1.3: a server may cache what it was not asked to cache. Of a WRITE that matters:
// Linux does not ask, sends it again when its connection has ended, and what another client has
// written meanwhile must not be undone.
func testWriteAgain(e *env) {
	fh, id := e.client.open(e.dir, opening{name: "f", create: true})
	other := e.another()
	_, otherID := other.open(e.dir, opening{name: "f"})
	*e.seq++
	ops := []op{sequence(nfs4.SequenceArgs{SessionID: e.session, SequenceID: *e.seq}), putfh(fh), write(id, 0, "first")}
	first := e.bare(ops...)
	if first.status != nfs4.OK {
		e.Fatal(first.status)
	}
	other.ok(putfh(fh), write(otherID, 0, "other"))
	e.reconnect()
	// Another call may have begun to use a slot meanwhile.
	ops[0] = sequence(nfs4.SequenceArgs{SessionID: e.session, SequenceID: *e.seq, HighestSlotID: 1})
	if again := e.bare(ops...); !same(first, again) {
		e.Errorf("%v\n%x\n%x", again.status, first.bytes, again.bytes)
	}
	if got := string(get[nfs4.ReadRes](e, other.ok(putfh(fh), read(otherID, 0, 100))).Data); got != "other" {
		e.Errorf("the file has %q", got)
	}
}

// Section 2.10.6.1.3.1: another request under the same sequence is no retry. It is not done; a
// server that does not notice answers what it answered the first time.
func testFalseRetry(e *env) {
	first := e.ok(putfh(e.dir), mkdir("one"))
	again := sequence(nfs4.SequenceArgs{SessionID: e.session, SequenceID: *e.seq, CacheThis: true})
	if r := e.bare(again, putfh(e.dir), mkdir("two")); !same(first, r) {
		e.wants(r, nfs4.OpSequence, 1, nfs4.ErrSeqFalseRetry)
	}
	e.wants(e.as(1000, 1000).bare(again, putfh(e.dir), mkdir("one")), nfs4.OpSequence, 1, nfs4.ErrSeqFalseRetry)
	e.ok(putfh(e.dir), lookup("one"))
	e.refused([]op{putfh(e.dir), lookup("two")}, nfs4.ErrNoEnt)
}

// A COMPOUND that failed after SEQUENCE has a cached reply like any other.
func testRetryOfError(e *env) {
	ops := []op{e.next(), putfh(e.dir), lookup("later")}
	first := e.bare(ops...)
	e.wants(first, nfs4.OpLookup, 3, nfs4.ErrNoEnt)
	last := *e.seq
	other := e.another()
	other.ok(putfh(e.dir), mkdir("later"))
	if again := e.bare(ops...); !same(first, again) {
		e.Errorf("%v", again.status)
	}
	if *e.seq != last {
		e.Fatal("the test's own count")
	}
	e.ok(putfh(e.dir), lookup("later"))
}

// Section 2.10.6.2: a retry that comes while the request is being processed is not done; it
// waits for the reply, or gets DELAY, and does not hang.
func testRetryAtOnce(e *env) {
	other := *e.client
	other.conn = e.dial()
	for i := range 20 {
		a := &call{minor: e.minor, ops: []op{e.next(), putfh(e.dir), mkdir(fmt.Sprint(i)), getfh()}}
		b := &call{minor: e.minor, ops: []op{a.ops[0], putfh(e.dir), mkdir(fmt.Sprint(i)), getfh()}}
		b.ops[0].res = &nfs4.SequenceRes{}
		var replies [2]*reply
		var errs [2]error
		var wg sync.WaitGroup
		wg.Go(func() { replies[0], errs[0] = e.try(a) })
		wg.Go(func() { replies[1], errs[1] = other.try(b) })
		wg.Wait()
		done := 0
		for j, r := range replies {
			switch {
			case errs[j] != nil:
				e.Fatal(errs[j])
			case r.status == nfs4.OK:
				done++
			case r.status != nfs4.ErrDelay || len(r.nums) != 1:
				e.Errorf("%v with %v", r.status, r.nums)
			}
		}
		if done == 2 && !same(replies[0], replies[1]) || done == 0 {
			e.Errorf("%v and %v", replies[0].status, replies[1].status)
		}
	}
	e.ok(putrootfh())
}

// Section 2.10.6.1: each slot has its own sequence and reply.
func testSlots(e *env) {
	e.createSession(e.createSessionArgs()) // whose slots nobody has used
	highest := e.fore.MaxRequests - 1
	for slot := range e.fore.MaxRequests {
		var replies [][]byte
		for seq := uint32(1); seq <= 3; seq++ {
			ops := []op{sequence(nfs4.SequenceArgs{SessionID: e.session, SequenceID: seq, SlotID: slot, HighestSlotID: highest, CacheThis: true}), putrootfh(), getfh()}
			r := e.bare(ops...)
			if r.status != nfs4.OK {
				e.Fatalf("slot %d, sequence %d: %v", slot, seq, r.status)
			}
			replies = append(replies, r.bytes)
			if again := e.bare(ops...); !same(r, again) {
				e.Errorf("slot %d, sequence %d: the retry is %v", slot, seq, again.status)
			}
		}
		if bytes.Equal(replies[0], replies[1]) {
			e.Error("replies to two sequences are the same")
		}
	}
	*e.seq = 3
}

// An error of SEQUENCE keeps the slot usable, however often it comes.
func testNoWrap(e *env) {
	for range 100 {
		e.wants(e.bare(sequence(nfs4.SequenceArgs{SessionID: e.session, SequenceID: *e.seq + 5})), nfs4.OpSequence, 1, nfs4.ErrSeqMisordered)
	}
	e.ok(putrootfh())
}

// Sections 2.10.6.4, 18.46.3: requests and replies that are larger than agreed.
func testSizes(e *env) {
	fh := e.file("f", strings.Repeat("x", 8192))
	args := e.createSessionArgs()
	args.Fore.MaxRequestSize, args.Fore.MaxResponseSize, args.Fore.MaxResponseSizeCached = 4096, 4096, 1024
	e.createSession(args)
	big := string(make([]byte, e.fore.MaxRequestSize+1))
	r := e.bare(e.next(), putfh(fh), write(nfs4.Stateid{}, 0, big))
	e.wants(r, nfs4.OpSequence, 1, nfs4.ErrReqTooBig)
	*e.seq-- // it did not move the slot
	// A server may also read less.
	*e.seq++
	r = e.bare(sequence(nfs4.SequenceArgs{SessionID: e.session, SequenceID: *e.seq}), putfh(fh), read(nfs4.Stateid{}, 0, 8192))
	if r.status != nfs4.OK || len(r.bytes) > int(e.fore.MaxResponseSize) {
		e.wants(r, nfs4.OpRead, 3, nfs4.ErrRepTooBig)
	}
	r = e.bare(e.next(), putfh(fh), read(nfs4.Stateid{}, 0, 2048))
	if r.status != nfs4.OK || len(r.bytes) > int(e.fore.MaxResponseSizeCached) {
		e.wants(r, nfs4.OpRead, 3, nfs4.ErrRepTooBigToCache)
	}
	*e.seq++
	if r := e.bare(sequence(nfs4.SequenceArgs{SessionID: e.session, SequenceID: *e.seq}), putfh(fh), read(nfs4.Stateid{}, 0, 2048)); r.status != nfs4.OK {
		e.Errorf("READ that is not to be cached: %v", r.status)
	}
	e.ok(putrootfh())
}

// Sections 18.22.3 and 18.23.3: READ and READDIR may have less than was asked for, so they have what the session's replies hold.
func testLessThanAsked(e *env) {
	const most = 2047
	content := strings.Repeat("content", 1000)
	fh := e.file("f", content)
	dir := e.fh(putfh(e.dir), mkdir("dir"))
	for i := range 100 {
		e.ok(putfh(dir), mkdir(fmt.Sprint(i, strings.Repeat("x", 50))))
	}
	args := e.createSessionArgs()
	args.Fore.MaxResponseSize, args.Fore.MaxResponseSizeCached = most, most
	e.createSession(args)
	got := ""
	for len(got) < len(content) {
		r := e.ok(putfh(fh), read(nfs4.Stateid{}, uint64(len(got)), 1<<20))
		res := get[nfs4.ReadRes](e, r)
		if len(r.bytes) > most || len(res.Data) == 0 || res.EOF != (len(got)+len(res.Data) == len(content)) {
			e.Fatalf("READ at %d: a reply of %d bytes, %d of data, eof %v", len(got), len(r.bytes), len(res.Data), res.EOF)
		}
		got += string(res.Data)
	}
	if got != content {
		e.Error("the content is another")
	}
	listed := e.list(dir, nfs4.ReaddirArgs{DirCount: 1 << 20, MaxCount: 1 << 20, Request: nfs4.BitmapOf(nfs4.AttrFileID, nfs4.AttrOwner)})
	if len(listed) != 100 {
		e.Errorf("%d entries", len(listed))
	}
	// An operation that follows finds room for its error.
	if r := e.do(putfh(fh), read(nfs4.Stateid{}, 0, 1<<20), getattrs(nfs4.AttrSize)); len(r.bytes) > most {
		e.Errorf("a reply of %d bytes", len(r.bytes))
	}
}

// Section 18.34.
func testBindConn(e *env) {
	e.conn = e.dial()
	for _, dir := range []nfs4.ConnDir{nfs4.ConnFore, nfs4.ConnForeOrBoth} {
		r := e.bare(bindConn(e.session, dir))
		if res := get[nfs4.BindConnToSessionRes](e, r); r.status != nfs4.OK || res.SessionID != e.session || res.Dir&nfs4.ConnFore == 0 {
			e.Errorf("BIND_CONN_TO_SESSION %d: %v, %+v", dir, r.status, res)
		}
	}
	e.wants(e.bare(bindConn(nfs4.SessionID{1}, nfs4.ConnFore)), nfs4.OpBindConnToSession, 1, nfs4.ErrBadSession)
	e.ok(putrootfh())
	e.ok(backchannelCtl(0x40000000))
}

// Section 18.37.
func testDestroySession(e *env) {
	keep := *e.client
	e.createSession(e.createSessionArgs())
	e.ok(putrootfh())
	id := e.session
	if r := e.bare(destroySession(id)); r.status != nfs4.OK {
		e.Errorf("%v", r.status)
	}
	e.wants(e.bare(destroySession(id)), nfs4.OpDestroySession, 1, nfs4.ErrBadSession)
	e.wants(e.bare(e.next(), putrootfh()), nfs4.OpSequence, 1, nfs4.ErrBadSession)
	keep.createSeq = e.createSeq
	keep.ok(putrootfh()) // the other one is as it was

	// Within a session: another one, and its own as the last operation.
	e.createSession(e.createSessionArgs())
	keep.ok(destroySession(e.session))
	e.wants(e.bare(e.next()), nfs4.OpSequence, 1, nfs4.ErrBadSession)
	keep.createSeq = e.createSeq
	r := keep.do(destroySession(keep.session), putrootfh())
	keep.wants(r, nfs4.OpDestroySession, 2, nfs4.ErrNotOnlyOp)
	keep.ok(putrootfh(), destroySession(keep.session))
	keep.wants(keep.bare(keep.next()), nfs4.OpSequence, 1, nfs4.ErrBadSession)
}

// Section 18.50.
func testDestroyClientID(e *env) {
	e.wants(e.bare(destroyClientID(e.id)), nfs4.OpDestroyClientID, 1, nfs4.ErrClientIDBusy)
	e.wants(e.bare(destroyClientID(e.id^1)), nfs4.OpDestroyClientID, 1, nfs4.ErrStaleClientID)
	c := e.stranger(e.T)
	c.start()
	e.ok(putrootfh())
	c.refused([]op{destroyClientID(c.id)}, nfs4.ErrClientIDBusy)
	if r := c.bare(destroySession(c.session)); r.status != nfs4.OK {
		e.Error(r.status)
	}
	// By another client's session.
	e.ok(destroyClientID(c.id))
	c.wants(c.bare(destroyClientID(c.id)), nfs4.OpDestroyClientID, 1, nfs4.ErrStaleClientID)
	c.wants(c.bare(createSession(c.createSessionArgs())), nfs4.OpCreateSession, 1, nfs4.ErrStaleClientID)
}

// Section 18.51.3: once for all, and before that nothing new is opened; for one file system
// it says nothing of the others.
func testReclaimComplete(e *env) {
	e.refused([]op{reclaimComplete(false)}, nfs4.ErrCompleteAlready)
	c := e.newClient(e.T)
	args := c.openArgs(opening{name: "f", create: true})
	c.refused([]op{putfh(e.dir), open(args)}, nfs4.ErrGrace)
	c.refused([]op{reclaimComplete(true)}, nfs4.ErrNoFileHandle)
	c.ok(putfh(e.dir), reclaimComplete(true))
	c.refused([]op{putfh(e.dir), open(args)}, nfs4.ErrGrace)
	c.ok(reclaimComplete(false))
	c.ok(putfh(e.dir), open(args))
	args.Claim = nfs4.ClaimPrevious
	args.Create = false
	c.refused([]op{putfh(e.dir), lookup("f"), open(args)}, nfs4.ErrNoGrace)
}
