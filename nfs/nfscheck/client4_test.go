package nfscheck

import (
	"testing"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/nfs/xdr"
)

// Whatever a server answers, it is an error or the results of what was asked.
func FuzzCompoundReply(f *testing.F) {
	good := (&nfs4.CompoundRes{NumOps: 2}).Append(nil)
	good = xdr.AppendUint32(nfs4.OpPutrootfh.Append(good), 0)
	good = (&nfs4.GetfhRes{FH: nfs4.FH("handle")}).Append(nfs4.OpGetfh.Append(good))
	f.Add(good)
	f.Add(good[:len(good)-8])
	f.Add((&nfs4.CompoundRes{Status: nfs4.ErrStale}).Append(nil))
	f.Add((&nfs4.CompoundRes{NumOps: 1 << 31}).Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		var root nfs4.GetfhRes
		_, status, err := compound{plain(nfs4.OpPutrootfh), {nfs4.OpGetfh, nil, &root}}.decode(b)
		if err == nil && status == nfs4.OK && root.Status == nfs4.OK && root.FH == nil {
			t.Errorf("%x is taken for a reply with a handle", b)
		}
	})
}
