package nfs3

import "slices"

var attrTests = []wireTest{
	{"GETATTR args", &GetattrArgs{Object: fh}, fhBytes},
	{"GETATTR", &GetattrRes{Attr: attr}, okBytes(attrBytes)},
	{"GETATTR refused", &GetattrRes{Status: ErrStale}, []byte{0, 0, 0, 70}},
	{
		"SETATTR args", &SetattrArgs{Object: fh, Attr: sattr, Guarded: true, Guard: Time{5, 6}},
		slices.Concat(fhBytes, sattrBytes, []byte{0, 0, 0, 1, 0, 0, 0, 5, 0, 0, 0, 6}),
	},
	{
		"SETATTR args, nothing set", &SetattrArgs{Object: fh},
		slices.Concat(fhBytes, noSattrBytes, []byte{0, 0, 0, 0}),
	},
	{"SETATTR", &SetattrRes{Wcc: wcc}, okBytes(wccBytes)},
	{"SETATTR refused", &SetattrRes{Status: ErrNotSync}, slices.Concat([]byte{0, 0, 0x27, 0x12}, noWccBytes)},
}
