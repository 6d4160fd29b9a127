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

// serve4 serves a volume, /v, and returns the server's address.
func serve4(t *testing.T, options exports.Options) string {
	t.Helper()
	cfg := config(t)
	var err error
	if cfg.Engine, err = server.SelectEngine(server.EngineNative, server.HandlesIndex, t.TempDir()); err != nil {
		t.Skip(err)
	}
	cfg.NFS4 = filepath.Join(t.TempDir(), "nfs4")
	must(t, cfg.Exports.Export(exports.Exported{ID: 1, Path: "/v", Dir: t.TempDir(), Options: options}))
	address, stop := serve(t, cfg)
	t.Cleanup(func() { must(t, stop()) })
	return address
}

// dial4 connects from an address.
func dial4(t *testing.T, to string, from net.IP) *rpc.Client {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: from}}
	conn, err := d.Dial("tcp", to)
	must(t, err)
	c := rpc.NewClient(conn)
	t.Cleanup(func() { c.Close() })
	return c
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
			address := serve4(t, tt.options)
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
			stranger := dial4(t, address, net.IPv4(127, 0, 0, 66))
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

// TestTakeoverByLock: a stranger may lock the file that a node has locked, and learns nothing by which the server takes it for the node:
// no client ID, no session, and no stateid. What the node has goes on.
func TestTakeoverByLock(t *testing.T) {
	t.Parallel()
	address := serve4(t, exports.Options{})
	node, stranger := dial4(t, address, net.IPv4(127, 0, 0, 1)), dial4(t, address, net.IPv4(127, 0, 0, 66))
	const owner = "Linux NFSv4.1 node1"
	seqs := map[*rpc.Client]uint32{}
	in := func(c *rpc.Client, session nfs4.SessionID, ops ...nfs4.Operation) nfs4.Status {
		t.Helper()
		seqs[c]++
		sequence := nfs4.Operation{Num: nfs4.OpSequence, Args: &nfs4.SequenceArgs{SessionID: session, SequenceID: seqs[c]}, Res: &nfs4.SequenceRes{}}
		return compound4(t, c, append([]nfs4.Operation{sequence}, ops...)...)
	}
	lookup := func(names ...string) []nfs4.Operation {
		ops := []nfs4.Operation{{Num: nfs4.OpPutrootfh, Res: &nfs4.StatusRes{}}}
		for _, name := range names {
			ops = append(ops, nfs4.Operation{Num: nfs4.OpLookup, Args: &nfs4.NameArgs{Name: []byte(name)}, Res: &nfs4.StatusRes{}})
		}
		return ops
	}
	want := func(what string, got, want nfs4.Status) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	begin := func(c *rpc.Client, owner string) nfs4.SessionID {
		t.Helper()
		_, create, session := begin4(t, c, owner, 1)
		want("CREATE_SESSION", create, nfs4.OK)
		want("RECLAIM_COMPLETE", in(c, session, nfs4.Operation{Num: nfs4.OpReclaimComplete, Args: &nfs4.ReclaimCompleteArgs{}, Res: &nfs4.StatusRes{}}), nfs4.OK)
		return session
	}
	mine, theirs := begin(node, owner), begin(stranger, "stranger")
	open, lock := nfs4.OpenRes{}, nfs4.LockRes{}
	want("OPEN", in(node, mine, append(lookup("v"), nfs4.Operation{Num: nfs4.OpOpen, Res: &open, Args: &nfs4.OpenArgs{
		ShareAccess: nfs4.ShareAccessBoth, Owner: nfs4.StateOwner{Owner: []byte("o")}, Create: true, Name: []byte("file"),
		Attr: nfs4.Sattr{Mask: nfs4.BitmapOf(nfs4.AttrMode), Mode: 0o666},
	}})...), nfs4.OK)
	want("LOCK", in(node, mine, append(lookup("v", "file"), nfs4.Operation{Num: nfs4.OpLock, Res: &lock, Args: &nfs4.LockArgs{
		Type: nfs4.LockWrite, Length: 1, NewOwner: true, OpenStateid: open.Stateid, Owner: nfs4.StateOwner{Owner: []byte("l")},
	}})...), nfs4.OK)

	tested := nfs4.LocktRes{}
	want("LOCKT", in(stranger, theirs, append(lookup("v", "file"), nfs4.Operation{Num: nfs4.OpLockt, Res: &tested, Args: &nfs4.LocktArgs{
		Type: nfs4.LockWrite, Length: 1, Owner: nfs4.StateOwner{Owner: []byte("m")},
	}})...), nfs4.ErrDenied)
	// The stranger knows the ID all the same, from somebody who may list clients.
	var known nfs4.ExchangeIDRes
	want("EXCHANGE_ID of the node", compound4(t, node, nfs4.Operation{Num: nfs4.OpExchangeID, Args: &nfs4.ExchangeIDArgs{OwnerID: []byte(owner), Verf: nfs4.Verifier{1}}, Res: &known}), nfs4.OK)
	if told := tested.Denied.Owner.ClientID; told == known.ClientID {
		t.Errorf("LOCKT tells the client ID %x", told)
	}
	channel := nfs4.ChannelAttrs{MaxRequestSize: 1 << 16, MaxResponseSize: 1 << 16, MaxResponseSizeCached: 1024, MaxOperations: 16, MaxRequests: 1}
	for seq := range known.SequenceID + 2 {
		var made nfs4.CreateSessionRes
		want("CREATE_SESSION", compound4(t, stranger, nfs4.Operation{Num: nfs4.OpCreateSession, Res: &made, Args: &nfs4.CreateSessionArgs{
			ClientID: known.ClientID, SequenceID: seq, Fore: channel, Back: channel, CBProgram: 1 << 30, SecParms: []nfs4.CallbackSec{{Flavor: rpc.AuthNone}},
		}}), nfs4.ErrDelay)
	}
	want("DESTROY_CLIENTID", compound4(t, stranger, nfs4.Operation{Num: nfs4.OpDestroyClientID, Args: &nfs4.ClientIDArgs{ClientID: known.ClientID}, Res: &nfs4.StatusRes{}}), nfs4.ErrWrongCred)
	want("EXCHANGE_ID", compound4(t, stranger, nfs4.Operation{Num: nfs4.OpExchangeID, Args: &nfs4.ExchangeIDArgs{OwnerID: []byte(owner), Verf: nfs4.Verifier{2}}, Res: &nfs4.ExchangeIDRes{}}), nfs4.ErrDelay)
	unlock := func(c *rpc.Client, session nfs4.SessionID) nfs4.Status {
		return in(c, session, append(lookup("v", "file"), nfs4.Operation{Num: nfs4.OpLocku, Args: &nfs4.LockuArgs{Type: nfs4.LockWrite, Stateid: lock.Stateid, Length: 1}, Res: &nfs4.StateidRes{}})...)
	}
	want("LOCKU with the node's stateid", unlock(stranger, theirs), nfs4.ErrBadStateid)
	want("LOCKU", unlock(node, mine), nfs4.OK)
}
