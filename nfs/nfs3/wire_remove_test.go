package nfs3

import "slices"

var removeTests = []wireTest{
	{"REMOVE", &RemoveRes{Wcc: wcc}, okBytes(wccBytes)},
	{"RMDIR refused", &RmdirRes{Status: ErrNotEmpty, Wcc: wcc}, slices.Concat([]byte{0, 0, 0, 66}, wccBytes)},
	{
		"RENAME args", &RenameArgs{From: where, To: DirOpArgs{Dir: FH{1, 2, 3, 4}, Name: []byte("b")}},
		slices.Concat(whereBytes, []byte{0, 0, 0, 4, 1, 2, 3, 4, 0, 0, 0, 1, 'b', 0, 0, 0}),
	},
	{"RENAME", &RenameRes{FromWcc: wcc, ToWcc: WccData{After: postOp}}, okBytes(wccBytes, []byte{0, 0, 0, 0}, postOpBytes)},
	{"RENAME refused", &RenameRes{Status: ErrXDev}, slices.Concat([]byte{0, 0, 0, 18}, noWccBytes, noWccBytes)},
	{"LINK args", &LinkArgs{File: fh, Link: where}, slices.Concat(fhBytes, whereBytes)},
	{"LINK", &LinkRes{Attr: postOp, LinkWcc: wcc}, okBytes(postOpBytes, wccBytes)},
	{"LINK refused", &LinkRes{Status: ErrMLink}, slices.Concat([]byte{0, 0, 0, 31, 0, 0, 0, 0}, noWccBytes)},
}
