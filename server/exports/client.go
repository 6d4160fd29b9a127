package exports

import (
	"log/slog"
	"net/netip"
	"sync"
)

// privilegedEnd is the first port that any user may bind (bind(2), RFC 6335 section 6).
const privilegedEnd = 1024

// AllowsPort reports whether a client's port may use the volume, and logs refused ones.
// It refuses a client on a Unix socket, which has no port.
func (v *Volume) AllowsPort(client netip.AddrPort) bool {
	if !v.Options.PrivilegedPorts || client.IsValid() && client.Port() < privilegedEnd {
		return true
	}
	v.table.refused.log(v, client, v.table.Log)
	return false
}

// refusedMax limits the remembered clients; a forgotten one is logged again.
const refusedMax = 1000

// refused remembers which clients were refused for their ports, so that each client of
// each volume is logged once. The zero refused is ready for use.
type refused struct {
	mu sync.Mutex
	// +checklocks:mu
	logged map[refusal]bool
}

type refusal struct {
	volume uint64
	client netip.Addr
}

func (r *refused) log(v *Volume, client netip.AddrPort, to *slog.Logger) {
	if to == nil {
		return
	}
	refused := refusal{v.ID, client.Addr()}
	r.mu.Lock()
	logged := r.logged[refused]
	if !logged {
		if r.logged == nil || len(r.logged) >= refusedMax {
			r.logged = map[refusal]bool{}
		}
		r.logged[refused] = true
	}
	r.mu.Unlock()
	if !logged {
		to.Warn("nfs: refused a client for its port, which is not privileged (below 1024). If the client is a node, remove noresvport from its mount options, or create the volume with a class that has privilegedPorts \"false\"",
			"volume", v.Path, "client", client)
	}
}
