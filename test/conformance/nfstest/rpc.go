package nfstest

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/podnas/podnas/nfs/mount3"
	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/nfs/xdr"
)

var rpcTests = []test{
	{"NULL", testNull},
	{"many calls at once", testPipeline},
	{"unknown program", testUnknownProgram},
	{"unknown version", testUnknownVersion},
	{"unknown RPC version", testUnknownRPCVersion},
	{"unknown procedure", testUnknownProcedure},
	{"garbage arguments", testGarbageArgs},
	{"unknown enums", testUnknownEnums},
	{"exact results", testExactResults},
	{"largest credential", testLargestCredential},
	{"malformed credential", testMalformedCredential},
	{"fragments", testFragments},
	{"byte by byte", testByteByByte},
	{"oversized record", testOversizedRecord},
	{"half a record", testHalfRecord},
	{"repeated call", testReplyCache},
}

// blob is encoded arguments.
type blob []byte

func (a blob) Append(b []byte) []byte { return append(b, a...) }

// rpcError makes a call and returns nil, or the RPC error. Any other error ends
// the test.
func (e *env) rpcError(conn *rpc.Client, h rpc.CallHeader, args rpc.Args) *rpc.RPCError {
	e.Helper()
	_, err := conn.Do(e.Context(), h, args)
	var rpcErr *rpc.RPCError
	if err != nil && !errors.As(err, &rpcErr) {
		e.Fatalf("program %d, version %d, procedure %d: %v", h.Prog, h.Vers, h.Proc, err)
	}
	return rpcErr
}

// nfsHeader returns the header of a call by root.
func (e *env) nfsHeader(proc uint32) rpc.CallHeader {
	return rpc.CallHeader{
		RPCVersion: rpc.Version, Prog: nfs3.Program, Vers: nfs3.Version, Proc: proc, Cred: e.client.cred,
	}
}

// record returns a call as a record of one fragment.
func record(h rpc.CallHeader, args rpc.Args) []byte {
	b, at := rpc.BeginRecord(nil)
	b = h.Append(b)
	if args != nil {
		b = args.Append(b)
	}
	rpc.EndRecord(b, at)
	return b
}

// roundTrip writes raw bytes and returns the results of the reply to xid.
func (e *env) roundTrip(conn net.Conn, raw []byte, xid uint32) xdr.Decoder {
	e.Helper()
	if _, err := conn.Write(raw); err != nil {
		e.Fatalf("write a call: %v", err)
	}
	rec, err := rpc.ReadRecord(conn, nil, 1<<20)
	if err != nil {
		e.Fatalf("read a reply: %v", err)
	}
	d := xdr.NewDecoder(rec)
	var h rpc.ReplyHeader
	h.Decode(&d)
	if err := errors.Join(d.Err(), h.Err()); err != nil {
		e.Fatalf("reply: %v", err)
	}
	if h.XID != xid {
		e.Fatalf("the reply's xid is %#x, want %#x", h.XID, xid)
	}
	return d
}

func testNull(e *env) {
	if err := e.client.Null(e.Context()); err != nil {
		e.Errorf("NFS: %v", err)
	}
	if err := e.client.MountNull(e.Context()); err != nil {
		e.Errorf("MOUNT: %v", err)
	}
	// Without a credential, like a probe.
	h := e.nfsHeader(nfs3.ProcNull)
	h.Cred = rpc.Auth{}
	if err := e.rpcError(e.client.nfs, h, nil); err != nil {
		e.Errorf("NFS without a credential: %v", err)
	}
}

// Each of many calls in flight on one connection gets its own reply.
func testPipeline(e *env) {
	const files = 16
	var fhs [files]nfs3.FH
	for i := range fhs {
		fhs[i] = e.create(e.dir, fmt.Sprint("f", i))
		e.write(fhs[i], 0, pattern(i, i*100))
	}
	var wg sync.WaitGroup
	for i, fh := range fhs {
		wg.Go(func() {
			for range 25 {
				res, err := e.client.Getattr(e.Context(), fh)
				if err != nil || res.Status != nfs3.OK || res.Attr.Size != uint64(i*100) {
					e.Errorf("file %d: %v, %v, size %d", i, err, res.Status, res.Attr.Size)
				}
			}
		})
	}
	wg.Wait()
}

