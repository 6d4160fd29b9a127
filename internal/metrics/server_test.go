package metrics

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/podnas/podnas/internal/doctor"
	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/nfs/mount3"
	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/nfscheck"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/server"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/test/conformance/nfstest"
)

// start serves one volume until the test ends.
func start(t *testing.T, engine string) (prometheus.Collector, *nfstest.Client, string) {
	t.Helper()
	dir := t.TempDir()
	if engine == server.EngineNative {
		if err := disk.ProbeHandles(dir); err != nil {
			t.Skipf("the native engine can't run here: %v", err)
		}
	}
	table := &exports.Table{}
	mustDo(t, table.Export(exports.Exported{ID: 7, Path: "/volume", Dir: dir}))
	s, err := server.New(server.Config{
		Engine: server.Choice{Engine: engine}, Exports: table, HandleKey: make([]byte, 32), Log: slog.New(slog.DiscardHandler),
	})
	mustDo(t, err)
	t.Cleanup(func() { table.Remove(7) })
	address := nfstest.Serve(t, s).String()
	client, err := nfstest.Dial(t.Context(), address, address)
	mustDo(t, err)
	t.Cleanup(func() { client.Close() })
	known := []volume.Volume{{ID: 7, Name: "pvc-7", Claim: &volume.Claim{Namespace: "ns", Name: "mine"}}}
	return &nfs{s, table, func() []volume.Volume { return known }}, client, address
}

// TestServed makes calls of which it is known what they must be counted as.
func TestServed(t *testing.T) {
	for _, engine := range []string{server.EngineNative, server.EngineGoNFS} {
		t.Run(engine, func(t *testing.T) {
			collector, client, _ := start(t, engine)
			ctx := t.Context()
			mnt, err := client.Mount(ctx, "/volume")
			mustDo(t, err)
			if res, err := client.Mount(ctx, "/none"); err != nil || res.Status != mount3.ErrNoEnt {
				t.Fatalf("mount of what is not there: %v, %v", res.Status, err)
			}
			made, err := client.Create(ctx, nfs3.CreateArgs{Where: nfs3.DirOpArgs{Dir: mnt.Handle, Name: []byte("file")}})
			mustDo(t, err)
			file := made.Object
			for range 3 {
				res, err := client.Write(ctx, file, 0, nfs3.FileSync, make([]byte, 1000))
				if err != nil || res.Status != nfs3.OK {
					t.Fatal(res.Status, err)
				}
			}
			for range 2 {
				res, err := client.Read(ctx, file, 400, 4096)
				if err != nil || len(res.Data) != 600 {
					t.Fatal(res.Status, err)
				}
			}
			if res, err := client.Lookup(ctx, mnt.Handle, "none"); err != nil || res.Status != nfs3.ErrNoEnt {
				t.Fatal(res.Status, err)
			}
			const mounts, calls = 2, 1 + 3 + 2 + 1
			want := fmt.Sprintf(`
# HELP podnas_nfs_calls_total NFS and MOUNT calls, by procedure and status.
# TYPE podnas_nfs_calls_total counter
podnas_nfs_calls_total{procedure="CREATE",status="OK"} 1
podnas_nfs_calls_total{procedure="LOOKUP",status="NOENT"} 1
podnas_nfs_calls_total{procedure="MNT",status="NOENT"} 1
podnas_nfs_calls_total{procedure="MNT",status="OK"} 1
podnas_nfs_calls_total{procedure="READ",status="OK"} 2
podnas_nfs_calls_total{procedure="WRITE",status="OK"} 3
# HELP podnas_nfs_calls_in_flight Calls in flight.
# TYPE podnas_nfs_calls_in_flight gauge
podnas_nfs_calls_in_flight 0
# HELP podnas_nfs_read_bytes_total Bytes of file data returned by READ.
# TYPE podnas_nfs_read_bytes_total counter
podnas_nfs_read_bytes_total 1200
# HELP podnas_nfs_written_bytes_total Bytes of file data accepted by WRITE.
# TYPE podnas_nfs_written_bytes_total counter
podnas_nfs_written_bytes_total 3000
# HELP podnas_nfs_connections Open client connections.
# TYPE podnas_nfs_connections gauge
podnas_nfs_connections 2
# HELP podnas_nfs_connections_total Accepted connections.
# TYPE podnas_nfs_connections_total counter
podnas_nfs_connections_total 2
# HELP podnas_volume_calls_total Calls on files of a volume since it was exported.
# TYPE podnas_volume_calls_total counter
podnas_volume_calls_total{claim="mine",namespace="ns",volume="pvc-7"} %[1]d
# HELP podnas_volume_read_bytes_total Bytes that clients read from a volume.
# TYPE podnas_volume_read_bytes_total counter
podnas_volume_read_bytes_total{claim="mine",namespace="ns",volume="pvc-7"} 1200
# HELP podnas_volume_written_bytes_total Bytes that clients wrote to a volume.
# TYPE podnas_volume_written_bytes_total counter
podnas_volume_written_bytes_total{claim="mine",namespace="ns",volume="pvc-7"} 3000
# HELP podnas_volume_clients Clients that use a volume, or used it within the last hour.
# TYPE podnas_volume_clients gauge
podnas_volume_clients{claim="mine",namespace="ns",volume="pvc-7"} 1
# HELP podnas_client_calls_total Calls of a client, by its IP address. Clients beyond 128, and clients without a call for an hour, are counted as "other".
# TYPE podnas_client_calls_total counter
podnas_client_calls_total{client="127.0.0.1"} %[2]d
podnas_client_calls_total{client="other"} 0
# HELP podnas_client_connections Open connections of a client.
# TYPE podnas_client_connections gauge
podnas_client_connections{client="127.0.0.1"} 2
podnas_client_connections{client="other"} 0
`, calls, calls+mounts)
			names := []string{
				"podnas_nfs_calls_total", "podnas_nfs_calls_in_flight", "podnas_nfs_read_bytes_total", "podnas_nfs_written_bytes_total",
				"podnas_nfs_connections", "podnas_nfs_connections_total", "podnas_volume_calls_total", "podnas_volume_read_bytes_total",
				"podnas_volume_written_bytes_total", "podnas_volume_clients", "podnas_client_calls_total", "podnas_client_connections",
			}
			// A client has its reply a moment before go-nfs's call is over.
			var differs error
			for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
				if differs = testutil.CollectAndCompare(collector, strings.NewReader(want), names...); differs == nil {
					break
				}
			}
			if differs != nil {
				t.Error(differs)
			}
			checkTimes(t, collector, engine)
		})
	}
}

