package exports

import (
	"log/slog"
	"net/netip"
	"sync"
)

// privilegedEnd is the first port that any user may bind (bind(2), RFC 6335 section 6).
const privilegedEnd = 1024

const portRefused = "nfs: refused a client for its port, which is not privileged (below 1024). If the client is a node, remove noresvport from its mount options, or create the volume with a class that has privilegedPorts \"false\""

// AllowsPort reports whether a client's port may use the volume, and logs refused ones.
// It refuses a client on a Unix socket, which has no port.
func (v *Volume) AllowsPort(client netip.AddrPort) bool {
	if v.Options.ports().has(client) {
		return true
	}
	v.table.refused.log(refusal{v.ID, client.Addr()}, v.table.Log, portRefused, "volume", v.Path, "client", client)
	return false
}

// refusedMax limits the remembered clients; a forgotten one is logged again.
const refusedMax = 1000

// refused remembers which clients were refused, so that each client of each volume is logged once. The zero refused
// is ready for use.
type refused struct {
	mu sync.Mutex
	// +checklocks:mu
	logged map[refusal]bool
}

type refusal struct {
	volume uint64 // 0: the client may use none
	client netip.Addr
}

func (r *refused) log(refused refusal, to *slog.Logger, message string, attrs ...any) {
	if to == nil {
		return
	}
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
		to.Warn(message, attrs...)
	}
}
