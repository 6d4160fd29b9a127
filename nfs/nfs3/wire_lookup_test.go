package nfs3

import "slices"

var lookupTests = []wireTest{
	{"LOOKUP args", &LookupArgs{Dir: fh, Name: []byte("name")}, whereBytes},
	{"LOOKUP", &LookupRes{Object: fh, Attr: postOp, DirAttr: postOp}, okBytes(fhBytes, postOpBytes, postOpBytes)},
	{"LOOKUP without attributes", &LookupRes{Object: fh}, okBytes(fhBytes, []byte{0, 0, 0, 0, 0, 0, 0, 0})},
	{"LOOKUP refused", &LookupRes{Status: ErrNoEnt, DirAttr: postOp}, slices.Concat([]byte{0, 0, 0, 2}, postOpBytes)},
	{"ACCESS args", &AccessArgs{Object: fh, Access: 0x3f}, slices.Concat(fhBytes, []byte{0, 0, 0, 0x3f})},
	{"ACCESS", &AccessRes{Attr: postOp, Access: AccessRead | AccessExecute}, okBytes(postOpBytes, []byte{0, 0, 0, 0x21})},
	{"ACCESS refused", &AccessRes{Status: ErrStale}, []byte{0, 0, 0, 70, 0, 0, 0, 0}},
	{"READLINK args", &ReadlinkArgs{Object: fh}, fhBytes},
	{
		"READLINK", &ReadlinkRes{Attr: postOp, Path: []byte("../to")},
		okBytes(postOpBytes, []byte{0, 0, 0, 5, '.', '.', '/', 't', 'o', 0, 0, 0}),
	},
	{"READLINK refused", &ReadlinkRes{Status: ErrInval, Attr: postOp}, slices.Concat([]byte{0, 0, 0, 22}, postOpBytes)},
}
