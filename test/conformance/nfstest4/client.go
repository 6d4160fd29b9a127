package nfstest4

import (
	"context"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/nfs/xdr"
)

// callTimeout is how long a call may take. A test that fails says more than one
// that hangs.
const callTimeout = 30 * time.Second

// client is a client of version 4.1, or 4.2: a connection, a client ID and a session, of which it
// uses the first slot, one call at a time. Its methods end the test if the server doesn't
// answer, or the reply can't be decoded.
type client struct {
	*testing.T
	addr  string
	conn  *rpc.Client
	cred  rpc.Auth
	owner string
	verf  nfs4.Verifier
	minor uint32 // version

	id        uint64
	createSeq uint32 // of the next CREATE_SESSION
	session   nfs4.SessionID
	fore      nfs4.ChannelAttrs // of the session
	seq       *uint32           // of the slot's last call
}

// result is the result of an operation.
type result interface {
	Append(b []byte) []byte
	Decode(d *xdr.Decoder)
}

// op is an operation: its arguments, and how its result is decoded.
type op struct {
	num  nfs4.OpNum
	args rpc.Args // nil: none
	res  result
}

// raw are arguments that are encoded already.
type raw []byte

func (r raw) Append(b []byte) []byte { return append(b, r...) }

// call is the arguments of a COMPOUND.
type call struct {
	minor uint32
	tag   string
	more  uint32 // operations that are counted, and not there
	ops   []op
}

func (a *call) Append(b []byte) []byte {
	b = (&nfs4.CompoundArgs{Tag: []byte(a.tag), MinorVersion: a.minor, NumOps: uint32(len(a.ops)) + a.more}).Append(b)
	for _, o := range a.ops {
		b = o.num.Append(b)
		if o.args != nil {
			b = o.args.Append(b)
		}
	}
	return b
}

// reply is the reply to a COMPOUND.
type reply struct {
	status nfs4.Status
	tag    string
	nums   []nfs4.OpNum
	stats  []nfs4.Status
	res    []result
	bytes  []byte
}

// get returns the last result of a type.
func get[T any](e interface{ Fatalf(string, ...any) }, r *reply) *T {
	for i := len(r.res) - 1; i >= 0; i-- {
		if res, ok := r.res[i].(any).(*T); ok {
			return res
		}
	}
	e.Fatalf("no such result: %v %v %v", r.status, r.nums, r.stats)
	return nil
}

// last is the operation that ended the COMPOUND.
func (r *reply) last() nfs4.OpNum {
	if len(r.nums) == 0 {
		return 0
	}
	return r.nums[len(r.nums)-1]
}

// dial connects once more.
func (c *client) dial() *rpc.Client {
	c.Helper()
	conn, err := rpc.Dial(context.Background(), c.addr) // a cleanup's too, whose test has ended
	if err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() { conn.Close() })
	return conn
}

// dialFrom is dial from an address of this machine.
func (c *client) dialFrom(address string) *rpc.Client {
	c.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	nc, err := d.Dial("tcp", c.addr)
	if err != nil {
		c.Fatal(err)
	}
	conn := rpc.NewClient(nc)
	c.Cleanup(func() { conn.Close() })
	return conn
}

// reconnect takes a new connection.
func (c *client) reconnect() {
	c.Helper()
	c.conn.Close()
	c.conn = c.dial()
}

// as returns the client with the credential of another user, on the same session.
func (c *client) as(uid, gid uint32, groups ...uint32) *client {
	other := *c
	cred := rpc.SysCred{MachineName: []byte("nfstest"), UID: uid, GID: gid}
	cred.SetGroups(groups...)
	other.cred = cred.Auth()
	return &other
}

// with returns the client in another test, as a helper of e.
func (c *client) with(t *testing.T) *client {
	other := *c
	other.T = t
	return &other
}

// try sends a COMPOUND as it is. The error is the transport's or RPC's.
func (c *client) try(a *call) (*reply, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	h := rpc.CallHeader{RPCVersion: rpc.Version, Prog: nfs4.Program, Vers: nfs4.Version, Proc: nfs4.ProcCompound, Cred: c.cred}
	b, err := c.conn.Do(ctx, h, a)
	if err != nil {
		return nil, err
	}
	r := &reply{bytes: b}
	err = r.decode(a)
	return r, err
}

