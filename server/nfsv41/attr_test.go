package nfsv41_test

import (
	"syscall"
	"testing"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/nfs/xdr"
	"github.com/podnas/podnas/test/testdisk"
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

// TestVerifyWhatTheDiskLacks: what supported_attrs of a file does not have is not compared, RFC 8881 sections 18.15.3 and 18.30.3.
func TestVerifyWhatTheDiskLacks(t *testing.T) {
	testdisk.Btrfs(t, func(t *testing.T, dir string) { // the others can't be mounted so
		if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT, "noacl"); err != nil {
			t.Skipf("needs a disk without ACLs: %v", err)
		}
		c := pseudoClient(t, serve(t, dir, false), "127.0.0.1")
		root := c.lookup(operation{Num: nfs4.OpPutrootfh}, "volume")
		supported := operation{Num: nfs4.OpGetattr, Args: &nfs4.GetattrArgs{Request: nfs4.BitmapOf(nfs4.AttrSupportedAttrs)}}
		d := xdr.NewDecoder(c.do(c.compound("GETATTR", false, putfh(root), supported))[8+4:])
		var has nfs4.GetattrRes
		if has.Decode(&d); d.Err() != nil || has.Attr.SupportedAttrs.Has(nfs4.AttrACL) {
			t.Fatalf("ACLs are supported: %v", d.Err())
		}
		for _, num := range []nfs4.OpNum{nfs4.OpVerify, nfs4.OpNverify} {
			args := nfs4.VerifyArgs{Attr: nfs4.Fattr{Mask: nfs4.BitmapOf(nfs4.AttrACL), Vals: xdr.AppendUint32(nil, 0)}}
			if _, status := c.try(c.compound(num.String(), false, putfh(root), operation{Num: num, Args: &args})); status != nfs4.ErrAttrNotSupp {
				t.Errorf("%v of acl: %v", num, status)
			}
		}
	})
}
