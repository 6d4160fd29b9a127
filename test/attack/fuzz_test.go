//go:build attack

package attack_test

import (
	"encoding/binary"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/podnas/podnas/nfs/mount3"
	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/nfs/xdr"
)

var fuzzAttacks = []attack{
	{
		name:  "calls at random",
		does:  "every call of NFS and MOUNT with bits flipped, numbers replaced, pieces left out, put in and repeated, also in the headers and record marks; and bytes that are no call",
		holds: "no panic, others are served, nothing outside of the volume changes",
		also:  kinds{gonfs, race},
		run: func(a *assault) {
			a.volume("prey", "64Mi", "--sync=false")
			must(a, os.WriteFile(a.path(victimVolume, "secret"), []byte("the victim's secret"), 0o600))
			c, root := a.client("prey")
			dir := a.mkdir(c, root, "dir")
			file := a.create(c, dir, "file", mode(0o666))
			calls := everyCall(root, dir, file)
			var sent, ended atomic.Int64
			a.beside(func() {
				until := time.Now().Add(2 * a.window)
				var wg sync.WaitGroup
				for i := range 6 {
					rng := rand.New(rand.NewPCG(a.rng.Uint64(), 1))
					wg.Go(func() {
						for time.Now().Before(until) {
							sent.Add(a.fuzz(i, rng, calls, until))
							ended.Add(1)
						}
					})
				}
				wg.Wait()
			})
			data, err := os.ReadFile(a.path(victimVolume, "secret"))
			if err != nil || string(data) != "the victim's secret" {
				a.Errorf("the victim's file is %q (%v)", data, err)
			}
			a.note("%d calls, %d connections", sent.Load(), ended.Load())
		},
	},
}

// everyCall is one of each, well-formed.
func everyCall(root, dir, file nfs3.FH) (calls [][]byte) {
	verf := [8]byte{1, 2, 3}
	in := func(name string) nfs3.DirOpArgs { return where(dir, name) }
	name := in("file")
	some := nfs3.Sattr{
		Mode: nfs3.SetUint32{Set: true, Value: 0o644}, UID: nfs3.SetUint32{Set: true, Value: 1000}, GID: nfs3.SetUint32{Set: true, Value: 1000},
		Size: nfs3.SetUint64{Set: true, Value: 4096}, Mtime: nfs3.SetTime{How: nfs3.SetToClientTime, Time: nfs3.Time{Sec: 1}},
	}
	for proc, args := range map[uint32][]rpc.Args{
		nfs3.ProcNull:        {nil},
		nfs3.ProcGetattr:     {&nfs3.GetattrArgs{Object: file}},
		nfs3.ProcSetattr:     {&nfs3.SetattrArgs{Object: file, Attr: some, Guarded: true}, &nfs3.SetattrArgs{Object: dir, Attr: mode(0o777)}},
		nfs3.ProcLookup:      {&name},
		nfs3.ProcAccess:      {&nfs3.AccessArgs{Object: file, Access: 63}},
		nfs3.ProcReadlink:    {&nfs3.ReadlinkArgs{Object: file}},
		nfs3.ProcRead:        {&nfs3.ReadArgs{File: file, Count: 100}},
		nfs3.ProcWrite:       {&nfs3.WriteArgs{File: file, Count: 100, Data: pattern(1, 100)}, &nfs3.WriteArgs{File: file, Count: 5, Data: []byte("12345"), Stable: nfs3.FileSync}},
		nfs3.ProcCreate:      {&nfs3.CreateArgs{Where: name, Attr: some}, &nfs3.CreateArgs{Where: in("x"), Mode: nfs3.Exclusive, Verf: verf}},
		nfs3.ProcMkdir:       {&nfs3.MkdirArgs{Where: in("d"), Attr: some}},
		nfs3.ProcSymlink:     {&nfs3.SymlinkArgs{Where: in("s"), Path: []byte("../../" + victimVolume + "/secret")}},
		nfs3.ProcMknod:       {&nfs3.MknodArgs{Where: in("n"), Type: nfs3.TypeFIFO, Attr: some}, &nfs3.MknodArgs{Where: in("b"), Type: nfs3.TypeBlk, Attr: some, Spec: nfs3.SpecData{Major: 7}}},
		nfs3.ProcRemove:      {&name},
		nfs3.ProcRmdir:       {&nfs3.DirOpArgs{Dir: dir, Name: []byte("d")}},
		nfs3.ProcRename:      {&nfs3.RenameArgs{From: in("x"), To: in("y")}},
		nfs3.ProcLink:        {&nfs3.LinkArgs{File: file, Link: in("l")}},
		nfs3.ProcReaddir:     {&nfs3.ReaddirArgs{Dir: dir, Count: 4096}},
		nfs3.ProcReaddirplus: {&nfs3.ReaddirplusArgs{Dir: root, DirCount: 512, MaxCount: 4096}},
		nfs3.ProcFsstat:      {&nfs3.FsstatArgs{Object: root}},
		nfs3.ProcFsinfo:      {&nfs3.FsinfoArgs{Object: root}},
		nfs3.ProcPathconf:    {&nfs3.PathconfArgs{Object: root}},
		nfs3.ProcCommit:      {&nfs3.CommitArgs{File: file, Count: 10}},
	} {
		for _, args := range args {
			calls = append(calls, call(0, caller(1000, 1000, 5, 6), proc, args), call(0, caller(0, 0), proc, args))
		}
	}
	for proc := range uint32(6) {
		b, at := rpc.BeginRecord(nil)
		h := rpc.CallHeader{RPCVersion: rpc.Version, Prog: mount3.Program, Vers: mount3.Version, Proc: proc, Cred: caller(0, 0)}
		b = (&mount3.PathArgs{Path: []byte("/prey")}).Append(h.Append(b))
		rpc.EndRecord(b, at)
		calls = append(calls, b)
	}
	return calls
}

