package nfsv41_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/nfs/xdr"
	"github.com/podnas/podnas/quota"
	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/server/locate"
	server "github.com/podnas/podnas/server/nfsv41"
	"github.com/podnas/podnas/server/oncrpc"
	"github.com/podnas/podnas/server/space"
	"github.com/podnas/podnas/server/vfs"
	"github.com/podnas/podnas/test/testdisk"
)

// caller is a client with a session, of which it uses one slot, and whose side allocates
// nothing: its calls are bytes that were made before.
type caller struct {
	testing.TB

	file    string // its path
	conn    net.Conn
	cred    rpc.Auth
	reply   []byte
	session nfs4.SessionID
	seq     uint32
	calls   []call
}

type call struct {
	name   string
	record []byte
	seqAt  int // where the record has the sequence; 0: nowhere
}

type operation = nfs4.Operation

// newCaller serves a volume with one file, which is open to all, and prepares the calls
// that are made most on it, for a user. counted: the server counts what the volume uses.
func newCaller(t testing.TB, user uint32, counted bool) *caller {
	t.Helper()
	dir := t.TempDir()
	if err := disk.ProbeHandles(dir); err != nil {
		t.Skipf("the native engine can't run here: %v", err)
	}
	path := filepath.Join(dir, "file")
	mustDo(t, os.WriteFile(path, make([]byte, 64<<10), 0o600))
	mustDo(t, os.Chmod(path, 0o666))
	mustDo(t, os.Chmod(dir, 0o777))
	c := &caller{TB: t, file: path, conn: serve(t, dir, counted), reply: make([]byte, 8<<10)}
	cred := rpc.SysCred{UID: user, GID: user}
	cred.SetGroups(1, 2, 3)
	c.cred = cred.Auth()
	c.begin()

	root := c.lookup(operation{Num: nfs4.OpPutrootfh}, "volume")
	file := c.lookup(putfh(root), "file")
	open := nfs4.OpenArgs{ShareAccess: nfs4.ShareAccessBoth, Owner: nfs4.StateOwner{Owner: []byte("owner")}, Name: []byte("file")}
	var opened nfs4.OpenRes
	results := c.do(c.compound("OPEN", true, putfh(root), operation{Num: nfs4.OpOpen, Args: &open}))
	results = results[8+4:] // of PUTFH, the number of OPEN
	d := xdr.NewDecoder(results)
	opened.Decode(&d)
	mustDo(t, d.Err())

	attrs := nfs4.GetattrArgs{Request: nfs4.BitmapOf(nfs4.AttrType, nfs4.AttrChange, nfs4.AttrSize, nfs4.AttrFSID, nfs4.AttrFileID,
		nfs4.AttrMode, nfs4.AttrNumLinks, nfs4.AttrOwner, nfs4.AttrOwnerGroup, nfs4.AttrSpaceUsed, nfs4.AttrTimeModify)}
	getattr := operation{Num: nfs4.OpGetattr, Args: &attrs}
	add := func(name string, fh []byte, ops ...operation) {
		c.calls = append(c.calls, c.compound(name, false, append([]operation{putfh(fh)}, ops...)...))
	}
	c.calls = append(c.calls, c.compound("SEQUENCE", false))
	add("GETATTR", file, getattr)
	add("ACCESS", file, operation{Num: nfs4.OpAccess, Args: &nfs4.AccessArgs{Access: 0x3f}}, getattr)
	add("LOOKUP", root, operation{Num: nfs4.OpLookup, Args: &nfs4.LookupArgs{Name: []byte("file")}}, operation{Num: nfs4.OpGetfh}, getattr)
	add("READ", file, operation{Num: nfs4.OpRead, Args: &nfs4.ReadArgs{Stateid: opened.Stateid, Offset: 4096, Count: 4096}})
	add("WRITE", file, operation{Num: nfs4.OpWrite, Args: &nfs4.WriteArgs{Stateid: opened.Stateid, Offset: 8192, Data: make([]byte, 4096)}})
	add("WRITE, GETATTR", file, operation{Num: nfs4.OpWrite, Args: &nfs4.WriteArgs{Stateid: opened.Stateid, Offset: 8192, Data: make([]byte, 4096)}}, getattr)
	return c
}

// serve serves a directory, and returns a connection.
func serve(t testing.TB, dir string, counted bool) net.Conn {
	t.Helper()
	return serveWith(t, dir, t.TempDir(), counted)
}

// serveWith is serve with a directory for the clients that have state.
func serveWith(t testing.TB, dir, tracking string, counted bool) net.Conn {
	t.Helper()
	conn, _, _ := serveAs(t, dir, counted, server.Config{Tracking: tracking})
	return conn
}

// serveAs is serve with what a Config says, and completes that.
func serveAs(t testing.TB, dir string, counted bool, cfg server.Config) (net.Conn, *server.Server, server.Config) {
	t.Helper()
	table := &exports.Table{ByIndex: testdisk.ByIndex()}
	exported := exports.Exported{ID: 1, Path: "/volume", Dir: dir}
	if counted {
		exported.Account = space.NewAccount(quota.Limit{Bytes: 1 << 40})
	}
	mustDo(t, table.Export(exported))
	return serveTable(t, table, cfg)
}

