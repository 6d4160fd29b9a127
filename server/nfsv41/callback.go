package nfsv41

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/nfs/xdr"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/nfsv41/state"
	"github.com/podnas/podnas/server/oncrpc"
)

const (
	// answerWithin is how long a client has to answer a callback. One that does not is told
	// that its back channel is down.
	answerWithin = 5 * time.Second
	// delayFor is how long to wait after a client says DELAY.
	delayFor = 50 * time.Millisecond
	// noticesMax bounds what a client is told later.
	noticesMax = 1000
)

// backChannel is how a session's client is called: RFC 8881 section 2.10.3.1.
type backChannel struct {
	seq   uint32 // of slot 0, which alone is used; of the goroutine that tells the client
	minor uint32 // version, the session's

	mu sync.Mutex
	// +checklocks:mu
	program uint32
	// +checklocks:mu
	cred rpc.Auth
}

// newBackChannel returns nil if the client takes no credential that this server has.
func newBackChannel(minor, program uint32, parms []nfs4.CallbackSec) *backChannel {
	cred, ok := callbackCred(parms)
	if !ok {
		return nil
	}
	return &backChannel{minor: minor, program: program, cred: cred}
}

// callbackCred is the credential to call a client with. Linux wants AUTH_SYS.
func callbackCred(parms []nfs4.CallbackSec) (cred rpc.Auth, ok bool) {
	for i := range parms {
		switch p := &parms[i]; p.Flavor {
		case rpc.AuthSys:
			return p.Sys.Auth(), true
		case rpc.AuthNone:
			ok = true
		}
	}
	return rpc.Auth{}, ok
}

// set is BACKCHANNEL_CTL.
func (b *backChannel) set(program uint32, cred rpc.Auth) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.program, b.cred = program, cred
}

// notices are what clients are to be told: that a lock may be free which they wait for. For
// each client one goroutine tells them, one after the other.
type notices struct {
	mu sync.Mutex
	// +checklocks:mu
	clients map[uint64]*clientNotices
	running sync.WaitGroup
	// +checklocks:mu
	stopped bool
}

type clientNotices struct {
	queue   []state.LockFree
	telling bool
}

// notify queues a notice.
func (s *Server) notify(free state.LockFree) {
	n := &s.notices
	n.mu.Lock()
	defer n.mu.Unlock()
	c := n.clients[free.ClientID]
	if c == nil {
		c = &clientNotices{}
		n.clients[free.ClientID] = c
	}
	if len(c.queue) < noticesMax {
		c.queue = append(c.queue, free)
	}
	s.startTellingLocked(free.ClientID)
}

// callableAgain is called when a client has a new back channel: what it could not be told is
// told now.
func (s *Server) callableAgain(client uint64) {
	s.notices.mu.Lock()
	defer s.notices.mu.Unlock()
	s.startTellingLocked(client)
}

// startTellingLocked starts the client's goroutine, unless it runs.
//
// +checklocks:s.notices.mu
func (s *Server) startTellingLocked(client uint64) {
	n := &s.notices
	c := n.clients[client]
	if c == nil || c.telling || n.stopped {
		return
	}
	c.telling = true
	n.running.Go(func() { s.tellAll(client, c) })
}

// tellAll tells a client what it has to be told, as long as it can be called.
func (s *Server) tellAll(client uint64, c *clientNotices) {
	n := &s.notices
	for {
		n.mu.Lock()
		if len(c.queue) == 0 {
			delete(n.clients, client)
			n.mu.Unlock()
			return
		}
		free := c.queue[0]
		n.mu.Unlock()
		told := s.tellFree(free)
		if told {
			s.state.Told(free)
		} else if s.park(client, c) {
			return
		}
		n.mu.Lock()
		if told && len(c.queue) > 0 {
			c.queue = c.queue[1:]
		}
		n.mu.Unlock()
	}
}

// park ends the telling of a client until callableAgain, unless it can be called already.
func (s *Server) park(client uint64, c *clientNotices) bool {
	s.notices.mu.Lock()
	defer s.notices.mu.Unlock()
	can, known := s.state.CanCallBack(client)
	if can {
		return false
	}
	c.telling = false
	if !known {
		delete(s.notices.clients, client)
	}
	return true
}

// forgetNotices is for a client that is gone.
func (s *Server) forgetNotices(client uint64) {
	n := &s.notices
	n.mu.Lock()
	defer n.mu.Unlock()
	if c := n.clients[client]; c != nil {
		if c.queue = nil; !c.telling {
			delete(n.clients, client)
		}
	}
}

// stopNotices waits until nobody is being told anything, when all connections have ended.
func (s *Server) stopNotices() {
	s.notices.mu.Lock()
	s.notices.stopped = true
	s.notices.mu.Unlock()
	s.notices.running.Wait()
}

