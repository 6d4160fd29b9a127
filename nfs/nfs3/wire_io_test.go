package nfs3

import (
	"slices"
	"testing"

	"github.com/podnas/podnas/nfs/xdr"
)

var ioTests = []wireTest{
	{
		"READ args", &ReadArgs{File: fh, Offset: 0x1_0000_0002, Count: 4096},
		slices.Concat(fhBytes, []byte{0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0x10, 0}),
	},
	{
		"READ", &ReadRes{Attr: postOp, Count: 6, EOF: true, Data: []byte("abcdef")},
		okBytes(postOpBytes, []byte{0, 0, 0, 6, 0, 0, 0, 1, 0, 0, 0, 6, 'a', 'b', 'c', 'd', 'e', 'f', 0, 0}),
	},
	{"READ refused", &ReadRes{Status: ErrAcces}, []byte{0, 0, 0, 13, 0, 0, 0, 0}},
	{
		"WRITE args", &WriteArgs{File: fh, Offset: 0x1_0000_0002, Count: 3, Stable: DataSync, Data: []byte("abc")},
		slices.Concat(fhBytes, []byte{0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0, 3, 'a', 'b', 'c', 0}),
	},
	{
		"WRITE", &WriteRes{Wcc: wcc, Count: 3, Committed: FileSync, Verf: verf},
		okBytes(wccBytes, []byte{0, 0, 0, 3, 0, 0, 0, 2, 1, 2, 3, 4, 5, 6, 7, 8}),
	},
	{"WRITE refused", &WriteRes{Status: ErrNoSpc, Wcc: wcc}, slices.Concat([]byte{0, 0, 0, 28}, wccBytes)},
	{
		"COMMIT args", &CommitArgs{File: fh, Offset: 1, Count: 2},
		slices.Concat(fhBytes, []byte{0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2}),
	},
	{"COMMIT", &CommitRes{Wcc: wcc, Verf: verf}, okBytes(wccBytes, []byte{1, 2, 3, 4, 5, 6, 7, 8})},
	{"COMMIT refused", &CommitRes{Status: ErrIO}, slices.Concat([]byte{0, 0, 0, 5}, noWccBytes)},
}

// Data is not copied on its way in.
func TestDataAliasesRecord(t *testing.T) {
	rec := (&WriteArgs{Count: 4, Data: []byte("data")}).Append(nil)
	d := xdr.NewDecoder(rec)
	var w WriteArgs
	w.Decode(&d)
	if &w.Data[0] != &rec[len(rec)-4] {
		t.Error("WRITE's data is a copy")
	}
	rec = (&ReadRes{Data: []byte("data")}).Append(nil)
	d = xdr.NewDecoder(rec)
	var r ReadRes
	r.Decode(&d)
	if &r.Data[0] != &rec[len(rec)-4] {
		t.Error("READ's data is a copy")
	}
}