// serveTable is serveAs of the volumes of a table.
func serveTable(t testing.TB, table *exports.Table, cfg server.Config) (net.Conn, *server.Server, server.Config) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	key := locate.NewKey(make([]byte, 32))
	opener := inode.NewOpener(table, key, log)
	cfg.Files = vfs.New(vfs.Config{Opener: opener, Users: actas.NewUsers(nil), Log: log})
	cfg.Opener, cfg.Table, cfg.Key, cfg.Log = opener, table, key, log
	nfs, err := server.New(cfg)
	mustDo(t, err)
	nfs.PanicIn(nfs4.OpDelegpurge)
	server, err := oncrpc.NewServer(oncrpc.ServerConfig{Programs: []oncrpc.Program{nfs.Program()}, Log: log})
	mustDo(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	mustDo(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
		nfs.Stop()
		opener.Close()
		for _, v := range table.Volumes() {
			table.Remove(v.ID)
		}
	})
	conn, err := net.Dial("tcp", l.Addr().String())
	mustDo(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn, nfs, cfg
}

// begin makes a client and a session.
func (c *caller) begin() { c.beginAs("caller") }

// beginAs makes a session of a client, which may have others.
func (c *caller) beginAs(owner string) {
	var client nfs4.ExchangeIDRes
	c.bare(nfs4.OpExchangeID, &nfs4.ExchangeIDArgs{OwnerID: []byte(owner), Flags: nfs4.ExchangeUseNonPNFS}, &client)
	channel := nfs4.ChannelAttrs{MaxRequestSize: 1 << 20, MaxResponseSize: 2 << 20, MaxResponseSizeCached: 4096, MaxOperations: 16, MaxRequests: 1}
	var session nfs4.CreateSessionRes
	c.bare(nfs4.OpCreateSession, &nfs4.CreateSessionArgs{
		ClientID: client.ClientID, SequenceID: client.SequenceID, Fore: channel, Back: channel, SecParms: []nfs4.CallbackSec{{}},
	}, &session)
	c.session = session.SessionID
	complete := c.compound("RECLAIM_COMPLETE", true, operation{Num: nfs4.OpReclaimComplete, Args: &nfs4.ReclaimCompleteArgs{}})
	if _, status := c.try(complete); status != nfs4.OK && status != nfs4.ErrCompleteAlready {
		c.Fatal(status)
	}
}

func (c *caller) bare(num nfs4.OpNum, args rpc.Args, res interface{ Decode(*xdr.Decoder) }) {
	d := xdr.NewDecoder(c.do(c.record(num.String(), operation{Num: num, Args: args})))
	res.Decode(&d)
	mustDo(c, d.Err())
}

func putfh(fh []byte) operation { return operation{Num: nfs4.OpPutfh, Args: &nfs4.PutfhArgs{FH: fh}} }

// lookup returns a copy of a handle.
func (c *caller) lookup(put operation, name string) []byte {
	results := c.do(c.compound(name, false, put, operation{Num: nfs4.OpLookup, Args: &nfs4.LookupArgs{Name: []byte(name)}}, operation{Num: nfs4.OpGetfh}))
	d := xdr.NewDecoder(results[8+8+4:]) // of PUTFH and LOOKUP, the number of GETFH
	var res nfs4.GetfhRes
	res.Decode(&d)
	mustDo(c, d.Err())
	return bytes.Clone(res.FH)
}

// compound is a call in the session.
func (c *caller) compound(name string, cache bool, ops ...operation) call {
	made := c.record(name, append([]operation{{Num: nfs4.OpSequence, Args: &nfs4.SequenceArgs{SessionID: c.session, CacheThis: cache}}}, ops...)...)
	made.seqAt = bytes.Index(made.record, c.session[:]) + len(c.session)
	return made
}

func (c *caller) record(name string, ops ...operation) call {
	b, at := rpc.BeginRecord(nil)
	h := rpc.CallHeader{RPCVersion: rpc.Version, Prog: nfs4.Program, Vers: nfs4.Version, Proc: nfs4.ProcCompound, Cred: c.cred}
	b = nfs4.Compound(ops).Append(h.Append(b))
	rpc.EndRecord(b, at)
	return call{name: name, record: b}
}

// do makes a call, all of whose operations succeed, and returns the results after
// SEQUENCE; without SEQUENCE that of the one operation.
func (c *caller) do(made call) []byte {
	results, status := c.try(made)
	if status != nfs4.OK {
		c.Fatalf("%s: %v", made.name, status)
	}
	return results
}

// try is do of a call that may fail.
func (c *caller) try(made call) ([]byte, nfs4.Status) {
	reply := c.send(made)
	const header = 6 * 4
	status := nfs4.Status(binary.BigEndian.Uint32(reply[header:]))
	results := reply[header+4+4+4:]
	if made.seqAt > 0 {
		const sequence = 4 + 4 + nfs4.SessionIDSize + 5*4
		return results[sequence:], status
	}
	return results[4:], status
}

// send makes a call, and returns the reply with its header.
func (c *caller) send(made call) []byte {
	if made.seqAt > 0 {
		c.seq++
		binary.BigEndian.PutUint32(made.record[made.seqAt:], c.seq)
	}
	if _, err := c.conn.Write(made.record); err != nil {
		c.Fatal(err)
	}
	if _, err := io.ReadFull(c.conn, c.reply[:4]); err != nil {
		c.Fatal(err)
	}
	size := binary.BigEndian.Uint32(c.reply) &^ (1 << 31)
	if _, err := io.ReadFull(c.conn, c.reply[:size]); err != nil {
		c.Fatal(err)
	}
	return c.reply[:size]
}

func mustDo(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// BenchmarkCalls is one call at a time of 4 KiB and less, from socket to socket.
func BenchmarkCalls(b *testing.B) {
	for _, user := range []struct {
		name string
		uid  uint32
	}{{"root", 0}, {"user", 1000}} {
		c := newCaller(b, user.uid, false)
		for _, made := range c.calls {
			b.Run(user.name+"/"+made.name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					c.do(made)
				}
			})
		}
	}
}
