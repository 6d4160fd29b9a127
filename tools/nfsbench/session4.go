package nfsbench

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/nfs/rpc"
)

// protocol4 is versions 4.1 and 4.2. Each connection is a client with a session of its own, as a
// node is: servers bound the slots of a session and the sessions of a client, and a bench
// may have a thousand connections.
type protocol4 struct {
	cfg      *Config
	target   Target
	name     string // of the clients, with their number
	sessions []*session4
}

// session4 is a session and its client.
type session4 struct {
	minor    uint32 // version
	owner    []byte
	wait     time.Duration // how long calls are repeated
	clientID uint64
	id       nfs4.SessionID
	fore     nfs4.ChannelAttrs
	highest  uint32      // slot in use
	seqs     []uint32    // of the last call of each slot
	usual    nfs4.Bitmap // usualAttrs
}

func newProtocol4(cfg *Config, t Target) *protocol4 {
	return &protocol4{cfg: cfg, target: t, name: "podnas-bench " + rand.Text()[:12] + " "}
}

func (s *session4) newRepeat() repeat { return repeat{wait: s.wait} }

const (
	// slotsForCall is how many slots a call in flight needs: loads may have calls beside them.
	slotsForCall = 2
	// overhead is what a message has at most beside the data of READ or WRITE.
	overhead = 1 << 10
	cached   = 2 << 10 // the largest reply that is cached
)

// join makes a client of the connection, which takes the place of the one of this index
// that was there before: what that had open is closed.
func (p *protocol4) join(index int, c *conn) error {
	for len(p.sessions) <= index {
		p.sessions = append(p.sessions, &session4{minor: p.target.Version.minor(), owner: strconv.AppendInt([]byte(p.name), int64(len(p.sessions)), 10), wait: p.cfg.timeout(), usual: usualAttrs()})
	}
	s := p.sessions[index]
	l := newLane(p.cfg.cred())
	l.conn = c
	if err := s.create(l, uint32(slotsForCall*p.cfg.Depth)); err != nil {
		return err
	}
	if len(s.seqs) < p.cfg.Depth {
		return fmt.Errorf("the server has %d calls of a session in flight at most: choose --depth=%d, and more --connections", len(s.seqs), len(s.seqs))
	}
	calls := &calls4{lane: l, session: s}
	calls.compound(true)
	calls.op(nfs4.OpReclaimComplete)
	calls.out = (&nfs4.ReclaimCompleteArgs{}).Append(calls.out)
	d, err := calls.send()
	if err == nil {
		err = done(&d, nfs4.OpReclaimComplete)
	}
	return err
}

// create makes the client known as a new incarnation, and a session.
func (s *session4) create(l *lane, slots uint32) error {
	var verf nfs4.Verifier
	_, _ = rand.Read(verf[:]) // it never fails
	var client nfs4.ExchangeIDRes
	err := s.bare(l, nfs4.OpExchangeID, &nfs4.ExchangeIDArgs{Verf: verf, OwnerID: s.owner, Flags: nfs4.ExchangeUseNonPNFS}, &client)
	if err != nil {
		return err
	}
	var session nfs4.CreateSessionRes
	const least = 4 << 10
	err = s.bare(l, nfs4.OpCreateSession, &nfs4.CreateSessionArgs{
		ClientID: client.ClientID, SequenceID: client.SequenceID,
		Fore:      nfs4.ChannelAttrs{MaxRequestSize: mebibyte + overhead, MaxResponseSize: mebibyte + overhead, MaxResponseSizeCached: cached, MaxOperations: 16, MaxRequests: slots},
		Back:      nfs4.ChannelAttrs{MaxRequestSize: least, MaxResponseSize: least, MaxOperations: 2, MaxRequests: 1},
		CBProgram: 0x40000000, SecParms: []nfs4.CallbackSec{{Flavor: rpc.AuthNone}},
	}, &session)
	if err != nil {
		return err
	}
	s.clientID, s.id, s.fore = client.ClientID, session.SessionID, session.Fore
	s.seqs = make([]uint32, min(slots, session.Fore.MaxRequests))
	if len(s.seqs) == 0 {
		return errors.New("CREATE_SESSION: the server gives no slot")
	}
	s.highest = uint32(len(s.seqs) - 1)
	return nil
}

// root finds the export in the server's tree.
func (p *protocol4) root(_ context.Context, l *lane) ([]byte, error) {
	c := &calls4{lane: l, session: p.sessions[0]}
	fh, err := c.rootfh()
	for name := range strings.SplitSeq(p.target.Path, "/") {
		if err == nil && name != "" {
			fh, err = c.lookup(bytes.Clone(fh), []byte(name))
		}
	}
	switch {
	case hasStatus(err, statusNoEnt):
		return nil, fmt.Errorf("%s: %w: the server has no such export, or not for this machine", p.target, err)
	case hasStatus(err, uint32(nfs4.ErrWrongSec), statusPerm):
		return nil, fmt.Errorf("%s: %w: the server may let in callers from ports below 1024 alone (privilegedPorts of podnas, secure of knfsd): then run this as root", p.target, err)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", p.target, err)
	}
	return bytes.Clone(fh), nil
}

func (p *protocol4) newCalls(l *lane, index, slot int) (calls, error) {
	s := p.sessions[index]
	if slot >= len(s.seqs) {
		return nil, fmt.Errorf("the server has %d calls of a session in flight at most, and the load makes twice --depth=%d", len(s.seqs), p.cfg.Depth)
	}
	owner := "bench " + strconv.Itoa(slot)
	return &calls4{lane: l, session: s, slot: uint32(slot), owner: nfs4.StateOwner{ClientID: s.clientID, Owner: []byte(owner)}}, nil
}

// leave makes the server forget the clients, whatever they have open: each comes as
// another incarnation, and goes.
func (p *protocol4) leave(l *lane) error {
	for _, s := range p.sessions {
		if err := s.create(l, 1); err != nil {
			return err
		}
		if err := s.bare(l, nfs4.OpDestroySession, &nfs4.DestroySessionArgs{SessionID: s.id}, &nfs4.StatusRes{}); err != nil {
			return err
		}
		if err := s.bare(l, nfs4.OpDestroyClientID, &nfs4.DestroyClientIDArgs{ClientID: s.clientID}, &nfs4.StatusRes{}); err != nil {
			return err
		}
	}
	p.sessions = nil
	return nil
}
