package oncrpc_test

import (
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/oncrpc"
)

// A node's own connections have all that Linux gives; of the further ones of an address,
// and of a crowded server, each has little.
func TestLimitSocket(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p := oncrpc.NewPeers()
	for n := 1; n <= oncrpc.WidePerPeer+2; n++ {
		client, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close() })
		nc, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { nc.Close() })
		before := received(t, nc)
		peer, _ := p.Admit(used{nc})
		if err := p.LimitSocket(peer, nc); err != nil {
			t.Fatal(err)
		}
		want := before
		if n > oncrpc.WidePerPeer {
			want = 2 * oncrpc.Narrow // socket(7): the kernel doubles it
		}
		if got := received(t, nc); got != want {
			t.Errorf("connection %d of an address may have %d bytes received, want %d", n, got, want)
		}
	}
}

// used is a connection that is in use.
type used struct{ net.Conn }

func (used) Activity() (oncrpc.Activity, time.Time) { return oncrpc.Working, time.Now() }

// received is how much of what the kernel has received for a connection it keeps, in bytes.
func received(t *testing.T, nc net.Conn) (size int) {
	t.Helper()
	raw, err := nc.(*net.TCPConn).SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { size, _ = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF) })
	}
	if err != nil {
		t.Fatal(err)
	}
	return size
}
