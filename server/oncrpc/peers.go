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
	// connsFew of their networks (NetworkOf) leave one of connsLast parts of all free. So a few networks
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
	networks map[netip.Addr]*network // of peers
	// +checklocks:mu
	open int
	// +checklocks:mu
	beyond int // of these, those beyond the first connsFew of their network
}

// Peer is an address that clients connect from.
type Peer struct {
	addr    netip.Addr
	network *network
	conns   map[Connection]bool // guarded by Peers.mu
	bytes   int64               // held of a budget, whose mu guards it
}

// network is what NetworkOf has for one or more Peers, all together.
type network struct {
	addr  netip.Addr
	conns int   // guarded by Peers.mu
	bytes int64 // held of a budget, whose mu guards it
}

// NewPeers returns the Peers of a server.
func NewPeers() *Peers { return newPeers(connsMax, connsPerPeer) }

func newPeers(conns, perPeer int) *Peers {
	return &Peers{conns: conns, perPeer: perPeer, peers: map[netip.Addr]*Peer{}, networks: map[netip.Addr]*network{}}
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
		peer = &Peer{addr: addr, network: p.networkLocked(NetworkOf(addr)), conns: map[Connection]bool{}}
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
	p.peers[addr], p.networks[peer.network.addr] = peer, peer.network
	if peer.network.conns >= connsFew {
		p.beyond++
	}
	peer.network.conns++
	peer.conns[c] = true
	p.open++
	return peer, old
}

// networkLocked returns a network, which is kept if it gets connections.
//
// +checklocks:p.mu
func (p *Peers) networkLocked(addr netip.Addr) *network {
	if n := p.networks[addr]; n != nil {
		return n
	}
	return &network{addr: addr}
}

// fullLocked reports whether there is no room for one connection more of a peer, if there may be some more than usual.
//
// +checklocks:p.mu
func (p *Peers) fullLocked(peer *Peer, more int) bool {
	return p.open >= p.conns+more || len(peer.conns) >= p.perPeer+more || p.crowdedLocked(peer, more)
}

// crowdedLocked reports whether what is left is for networks that have few connections, and that of the peer has more.
//
// +checklocks:p.mu
func (p *Peers) crowdedLocked(peer *Peer, more int) bool {
	return peer.network.conns >= connsFew && p.beyond >= p.conns-p.conns/connsLast+more
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
	if peer.network.conns > connsFew {
		p.beyond--
	}
	peer.network.conns--
	delete(peer.conns, c)
	p.open--
	if len(peer.conns) == 0 {
		delete(p.peers, peer.addr)
	}
	if peer.network.conns == 0 {
		delete(p.networks, peer.network.addr)
	}
}

// lastRank is that of candidates of which one is closed.
const lastRank = 2

// candidate is a connection that could be closed.
type candidate struct {
	peer  *Peer
	conn  Connection
	rank  int
	since time.Time
}

// leastNeededLocked returns connections to close for a new one of a peer: those that have been
// idle for long, otherwise those of addresses that have more, otherwise, if the peer has few, one that is idle or stuck. It
// returns several, so that not every new connection has to search.
//
// +checklocks:p.mu
func (p *Peers) leastNeededLocked(newcomer *Peer) []candidate {
	var list []candidate
	now := time.Now()
	crowded := p.crowdedLocked(newcomer, 0)
	for _, peer := range p.peers {
		switch {
		case len(newcomer.conns) >= p.perPeer && peer != newcomer, crowded && peer.network.conns <= connsFew:
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
			case peer == newcomer || peer.hasMore(newcomer):
				at.rank = 1
			case len(newcomer.conns) < connsFew:
				at.rank = lastRank // in use, or stuck, by an address that has no more than the newcomer
			default:
				continue
			}
			list = preferred(list, at)
		}
	}
	slices.SortFunc(list, compareCandidates)
	return list[:min(len(list), max(1, p.conns/closeAtOnce))]
}

// preferred adds a candidate to those of the lowest rank so far. Of the last rank it keeps one, so that nothing is sorted for each
// connection while all others are in use.
func preferred(list []candidate, c candidate) []candidate {
	if len(list) > 0 {
		switch first := list[0]; {
		case c.rank > first.rank:
			return list
		case c.rank < first.rank:
			list = list[:0]
		case c.rank < lastRank: // one of several
		case compareCandidates(c, first) < 0:
			list = list[:0]
		default:
			return list
		}
	}
	return append(list, c)
}

// compareCandidates has those first that are closed first, of one rank.
func compareCandidates(a, b candidate) int {
	return cmp.Or(cmp.Compare(b.peer.network.conns, a.peer.network.conns), cmp.Compare(len(b.peer.conns), len(a.peer.conns)), a.since.Compare(b.since))
}

// hasMore reports whether a peer has so much more than a newcomer that it may lose some: if they are of two networks, that of the peer.
func (p *Peer) hasMore(newcomer *Peer) bool {
	if p.network != newcomer.network {
		return p.network.conns > newcomer.network.conns+1
	}
	return len(p.conns) > len(newcomer.conns)+1
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
