package nfsv41

import (
	"net/netip"
	"testing"

	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/locate"
)

// A client finds the volumes that it may mount, below directories made of their paths, and
// nothing of the others.
func TestPseudo(t *testing.T) {
	table, key := &exports.Table{}, locate.NewKey(make([]byte, 32))
	for id, v := range []struct {
		path    string
		clients []netip.Prefix
	}{
		{path: "/plain"},
		{path: "/ns/one"},
		{path: "/ns/two", clients: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}},
		{path: "/secret/three", clients: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}},
	} {
		id := uint64(id) + 1
		if err := table.Export(exports.Exported{ID: id, Path: v.path, Dir: t.TempDir(), Options: exports.Options{Clients: v.clients}}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { table.Remove(id) })
	}
	for client, want := range map[string]map[string][]string{
		"10.1.2.3:800": {"/": {"ns", "plain", "secret"}, "/ns": {"one", "two"}, "/secret": {"three"}},
		"192.0.2.1:80": {"/": {"ns", "plain"}, "/ns": {"one"}},
	} {
		p := pseudo{table, key, netip.MustParseAddrPort(client)}
		nodes := p.nodes()
		if len(nodes) != len(want) {
			t.Errorf("%s: %d directories, want %d", client, len(nodes), len(want))
		}
		for path, names := range want {
			n := p.byPath(path)
			if n == nil {
				t.Fatalf("%s: no %s", client, path)
			}
			var got []string
			for _, e := range n.entries {
				got = append(got, e.name)
			}
			if len(got) != len(names) {
				t.Errorf("%s: %s has %q, want %q", client, path, got, names)
			}
			for _, name := range names {
				if _, ok := n.lookup(name); !ok {
					t.Errorf("%s: %s has no %s", client, path, name)
				}
			}
			_, id, err := key.Parse(p.handle(path))
			if err != nil || p.byID(id) == nil || p.byID(id).path != path {
				t.Errorf("%s: the handle of %s does not lead to it: %v", client, path, err)
			}
		}
		for path, up := range map[string]string{"/": "/", "/ns": "/", "/ns/one": "/ns"} {
			if got := parent(path); got != up {
				t.Errorf("above %s is %s, want %s", path, got, up)
			}
		}
	}
}
