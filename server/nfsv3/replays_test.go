package nfsv3

import (
	"net/netip"
	"testing"
	"time"

	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/server/oncrpc"
)

// The memory of cached replies is bounded: the client with the most loses some. Old replies are
// removed, and so are their clients.
func TestReplaysTakeBoundedMemory(t *testing.T) {
	r := newReplays()
	finish := func(client int, xid uint32) {
		call := &oncrpc.Call{Header: rpc.CallHeader{XID: xid}, Client: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(client >> 8), byte(client)}), 1)}
		if _, ok := r.repeated(call); ok {
			t.Fatalf("client %d, call %d is remembered", client, xid)
		}
		(*r.clientLocked(call.Client.Addr()).find(r.key(call))).Ended(rpc.Success, make([]byte, replayMax))
	}
	few := uint32(20)
	for xid := range few {
		finish(0, xid)
	}
	for client := 1; client <= 100; client++ {
		for xid := range uint32(replaysPerClient) {
			finish(client, xid)
		}
	}
	if r.bytes > replayBytes || r.bytes < replayBytes/2 {
		t.Errorf("%d bytes are remembered", r.bytes)
	}
	sum := 0
	for _, c := range r.clients {
		sum += c.bytes
		calls := 0
		for _, seen := range c.buckets {
			for ; seen != nil; seen = seen.next {
				calls++
			}
		}
		if calls != c.done {
			t.Errorf("%d calls and %d replies of a client", calls, c.done)
		}
	}
	if sum != r.bytes {
		t.Errorf("the clients' replies take %d bytes, all together %d", sum, r.bytes)
	}
	if c := r.clients[netip.MustParseAddr("10.0.0.0")]; c == nil || c.done != int(few) {
		t.Error("a client that has little lost it to those that have much")
	}
	r.expire(time.Now().Add(-time.Minute))
	if r.bytes < replayBytes/2 {
		t.Error("what is young is forgotten")
	}
	r.expire(time.Now())
	if len(r.clients) != 0 || r.bytes != 0 || r.used.Len() != 0 {
		t.Errorf("%d clients with %d bytes are remembered for ever", len(r.clients), r.bytes)
	}
}

// A machine with any number of addresses, as IPv6 gives it, does not have the replies to all others forgotten.
func TestReplaysOfManyAddresses(t *testing.T) {
	r := newReplays()
	again := func(addr netip.Addr) bool {
		call := &oncrpc.Call{Header: rpc.CallHeader{XID: 1}, Client: netip.AddrPortFrom(addr, 700)}
		if _, ok := r.repeated(call); ok {
			return true
		}
		(*r.clientLocked(addr).find(r.key(call))).Ended(rpc.Success, nil)
		return false
	}
	others := []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00:0:0:1::1")}
	for _, addr := range others {
		again(addr)
	}
	many := netip.MustParseAddr("fd00::1")
	for range 3 * replayClients {
		again(many)
		many = many.Next()
	}
	for range 100 { // of others, which come for the first time
		newcomer := netip.AddrFrom4([4]byte{10, 0, 1, byte(len(others))})
		if others = append(others, newcomer); again(newcomer) {
			t.Errorf("%s was not there before", newcomer)
		}
	}
	for _, addr := range others {
		if !again(addr) {
			t.Errorf("the reply to %s is forgotten", addr)
		}
	}
	if len(r.clients) > replayClients {
		t.Errorf("%d clients are remembered", len(r.clients))
	}
	r.expire(time.Now().Add(time.Hour))
	if len(r.networks) > 0 {
		t.Errorf("%d networks are remembered for ever", len(r.networks))
	}
}

// A client that goes on and on has replies remembered without an allocation, even to calls that differ in their xid only.
func TestReplaysAllocateNothing(t *testing.T) {
	r := newReplays()
	results := make([]byte, 200)
	call := &oncrpc.Call{Client: netip.MustParseAddrPort("10.0.0.1:1")}
	next := func() {
		call.Header.XID++
		if _, ok := r.repeated(call); ok {
			t.Fatalf("call %d is remembered", call.Header.XID)
		}
		(*r.clientLocked(call.Client.Addr()).find(r.key(call))).Ended(rpc.Success, results)
	}
	for range 2 * replaysPerClient {
		next()
	}
	if n := testing.AllocsPerRun(1000, next); n != 0 {
		t.Errorf("%v allocations", n)
	}
	longest := 0
	for _, seen := range r.clientLocked(call.Client.Addr()).buckets {
		n := 0
		for ; seen != nil; seen = seen.next {
			n++
		}
		longest = max(longest, n)
	}
	if longest > 16 {
		t.Errorf("%d calls are in one bucket", longest)
	}
}
