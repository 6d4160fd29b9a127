package nfsbench_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"runtime/pprof"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/server"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/test/conformance/nfstest"
	"github.com/podnas/podnas/tools/nfsbench"
)

// serve runs the best engine that can run here on a directory, which it returns.
func serve(t testing.TB) (address, dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	choice, err := server.SelectEngine(server.EngineAuto, server.HandlesAuto, dir)
	if err != nil {
		t.Fatal(err)
	}
	table := &exports.Table{}
	// The disk's syncs are not what is tested here.
	if err := table.Export(exports.Exported{ID: 1, Path: "/volume", Dir: dir, Options: exports.Options{Async: true}}); err != nil {
		t.Fatal(err)
	}
	if err := table.Export(exports.Exported{ID: 2, Path: "/others", Dir: t.TempDir(), Options: exports.Options{Clients: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}}); err != nil {
		t.Fatal(err)
	}
	cfg := server.Config{Engine: choice, Exports: table, HandleKey: make([]byte, 32), Log: slog.New(slog.DiscardHandler)}
	if choice.Engine == server.EngineNative {
		cfg.NFS4 = t.TempDir()
	}
	s, err := server.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return nfstest.Serve(t, s).String(), dir
}

// needNative skips a test of version 4.1 where the engine that has it can't run.
func needNative(t testing.TB, dir string) {
	t.Helper()
	if err := disk.ProbeHandles(dir); err != nil {
		t.Skipf("the native engine can't run here: %v", err)
	}
}

// config is a short run of some loads against servers, with the version that is before the
// address, or 3.
func config(t testing.TB, loads string, addresses ...string) nfsbench.Config {
	t.Helper()
	cfg := nfsbench.Config{
		Connections: 2, Depth: 3, Duration: 50 * time.Millisecond, Rounds: 1, FileSize: 4 << 20, Entries: 1500,
		UID: uint32(os.Getuid()), GID: uint32(os.Getgid()), Patience: 5 * time.Second,
	}
	for _, a := range addresses {
		version, where, ok := strings.Cut(a, " ")
		if !ok {
			version, where = "3", a
		}
		target, err := nfsbench.ParseTarget(where+":/volume", 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		if target.Version, err = nfsbench.ParseVersion(version); err != nil {
			t.Fatal(err)
		}
		cfg.Targets = append(cfg.Targets, target)
	}
	var err error
	if cfg.Loads, err = nfsbench.Select(strings.Split(loads, ","), cfg.Targets...); err != nil {
		t.Fatal(err)
	}
	return cfg
}

// left are the names that a bench has left in a directory.
func left(t testing.TB, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// Every load runs, does something, finds nothing wrong, and leaves nothing: no
// file on the server, no goroutine here.
func TestLoads(t *testing.T) {
	for _, version := range []nfsbench.Version{nfsbench.NFS3, nfsbench.NFS41, nfsbench.NFS42} {
		t.Run(version.String(), func(t *testing.T) { testLoads(t, version) })
	}
}

func testLoads(t *testing.T, version nfsbench.Version) {
	address, dir := serve(t)
	loads := len(nfsbench.Loads())
	if version != nfsbench.NFS3 {
		needNative(t, dir)
		address = version.String() + " " + address
	} else {
		loads-- // lock-unlock
	}
	// The server has its own from its first call on.
	if _, err := nfsbench.Run(t.Context(), config(t, "null", address)); err != nil {
		t.Fatal(err)
	}
	report, err := nfsbench.Run(t.Context(), config(t, "*", address))
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Loads) != loads || loads < 30 {
		t.Errorf("%d loads in the report", len(report.Loads))
	}
	for _, l := range report.Loads {
		r := l.Results[0]
		if r.Errors != 0 || r.Error != "" {
			t.Errorf("%s: %d errors: %s", l.Load, r.Errors, r.Error)
		}
		if r.Ops < 1 || r.Seconds <= 0 || r.OpsPerSecond < 1 || r.P50 <= 0 || r.P50 > r.P99 || r.P99 > r.P999 || r.P999 > r.Max || r.Max > 1e6*r.Seconds {
			t.Errorf("%s: %+v", l.Load, r)
		}
		carries := strings.HasPrefix(l.Load, "read-") || strings.HasPrefix(l.Load, "write-") || l.Load == "smallfile" || l.Load == "open-read-close" || l.Load == "untar" || l.Load == "getattr-beside-syncs"
		if carries != (r.MBPerSecond > 0) {
			t.Errorf("%s: %v MB/s", l.Load, r.MBPerSecond)
		}
		if strings.Contains(l.Load, "-128k-") {
			if perOp := r.MBPerSecond * 1e6 / r.OpsPerSecond; perOp < 131071 || perOp > 131073 {
				t.Errorf("%s: %v bytes per block", l.Load, perOp)
			}
		}
		// The server is this process, too.
		if measured := l.Load != "getattr-beside-syncs"; measured != (r.ServerCost != nil) || measured != (r.ClientCost != nil) {
			t.Errorf("%s: the server takes %+v, the client %+v", l.Load, r.ServerCost, r.ClientCost)
		}
		if l.Ratio != nil || l.CostRatio != nil {
			t.Errorf("%s: a ratio to no other server", l.Load)
		}
	}
	if names := left(t, dir); len(names) > 0 {
		t.Errorf("left behind: %v", names)
	}
	for deadline := time.Now().Add(5 * time.Second); running() > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines are left", running())
		}
	}
}

