package exports_test

import (
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/stats"
)

// However many clients are refused, and however often, few lines say so.
func TestRefusedAreLoggedAFewTimes(t *testing.T) {
	var log strings.Builder
	table := &exports.Table{Log: slog.New(slog.NewTextHandler(&log, nil))}
	if err := table.Export(exports.Exported{ID: 1, Path: "/v", Dir: t.TempDir(), Options: exports.Options{PrivilegedPorts: true}}); err != nil {
		t.Fatal(err)
	}
	defer table.Remove(1)
	v, _ := table.ByID(1)
	began := time.Now()
	for range 3 {
		address := netip.MustParseAddr("10.0.0.0")
		for range 2000 {
			address = address.Next()
			if client := netip.AddrPortFrom(address, 4000); v.AllowsPort(client) || table.Admits(client) || v.MayUse(client) {
				t.Fatal("it is accepted")
			}
		}
	}
	most := stats.LinesBurst + 1 + int(time.Since(began)/stats.LinesPeriod)
	if n := strings.Count(log.String(), "\n"); n < stats.LinesBurst || n > most {
		t.Errorf("%d lines, want %d to %d", n, stats.LinesBurst, most)
	}
}
