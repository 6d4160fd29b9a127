package nfscheck

import (
	"context"
	"fmt"
	"time"

	"github.com/podnas/podnas/internal/doctor"
	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/nfs/rpc"
)

// delayed is how long until an operation is repeated that got DELAY.
const delayed = 100 * time.Millisecond

// goodbye is how long the server may take to forget the client at the end.
const goodbye = 2 * time.Second

type op = nfs4.Operation

func plain(num nfs4.OpNum) op { return op{Num: num, Res: &nfs4.StatusRes{}} }

// bare makes a call without SEQUENCE.
func (s *session4) bare(ctx context.Context, ops ...op) (nfs4.OpNum, nfs4.Status, error) {
	h := rpc.CallHeader{RPCVersion: rpc.Version, Prog: nfs4.Program, Vers: nfs4.Version, Proc: nfs4.ProcCompound, Cred: s.credential()}
	for {
		b, err := s.nfs.Do(ctx, h, nfs4.Compound(ops).Minor(s.minors[0]))
		if err != nil {
			return 0, nfs4.OK, err
		}
		num, status, err := nfs4.Compound(ops).DecodeResults(b)
		if err != nil || status != nfs4.ErrDelay {
			return num, status, err
		}
		select {
		case <-ctx.Done():
			return num, status, ctx.Err()
		case <-time.After(delayed):
		}
		if seq, ok := ops[0].Args.(*nfs4.SequenceArgs); ok {
			s.seq++
			seq.SequenceID = s.seq
		}
	}
}

// call makes a call in the session.
func (s *session4) call(ctx context.Context, ops ...op) (nfs4.OpNum, nfs4.Status, error) {
	s.seq++
	first := op{Num: nfs4.OpSequence, Args: &nfs4.SequenceArgs{SessionID: s.id, SequenceID: s.seq}, Res: &nfs4.SequenceRes{}}
	return s.bare(ctx, append([]op{first}, ops...)...)
}

// do makes a call in the session. If that fails, it returns false and a Result that says so.
func (s *session4) do(ctx context.Context, doing string, ops ...op) (doctor.Result, bool) {
	num, status, err := s.call(ctx, ops...)
	switch {
	case err != nil:
		return doctor.Fail("podnas's log says more", "%s: the call got no valid answer: %v", doing, reason(err)), false
	case status == nfs4.ErrGrace:
		return doctor.Fail("wait for two leases of the server (30 seconds, unless it has another --lease), and try again; podnas client list shows whom the server waits for", "%s: the server was restarted, and waits until its clients have reclaimed what they had open and locked", doing), false
	case status != nfs4.OK:
		return s.explain(fmt.Sprintf("%s: %s answers %s", doing, num, status), status), false
	}
	return doctor.Result{}, true
}

// begin makes the server know this client, by the first of the minor versions that it serves.
func (s *session4) begin(ctx context.Context) doctor.Result {
	var client nfs4.ExchangeIDRes
	exchange := func() (nfs4.OpNum, nfs4.Status, error) {
		return s.bare(ctx, op{Num: nfs4.OpExchangeID, Args: &nfs4.ExchangeIDArgs{Verf: s.verifier, OwnerID: s.owner, Flags: nfs4.ExchangeUseNonPNFS}, Res: &client})
	}
	num, status, err := exchange()
	for err == nil && status == nfs4.ErrMinorVersMismatch && len(s.minors) > 1 {
		s.minors = s.minors[1:]
		num, status, err = exchange()
	}
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
		if num, status, err = s.bare(ctx, op{Num: nfs4.OpCreateSession, Args: &args, Res: &session}); err == nil && status == nfs4.OK {
			s.id = session.SessionID
		}
	}
	switch {
	case err != nil:
		return noAnswer(err)
	case status == nfs4.ErrMinorVersMismatch && s.minors[0] > 1:
		return doctor.Fail("this is an older podnas, or none: upgrade it, or use nfsvers=4.1 or nfsvers=3", "the server does not serve version 4.%d", s.minors[0])
	case status == nfs4.ErrMinorVersMismatch:
		return doctor.Fail("this is not podnas, or another version of it: use nfsvers=3", "the server does not serve version 4.1")
	case status == nfs4.ErrAccess:
		return doctor.Fail(mayMount, "the server does not let this machine mount any volume")
	case status != nfs4.OK:
		return doctor.Fail("podnas's log says more", "%s answers %s", num, status)
	}
	if r, ok := s.do(ctx, "the session", op{Num: nfs4.OpReclaimComplete, Args: &nfs4.ReclaimCompleteArgs{}, Res: &nfs4.StatusRes{}}); !ok {
		return r
	}
	return doctor.Good("the server knows this client, and made a session of version 4.%d", s.minors[0])
}

// close removes the test file if a step has failed since it was made, makes the server forget the client, and closes
// the connection.
func (s *session4) close() {
	if s.nfs == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), goodbye)
	defer cancel()
	if s.name != nil {
		s.remove(ctx)
	}
	if s.clientID != 0 {
		for _, o := range []op{
			{Num: nfs4.OpDestroySession, Args: &nfs4.DestroySessionArgs{SessionID: s.id}, Res: &nfs4.StatusRes{}},
			{Num: nfs4.OpDestroyClientID, Args: &nfs4.DestroyClientIDArgs{ClientID: s.clientID}, Res: &nfs4.StatusRes{}},
		} {
			_, _, _ = s.bare(ctx, o) // if it fails, the server forgets the client in time
		}
	}
	_ = s.nfs.Close() // it never fails
}
