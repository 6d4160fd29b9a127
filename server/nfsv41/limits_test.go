package nfsv41_test

import (
	"encoding/binary"
	"testing"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/nfs/xdr"
)

// What XDR has no limit for is no garbage: a tag that is too long for this server has an error of the
// COMPOUND, and a bitmap of many words is as good as one of few.
func TestLongTagAndBitmap(t *testing.T) {
	c := newCaller(t, 0, false)
	compound := func(tag int, ops []byte, n uint32) (nfs4.Status, uint32) {
		t.Helper()
		b, at := rpc.BeginRecord(nil)
		h := rpc.CallHeader{RPCVersion: rpc.Version, Prog: nfs4.Program, Vers: nfs4.Version, Proc: nfs4.ProcCompound, Cred: c.cred}
		b = (&nfs4.CompoundArgs{Tag: make([]byte, tag), MinorVersion: 1, NumOps: n}).Append(h.Append(b))
		b = append(b, ops...)
		rpc.EndRecord(b, at)
		if _, err := c.conn.Write(b); err != nil {
			t.Fatal(err)
		}
		reply, err := rpc.ReadRecord(c.conn, nil, 1<<20)
		mustDo(t, err)
		d := xdr.NewDecoder(reply)
		var head rpc.ReplyHeader
		head.Decode(&d)
		mustDo(t, head.Err())
		var res nfs4.CompoundRes
		res.Decode(&d)
		mustDo(t, d.Err())
		return res.Status, res.NumOps
	}
	for _, tag := range []int{nfs4.MaxTag + 1, 100_000} {
		if status, n := compound(tag, nil, 0); status != nfs4.ErrInval || n != 0 {
			t.Errorf("a tag of %d bytes: %v, %d results", tag, status, n)
		}
	}
	if status, _ := compound(nfs4.MaxTag, nil, 0); status != nfs4.OK {
		t.Errorf("the longest tag: %v", status)
	}
	bitmap := func(words int) []byte {
		c.seq++
		ops := (&nfs4.SequenceArgs{SessionID: c.session, SequenceID: c.seq}).Append(nfs4.OpSequence.Append(nil))
		ops = nfs4.OpPutrootfh.Append(ops)
		ops = xdr.AppendUint32(nfs4.OpGetattr.Append(ops), uint32(words))
		mask := make([]byte, 4*words)
		binary.BigEndian.PutUint32(mask, 1<<nfs4.AttrType)
		return append(ops, mask...)
	}
	for _, words := range []int{1, 3, 32, 33, 5000} {
		if status, n := compound(0, bitmap(words), 3); status != nfs4.OK || n != 3 {
			t.Errorf("a bitmap of %d words: %v, %d results", words, status, n)
		}
	}
}