func (r *reply) decode(a *call) error {
	d := xdr.NewDecoder(r.bytes)
	var head nfs4.CompoundRes
	head.Decode(&d)
	r.status, r.tag = head.Status, string(head.Tag)
	for i := range int(head.NumOps) {
		if i >= len(a.ops) {
			return fmt.Errorf("%d results for %d operations", head.NumOps, len(a.ops))
		}
		var num nfs4.OpNum
		num.Decode(&d)
		res := a.ops[i].res
		if num == nfs4.OpIllegal {
			res = &nfs4.StatusRes{}
		}
		peek := d
		status := nfs4.Status(peek.Uint32())
		res.Decode(&d)
		if err := d.Err(); err != nil {
			return fmt.Errorf("decode the result of %v, %v: %w", num, status, err)
		}
		r.nums, r.stats, r.res = append(r.nums, num), append(r.stats, status), append(r.res, res)
		cut := a.more > 0 && head.Status == nfs4.ErrBadXDR // what is not there has no result
		if last := i == int(head.NumOps)-1; status != nfs4.OK && !last || last && status != head.Status && !cut {
			return fmt.Errorf("result %d of %d, %v, is %v, and the COMPOUND's status is %v", i+1, head.NumOps, num, status, head.Status)
		}
	}
	return d.Finish()
}

// compound sends a COMPOUND as it is.
func (c *client) compound(a *call) *reply {
	c.Helper()
	r, err := c.try(a)
	if err != nil {
		c.Fatalf("COMPOUND of %v: %v", nums(a.ops), err)
	}
	return r
}

func nums(ops []op) (n []nfs4.OpNum) {
	for _, o := range ops {
		n = append(n, o.num)
	}
	return n
}

// bare sends operations without SEQUENCE.
func (c *client) bare(ops ...op) *reply {
	c.Helper()
	return c.compound(&call{minor: c.minor, ops: ops})
}

// next is SEQUENCE for the slot's next call. The reply is to be cached.
func (c *client) next() op {
	*c.seq++
	return sequence(nfs4.SequenceArgs{SessionID: c.session, SequenceID: *c.seq, CacheThis: true})
}

// isLong is whether the reply may be more than a server caches.
func isLong(ops []op) bool {
	return slices.ContainsFunc(ops, func(o op) bool {
		switch o.num {
		case nfs4.OpRead, nfs4.OpReaddir, nfs4.OpReadlink, nfs4.OpExchangeID, nfs4.OpGetxattr, nfs4.OpListxattrs:
			return true
		case nfs4.OpGetattr:
			args, ok := o.args.(*nfs4.GetattrArgs)
			return ok && args.Request.Has(nfs4.AttrACL)
		}
		return false
	})
}

// do sends operations after SEQUENCE. If that fails the test ends.
func (c *client) do(ops ...op) *reply {
	c.Helper()
	for range 100 {
		*c.seq++
		first := sequence(nfs4.SequenceArgs{SessionID: c.session, SequenceID: *c.seq, CacheThis: !isLong(ops)})
		r := c.compound(&call{minor: c.minor, ops: append([]op{first}, ops...)})
		if len(r.stats) == 0 || r.stats[0] != nfs4.OK {
			c.Fatalf("SEQUENCE before %v: %v", nums(ops), r.status)
		}
		if r.status != nfs4.ErrDelay {
			return r
		}
		time.Sleep(50 * time.Millisecond)
	}
	c.Fatalf("%v: DELAY without an end", nums(ops))
	return nil
}

// ok sends operations that must all succeed.
func (c *client) ok(ops ...op) *reply {
	c.Helper()
	r := c.do(ops...)
	if r.status != nfs4.OK {
		c.Fatalf("%v: %v says %v", nums(ops), r.last(), r.status)
	}
	return r
}

// refused sends operations of which the last must fail with one of the statuses.
func (c *client) refused(ops []op, want ...nfs4.Status) *reply {
	c.Helper()
	r := c.do(ops...)
	c.wants(r, ops[len(ops)-1].num, len(ops)+1, want...)
	return r
}

