package server_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/podnas/podnas/internal/heartbeat"
	"github.com/podnas/podnas/internal/statedir"
	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/server"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/test/conformance/nfstest"
)

// lostDisk is a server on a disk that a test can lose.
type lostDisk struct {
	*instance

	lost  atomic.Bool
	beats *heartbeat.Heartbeat
}

// serveLost serves /volume until the test ends. Connections are closed two seconds after the disk is lost.
func serveLost(t *testing.T, engine string) *lostDisk {
	t.Helper()
	return serveLostWith(t, engine, 10*time.Millisecond, 200*time.Millisecond, 2*time.Second, uncounted)
}

func serveLostWith(t *testing.T, engine string, every, hold, closes time.Duration, export func(table *exports.Table, dir string) error) *lostDisk {
	t.Helper()
	d, root := &lostDisk{}, t.TempDir()
	volume := filepath.Join(root, "volume")
	if err := os.Mkdir(volume, 0o777); err != nil {
		t.Fatal(err)
	}
	cfg := config(t)
	if engine == server.EngineNative {
		cfg = nativeConfig(t, volume, handlesHere())
		cfg.NFS4, cfg.Removed = filepath.Join(root, "nfs4"), filepath.Join(root, "removed")
	}
	dir, err := statedir.Open(filepath.Join(root, "state"), nil, cfg.Log)
	if err != nil {
		t.Fatal(err)
	}
	d.beats, err = heartbeat.Open(heartbeat.Config{
		Dir: dir, Mounted: time.Now(), Every: every, Hold: hold, Close: closes, Log: slog.New(slog.DiscardHandler),
		Overwrite: func([]byte) error {
			if d.lost.Load() {
				return syscall.EIO
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Heartbeat = d.beats
	d.instance = &instance{cfg: cfg, addr: nfstest.OwnAddress(), add: func(table *exports.Table) error { return export(table, volume) }}
	d.start(t)
	t.Cleanup(func() {
		if err := d.stop(); err != nil {
			t.Error(err)
		}
		d.end()
		d.beats.Close()
	})
	return d
}

// client3 returns what makes a change with version 3 on a new connection.
func client3(t *testing.T, addr string) func(ctx context.Context, n int) error {
	t.Helper()
	client, err := nfstest.Dial(t.Context(), addr, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	res, err := client.Mount(t.Context(), "/volume")
	if err != nil {
		t.Fatal(err)
	}
	root := res.Handle
	return func(ctx context.Context, n int) error {
		res, err := client.Mkdir(ctx, root, fmt.Sprint("dir-", n), nfs3.Sattr{})
		if err == nil && res.Status != nfs3.OK {
			err = fmt.Errorf("MKDIR: %v", res.Status)
		}
		return err
	}
}

// client4 returns what makes a call of version 4.1 on a new connection.
func client4(t *testing.T, addr string) func(ctx context.Context, n int) error {
	t.Helper()
	call := session4(t, addr)
	return func(ctx context.Context, _ int) error {
		return call(ctx, nfs4.Operation{Num: nfs4.OpPutrootfh, Res: &nfs4.StatusRes{}})
	}
}

// session4 returns what makes calls of version 4.1 in a new session.
func session4(t *testing.T, addr string) func(ctx context.Context, ops ...nfs4.Operation) error {
	t.Helper()
	conn, err := rpc.Dial(t.Context(), addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	call := func(ctx context.Context, ops ...nfs4.Operation) error {
		cred := rpc.SysCred{MachineName: []byte("lost")}
		b, err := conn.Do(ctx, rpc.CallHeader{RPCVersion: rpc.Version, Prog: nfs4.Program, Vers: nfs4.Version, Proc: nfs4.ProcCompound, Cred: cred.Auth()}, nfs4.Compound(ops))
		if err != nil {
			return err
		}
		if num, status, err := nfs4.Compound(ops).DecodeResults(b); err != nil || status != nfs4.OK {
			return fmt.Errorf("%v: %v, %w", num, status, err)
		}
		return nil
	}
	var client nfs4.ExchangeIDRes
	if err := call(t.Context(), nfs4.Operation{Num: nfs4.OpExchangeID, Args: &nfs4.ExchangeIDArgs{OwnerID: []byte("lost"), Flags: nfs4.ExchangeUseNonPNFS}, Res: &client}); err != nil {
		t.Fatal(err)
	}
	var session nfs4.CreateSessionRes
	args := nfs4.CreateSessionArgs{
		ClientID: client.ClientID, SequenceID: client.SequenceID,
		Fore:      nfs4.ChannelAttrs{MaxRequestSize: 4096, MaxResponseSize: 4096, MaxResponseSizeCached: 4096, MaxOperations: 16, MaxRequests: 1},
		Back:      nfs4.ChannelAttrs{MaxRequestSize: 4096, MaxResponseSize: 4096, MaxOperations: 2, MaxRequests: 1},
		CBProgram: 0x40000000, SecParms: []nfs4.CallbackSec{{Flavor: rpc.AuthNone}},
	}
	if err := call(t.Context(), nfs4.Operation{Num: nfs4.OpCreateSession, Args: &args, Res: &session}); err != nil {
		t.Fatal(err)
	}
	seq := uint32(0)
	return func(ctx context.Context, ops ...nfs4.Operation) error {
		seq++
		first := nfs4.Operation{Num: nfs4.OpSequence, Args: &nfs4.SequenceArgs{SessionID: session.SessionID, SequenceID: seq}, Res: &nfs4.SequenceRes{}}
		return call(ctx, append([]nfs4.Operation{first}, ops...)...)
	}
}

// That a volume is read-only is told at once, though a disk that has failed makes file systems say the same: programs that
// open files to write, and then only to read, would wait for a beat each time.
func TestReadOnlyIsTold(t *testing.T) {
	const never = 24 * time.Hour
	d := serveLostWith(t, server.EngineNative, never, never, time.Minute, func(table *exports.Table, dir string) error {
		return table.Export(exports.Exported{ID: 1, Path: "/volume", Dir: dir, Options: exports.Options{ReadOnly: true}})
	})
	change := client3(t, d.addr)
	call := session4(t, d.addr)
	d.lost.Store(true)
	if err := change(t.Context(), 0); err == nil || err.Error() != "MKDIR: "+nfs3.ErrROFS.String() {
		t.Errorf("version 3: %v", err)
	}
	mkdir := nfs4.Operation{Num: nfs4.OpCreate, Args: &nfs4.CreateArgs{Type: nfs4.TypeDir, Name: []byte("dir")}, Res: &nfs4.CreateRes{}}
	rootfh := nfs4.Operation{Num: nfs4.OpPutrootfh, Res: &nfs4.StatusRes{}}
	for what, ops := range map[string][]nfs4.Operation{
		"in a volume":       {rootfh, {Num: nfs4.OpLookup, Args: &nfs4.NameArgs{Name: []byte("volume")}, Res: &nfs4.StatusRes{}}, mkdir},
		"above the volumes": {rootfh, mkdir},
	} {
		if err := call(t.Context(), ops...); err == nil || !strings.Contains(err.Error(), nfs4.ErrROFS.String()) {
			t.Errorf("version 4.1, %s: %v", what, err)
		}
	}
	if !d.beats.Passes() {
		t.Error("it was not told at once")
	}
}

// With each version and engine, what is executed while the disk is not known to be ours is answered when it is, and if
// that takes too long, by no connection.
func TestLostDisk(t *testing.T) {
	for _, tt := range []struct {
		name, engine string
		client       func(t *testing.T, addr string) func(ctx context.Context, n int) error
	}{
		{"3", server.EngineNative, client3},
		{"4.1", server.EngineNative, client4},
		{"3 of go-nfs", server.EngineGoNFS, client3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := serveLost(t, tt.engine)
			change := tt.client(t, d.addr)
			if err := change(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
			ask := func(n int) <-chan error {
				replied := make(chan error, 1)
				go func() { replied <- change(t.Context(), n) }()
				return replied
			}
			lose := func(lost bool) {
				t.Helper()
				d.lost.Store(lost)
				for end := time.Now().Add(20 * time.Second); d.beats.Passes() == lost; time.Sleep(time.Millisecond) {
					if time.Now().After(end) {
						t.Fatalf("replies leave: %v", lost)
					}
				}
			}
			lose(true)
			held := ask(1)
			time.Sleep(500 * time.Millisecond)
			if len(held) > 0 {
				t.Fatalf("answered: %v", <-held)
			}
			d.lost.Store(false)
			if err := <-held; err != nil {
				t.Fatalf("later: %v", err)
			}
			lose(true)
			if err := <-ask(2); err == nil {
				t.Error("answered")
			}
			lose(false)
			if err := tt.client(t, d.addr)(t.Context(), 3); err != nil {
				t.Errorf("on a new connection, with the disk: %v", err)
			}
		})
	}
}
