package nfsv41_test

import (
	"testing"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/nfs/xdr"
)

// TestAttributesAfterChange: what operations before have seen of a file is not told any
// more when the COMPOUND has changed it.
func TestAttributesAfterChange(t *testing.T) {
	c := newCaller(t, 0, false)
	root := c.lookup(operation{Num: nfs4.OpPutrootfh}, "volume")
	file := c.lookup(putfh(root), "file")
	size := operation{Num: nfs4.OpGetattr, Args: &nfs4.GetattrArgs{Request: nfs4.BitmapOf(nfs4.AttrSize)}}
	change := operation{Num: nfs4.OpGetattr, Args: &nfs4.GetattrArgs{Request: nfs4.BitmapOf(nfs4.AttrChange)}}
	access := operation{Num: nfs4.OpAccess, Args: &nfs4.AccessArgs{Access: nfs4.AccessRead}}
	for _, tt := range []struct {
		name   string
		fh     []byte
		look   operation
		change operation
		res    interface{ Decode(*xdr.Decoder) }
	}{
		{"SETATTR", file, size, operation{Num: nfs4.OpSetattr, Args: &nfs4.SetattrArgs{Attr: nfs4.Sattr{Mask: nfs4.BitmapOf(nfs4.AttrSize), Size: 5}}}, &nfs4.SetattrRes{}},
		{"WRITE", file, size, operation{Num: nfs4.OpWrite, Args: &nfs4.WriteArgs{Offset: 70 << 10, Data: []byte("more")}}, &nfs4.WriteRes{}},
		{"CREATE", root, change, operation{Num: nfs4.OpCreate, Args: &nfs4.CreateArgs{Type: nfs4.TypeDir, Name: []byte("new")}}, &nfs4.CreateRes{}},
		{"REMOVE", root, change, operation{Num: nfs4.OpRemove, Args: &nfs4.RemoveArgs{Name: []byte("new")}}, &nfs4.RemoveRes{}},
	} {
		ops := []operation{putfh(tt.fh), access, tt.look, tt.change}
		if tt.name == "CREATE" { // the directory is the current file again
			ops = append(ops, putfh(tt.fh))
		}
		d := xdr.NewDecoder(c.do(c.compound(tt.name, false, append(ops, access, tt.look)...)))
		var before, after nfs4.GetattrRes
		results := []interface{ Decode(*xdr.Decoder) }{&nfs4.PutfhRes{}, &nfs4.AccessRes{}, &before, tt.res, &nfs4.PutfhRes{}, &nfs4.AccessRes{}, &after}
		if tt.name != "CREATE" {
			results = append(results[:4], results[5:]...)
		}
		for _, res := range results {
			var num nfs4.OpNum
			num.Decode(&d)
			res.Decode(&d)
		}
		mustDo(t, d.Finish())
		if before.Attr.Size == after.Attr.Size && before.Attr.Change == after.Attr.Change {
			t.Errorf("%s: GETATTR has the same attributes before and after: %+v", tt.name, after.Attr)
		}
	}
}