func testUnknownProgram(e *env) {
	e.need(FeatureUnavail)
	err := e.rpcError(e.client.nfs, rpc.CallHeader{RPCVersion: rpc.Version, Prog: 400123, Vers: 1}, nil)
	if err == nil || err.Stat != rpc.MsgAccepted || err.Accept != rpc.ProgUnavail {
		e.Errorf("got %v, want PROG_UNAVAIL", err)
	}
}

func testUnknownVersion(e *env) {
	e.need(FeatureVersionMismatch)
	for _, tt := range []struct {
		conn *rpc.Client
		prog uint32
	}{{e.client.nfs, nfs3.Program}, {e.client.mount, mount3.Program}} {
		err := e.rpcError(tt.conn, rpc.CallHeader{RPCVersion: rpc.Version, Prog: tt.prog, Vers: 77}, nil)
		if err == nil || err.Stat != rpc.MsgAccepted || err.Accept != rpc.ProgMismatch || err.Low > 3 || err.High < 3 {
			e.Errorf("program %d: got %v, want PROG_MISMATCH with version 3 in the range", tt.prog, err)
		}
	}
}

func testUnknownRPCVersion(e *env) {
	e.need(FeatureVersionMismatch)
	h := e.nfsHeader(nfs3.ProcNull)
	h.RPCVersion = 3
	err := e.rpcError(e.client.nfs, h, nil)
	if err == nil || err.Stat != rpc.MsgDenied || err.Reject != rpc.RPCMismatch || err.Low != 2 || err.High != 2 {
		e.Errorf("got %v, want RPC_MISMATCH 2 to 2", err)
	}
}

func testUnknownProcedure(e *env) {
	e.need(FeatureUnavail)
	for _, tt := range []struct {
		conn             *rpc.Client
		prog, vers, proc uint32
	}{
		{e.client.nfs, nfs3.Program, nfs3.Version, nfs3.ProcCommit + 1},
		{e.client.nfs, nfs3.Program, nfs3.Version, 1 << 31},
		{e.client.mount, mount3.Program, mount3.Version, mount3.ProcExport + 1},
	} {
		h := rpc.CallHeader{RPCVersion: rpc.Version, Prog: tt.prog, Vers: tt.vers, Proc: tt.proc, Cred: e.client.cred}
		err := e.rpcError(tt.conn, h, nil)
		if err == nil || err.Stat != rpc.MsgAccepted || err.Accept != rpc.ProcUnavail {
			e.Errorf("program %d, procedure %d: got %v, want PROC_UNAVAIL", tt.prog, tt.proc, err)
		}
	}
}

func testGarbageArgs(e *env) {
	e.need(FeatureGarbageArgs)
	file := e.create(e.dir, "file")
	readArgs := (&nfs3.ReadArgs{File: file, Count: 1}).Append(nil)
	for _, tt := range []struct {
		name string
		proc uint32
		args blob
	}{
		{"no arguments", nfs3.ProcGetattr, nil},
		{"a handle that ends early", nfs3.ProcGetattr, blob{0, 0, 0, 16, 1, 2, 3, 4}},
		{"a handle of 4 GiB", nfs3.ProcGetattr, blob{0xff, 0xff, 0xff, 0xff}},
		{"a count that ends early", nfs3.ProcRead, readArgs[:len(readArgs)-2]},
		{"a boolean of 2", nfs3.ProcSetattr, append((&nfs3.HandleArgs{Object: file}).Append(nil), 0, 0, 0, 2)},
	} {
		err := e.rpcError(e.client.nfs, e.nfsHeader(tt.proc), tt.args)
		if err == nil || err.Stat != rpc.MsgAccepted || err.Accept != rpc.GarbageArgs {
			e.Errorf("%s: got %v, want GARBAGE_ARGS", tt.name, err)
		}
	}
	e.attr(file) // the connection works
}

