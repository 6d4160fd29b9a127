package web

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
)

// sendBuffer bounds the kernel's buffer of an unread answer, in bytes. The default is up
// to 4 MiB per connection, see tcp_wmem in tcp(7).
const sendBuffer = 64 << 10

// listener accepts connections. At its limit it does not wait for one to end, as
// netutil.LimitListener does, because then a client with all connections would lock out
// the others, such as kubelet's probe. It always accepts a new connection, and closes
// one of the client with the most: the oldest that waits for its client, else the
// oldest. A probe sends its request at once and is answered within milliseconds.
type listener struct {
	net.Listener
	max       int
	clientMax int

	mu sync.Mutex
	// +checklocks:mu
	open int
	// +checklocks:mu
	number uint64 // of the latest connection
	// +checklocks:mu
	clients map[netip.Addr][]*conn
}

func newListener(l net.Listener, most, clientMost int) *listener {
	return &listener{Listener: l, max: most, clientMax: clientMost, clients: map[netip.Addr][]*conn{}}
}

// conn is an open connection of a client.
type conn struct {
	net.Conn
	listener  *listener
	client    netip.Addr
	number    uint64      // in the order of acceptance
	answering atomic.Bool // the whole header has arrived
}

func (l *listener) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if tcp, ok := accepted.(*net.TCPConn); ok {
		_ = tcp.SetWriteBuffer(sendBuffer) // else the kernel's default
	}
	c := &conn{Conn: accepted, listener: l, client: clientOf(accepted.RemoteAddr())}
	if gone := l.add(c); gone != nil {
		_ = gone.Conn.Close() // an error changes nothing
	}
	return c, nil
}

// Close is called more than once.
func (c *conn) Close() error {
	l := c.listener
	l.mu.Lock()
	l.removeLocked(c)
	l.mu.Unlock()
	return c.Conn.Close()
}

// add adds a connection, and returns the one to close for it.
func (l *listener) add(c *conn) (gone *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if own := l.clients[c.client]; len(own) >= l.clientMax {
		gone = dispensable(own)
	} else if l.open >= l.max {
		gone = dispensable(l.mostLocked())
	}
	if gone != nil {
		l.removeLocked(gone)
	}
	l.number++
	c.number = l.number
	l.clients[c.client] = append(l.clients[c.client], c)
	l.open++
	return gone
}

// removeLocked removes a connection, if it is there.
//
// +checklocks:l.mu
func (l *listener) removeLocked(c *conn) {
	conns := l.clients[c.client]
	at := slices.Index(conns, c)
	if at < 0 {
		return
	}
	l.open--
	if len(conns) == 1 {
		delete(l.clients, c.client)
		return
	}
	l.clients[c.client] = slices.Delete(conns, at, at+1)
}

// mostLocked returns the connections of the client that has the most; of several such clients,
// the one with the oldest connection.
//
// +checklocks:l.mu
func (l *listener) mostLocked() (most []*conn) {
	for _, conns := range l.clients {
		if len(conns) > len(most) || len(conns) == len(most) && conns[0].number < most[0].number {
			most = conns
		}
	}
	return most
}

// dispensable returns the oldest that waits for its client, else the oldest.
func dispensable(conns []*conn) *conn {
	for _, c := range conns {
		if !c.answering.Load() {
			return c
		}
	}
	return conns[0]
}

// clientOf returns the client that a connection counts for: its address, or with IPv6 its
// /64 network, in which one machine can have any number of addresses. All connections of a
// Unix socket count for one client.
func clientOf(address net.Addr) netip.Addr {
	tcp, ok := address.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	client := tcp.AddrPort().Addr().Unmap().WithZone("")
	if client.Is6() {
		network, _ := client.Prefix(64) // 64 is no error
		return network.Addr()
	}
	return client
}

type connKey struct{}

func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// answering marks a request's connection while h answers it.
func answering(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(connKey{}).(*conn); ok {
			c.answering.Store(true)
			defer c.answering.Store(false)
		}
		h.ServeHTTP(w, r)
	})
}
