package nfs4

import (
	"slices"
	"testing"

	"github.com/podnas/podnas/nfs/xdr"
)

var ioTests = []wireTest{
	{
		"READ args", &ReadArgs{Stateid: stateid, Offset: 0x1_0000_0002, Count: 4096},
		slices.Concat(stateidBytes, words(1, 2, 4096)),
	},
	{
		"READ", &ReadRes{EOF: true, Data: []byte("abcdef")},
		okBytes(words(1, 6), []byte("abcdef\x00\x00")),
	},
	{"READ refused", &ReadRes{Status: ErrLocked}, words(10012)},
	{
		"WRITE args", &WriteArgs{Stateid: stateid, Offset: 0x1_0000_0002, Stable: DataSync, Data: []byte("abc")},
		slices.Concat(stateidBytes, words(1, 2, 1, 3), []byte("abc\x00")),
	},
	{
		"WRITE", &WriteRes{Count: 3, Committed: FileSync, Verf: verf},
		okBytes(words(3, 2), verfBytes),
	},
	{"WRITE refused", &WriteRes{Status: ErrNoSpc}, words(28)},
	{"COMMIT args", &CommitArgs{Offset: 1, Count: 2}, words(0, 1, 2)},
	{"COMMIT", &CommitRes{Verf: verf}, okBytes(verfBytes)},
	{"COMMIT refused", &CommitRes{Status: ErrIO}, words(5)},
}

// Data is not copied on its way in.
func TestDataAliasesRecord(t *testing.T) {
	rec := (&WriteArgs{Data: []byte("data")}).Append(nil)
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
