package oncrpc

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"

	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/server/stats"
)

// DialOwn connects a probe of this process to its own server, at an IP address and port of
// this machine. The server's stats leave the probe out.
func DialOwn(ctx context.Context, address string, served *stats.Server) (*rpc.Client, error) {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, fmt.Errorf("address of this server: %w", err)
	}
	forget := func() {}
	dialer := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		var from netip.AddrPort
		var failed error
		if err := raw.Control(func(fd uintptr) { from, failed = bind(int(fd), to.Addr().Unmap()) }); err != nil {
			return err
		}
		if failed == nil {
			forget = served.Own(from)
		}
		return failed
	}}
	conn, err := dialer.DialContext(ctx, "tcp", to.String())
	if err != nil {
		forget()
		return nil, err
	}
	return rpc.NewClient(&ownConn{Conn: conn, forget: forget}), nil
}

// bind binds a socket to an address of this machine, from which a connection to that address
// comes anyway, and returns it with the port.
func bind(fd int, ip netip.Addr) (netip.AddrPort, error) {
	var at syscall.Sockaddr
	if ip.Is4() {
		at = &syscall.SockaddrInet4{Addr: ip.As4()}
	} else {
		at = &syscall.SockaddrInet6{Addr: ip.As16()}
	}
	if err := syscall.Bind(fd, at); err != nil {
		return netip.AddrPort{}, os.NewSyscallError("bind", err)
	}
	at, err := syscall.Getsockname(fd)
	switch at := at.(type) {
	case *syscall.SockaddrInet4:
		return netip.AddrPortFrom(ip, uint16(at.Port)), nil
	case *syscall.SockaddrInet6:
		return netip.AddrPortFrom(ip, uint16(at.Port)), nil
	}
	return netip.AddrPort{}, os.NewSyscallError("getsockname", err)
}

// ownConn is the connection of a probe.
type ownConn struct {
	net.Conn

	once   sync.Once
	forget func()
}

// Close may be called more than once. When the port is free, another client may get it.
func (c *ownConn) Close() error {
	c.once.Do(c.forget)
	return c.Conn.Close()
}