// checkTimes looks at what has no exact value.
func checkTimes(t *testing.T, collector prometheus.Collector, engine string) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collector)
	families, err := registry.Gather()
	mustDo(t, err)
	found := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			name := f.GetName()
			for _, l := range m.Label {
				name += " " + l.GetValue()
			}
			switch {
			case m.Histogram != nil:
				found[name] = float64(m.Histogram.GetSampleCount())
				if sum := m.Histogram.GetSampleSum(); sum <= 0 || sum > 60 {
					t.Errorf("%s took %g s in all", name, sum)
				}
			case m.Gauge != nil:
				found[name] = m.Gauge.GetValue()
			case m.Counter != nil:
				found[name] = m.Counter.GetValue()
			}
		}
	}
	if n := found["podnas_nfs_call_duration_seconds WRITE"]; n != 3 {
		t.Errorf("%g durations of 3 WRITEs", n)
	}
	if n := found["podnas_nfs_sync_duration_seconds"]; n < 4 { // CREATE's, too
		t.Errorf("%g syncs", n)
	}
	if seen := found["podnas_client_last_seen_timestamp_seconds 127.0.0.1"]; time.Since(time.Unix(int64(seen), 0)) > time.Minute {
		t.Errorf("last seen at %g", seen)
	}
	if hits := found["podnas_nfs_open_files_hits_total"]; hits < 3 {
		t.Errorf("%g hits of open files", hits)
	}
}