// wants checks that a COMPOUND ended with an operation, which has one of the statuses.
func (c *client) wants(r *reply, num nfs4.OpNum, results int, want ...nfs4.Status) {
	c.Helper()
	for _, w := range want {
		if r.status == w {
			if len(r.nums) != results || results > 0 && r.last() != num {
				c.Errorf("%v came with the results %v, want %d up to %v", r.status, r.nums, results, num)
			}
			return
		}
	}
	c.Errorf("%v: %v says %v, want %v of %v", r.nums, r.last(), r.status, want, num)
}

// exchangeIDArgs are those of the client.
func (c *client) exchangeIDArgs() nfs4.ExchangeIDArgs {
	return nfs4.ExchangeIDArgs{Verf: c.verf, OwnerID: []byte(c.owner), Flags: nfs4.ExchangeUseNonPNFS}
}

// exchangeID makes the client known.
func (c *client) exchangeID() *nfs4.ExchangeIDRes {
	c.Helper()
	r := c.bare(exchangeID(c.exchangeIDArgs()))
	if r.status != nfs4.OK {
		c.Fatalf("EXCHANGE_ID: %v", r.status)
	}
	res := get[nfs4.ExchangeIDRes](c, r)
	c.id, c.createSeq = res.ClientID, res.SequenceID
	return res
}

// createSessionArgs are those that a client of Linux has, more or less.
func (c *client) createSessionArgs() nfs4.CreateSessionArgs {
	return nfs4.CreateSessionArgs{
		ClientID: c.id, SequenceID: c.createSeq,
		Fore:      nfs4.ChannelAttrs{MaxRequestSize: 1<<20 + 2048, MaxResponseSize: 1<<20 + 2048, MaxResponseSizeCached: 4096, MaxOperations: 16, MaxRequests: 16},
		Back:      nfs4.ChannelAttrs{MaxRequestSize: 4096, MaxResponseSize: 4096, MaxOperations: 2, MaxRequests: 1},
		CBProgram: 0x40000000,
		SecParms:  []nfs4.CallbackSec{{Flavor: rpc.AuthNone}},
	}
}

// createSession makes a session, and uses it from now on.
func (c *client) createSession(args nfs4.CreateSessionArgs) {
	c.Helper()
	r := c.bare(createSession(args))
	if r.status != nfs4.OK {
		c.Fatalf("CREATE_SESSION: %v", r.status)
	}
	c.use(get[nfs4.CreateSessionRes](c, r))
}

// use uses a session from now on.
func (c *client) use(res *nfs4.CreateSessionRes) {
	c.createSeq = res.SequenceID + 1
	c.session, c.fore, c.seq = res.SessionID, res.Fore, new(uint32)
}

// start makes the client known, and a session.
func (c *client) start() {
	c.Helper()
	c.exchangeID()
	c.createSession(c.createSessionArgs())
}

// leave makes the server forget the client, whatever it has open: it comes as another
// incarnation, and goes.
func (c *client) leave() error {
	c.verf[0] ^= 0xff
	r, err := c.try(&call{minor: c.minor, ops: []op{exchangeID(c.exchangeIDArgs())}})
	if err != nil {
		return err
	}
	if r.status != nfs4.OK {
		return fmt.Errorf("EXCHANGE_ID: %v", r.status)
	}
	res := get[nfs4.ExchangeIDRes](c, r)
	c.id, c.createSeq = res.ClientID, res.SequenceID
	r, err = c.try(&call{minor: c.minor, ops: []op{createSession(c.createSessionArgs())}})
	if err != nil {
		return err
	}
	if r.status != nfs4.OK {
		return fmt.Errorf("CREATE_SESSION: %v", r.status)
	}
	for _, o := range []op{destroySession(get[nfs4.CreateSessionRes](c, r).SessionID), destroyClientID(c.id)} {
		if r, err = c.try(&call{minor: c.minor, ops: []op{o}}); err != nil {
			return err
		}
		if r.status != nfs4.OK {
			return fmt.Errorf("%v: %v", o.num, r.status)
		}
	}
	return nil
}
