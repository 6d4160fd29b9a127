package exports

import (
	"net/netip"
	"slices"
)

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