// save returns what nobody has been told, when nobody is told anything any more.
func (n *notices) save() (all []state.LockFree) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.clients {
		all = append(all, c.queue...)
	}
	return all
}

// restore queues it again. It is told when its client has a back channel.
func (n *notices) restore(all []state.LockFree) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, f := range all {
		c := n.clients[f.ClientID]
		if c == nil {
			c = &clientNotices{}
			n.clients[f.ClientID] = c
		}
		c.queue = append(c.queue, f)
	}
}

// tellFree sends CB_NOTIFY_LOCK, by any way that works. It reports whether the client has it.
func (s *Server) tellFree(free state.LockFree) bool {
	args := &nfs4.CBNotifyLockArgs{
		FH:    s.key.Handle(free.File.Volume, disk.NewFileID(free.File.ID[:free.File.Len])),
		Owner: nfs4.StateOwner{ClientID: free.ClientID, Owner: []byte(free.Owner)},
	}
	for _, path := range s.state.CallbackPaths(free.ClientID) {
		back, can := path.Callback.(*backChannel)
		if can && back.size(args) > int(path.Back.MaxRequest) {
			return true // never: the client asks again by itself
		}
		for _, to := range path.Conns {
			conn, ok := to.(oncrpc.Conn)
			if can && ok && back.call(conn, path.Session, nfs4.OpCBNotifyLock, args) == nil {
				return true
			}
			s.state.CallbackFailed(path.Session, to)
		}
	}
	return false
}

func (b *backChannel) header() rpc.CallHeader {
	b.mu.Lock()
	defer b.mu.Unlock()
	return rpc.CallHeader{RPCVersion: rpc.Version, Prog: b.program, Vers: nfs4.CBVersion, Proc: nfs4.ProcCBCompound, Cred: b.cred}
}

// size is how long a call is, as ca_maxrequestsize counts: RFC 8881 section 18.36.3.
func (b *backChannel) size(args rpc.Args) int {
	h := b.header()
	return len((&callback{args: args}).Append(h.Append(nil)))
}

// call does one operation at the client. An error means that the connection, or the session's
// back channel, is of no use. What the client says to the operation does not matter.
func (b *backChannel) call(conn oncrpc.Conn, session state.SessionID, op nfs4.CBOpNum, args rpc.Args) error {
	ctx, cancel := context.WithTimeout(context.Background(), answerWithin)
	defer cancel()
	h := b.header()
	for {
		res, err := conn.Ask(ctx, h, &callback{minor: b.minor, session: nfs4.SessionID(session), seq: b.seq + 1, op: op, args: args})
		if err != nil {
			return err
		}
		switch status, err := sequenceStatus(res); {
		case err != nil:
			return err
		case status == nfs4.OK:
			b.seq++
			return nil
		case status == nfs4.ErrRetryUncachedRep, status == nfs4.ErrSeqFalseRetry:
			b.seq++ // it has done a call whose reply was lost
		case status == nfs4.ErrDelay:
			select {
			case <-time.After(delayFor):
			case <-ctx.Done():
				return ctx.Err()
			}
		default:
			return statusError(status)
		}
	}
}

// callback is the arguments of a CB_COMPOUND: CB_SEQUENCE, and an operation.
type callback struct {
	minor   uint32
	session nfs4.SessionID
	seq     uint32
	op      nfs4.CBOpNum
	args    rpc.Args
}

// Append appends the arguments: sections 20.2 and 20.9.
func (c *callback) Append(b []byte) []byte {
	head := nfs4.CBCompoundArgs{MinorVersion: c.minor, NumOps: 2}
	seq := nfs4.CBSequenceArgs{SessionID: c.session, SequenceID: c.seq}
	b = seq.Append(nfs4.OpCBSequence.Append(head.Append(b)))
	return c.args.Append(c.op.Append(b))
}

var errNoSequence = errors.New("a reply to a callback without the result of CB_SEQUENCE")

// sequenceStatus is what a client has answered to CB_SEQUENCE.
func sequenceStatus(results []byte) (nfs4.Status, error) {
	d := xdr.NewDecoder(results)
	var head nfs4.CBCompoundRes
	var op nfs4.CBOpNum
	head.Decode(&d)
	if d.Err() == nil && head.NumOps == 0 && head.Status != nfs4.OK {
		return head.Status, nil
	}
	op.Decode(&d)
	var seq nfs4.CBSequenceRes
	seq.Decode(&d)
	switch {
	case d.Err() != nil:
		return 0, d.Err()
	case head.NumOps == 0 || op != nfs4.OpCBSequence:
		return 0, errNoSequence
	}
	return seq.Status, nil
}