// running counts the goroutines of the benchmark and of its clients. The server has others.
func running() (n int) {
	var stacks strings.Builder
	_ = pprof.Lookup("goroutine").WriteTo(&stacks, 2)
	for stack := range strings.SplitSeq(stacks.String(), "\n\n") {
		if strings.Contains(stack, "/tools/nfsbench.") || strings.Contains(stack, "/nfs/rpc.") {
			n++
		}
	}
	return n
}

// Two servers take turns, and a slow one is seen to be slow.
func TestAgainst(t *testing.T) {
	address, dir := serve(t)
	slow := relay(t, address, func([]byte) bool { time.Sleep(2 * time.Millisecond); return true })
	cfg := config(t, "null,getattr", address, slow)
	cfg.Rounds, cfg.Duration = 3, 150*time.Millisecond
	report, err := nfsbench.Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if report.Errors() > 0 || len(report.Loads) != 2 || len(report.Targets) != 2 {
		t.Fatalf("%+v", report)
	}
	for _, l := range report.Loads {
		r := l.Ratio
		if r == nil || len(r.Rounds) != 3 || r.Min > r.Median || r.Median > r.Max || r.Median < 1.5 {
			t.Errorf("%s: %+v", l.Load, r)
		}
	}
	if report.GeometricMean < 1.5 {
		t.Errorf("geometric mean %v", report.GeometricMean)
	}
	if names := left(t, dir); len(names) > 0 {
		t.Errorf("left behind: %v", names)
	}
}

// What a server does wrong is counted and said.
func TestWrongServers(t *testing.T) {
	address, dir := serve(t)
	for _, tt := range []struct {
		name, load string
		change     func(reply []byte) bool // false: the reply is lost
		want       string
	}{
		{"one bit of what is read", "read-4k-rand", func(b []byte) bool {
			if len(b) > 4096 {
				b[len(b)-100] ^= 4
			}
			return true
		}, "wrong data"},
		{"one bit of what was written", "write-4k-seq-unstable", func(b []byte) bool {
			if len(b) > 4096 {
				b[len(b)-4000] ^= 1
			}
			return true
		}, "read back what was written: wrong data"},
		{"a size", "smallfile", func(b []byte) bool {
			if len(b) == 24+4+84 { // GETATTR's results
				b[24+4+20+7]++
			}
			return true
		}, "the file has"},
		{"an error", "getattr", func(b []byte) bool {
			if len(b) == 24+4+84 {
				binary.BigEndian.PutUint32(b[24:], 5)
			}
			return true
		}, "GETATTR: NFS3ERR_IO"},
		{"an error of what goes on beside", "getattr-beside-syncs", func(b []byte) bool {
			const stable = 24 + 4 + 28 + 88 + 4 + 3 // of WRITE's results, its last byte
			if len(b) == 24+4+28+88+16 && b[stable] == 2 {
				binary.BigEndian.PutUint32(b[24:], 28)
			}
			return true
		}, "WRITE: NFS3ERR_NOSPC"},
		{"another xid", "getattr", func(b []byte) bool {
			if len(b) == 24+4+84 {
				b[0] ^= 0x80
			}
			return true
		}, "a call that wasn't made"},
		{"no answer", "getattr", func(b []byte) bool { return len(b) != 24+4+84 }, "no answer to"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := config(t, tt.load, relay(t, address, tt.change))
			if tt.name == "no answer" {
				cfg.Patience = 3 * time.Second // on a busy machine the other calls take a while
			}
			report, err := nfsbench.Run(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			if r := report.Loads[0].Results[0]; r.Errors == 0 || !strings.Contains(r.Error, tt.want) {
				t.Errorf("%d errors, the first %q, want one with %q", r.Errors, r.Error, tt.want)
			}
			if names := left(t, dir); len(names) > 0 {
				t.Errorf("left behind: %v", names)
			}
		})
	}
}

