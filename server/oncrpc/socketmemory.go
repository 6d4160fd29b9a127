package oncrpc

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// Data that is received but not read, or written but not sent, is in the kernel's memory,
// which counts toward a container's limit. Linux lets it grow to tcp_rmem and tcp_wmem of
// tcp(7), up to 32 MiB and 4 MiB per connection. That is good for a few connections, and too
// much for thousands whose clients send and don't read.
const (
	// wideConns and widePerPeer are how many connections may have as much as Linux gives
	// them: in all, and of one address. A node with nconnect has 16.
	wideConns, widePerPeer = 64, 16
	// narrow is the bytes that any other may have in each direction, without the kernel's
	// overhead. At a round trip of 1 ms that is 128 MB per second.
	narrow = 128 << 10
)

// LimitSocket bounds the kernel's memory of a TCP connection of a peer, unless there are few.
func (p *Peers) LimitSocket(peer *Peer, nc net.Conn) error {
	p.mu.Lock()
	few := p.open <= wideConns && len(peer.conns) <= widePerPeer
	p.mu.Unlock()
	tcp, ok := nc.(*net.TCPConn)
	if few || !ok {
		return nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return err
	}
	return limitSocket(raw)
}

func limitSocket(raw syscall.RawConn) error {
	var err error
	ended := raw.Control(func(fd uintptr) {
		// What is sent and not acknowledged is bounded by the client's own window.
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, narrow)
		if err == nil {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, narrow)
		}
	})
	if ended != nil {
		return ended
	}
	return err
}
