package server_test

import (
	"net"
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/server"
	"github.com/podnas/podnas/server/exports"
)

// compound4 makes a call of version 4.1.
func compound4(t *testing.T, c *rpc.Client, ops ...nfs4.Operation) nfs4.Status {
	t.Helper()
	cred := rpc.SysCred{MachineName: []byte("x")}
	h := rpc.CallHeader{RPCVersion: rpc.Version, Prog: nfs4.Program, Vers: nfs4.Version, Proc: nfs4.ProcCompound, Cred: cred.Auth()}
	b, err := c.Do(t.Context(), h, nfs4.Compound(ops).Minor(1))
	if err != nil {
		t.Fatal(err)
	}
	_, status, err := nfs4.Compound(ops).DecodeResults(b)
	if err != nil {
		t.Fatal(err)
	}
	return status
}

// begin4 has a client come, and make a session.
func begin4(t *testing.T, c *rpc.Client, owner string, verifier byte) (exchange, create nfs4.Status, session nfs4.SessionID) {
	t.Helper()
	var client nfs4.ExchangeIDRes
	exchange = compound4(t, c, nfs4.Operation{Num: nfs4.OpExchangeID, Args: &nfs4.ExchangeIDArgs{OwnerID: []byte(owner), Verf: nfs4.Verifier{verifier}}, Res: &client})
	channel := nfs4.ChannelAttrs{MaxRequestSize: 1 << 16, MaxResponseSize: 1 << 16, MaxResponseSizeCached: 1024, MaxOperations: 16, MaxRequests: 1}
	var made nfs4.CreateSessionRes
	create = compound4(t, c, nfs4.Operation{Num: nfs4.OpCreateSession, Res: &made, Args: &nfs4.CreateSessionArgs{
		ClientID: client.ClientID, SequenceID: client.SequenceID, Fore: channel, Back: channel, CBProgram: 1 << 30, SecParms: []nfs4.CallbackSec{{Flavor: rpc.AuthNone}},
	}})
	return exchange, create, made.SessionID
}

// TestTakeover: somebody else knows a node's name, and does not end what the node has.
func TestTakeover(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name             string
		options          exports.Options
		exchange, create nfs4.Status
	}{
		{"may use nothing, for its port", exports.Options{PrivilegedPorts: true}, nfs4.ErrAccess, nfs4.ErrAccess},
		{"may use nothing, for its address", exports.Options{Clients: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}}, nfs4.ErrAccess, nfs4.ErrAccess},
		{"may use the same volume", exports.Options{}, nfs4.ErrDelay, nfs4.ErrStaleClientID},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cfg := config(t)
			var err error
			if cfg.Engine, err = server.SelectEngine(server.EngineNative, server.HandlesIndex, t.TempDir()); err != nil {
				t.Skip(err)
			}
			cfg.NFS4 = filepath.Join(t.TempDir(), "nfs4")
			must(t, cfg.Exports.Export(exports.Exported{ID: 1, Path: "/v", Dir: t.TempDir(), Options: tt.options}))
			address, stop := serve(t, cfg)
			defer func() { must(t, stop()) }()
			nc, err := rpc.DialReserved(t.Context(), net.Dialer{}, address)
			must(t, err)
			node := rpc.NewClient(nc)
			defer node.Close()
			if tt.options.PrivilegedPorts && nc.LocalAddr().(*net.TCPAddr).Port >= 1024 {
				t.Skip("this user may have no privileged port")
			}
			const owner = "Linux NFSv4.1 node1"
			exchange, create, session := begin4(t, node, owner, 1)
			if exchange != nfs4.OK || create != nfs4.OK {
				t.Fatalf("the node itself: %v, %v", exchange, create)
			}
			d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 66)}}
			sc, err := d.Dial("tcp", address)
			must(t, err)
			stranger := rpc.NewClient(sc)
			defer stranger.Close()
			for seq := range uint32(3) {
				if exchange, create, _ := begin4(t, stranger, owner, 2); exchange != tt.exchange || create != tt.create {
					t.Errorf("a stranger gets %v, %v, want %v, %v", exchange, create, tt.exchange, tt.create)
				}
				sequence := nfs4.SequenceArgs{SessionID: session, SequenceID: seq + 1}
				if status := compound4(t, node, nfs4.Operation{Num: nfs4.OpSequence, Args: &sequence, Res: &nfs4.SequenceRes{}}); status != nfs4.OK {
					t.Fatalf("the node gets %v", status)
				}
			}
		})
	}
}
