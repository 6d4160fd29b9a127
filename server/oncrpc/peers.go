package oncrpc

import (
	"cmp"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

const (
	// connsMax is how many connections a server has: more than the nodes of any
	// cluster that one pod serves.
	connsMax = 4096
	// connsPerPeer is how many of them one address may have. A node's kernel has one
	// connection to a server for all its mounts, or nconnect, 16 at most; a quarter of
	// all leaves room for many clients behind one address, and for others beside it.
	connsPerPeer = connsMax / 4
	// connsFew is how many connections an address has at most that has few: those of a node. Connections beyond the first
	// connsFew of their addresses leave one of connsLast parts of all free. So a few addresses
	// can't lock all others out, whatever they do with theirs.
	connsFew, connsLast = 16, 4
	// connsOwn is how many more the server's own address may have: the readiness check
	// is one.
	connsOwn = 16
	// idleLong is how long a connection without calls counts as in use.
	idleLong = 10 * time.Second
	// closeAtOnce is the part of all connections, one of so many, that is closed when one
	// is too many.
	closeAtOnce = 128
)

// Activity is what a connection does.
type Activity int

// What a connection does, in the order in which they are closed to make room.
const (
	Idle    Activity = iota // no call is in flight
	Stuck                   // in the middle of a call, it waits for the client or for memory
	Working                 // its calls are executed
)

// Connection is a connection as [Peers] know it.
type Connection interface {
	net.Conn
	// Activity returns what it does, and since when.
	Activity() (Activity, time.Time)
}

// Peers are the connections of a server, by the address they come from. When there
// are too many, the ones that do nothing are closed first: NFS clients connect again
// by themselves when they need to.
type Peers struct {
	conns   int // the most of all
	perPeer int // the most of one address

	mu sync.Mutex
	// +checklocks:mu
	peers map[netip.Addr]*Peer
	// +checklocks:mu
	open int
	// +checklocks:mu
	beyond int // of these, those beyond the first connsFew of their address
}

// Peer is an address that clients connect from.
type Peer struct {
	addr  netip.Addr
	conns map[Connection]bool // guarded by Peers.mu
	bytes int64               // held of a budget, whose mu guards it
}

// NewPeers returns the Peers of a server.
func NewPeers() *Peers { return newPeers(connsMax, connsPerPeer) }

func newPeers(conns, perPeer int) *Peers {
	return &Peers{conns: conns, perPeer: perPeer, peers: map[netip.Addr]*Peer{}}
}

// Admit adds a connection, and closes others to make room for it if there are too many. It
// returns nil if there is no room.
func (p *Peers) Admit(c Connection) (_ *Peer, closed int) {
	peer, old := p.admit(c)
	for _, candidate := range old {
		_ = candidate.conn.Close() // its own goroutine ends then
	}
	return peer, len(old)
}

func (p *Peers) admit(c Connection) (_ *Peer, old []candidate) {
	addr := AddrOf(c.RemoteAddr())
	own := addr.IsValid() && addr == AddrOf(c.LocalAddr())
	p.mu.Lock()
	defer p.mu.Unlock()
	peer := p.peers[addr]
	if peer == nil {
		peer = &Peer{addr: addr, conns: map[Connection]bool{}}
	}
	if p.fullLocked(peer, 0) {
		old = p.leastNeededLocked(peer)
		for _, candidate := range old {
			p.removeLocked(candidate.peer, candidate.conn)
		}
	}
	more := 0
	if own {
		more = connsOwn
	}
	if p.fullLocked(peer, more) {
		return nil, old
	}
	p.peers[addr] = peer
	if len(peer.conns) >= connsFew {
		p.beyond++
	}
	peer.conns[c] = true
	p.open++
	return peer, old
}

// fullLocked reports whether there is no room for one connection more of a peer, if there may be some more than usual.
//
// +checklocks:p.mu
func (p *Peers) fullLocked(peer *Peer, more int) bool {
	return p.open >= p.conns+more || len(peer.conns) >= p.perPeer+more || p.crowdedLocked(peer, more)
}

// crowdedLocked reports whether what is left is for addresses that have few connections, and the peer has more.
//
// +checklocks:p.mu
func (p *Peers) crowdedLocked(peer *Peer, more int) bool {
	return len(peer.conns) >= connsFew && p.beyond >= p.conns-p.conns/connsLast+more
}

// Leave removes a connection.
func (p *Peers) Leave(peer *Peer, c Connection) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.removeLocked(peer, c)
}

// removeLocked removes a connection if that is still there.
//
// +checklocks:p.mu
func (p *Peers) removeLocked(peer *Peer, c Connection) {
	if !peer.conns[c] {
		return
	}
	if len(peer.conns) > connsFew {
		p.beyond--
	}
	delete(peer.conns, c)
	p.open--
	if len(peer.conns) == 0 {
		delete(p.peers, peer.addr)
	}
}

// candidate is a connection that could be closed.
type candidate struct {
	peer  *Peer
	conn  Connection
	rank  int
	since time.Time
}

// leastNeededLocked returns connections to close for a new one of a peer: those that have been
// idle for long, otherwise those of addresses that have more, otherwise, if the peer has few, one that is idle. It
// returns several, so that not every new connection has to search.
//
// +checklocks:p.mu
func (p *Peers) leastNeededLocked(newcomer *Peer) []candidate {
	var list []candidate
	now := time.Now()
	crowded := p.crowdedLocked(newcomer, 0)
	for _, peer := range p.peers {
		switch {
		case len(newcomer.conns) >= p.perPeer && peer != newcomer, crowded && len(peer.conns) <= connsFew:
			continue // that would make no room
		}
		for c := range peer.conns {
			at := candidate{peer: peer, conn: c}
			var activity Activity
			activity, at.since = c.Activity()
			switch {
			case activity == Working:
				continue
			case activity == Idle && now.Sub(at.since) >= idleLong:
				at.rank = 0
			case peer == newcomer || len(peer.conns) > len(newcomer.conns)+1:
				at.rank = 1
			case activity == Idle && len(newcomer.conns) < connsFew:
				at.rank = 2 // in use, by an address that has no more than the newcomer
			default:
				continue
			}
			list = append(list, at)
		}
	}
	slices.SortFunc(list, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(len(b.peer.conns), len(a.peer.conns)), a.since.Compare(b.since))
	})
	n := min(len(list), 1)
	for n < min(len(list), p.conns/closeAtOnce) && list[n].rank == list[0].rank && list[n].rank < 2 {
		n++
	}
	return list[:n]
}

// AddrOf returns the address of a client without its port. It is not valid if the client has
// none.
func AddrOf(a net.Addr) netip.Addr {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return tcp.AddrPort().Addr().Unmap()
}

// NetworkOf returns what an address counts for where clients could have any number of them: with IPv6 its /64 network, which one
// machine can have for itself, and otherwise the address.
func NetworkOf(addr netip.Addr) netip.Addr {
	if !addr.Is6() {
		return addr
	}
	network, _ := addr.Prefix(64) // 64 is no error
	return network.Addr()
}
