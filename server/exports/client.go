package exports

import (
	"log/slog"
	"net/netip"
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