// A run that is interrupted removes what it made.
func TestInterrupted(t *testing.T) {
	address, dir := serve(t)
	for _, load := range []string{"read-1m-rand", "untar", "readdirplus"} {
		ctx, cancel := context.WithCancel(t.Context())
		cfg := config(t, load, address)
		cfg.Duration = time.Minute
		seen := false
		cfg.Progress = func(p nfsbench.Progress) {
			if p.Ops > 0 {
				seen = len(left(t, dir)) > 0
				cancel()
			}
		}
		start := time.Now()
		if _, err := nfsbench.Run(ctx, cfg); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", load, err)
		}
		cancel()
		if !seen || time.Since(start) > 20*time.Second {
			t.Errorf("%s: seen at work: %t; ended after %v", load, seen, time.Since(start))
		}
		if names := left(t, dir); len(names) > 0 {
			t.Errorf("%s: left behind: %v", load, names)
		}
	}
}

func TestRefused(t *testing.T) {
	address, dir := serve(t)
	closed := nfstest.Listen(t)
	closed.Close()
	for name, tt := range map[string]struct {
		change func(*nfsbench.Config)
		want   string
	}{
		"nobody listens": {func(c *nfsbench.Config) {
			c.Targets[0].MountPort = uint16(closed.Addr().(*net.TCPAddr).Port)
		}, "--mountport"},
		"no such export": {func(c *nfsbench.Config) { c.Targets[0].Path = "/nowhere" }, "MNT3ERR_"},
		"for others":     {func(c *nfsbench.Config) { c.Targets[0].Path = "/others" }, "run this as root"},
		"no right":       {func(c *nfsbench.Config) { c.UID, c.GID = 4242, 4242 }, "as uid 4242: MKDIR: NFS3ERR_ACCES"},
		"no loads":       {func(c *nfsbench.Config) { c.Loads = nil }, "no loads"},
		"no depth":       {func(c *nfsbench.Config) { c.Depth = 0 }, "at least 1"},
		"odd size":       {func(c *nfsbench.Config) { c.FileSize = 4096 }, "multiple of 1 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "no right" {
				if os.Getuid() != 0 {
					t.Skip("needs root, for the server to act as another user")
				}
				if err := os.Chmod(dir, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			cfg := config(t, "null", address)
			tt.change(&cfg)
			if _, err := nfsbench.Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want an error with %q", err, tt.want)
			}
		})
	}
}

// relay passes calls to a server, and its replies, which may be changed, back.
func relay(t testing.TB, address string, change func(reply []byte) bool) string {
	l := nfstest.Listen(t)
	var group sync.WaitGroup
	t.Cleanup(func() {
		l.Close()
		group.Wait()
	})
	group.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			upstream, err := net.Dial("tcp", address)
			if err != nil {
				client.Close()
				return
			}
			group.Go(func() {
				_, _ = io.Copy(upstream, client) // ends with the client
				upstream.Close()
			})
			group.Go(func() {
				defer client.Close()
				for {
					record, err := rpc.ReadRecord(upstream, nil, 8<<20)
					if err != nil {
						return
					}
					if !change(record) {
						continue
					}
					out, at := rpc.BeginRecord(nil)
					out = append(out, record...)
					rpc.EndRecord(out, at)
					if _, err := client.Write(out); err != nil {
						return
					}
				}
			})
		}
	})
	return l.Addr().String()
}

// Data that a server of version 4.1 changes is found, too.
func TestWrongData41(t *testing.T) {
	address, dir := serve(t)
	needNative(t, dir)
	cfg := config(t, "read-4k-rand", "4.1 "+relay(t, address, func(b []byte) bool {
		if len(b) > 4096 {
			b[len(b)-100] ^= 4
		}
		return true
	}))
	report, err := nfsbench.Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if r := report.Loads[0].Results[0]; r.Errors == 0 || !strings.Contains(r.Error, "wrong data") {
		t.Errorf("%d errors, the first %q", r.Errors, r.Error)
	}
	if names := left(t, dir); len(names) > 0 {
		t.Errorf("left behind: %v", names)
	}
}
