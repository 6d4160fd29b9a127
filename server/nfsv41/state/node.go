package state

import (
	"net/netip"
	"slices"
	"strings"
)

// To people a client is a node. Linux is a client of its own for each minor version in which a node has mounts: its owner is
// "Linux NFSv4.1 NODE" for one and "Linux NFSv4.2 NODE" for another, each with a client ID, a lease and locks of its own. What is
// here is for lists, counts and logs alone: the protocol keeps them apart.

// Node returns the name of the node that a client calls itself after, and the version of NFS that Linux has in the owner. Any
// other owner is a node's name as it is.
func Node(owner string) (name, version string) {
	const linux = "Linux NFSv4"
	minor, ok := strings.CutPrefix(owner, linux+".")
	if !ok || len(minor) < len("1 x") || minor[0] < '1' || minor[0] > '9' || minor[1] != ' ' {
		return owner, ""
	}
	return linux + minor[1:], "4." + minor[:1]
}

// Host returns the host name that Linux has in the owner, after nfs4_unique_id if there is one; empty for any other owner.
func Host(owner string) string {
	name, version := Node(owner)
	if version == "" {
		return ""
	}
	host := name[strings.LastIndexByte(name, ' ')+1:]
	return host[strings.LastIndexByte(host, '/')+1:]
}

// Nodes returns the clients of each node, by the nodes' names. Clients of one name are one node if they have one verifier, which
// is the time at which Linux's network began, whatever the minor version, or come from one IP address.
func Nodes(clients []ClientInfo) [][]ClientInfo {
	identities := make([]identity, len(clients))
	for i := range clients {
		c := &clients[i]
		name, _ := Node(c.Owner)
		identities[i] = identity{name, host(c.Address), c.Verifier, i}
	}
	slices.SortStableFunc(identities, func(a, b identity) int { return strings.Compare(a.name, b.name) })
	var nodes [][]ClientInfo
	for len(identities) > 0 {
		name := identities[0].name
		n := slices.IndexFunc(identities, func(c identity) bool { return c.name != name })
		if n < 0 {
			n = len(identities)
		}
		for _, same := range sameNode(identities[:n]) {
			node := make([]ClientInfo, len(same))
			for i, c := range same {
				node[i] = clients[c.index]
			}
			nodes = append(nodes, node)
		}
		identities = identities[n:]
	}
	return nodes
}

// identity is what tells of which node a client is.
type identity struct {
	name     string
	host     string // IP address
	verifier [8]byte
	index    int // in the list of clients
}

func (a *identity) isWith(b *identity) bool {
	return a.host == b.host || a.verifier == b.verifier && !purging(a.verifier)
}

// sameNode divides clients of one name: an owner has two at most, and a name nine owners.
func sameNode(clients []identity) [][]identity {
	var nodes [][]identity
	for _, c := range clients {
		var node []identity
		nodes = slices.DeleteFunc(nodes, func(other []identity) bool {
			same := slices.ContainsFunc(other, func(o identity) bool { return c.isWith(&o) })
			if same {
				node = append(node, other...)
			}
			return same
		})
		nodes = append(nodes, append(node, c))
	}
	return nodes
}

// network returns what an address with a port counts for: its IP address, or with IPv6 its /64 network, in which one machine can have any
// number of addresses.
func network(address string) string {
	a, err := netip.ParseAddrPort(address)
	if addr := a.Addr().Unmap(); err == nil && addr.Is6() {
		net, _ := addr.Prefix(64) // 64 is no error
		return net.String()
	}
	return host(address)
}

// host returns the IP address of an address with a port.
func host(address string) string {
	if a, err := netip.ParseAddrPort(address); err == nil {
		return a.Addr().Unmap().String()
	}
	return address
}
