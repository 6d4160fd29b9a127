package stats

import (
	"net/netip"
	"sync"
)

// own are the addresses that the server's own probes connect from. It is the process
// that notes them, before it connects, and an address that is bound is nobody else's:
// no client can keep itself out of the numbers.
type own struct {
	mu    sync.Mutex
	addrs map[netip.AddrPort]bool
}

// Own leaves connections from an address out of the numbers, until forget. The address
// must be bound by this process until then.
func (s *Server) Own(from netip.AddrPort) (forget func()) {
	o := &s.own
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.addrs == nil {
		o.addrs = map[netip.AddrPort]bool{}
	}
	o.addrs[from] = true
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.addrs, from)
	}
}

func (o *own) has(client netip.AddrPort) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.addrs[client]
}
