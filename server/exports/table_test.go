package exports_test

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/podnas/podnas/server/exports"
)

func TestTable(t *testing.T) {
	table, dir := &exports.Table{}, t.TempDir()
	mustExport := func(e exports.Exported) {
		t.Helper()
		if err := table.Export(e); err != nil {
			t.Fatal(err)
		}
	}
	mustExport(exports.Exported{ID: 7, Path: "/v", Dir: dir})
	defer table.Remove(7)
	v, _ := table.ByID(7)
	for path, want := range map[string]bool{"/v": true, "/v/": true, "v": true, "//v": true, "/": false, "/v/sub": false, "/w": false, "/v/../v": true} {
		if got, ok := table.ByPath(path); ok != want || ok && got != v {
			t.Errorf("ByPath(%q) = %v, %v", path, got, ok)
		}
	}
	if err := table.Export(exports.Exported{ID: 8, Path: "/v", Dir: dir}); !errors.Is(err, exports.ErrExists) {
		t.Errorf("same path: %v", err)
	}
	if err := table.Export(exports.Exported{ID: 7, Path: "/w", Dir: dir}); !errors.Is(err, exports.ErrExists) {
		t.Errorf("same number: %v", err)
	}
	if err := table.Export(exports.Exported{ID: 8, Path: "/w", Dir: filepath.Join(dir, "missing")}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing directory: %v", err)
	}
	mustExport(exports.Exported{ID: 9, Path: "/a", Dir: dir})
	defer table.Remove(9)
	if vs := table.Volumes(); len(vs) != 2 || vs[0].Path != "/a" || vs[1].Path != "/v" {
		t.Errorf("Volumes() = %v", vs)
	}
	for _, files := range []int64{1, -1} { // what is being closed may free space
		if table.Freeing.Add(files); v.GivesRoom() != (files > 0) || v.GivesRoomFor(1<<40) != (files > 0) {
			t.Errorf("a full disk gets room: %t, with %d files that are being closed", v.GivesRoom(), table.Freeing.Load())
		}
	}
	table.Remove(7)
	table.Remove(7)
	if _, ok := table.ByPath("/v"); ok {
		t.Error("found after Remove")
	}
}

func TestAllows(t *testing.T) {
	networks := func(of ...string) (o exports.Options) {
		for _, network := range of {
			o.Clients = append(o.Clients, netip.MustParsePrefix(network))
		}
		return o
	}
	for _, tt := range []struct {
		options exports.Options
		client  string
		want    bool
	}{
		{networks(), "10.1.2.3", true},
		{networks("10.0.0.0/8", "fd00::/8"), "10.1.2.3", true},
		{networks("10.0.0.0/8", "fd00::/8"), "fd00::1", true},
		{networks("10.0.0.0/8", "fd00::/8"), "11.1.2.3", false},
		{networks("fe80::/10"), "fe80::1%eth0", true},
	} {
		if got := tt.options.Allows(netip.MustParseAddr(tt.client)); got != tt.want {
			t.Errorf("%v allows %s: %v, want %v", tt.options.Clients, tt.client, got, tt.want)
		}
	}
	if unix := networks("10.0.0.0/8"); unix.Allows(netip.Addr{}) {
		t.Error("a client without an address is in a network")
	}
}
