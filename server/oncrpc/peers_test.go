package oncrpc_test

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/podnas/podnas/server/oncrpc"
)

// someConn is a connection of a client that does something.
type someConn struct {
	net.Conn

	from     netip.Addr
	activity oncrpc.Activity
	since    time.Time
	closed   bool
}

func (c *someConn) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(c.from, 700))
}

func (c *someConn) LocalAddr() net.Addr {
	return &net.TCPAddr{IP: net.IPv4(10, 255, 0, 1), Port: 2049}
}

func (c *someConn) Activity() (oncrpc.Activity, time.Time) { return c.activity, c.since }

func (c *someConn) Close() error {
	c.closed = true
	return nil
}

// comeFrom has clients come from one address after the other, until all places would be taken.
func comeFrom(p *oncrpc.Peers, first string, a oncrpc.Activity) (admitted []*someConn) {
	from := netip.MustParseAddr(first)
	for n := range 4096 {
		c := &someConn{from: from, activity: a, since: time.Now().Add(time.Duration(n) * time.Microsecond)}
		if peer, _ := p.Admit(c); peer != nil {
			admitted = append(admitted, c)
		}
		from = from.Next()
	}
	return admitted
}

// One machine can have any number of addresses with IPv6. With a connection from each it takes three quarters of them all, whatever these
// do, and nothing is closed that others have.
func TestManyAddressesOfANetwork(t *testing.T) {
	for name, activity := range map[string]oncrpc.Activity{"idle": oncrpc.Idle, "stuck": oncrpc.Stuck, "working": oncrpc.Working} {
		t.Run(name, func(t *testing.T) {
			p := oncrpc.NewPeers()
			neighbour := &someConn{from: netip.MustParseAddr("10.0.0.1"), activity: oncrpc.Idle, since: time.Now()}
			if peer, _ := p.Admit(neighbour); peer == nil {
				t.Fatal("the first is refused")
			}
			all := comeFrom(p, "fd00::1", activity)
			if n := len(all); activity == oncrpc.Working && n != 4096*3/4+16 {
				t.Errorf("%d connections of a /64 network", n)
			}
			for _, newcomer := range []string{"10.0.0.2", "10.0.0.3", "fd00:0:0:1::1", "fd00:0:0:1::2"} {
				if peer, _ := p.Admit(&someConn{from: netip.MustParseAddr(newcomer), activity: oncrpc.Working}); peer == nil {
					t.Errorf("%s is refused", newcomer)
				}
			}
			if neighbour.closed {
				t.Error("a neighbour's connection is closed")
			}
		})
	}
}

// As many addresses as there are places, with half a call each, keep nobody out: who waits for longest goes.
func TestManyAddressesThatAreStuck(t *testing.T) {
	p := oncrpc.NewPeers()
	all := comeFrom(p, "10.0.0.1", oncrpc.Stuck)
	if len(all) != 4096 {
		t.Fatalf("%d are admitted", len(all))
	}
	for n := range 20 {
		newcomer := &someConn{from: netip.AddrFrom4([4]byte{10, 1, 0, byte(n)}), activity: oncrpc.Working}
		if peer, closed := p.Admit(newcomer); peer == nil || closed != 1 || !all[n].closed {
			t.Errorf("newcomer %d is refused, or closes %d others", n, closed)
		}
	}
}

// The addresses of a network leave memory for others.
func TestMemoryOfANetwork(t *testing.T) {
	p, b := oncrpc.NewPeers(), oncrpc.NewBudget()
	const call = 1 << 20
	take := func(from netip.Addr) bool {
		peer, _ := p.Admit(&someConn{from: from, activity: oncrpc.Working})
		return b.TryTake(oncrpc.NewHolding(peer), call)
	}
	from, n := netip.MustParseAddr("fd00::1"), 0
	for ; n < 1000 && take(from); n++ {
		from = from.Next()
	}
	if n != 192 {
		t.Errorf("a /64 network has %d MiB of 256", n)
	}
	for range 60 {
		from = netip.AddrFrom4([4]byte{10, 0, 0, byte(n)})
		if n++; !take(from) {
			t.Fatalf("no memory for %s", from)
		}
	}
}