// fuzz sends mutated calls over a connection until the server ends it, or half a
// second is over.
func (a *assault) fuzz(address int, rng *rand.Rand, calls [][]byte, until time.Time) (sent int64) {
	conn, err := dialFrom(a.ctx, mallory(address), nfsAddress)
	if err != nil {
		return 0
	}
	defer conn.Close()
	soon := time.Now().Add(500 * time.Millisecond)
	if soon.Before(until) {
		until = soon
	}
	_ = conn.SetDeadline(until.Add(time.Second))
	go func() { _, _ = io.Copy(io.Discard, conn) }() // until the connection ends
	xid := rng.Uint32()
	for time.Now().Before(until) {
		var batch []byte
		for range 32 {
			raw := mutate(rng, calls[rng.IntN(len(calls))])
			xid++
			if len(raw) >= 8 {
				binary.BigEndian.PutUint32(raw[4:], xid)
			}
			batch = append(batch, raw...)
			sent++
		}
		if _, err := conn.Write(batch); err != nil {
			break
		}
	}
	return sent
}

// mutate changes a call. Its record mark is made right again most of the time, so that
// the calls that follow are seen.
func mutate(rng *rand.Rand, from []byte) []byte {
	body := append(make([]byte, 0, len(from)+64), from[4:]...)
	for range rng.IntN(4) {
		if len(body) == 0 {
			break
		}
		at := rng.IntN(len(body))
		word := at &^ 3
		switch rng.IntN(8) {
		case 0:
			body[at] ^= 1 << rng.IntN(8)
		case 1:
			body[at] = byte(rng.Uint32())
		case 2, 3:
			if word+4 <= len(body) {
				some := []uint32{0, 1, 2, 3, 8, 64, 255, 256, 400, 401, 4096, 1 << 20, 1<<31 - 1, 1 << 31, 1<<32 - 1, rng.Uint32()}
				binary.BigEndian.PutUint32(body[word:], some[rng.IntN(len(some))])
			}
		case 4:
			body = body[:at]
		case 5:
			body = append(body[:word:word], append(pattern(rng.IntN(1000), 4*rng.IntN(8)), body[word:]...)...)
		case 6:
			body = append(body, body[at:]...)
		case 7:
			end := min(len(body), word+4*rng.IntN(8))
			body = append(body[:word:word], body[end:]...)
		}
	}
	switch rng.IntN(400) {
	case 0: // a mark of any kind, and what follows is out of step
		return append(xdr.AppendUint32(nil, rng.Uint32()>>rng.IntN(32)), body...)
	case 1: // in fragments, empty ones too
		var raw []byte
		for len(body) > 0 {
			n := min(rng.IntN(40), len(body))
			raw = append(xdr.AppendUint32(raw, uint32(n)), body[:n]...)
			body = body[n:]
		}
		return xdr.AppendUint32(raw, 1<<31)
	}
	return append(xdr.AppendUint32(nil, 1<<31|uint32(len(body))), body...)
}
