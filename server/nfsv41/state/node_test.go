package state_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/server/nfsv41/state"
)

var nodeNames = []struct{ owner, name, version string }{
	{"Linux NFSv4.1 node1", "Linux NFSv4 node1", "4.1"},
	{"Linux NFSv4.2 node1", "Linux NFSv4 node1", "4.2"},
	{"Linux NFSv4.9 node1", "Linux NFSv4 node1", "4.9"},
	{"Linux NFSv4.2 machine-1/node1", "Linux NFSv4 machine-1/node1", "4.2"}, // with nfs4_unique_id
	{"Linux NFSv4.1 with spaces ", "Linux NFSv4 with spaces ", "4.1"},
	{"Linux NFSv4.2 \xff\n", "Linux NFSv4 \xff\n", "4.2"},
	{"Linux NFSv4.1 ", "Linux NFSv4.1 ", ""},
	{"Linux NFSv4.", "Linux NFSv4.", ""},
	{"Linux NFSv4.0 node1", "Linux NFSv4.0 node1", ""},
	{"Linux NFSv4.10 node1", "Linux NFSv4.10 node1", ""},
	{"Linux NFSv4.x node1", "Linux NFSv4.x node1", ""},
	{"Linux NFSv4 node1", "Linux NFSv4 node1", ""},
	{"linux NFSv4.1 node1", "linux NFSv4.1 node1", ""},
	{"FreeBSD node1", "FreeBSD node1", ""},
	{"node1", "node1", ""},
	{"", "", ""},
}

func TestNode(t *testing.T) {
	for _, tt := range nodeNames {
		if name, version := state.Node(tt.owner); name != tt.name || version != tt.version {
			t.Errorf("%q is %q of %q, want %q of %q", tt.owner, version, name, tt.version, tt.name)
		}
	}
}

func TestHost(t *testing.T) {
	for owner, want := range map[string]string{
		"Linux NFSv4.1 node1": "node1", "Linux NFSv4.2 machine-1/node1": "node1", "Linux NFSv4.2 a/b/node1.example.org": "node1.example.org",
		"Linux NFSv4.2 with spaces": "spaces", "Linux NFSv4.2 node1/": "", "Linux NFSv4.0 node1": "", "FreeBSD node1": "", "node1": "", "": "",
	} {
		if got := state.Host(owner); got != want {
			t.Errorf("%q is on %q, want %q", owner, got, want)
		}
	}
}

// Whatever a client calls itself, a name is the owner, or the owner without its minor version.
func FuzzNode(f *testing.F) {
	for _, tt := range nodeNames {
		f.Add(tt.owner)
	}
	f.Fuzz(func(t *testing.T, owner string) {
		name, version := state.Node(owner)
		whole := name
		if version != "" {
			whole = strings.Replace(name, "Linux NFSv4 ", "Linux NFSv"+version+" ", 1)
		}
		if whole != owner {
			t.Errorf("%q is %q of %q", owner, version, name)
		}
	})
}

// Clients are of one node if they have its name, and its verifier or its address.
func TestNodes(t *testing.T) {
	const one, two, ip, other = "Linux NFSv4.1 a", "Linux NFSv4.2 a", "10.0.0.1:700", "10.0.0.2:700"
	c := func(id uint64, owner, address string, v uint64) state.ClientInfo {
		return state.ClientInfo{ID: id, Owner: owner, Address: address, Verifier: verifier(v)}
	}
	purge := ^uint64(0)
	for name, tt := range map[string]struct {
		clients []state.ClientInfo
		want    [][]uint64
	}{
		"none":                                {nil, nil},
		"one":                                 {[]state.ClientInfo{c(1, one, ip, 1)}, [][]uint64{{1}}},
		"both versions":                       {[]state.ClientInfo{c(1, one, ip, 1), c(2, two, "10.0.0.1:800", 1)}, [][]uint64{{1, 2}}},
		"by two addresses":                    {[]state.ClientInfo{c(1, one, ip, 1), c(2, two, "[fd00::1]:700", 1)}, [][]uint64{{1, 2}}},
		"left from before a restart":          {[]state.ClientInfo{c(1, one, ip, 1), c(2, two, ip, 2)}, [][]uint64{{1, 2}}},
		"IPv4 as IPv6":                        {[]state.ClientInfo{c(1, one, ip, 1), c(2, two, "[::ffff:10.0.0.1]:9", 2)}, [][]uint64{{1, 2}}},
		"two nodes of one name":               {[]state.ClientInfo{c(1, one, ip, 1), c(2, two, other, 2)}, [][]uint64{{1}, {2}}},
		"two nodes of one name and version":   {[]state.ClientInfo{c(1, one, ip, 1), c(2, one, other, 2)}, [][]uint64{{1}, {2}}},
		"two nodes that purge":                {[]state.ClientInfo{c(1, one, ip, purge), c(2, two, other, purge)}, [][]uint64{{1}, {2}}},
		"one joins two":                       {[]state.ClientInfo{c(1, one, ip, 1), c(2, one, other, 2), c(3, two, ip, 2)}, [][]uint64{{1, 2, 3}}},
		"two nodes, both versions":            {[]state.ClientInfo{c(1, one, ip, 1), c(2, one, other, 2), c(3, two, ip, 1), c(4, two, other, 2)}, [][]uint64{{1, 3}, {2, 4}}},
		"others' names are theirs":            {[]state.ClientInfo{c(1, "Linux NFSv4.1 b", ip, 1), c(2, two, ip, 1), c(3, "a", ip, 1)}, [][]uint64{{2}, {1}, {3}}},
		"no Linux":                            {[]state.ClientInfo{c(1, "x 4.1", ip, 1), c(2, "x 4.2", ip, 1)}, [][]uint64{{1}, {2}}},
		"a restart, not confirmed yet":        {[]state.ClientInfo{c(1, "x", ip, 1), c(2, "x", ip, 2)}, [][]uint64{{1, 2}}},
		"names beside each other in no order": {[]state.ClientInfo{c(1, "Linux NFSv4.1 b", ip, 1), c(2, one, ip, 1), c(3, "Linux NFSv4.2 b", ip, 1), c(4, two, ip, 1)}, [][]uint64{{2, 4}, {1, 3}}},
	} {
		t.Run(name, func(t *testing.T) {
			var got [][]uint64
			for _, node := range state.Nodes(slices.Clone(tt.clients)) {
				var ids []uint64
				for _, c := range node {
					ids = append(ids, c.ID)
				}
				got = append(got, ids)
			}
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("nodes are %v, want %v", got, tt.want)
			}
		})
	}
}

