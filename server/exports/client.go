package exports

import (
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/podnas/podnas/server/stats"
)

// privilegedEnd is the first port that any user may bind (bind(2), RFC 6335 section 6).
const privilegedEnd = 1024

const portRefused = "nfs: refused a client for its port, which is not privileged (below 1024). If the client is a node, remove noresvport from its mount options, or create the volume with a class that has privilegedPorts \"false\""

// MayUse reports whether a client may use the volume. It logs nothing, as clients see lists of many volumes.
func (v *Volume) MayUse(client netip.AddrPort) bool {
	return v.Allows(client.Addr()) && v.Options.ports().has(client)
}

// AllowsPort reports whether a client's port may use the volume, and logs refused ones.
// It refuses a client on a Unix socket, which has no port.
func (v *Volume) AllowsPort(client netip.AddrPort) bool {
	if v.Options.ports().has(client) {
		return true
	}
	v.table.refused.log(refusal{v.ID, client.Addr()}, v.table.Log, portRefused, "volume", v.Path, "client", client)
	return false
}

const (
	// refusedMax limits the remembered clients, and so the lines. When there are so many, nothing more is logged until refusedFor after
	// the first of them; then each is logged again.
	refusedMax = 1000
	refusedFor = time.Hour
)

// refused remembers which clients were refused, so that each client of each volume is logged once. The zero refused
// is ready for use.
type refused struct {
	mu sync.Mutex
	// +checklocks:mu
	logged map[refusal]bool
	// +checklocks:mu
	since time.Time // of the first of logged
	// +checklocks:mu
	lines *stats.Lines
}

type refusal struct {
	volume uint64 // 0: the client may use none
	client netip.Addr
}

func (r *refused) log(refused refusal, to *slog.Logger, message string, attrs ...any) {
	if to == nil {
		return
	}
	if lines := r.add(refused, to); lines != nil {
		lines.Log(slog.LevelWarn, message, attrs...)
	}
}

// add remembers a refusal, and returns where to log it; nil: nowhere.
func (r *refused) add(refused refusal, to *slog.Logger) *stats.Lines {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.logged[refused] {
		return nil
	}
	if r.lines == nil {
		r.lines = stats.NewLines(to, stats.LinesBurst, stats.LinesPeriod)
	}
	if len(r.logged) >= refusedMax {
		if time.Since(r.since) < refusedFor {
			return nil
		}
		r.logged = nil
	}
	if r.logged == nil {
		r.logged, r.since = map[refusal]bool{}, time.Now()
	}
	r.logged[refused] = true
	return r.lines
}

// admission is who may use any volume at all. It never changes.
type admission struct {
	volumes    []*Volume // that it was made of
	everywhere ports     // of those volumes that allow all networks
	networks   map[netip.Prefix]ports
	bits       []int // lengths of networks
}

// ports are those from which clients are accepted.
type ports int

const (
	noPort ports = iota
	privilegedPorts
	allPorts
)

// has reports whether a client's port is one of them. A client on a Unix socket has none.
func (p ports) has(client netip.AddrPort) bool {
	return p == allPorts || p == privilegedPorts && client.IsValid() && client.Port() < privilegedEnd
}

// ports returns those from which the volume accepts clients.
func (o *Options) ports() ports {
	if o.PrivilegedPorts {
		return privilegedPorts
	}
	return allPorts
}

// Admits reports whether a client may use any of the volumes, and logs refused ones. While there is no volume it admits everybody: there
// is nothing to protect, and clients may be there before the first volume. It takes a look-up for each length of a network that volumes
// have, and goes through the volumes only after the table has changed.
func (t *Table) Admits(client netip.AddrPort) bool {
	a := t.admission()
	if len(a.volumes) == 0 {
		return true
	}
	from := a.from(client.Addr())
	if from.has(client) {
		return true
	}
	if from == privilegedPorts {
		t.refused.log(refusal{client: client.Addr()}, t.Log, portRefused, "volume", "any", "client", client)
	} else {
		t.refused.log(refusal{client: client.Addr()}, t.Log, "nfs: refused a client that may use no volume: allowedClients of their classes do not have its address", "client", client)
	}
	return false
}

// from returns the ports from which clients with an address may use any volume.
func (a *admission) from(client netip.Addr) ports {
	all := a.everywhere
	if !client.IsValid() { // no network contains it
		return all
	}
	for _, bits := range a.bits {
		if network, err := client.Prefix(bits); err == nil { // without its zone, as Allows has it
			all = max(all, a.networks[network])
		}
	}
	return all
}

// admission returns the one of the volumes that there are now.
func (t *Table) admission() *admission {
	volumes := t.Volumes()
	a := t.admits.Load()
	if a == nil || !IsSame(a.volumes, volumes) {
		a = newAdmission(volumes) // others may do so at this moment, and get the same
		t.admits.Store(a)
	}
	return a
}

func newAdmission(volumes []*Volume) *admission {
	a := &admission{volumes: volumes, networks: map[netip.Prefix]ports{}}
	for _, v := range volumes {
		if v.Refused != nil {
			continue
		}
		if len(v.Options.Clients) == 0 {
			a.everywhere = max(a.everywhere, v.Options.ports())
		}
		for _, network := range v.Options.Clients {
			network = network.Masked()
			a.networks[network] = max(a.networks[network], v.Options.ports())
			if !slices.Contains(a.bits, network.Bits()) { // 129 at most
				a.bits = append(a.bits, network.Bits())
			}
		}
	}
	return a
}