// An undefined value of an enumeration is refused, one way or the other, and
// changes nothing.
func testUnknownEnums(e *env) {
	e.need(FeatureGarbageArgs)
	file := e.create(e.dir, "file")
	e.write(file, 0, []byte("content"))
	before := e.attr(file)
	for _, tt := range []struct {
		name string
		proc uint32
		args rpc.Args
	}{
		{"stable_how 3", nfs3.ProcWrite, &nfs3.WriteArgs{File: file, Count: 4, Stable: 3, Data: []byte("oops")}},
		{"time_how 3", nfs3.ProcSetattr, &nfs3.SetattrArgs{Object: file, Attr: nfs3.Sattr{Mtime: nfs3.SetTime{How: 3}}}},
		{"createmode3 3", nfs3.ProcCreate, &nfs3.CreateArgs{Where: *where(e.dir, "new"), Mode: 3}},
		{"ftype3 99", nfs3.ProcMknod, &nfs3.MknodArgs{Where: *where(e.dir, "new"), Type: 99}},
		{"ftype3 NF3DIR", nfs3.ProcMknod, &nfs3.MknodArgs{Where: *where(e.dir, "new"), Type: nfs3.TypeDir}},
	} {
		res, err := e.client.nfs.Do(e.Context(), e.nfsHeader(tt.proc), tt.args)
		var rpcErr *rpc.RPCError
		if errors.As(err, &rpcErr) {
			continue
		}
		e.answered(tt.name, err)
		d := xdr.NewDecoder(res)
		if status := nfs3.Status(d.Uint32()); status == nfs3.OK {
			// The server may ignore an undefined time.
			if tt.proc != nfs3.ProcSetattr {
				e.Errorf("%s was taken", tt.name)
			}
		}
	}
	after := e.attr(file)
	if after.Size != before.Size || after.Mtime != before.Mtime {
		e.Errorf("the file changed: %+v, was %+v", after, before)
	}
	e.gone(e.dir, "new")
}

// The suite's client accepts only exact results, unless it is lenient. Servers get
// some of these wrong.
func testExactResults(e *env) {
	e.need(FeatureExactResults)
	e.ok("FSSTAT", e.fsstat(e.dir).Status)
	e.ok("FSINFO", e.fsinfo(e.dir).Status)
	e.ok("PATHCONF", e.pathconf(e.dir).Status)
	garbage := pattern(1, 16)
	e.refused("FSSTAT", e.fsstat(garbage).Status, stale...)
	e.refused("FSINFO", e.fsinfo(garbage).Status, stale...)
	e.refused("PATHCONF", e.pathconf(garbage).Status, stale...)
	e.refused("READDIR of 1 byte", e.readdir(nfs3.ReaddirArgs{Dir: e.dir, Count: 1}).Status, nfs3.ErrTooSmall)
}

func testLargestCredential(e *env) {
	cred := rpc.SysCred{Stamp: 1 << 31, MachineName: pattern(1, rpc.MaxMachineName)}
	for i := range cred.MachineName {
		cred.MachineName[i] = 'a' + cred.MachineName[i]%26
	}
	var groups [rpc.MaxGroups]uint32
	for i := range groups {
		groups[i] = uint32(5000 + i)
	}
	cred.SetGroups(groups[:]...)
	h := e.nfsHeader(nfs3.ProcGetattr)
	h.Cred = cred.Auth()
	if err := e.rpcError(e.client.nfs, h, &nfs3.GetattrArgs{Object: e.dir}); err != nil {
		e.Errorf("255 bytes of machine name and 16 groups: %v", err)
	}
}

func testMalformedCredential(e *env) {
	e.need(FeatureCredentialChecks)
	long := rpc.SysCred{MachineName: make([]byte, rpc.MaxMachineName+1)}
	many := new(rpc.SysCred).Append(nil)
	xdr.Patch(many, 16, rpc.MaxGroups+1)
	many = append(many, make([]byte, 4*(rpc.MaxGroups+1))...)
	for name, body := range map[string][]byte{
		"an empty body":             nil,
		"a body that ends early":    new(rpc.SysCred).Append(nil)[:10],
		"256 bytes of machine name": long.Append(nil),
		"17 groups":                 many,
	} {
		h := e.nfsHeader(nfs3.ProcGetattr)
		h.Cred = rpc.Auth{Flavor: rpc.AuthSys, Body: body}
		err := e.rpcError(e.client.nfs, h, &nfs3.GetattrArgs{Object: e.dir})
		if err == nil || err.Stat != rpc.MsgDenied || err.Reject != rpc.AuthError {
			e.Errorf("%s: got %v, want AUTH_ERROR", name, err)
		}
	}
}

