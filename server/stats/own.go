package stats

import (
	"net/netip"
	"sync"
)

// own has the local addresses of the server's own probes. The process adds them
// before it connects, and a bound address can't be another's: no client can evade
// being counted.
type own struct {
	mu sync.Mutex
	// +checklocks:mu
	addrs map[netip.AddrPort]bool
}

// Own excludes connections from an address from the counts, until forget. The address
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
