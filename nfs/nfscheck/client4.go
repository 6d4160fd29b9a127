package nfscheck

import (
	"context"
	"fmt"
	"time"

	"github.com/podnas/podnas/doctor"
	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/nfs/xdr"
)

// delayed is how long until an operation is repeated that got DELAY.
const delayed = 100 * time.Millisecond

// goodbye is how long the server may take to forget the client at the end.
const goodbye = 2 * time.Second

// op is an operation of a COMPOUND, and where its result goes.
type op struct {
	num  nfs4.OpNum
	args rpc.Args // nil: none
	res  result
}

// compound is a COMPOUND of version 4.1.
type compound []op

// Append appends the arguments.
func (c compound) Append(b []byte) []byte {
	b = (&nfs4.CompoundArgs{MinorVersion: 1, NumOps: uint32(len(c))}).Append(b)
	for _, o := range c {
		b = o.num.Append(b)
		if o.args != nil {
			b = o.args.Append(b)
		}
	}
	return b
}

// decode decodes the results. The status is that of the operation that failed, or OK.
func (c compound) decode(b []byte) (nfs4.OpNum, nfs4.Status, error) {
	d := xdr.NewDecoder(b)
	var head nfs4.CompoundRes
	head.Decode(&d)
	var last nfs4.OpNum
	for i := range min(int(head.NumOps), len(c)) {
		last.Decode(&d)
		if last != c[i].num {
			return last, head.Status, fmt.Errorf("a result of %s for %s", last, c[i].num)
		}
		c[i].res.Decode(&d)
	}
	if d.Err() == nil && head.Status == nfs4.OK && int(head.NumOps) != len(c) {
		return last, head.Status, fmt.Errorf("%d results for %d operations", head.NumOps, len(c))
	}
	return last, head.Status, d.Err()
}

func plain(num nfs4.OpNum) op { return op{num, nil, &nfs4.StatusRes{}} }

// bare makes a call without SEQUENCE.
func (s *session4) bare(ctx context.Context, ops ...op) (nfs4.OpNum, nfs4.Status, error) {
	h := rpc.CallHeader{RPCVersion: rpc.Version, Prog: nfs4.Program, Vers: nfs4.Version, Proc: nfs4.ProcCompound, Cred: s.credential()}
	for {
		b, err := s.nfs.Do(ctx, h, compound(ops))
		if err != nil {
			return 0, nfs4.OK, err
		}
		num, status, err := compound(ops).decode(b)
		if err != nil || status != nfs4.ErrDelay {
			return num, status, err
		}
		select {
		case <-ctx.Done():
			return num, status, ctx.Err()
		case <-time.After(delayed):
		}
		if seq, ok := ops[0].args.(*nfs4.SequenceArgs); ok {
			s.seq++
			seq.SequenceID = s.seq
		}
	}
}

// call makes a call in the session.
func (s *session4) call(ctx context.Context, ops ...op) (nfs4.OpNum, nfs4.Status, error) {
	s.seq++
	first := op{nfs4.OpSequence, &nfs4.SequenceArgs{SessionID: s.id, SequenceID: s.seq}, &nfs4.SequenceRes{}}
	return s.bare(ctx, append([]op{first}, ops...)...)
}

// do makes a call in the session. If that fails, it returns false and a Result that says so.
func (s *session4) do(ctx context.Context, doing string, ops ...op) (doctor.Result, bool) {
	num, status, err := s.call(ctx, ops...)
	switch {
	case err != nil:
		return doctor.Fail("podnas's log says more", "%s: the call got no valid answer: %v", doing, reason(err)), false
	case status == nfs4.ErrGrace:
		return doctor.Fail("wait half a minute, and try again; podnas client list shows whom the server waits for", "%s: the server was restarted, and waits until its clients have reclaimed what they had open and locked", doing), false
	case status != nfs4.OK:
		return s.explain(fmt.Sprintf("%s: %s answers %s", doing, num, status), status), false
	}
	return doctor.Result{}, true
}

// begin makes the server know this client.
func (s *session4) begin(ctx context.Context) doctor.Result {
	var client nfs4.ExchangeIDRes
	num, status, err := s.bare(ctx, op{nfs4.OpExchangeID, &nfs4.ExchangeIDArgs{Verf: s.verifier, OwnerID: s.owner, Flags: nfs4.ExchangeUseNonPNFS}, &client})
	if err == nil && status == nfs4.OK {
		s.clientID = client.ClientID
		const small, large = 4096, 64 << 10
		args := nfs4.CreateSessionArgs{
			ClientID: client.ClientID, SequenceID: client.SequenceID,
			Fore:      nfs4.ChannelAttrs{MaxRequestSize: large, MaxResponseSize: large, MaxResponseSizeCached: small, MaxOperations: 32, MaxRequests: 1},
			Back:      nfs4.ChannelAttrs{MaxRequestSize: small, MaxResponseSize: small, MaxOperations: 2, MaxRequests: 1},
			CBProgram: 0x40000000, SecParms: []nfs4.CallbackSec{{Flavor: rpc.AuthNone}},
		}
		var session nfs4.CreateSessionRes
		if num, status, err = s.bare(ctx, op{nfs4.OpCreateSession, &args, &session}); err == nil && status == nfs4.OK {
			s.id = session.SessionID
		}
	}
	switch {
	case err != nil:
		return doctor.Fail("podnas's log says more", "the call got no valid answer: %v", reason(err))
	case status == nfs4.ErrMinorVersMismatch:
		return doctor.Fail("this is not podnas, or another version of it: use nfsvers=3", "the server does not serve version 4.1")
	case status != nfs4.OK:
		return doctor.Fail("podnas's log says more", "%s answers %s", num, status)
	}
	if r, ok := s.do(ctx, "the session", op{nfs4.OpReclaimComplete, &nfs4.ReclaimCompleteArgs{}, &nfs4.StatusRes{}}); !ok {
		return r
	}
	return doctor.Good("the server knows this client, and made a session")
}

// close makes the server forget the client, and closes the connection.
func (s *session4) close() {
	if s.nfs != nil && s.clientID != 0 {
		ctx, cancel := context.WithTimeout(context.Background(), goodbye)
		defer cancel()
		for _, o := range []op{
			{nfs4.OpDestroySession, &nfs4.DestroySessionArgs{SessionID: s.id}, &nfs4.StatusRes{}},
			{nfs4.OpDestroyClientID, &nfs4.DestroyClientIDArgs{ClientID: s.clientID}, &nfs4.StatusRes{}},
		} {
			_, _, _ = s.bare(ctx, o) // if it fails, the server forgets the client in time
		}
	}
	s.session.close()
}
