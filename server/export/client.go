package export

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
	v.table.refused.tell(v, client, v.table.Log)
	return false
}

// refusedMax limits the remembered clients; a forgotten one is logged again.
const refusedMax = 1000

// refused remembers which clients were refused for their ports, so that each client of
// each volume is logged once. The zero refused is ready for use.
type refused struct {
	mu   sync.Mutex
	told map[refusal]bool
}

type refusal struct {
	volume uint64
	client netip.Addr
}

func (r *refused) tell(v *Volume, client netip.AddrPort, log *slog.Logger) {
	if log == nil {
		return
	}
	who := refusal{v.ID, client.Addr()}
	r.mu.Lock()
	told := r.told[who]
	if !told {
		if r.told == nil || len(r.told) >= refusedMax {
			r.told = map[refusal]bool{}
		}
		r.told[who] = true
	}
	r.mu.Unlock()
	if !told {
		log.Warn("nfs: refused a client for its port, which any user may have. If it is a node that mounts: take noresvport from its mount options, or make the volume of a class with privilegedPorts \"false\"",
			"volume", v.Path, "client", client)
	}
}