func testFragments(e *env) {
	e.need(FeatureFragments)
	file := e.create(e.dir, "file")
	conn := e.dialRaw()
	data := pattern(1, 3000)
	for i, sizes := range [][]int{{4, 4}, {1, 1, 1, 1, 1}, {1000, 1000, 1}, {40, 0, 100}} {
		h := e.nfsHeader(nfs3.ProcWrite)
		h.XID = uint32(1000 + i)
		whole := record(h, &nfs3.WriteArgs{File: file, Offset: uint64(i * len(data)), Count: uint32(len(data)), Data: data})[4:]
		var raw []byte
		for _, n := range sizes {
			raw = xdr.AppendUint32(raw, uint32(n))
			raw = append(raw, whole[:n]...)
			whole = whole[n:]
		}
		raw = xdr.AppendUint32(raw, 1<<31|uint32(len(whole)))
		raw = append(raw, whole...)
		d := e.roundTrip(conn, raw, h.XID)
		var res nfs3.WriteRes
		res.Decode(&d)
		if err := d.Finish(); err != nil || res.Status != nfs3.OK {
			e.Fatalf("fragments of %v: %v, %v", sizes, res.Status, err)
		}
	}
	e.content(file, append(append(data, data...), append(data, data...)...))
}

// TCP may deliver a record in any pieces.
func testByteByByte(e *env) {
	conn := e.dialRaw()
	h := e.nfsHeader(nfs3.ProcGetattr)
	h.XID = 77
	raw := record(h, &nfs3.GetattrArgs{Object: e.dir})
	for i := range raw[:len(raw)-1] {
		if _, err := conn.Write(raw[i : i+1]); err != nil {
			e.Fatal(err)
		}
	}
	d := e.roundTrip(conn, raw[len(raw)-1:], h.XID)
	var res nfs3.GetattrRes
	res.Decode(&d)
	if err := d.Finish(); err != nil || res.Status != nfs3.OK {
		e.Errorf("%v, %v", res.Status, err)
	}
}

// A record of 2 GiB may cost its sender the connection, but does not affect
// others.
func testOversizedRecord(e *env) {
	conn := e.dialRaw()
	raw := append([]byte{0xff, 0xff, 0xff, 0xff}, pattern(1, 64<<10)...)
	// The server may close early, so an error is no failure.
	_, _ = conn.Write(raw)
	e.attr(e.dir)
	other := e.dial()
	defer other.Close()
	if err := other.Null(e.Context()); err != nil {
		e.Errorf("NULL on a new connection: %v", err)
	}
}

// A client that sends half a record blocks no others.
func testHalfRecord(e *env) {
	conn := e.dialRaw()
	raw := record(e.nfsHeader(nfs3.ProcGetattr), &nfs3.GetattrArgs{Object: e.dir})
	if _, err := conn.Write(raw[:len(raw)/2]); err != nil {
		e.Fatal(err)
	}
	start := time.Now()
	e.attr(e.dir)
	if d := time.Since(start); d > 5*time.Second {
		e.Errorf("GETATTR took %v", d)
	}
}

// A call retransmitted because its reply was lost is not executed again.
func testReplyCache(e *env) {
	e.need(FeatureReplyCache)
	e.create(e.dir, "remove")
	e.create(e.dir, "rename")
	conn := e.dialRaw()
	for i, tt := range []struct {
		name string
		proc uint32
		args rpc.Args
	}{
		{"CREATE", nfs3.ProcCreate, &nfs3.CreateArgs{Where: *where(e.dir, "create"), Mode: nfs3.Guarded}},
		{"MKDIR", nfs3.ProcMkdir, &nfs3.MkdirArgs{Where: *where(e.dir, "mkdir")}},
		{"SYMLINK", nfs3.ProcSymlink, &nfs3.SymlinkArgs{Where: *where(e.dir, "symlink"), Path: []byte("to")}},
		{"REMOVE", nfs3.ProcRemove, where(e.dir, "remove")},
		{"RENAME", nfs3.ProcRename, &nfs3.RenameArgs{From: *where(e.dir, "rename"), To: *where(e.dir, "renamed")}},
	} {
		h := e.nfsHeader(tt.proc)
		h.XID = uint32(5000 + i)
		raw := record(h, tt.args)
		for _, nth := range []string{"first", "second"} {
			d := e.roundTrip(conn, raw, h.XID)
			if status := nfs3.Status(d.Uint32()); status != nfs3.OK {
				e.Errorf("%s for the %s time: %v", tt.name, nth, status)
			}
			tick() // a server may ignore a retransmission of a call in progress
		}
	}
}
