package exports_test

import (
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/podnas/podnas/server/exports"
)

func networks(list ...string) (all []netip.Prefix) {
	for _, n := range list {
		all = append(all, netip.MustParsePrefix(n))
	}
	return all
}

// Who may use any volume is admitted, and nobody else, as soon as the table changes.
func TestAdmits(t *testing.T) {
	nodes, six := networks("10.0.0.7/24"), networks("fd00:1::/64", "10.9.0.0/16")
	for _, tt := range []struct {
		name    string
		volumes []exports.Options
		client  string
		want    bool
	}{
		{"no volume", nil, "10.0.1.1:4000", true},
		{"for all", []exports.Options{{Clients: nodes}, {}}, "10.0.1.1:4000", true},
		{"for all, and a privileged one", []exports.Options{{}, {PrivilegedPorts: true}}, "10.0.1.1:4000", true},
		{"privileged, from such a port", []exports.Options{{PrivilegedPorts: true}}, "10.0.1.1:1023", true},
		{"privileged, from another port", []exports.Options{{PrivilegedPorts: true}}, "10.0.1.1:1024", false},
		{"a network", []exports.Options{{Clients: nodes}}, "10.0.0.200:4000", true},
		{"another network", []exports.Options{{Clients: nodes}}, "10.0.1.200:700", false},
		{"two networks", []exports.Options{{Clients: nodes}, {Clients: six}}, "10.9.3.1:4000", true},
		{"IPv6", []exports.Options{{Clients: nodes}, {Clients: six}}, "[fd00:1::5]:4000", true},
		{"another one of IPv6", []exports.Options{{Clients: nodes}, {Clients: six}}, "[fd00:2::5]:4000", false},
		{"IPv6 with a zone", []exports.Options{{Clients: networks("fe80::/10")}}, "[fe80::1%eth0]:4000", true},
		{"ports of one, network of another", []exports.Options{{Clients: nodes, PrivilegedPorts: true}, {Clients: six}}, "10.0.0.1:4000", false},
		{"a network twice", []exports.Options{{Clients: nodes}, {Clients: nodes, PrivilegedPorts: true}}, "10.0.0.1:4000", true},
		{"privileged for all, a network for the rest", []exports.Options{{PrivilegedPorts: true}, {Clients: nodes}}, "10.0.1.1:4000", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var log strings.Builder
			table, dir := &exports.Table{Log: slog.New(slog.NewTextHandler(&log, nil))}, t.TempDir()
			client := netip.MustParseAddrPort(tt.client)
			for i, o := range tt.volumes {
				if err := table.Export(exports.Exported{ID: uint64(i + 1), Path: "/" + string(rune('a'+i)), Dir: dir, Options: o}); err != nil {
					t.Fatal(err)
				}
			}
			for range 3 {
				if got := table.Admits(client); got != tt.want {
					t.Errorf("admitted is %t, want %t", got, tt.want)
				}
			}
			if n := strings.Count(log.String(), "nfs: refused a client"); n > 1 || (n == 1) == tt.want {
				t.Errorf("it was logged %d times: %s", n, &log)
			}
			for i := range tt.volumes {
				table.Remove(uint64(i + 1))
			}
			if !table.Admits(client) {
				t.Error("a server without volumes does not admit it")
			}
		})
	}
	if (&exports.Table{}).Admits(netip.AddrPort{}) != true {
		t.Error("a Unix socket")
	}
}
