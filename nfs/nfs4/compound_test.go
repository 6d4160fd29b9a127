package nfs4

import (
	"testing"

	"github.com/podnas/podnas/nfs/xdr"
)

// Whatever a server answers, it is an error or the results of what was asked.
func FuzzCompoundReply(f *testing.F) {
	good := (&CompoundRes{NumOps: 2}).Append(nil)
	good = xdr.AppendUint32(OpPutrootfh.Append(good), 0)
	good = (&GetfhRes{FH: FH("handle")}).Append(OpGetfh.Append(good))
	f.Add(good)
	f.Add(good[:len(good)-8])
	f.Add((&CompoundRes{Status: ErrStale}).Append(nil))
	f.Add((&CompoundRes{NumOps: 1 << 31}).Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		var root GetfhRes
		_, status, err := Compound{{OpPutrootfh, nil, &StatusRes{}}, {OpGetfh, nil, &root}}.DecodeResults(b)
		if err == nil && status == OK && root.Status == OK && root.FH == nil {
			t.Errorf("%x is taken for a reply with a handle", b)
		}
	})
}