// TestRejectedAndReplayed makes a call that can't be understood, one twice, and one
// whose results begin with no status.
func TestRejectedAndReplayed(t *testing.T) {
	collector, client, addr := start(t, server.EngineNative)
	ctx := t.Context()
	mnt, err := client.Mount(ctx, "/volume")
	mustDo(t, err)
	if _, err := client.Dump(ctx); err != nil {
		t.Fatal(err)
	}
	raw, err := rpc.Dial(ctx, addr)
	mustDo(t, err)
	defer raw.Close()
	if _, err := raw.Call(ctx, nfs3.Program, 4, nfs3.ProcNull, nil); err == nil {
		t.Fatal("NFS version 4 is answered")
	}
	conn, err := net.Dial("tcp", addr)
	mustDo(t, err)
	defer conn.Close()
	cred := rpc.SysCred{}
	record, at := rpc.BeginRecord(nil)
	head := rpc.CallHeader{XID: 1, RPCVersion: rpc.Version, Prog: nfs3.Program, Vers: nfs3.Version, Proc: nfs3.ProcRemove, Cred: cred.Auth()}
	record = (&nfs3.DirOpArgs{Dir: mnt.Handle, Name: []byte("none")}).Append(head.Append(record))
	rpc.EndRecord(record, at)
	for range 2 {
		_, err := conn.Write(record)
		mustDo(t, err)
		_, err = rpc.ReadRecord(conn, nil, 1<<10)
		mustDo(t, err)
	}
	want := `
# HELP podnas_nfs_calls_total NFS and MOUNT calls, by procedure and status.
# TYPE podnas_nfs_calls_total counter
podnas_nfs_calls_total{procedure="DUMP",status="OK"} 1
podnas_nfs_calls_total{procedure="MNT",status="OK"} 1
podnas_nfs_calls_total{procedure="REMOVE",status="NOENT"} 1
# HELP podnas_nfs_rejected_calls_total Calls answered with an RPC error: malformed, or without a credential.
# TYPE podnas_nfs_rejected_calls_total counter
podnas_nfs_rejected_calls_total 1
# HELP podnas_nfs_replayed_calls_total Retransmitted calls, answered from the replay cache.
# TYPE podnas_nfs_replayed_calls_total counter
podnas_nfs_replayed_calls_total 1
`
	if err := testutil.CollectAndCompare(collector, strings.NewReader(want), "podnas_nfs_calls_total", "podnas_nfs_rejected_calls_total", "podnas_nfs_replayed_calls_total"); err != nil {
		t.Error(err)
	}
}

// TestOwnProbes probes a server as the readiness check and podnas doctor do, on what it
// may listen on: nothing is counted. A client beside it, from this machine too, is.
func TestOwnProbes(t *testing.T) {
	for _, engine := range []string{server.EngineNative, server.EngineGoNFS} {
		for _, listen := range []string{"127.0.0.1:0", "[::1]:0", "[::]:0"} {
			t.Run(engine+" "+listen, func(t *testing.T) {
				if err := disk.ProbeHandles(t.TempDir()); engine == server.EngineNative && err != nil {
					t.Skipf("the native engine can't run here: %v", err)
				}
				l, err := net.Listen("tcp", listen)
				if err != nil {
					t.Skip(err) // no IPv6
				}
				table := &exports.Table{}
				s, err := server.New(server.Config{
					Engine: server.Choice{Engine: engine}, Exports: table, HandleKey: make([]byte, 32), Log: slog.New(slog.DiscardHandler),
				})
				mustDo(t, err)
				ctx, cancel := context.WithCancel(t.Context())
				served := make(chan error, 1)
				go func() { served <- s.Serve(ctx, l) }()
				defer func() {
					cancel()
					mustDo(t, <-served)
				}()
				address := l.Addr().String()
				if listen == "[::]:0" {
					address = strings.Replace(address, "[::]", "127.0.0.1", 1)
				}
				for range 3 {
					mustDo(t, server.Ping(ctx, s.Dial, address))
					if r := nfscheck.Ports(ctx, s.Dial, address); r.Status != doctor.OK {
						t.Fatal(r)
					}
				}
				snap := s.Stats().Snapshot()
				if c := snap.Connections; c.Accepted != 0 || len(snap.Clients) != 1 {
					t.Errorf("connections %+v, clients %+v", c, snap.Clients)
				}
				for _, p := range snap.Procedures {
					if p.Durations.Count > 0 {
						t.Errorf("%d calls of %s", p.Durations.Count, p.Name)
					}
				}
				mustDo(t, server.Ping(ctx, rpc.Dial, address))
				counted := func() bool {
					snap := s.Stats().Snapshot()
					return snap.Connections.Accepted == 1 && len(snap.Clients) == 2 && snap.Clients[1].Calls == 1
				}
				// A client has its reply a moment before go-nfs's call is over.
				for deadline := time.Now().Add(10 * time.Second); !counted() && time.Now().Before(deadline); {
					time.Sleep(time.Millisecond)
				}
				if !counted() {
					t.Errorf("a client is not counted: %+v", s.Stats().Snapshot())
				}
			})
		}
	}
}

func mustDo(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