// A node with both minor versions counts once. In the protocol it is two clients, with a lease and locks each.
func TestTwoVersionsOfANode(t *testing.T) {
	w := newWorld(t, state.Limits{})
	one, two := w.ready("Linux NFSv4.1 a", 7), w.ready("Linux NFSv4.2 a", 7)
	w.ready("Linux NFSv4.2 b", 7)
	if n := w.Counts(); n.Clients != 2 || n.Silent != 0 {
		t.Errorf("%d nodes, %d of them silent", n.Clients, n.Silent)
	}
	id, other := one.mustOpen("x", 1), two.mustOpen("x", 1)
	_, _, e := one.lock(id, "x", 1, true, 0, 10)
	w.want(e, nfs4.OK)
	_, d, e := two.lock(other, "x", 1, true, 5, 1)
	if w.want(e, nfs4.ErrDenied); d != (state.Denied{ClientID: one.c.ID(), Owner: "x", Write: true, Length: 10}) {
		t.Errorf("denied by %+v", d)
	}

	w.pass(lease + 1)
	_, e = two.renew()
	w.want(e, nfs4.OK)
	if n := w.Counts(); n.Clients != 2 || n.Silent != 1 { // b
		t.Errorf("after a lease %d nodes, %d of them silent", n.Clients, n.Silent)
	}
	w.pass(lease + 1)
	if n := w.Counts(); n.Clients != 2 || n.Silent != 2 {
		t.Errorf("after a lease of both %d nodes, %d of them silent", n.Clients, n.Silent)
	}
	w.want(w.Evict(two.c.ID()), nfs4.OK)
	_, e = one.renew()
	w.want(e, nfs4.OK)
	if n := w.Counts(); n.Clients != 2 || n.Opens != 1 || n.Locks != 1 {
		t.Errorf("after one is evicted there are %+v", n)
	}
	w.ok()
	if w.saw(state.OwnerShared) != 0 {
		t.Error("two versions of a node are taken for two nodes of one name")
	}
}

// Two nodes of one name are noticed in each version in which they meet.
func TestSharedInOneVersion(t *testing.T) {
	w := newWorld(t, state.Limits{})
	w.ready("Linux NFSv4.1 pi", 10)
	one := w.joinFrom("10.0.0.1:701", "Linux NFSv4.2 pi", 10)
	for range 2 {
		_, e := w.exchangeFrom("10.0.0.2:701", "Linux NFSv4.2 pi", 11)
		w.want(e, nfs4.ErrDelay)
		w.pass(time.Second)
		_, e = one.renew()
		w.want(e, nfs4.OK)
	}
	i := slices.IndexFunc(w.events, func(e state.Event) bool { return e.Kind == state.OwnerShared })
	if i < 0 {
		t.Fatal("two nodes of one name are not noticed")
	}
	if e := w.events[i]; e.Owner != "Linux NFSv4.2 pi" || e.Address == e.Other {
		t.Errorf("noticed is %+v", e)
	}
	w.ok()
}

// The grace period waits for each client of a node, and names and counts the node once.
func TestGraceOfBothVersions(t *testing.T) {
	w := newWorld(t, state.Limits{})
	const one, two = "Linux NFSv4.1 a", "Linux NFSv4.2 a"
	for _, owner := range []string{one, two} {
		w.ready(owner, 1).mustOpen("x", 1)
	}
	w.crash()
	if n := w.Counts(); !n.InGrace || n.Awaited != 1 {
		t.Errorf("%d nodes are awaited, in grace %t", n.Awaited, n.InGrace)
	}
	w.want(w.ReclaimComplete(w.join(one, 1).c, false), nfs4.OK)
	w.ok()
	if n := w.Counts(); !n.InGrace || n.Awaited != 1 {
		t.Errorf("after 4.1 has reclaimed %d nodes are awaited, in grace %t", n.Awaited, n.InGrace)
	}
	w.want(w.ReclaimComplete(w.join(two, 1).c, false), nfs4.OK)
	w.ok()
	if n := w.Counts(); n.InGrace || n.Awaited != 0 {
		t.Errorf("after both %d nodes are awaited, in grace %t", n.Awaited, n.InGrace)
	}
}
