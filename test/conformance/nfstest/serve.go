package nfstest

import (
	"context"
	"net"
	"testing"
)

// Server serves clients of a listener until its context ends.
type Server interface {
	Serve(context.Context, net.Listener) error
}

// Serve runs a server on a free port of this machine until the test ends, and
// returns the address.
func Serve(t testing.TB, s Server) *net.TCPAddr {
	t.Helper()
	l := Listen(t)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().(*net.TCPAddr)
}

// Listen listens on a free port of this machine until the test ends.
func Listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}
