package nfs3

import "slices"

var createTests = []wireTest{
	{
		"CREATE args", &CreateArgs{Where: where, Mode: Guarded, Attr: sattr},
		slices.Concat(whereBytes, []byte{0, 0, 0, 1}, sattrBytes),
	},
	{
		"CREATE args, unchecked", &CreateArgs{Where: where},
		slices.Concat(whereBytes, []byte{0, 0, 0, 0}, noSattrBytes),
	},
	{
		"CREATE args, exclusive", &CreateArgs{Where: where, Mode: Exclusive, Verf: verf},
		slices.Concat(whereBytes, []byte{0, 0, 0, 2, 1, 2, 3, 4, 5, 6, 7, 8}),
	},
	{
		"CREATE", &CreateRes{Object: fh, Attr: postOp, DirWcc: wcc},
		okBytes([]byte{0, 0, 0, 1}, fhBytes, postOpBytes, wccBytes),
	},
	{"CREATE without a handle", &CreateRes{}, okBytes(make([]byte, 4*4))},
	{"CREATE refused", &CreateRes{Status: ErrExist, DirWcc: wcc}, slices.Concat([]byte{0, 0, 0, 17}, wccBytes)},
	{"MKDIR args", &MkdirArgs{Where: where, Attr: sattr}, slices.Concat(whereBytes, sattrBytes)},
	{
		"SYMLINK args", &SymlinkArgs{Where: where, Attr: sattr, Path: []byte("../to")},
		slices.Concat(whereBytes, sattrBytes, []byte{0, 0, 0, 5, '.', '.', '/', 't', 'o', 0, 0, 0}),
	},
	{
		"MKNOD args of a device", &MknodArgs{Where: where, Type: TypeChr, Attr: sattr, Spec: SpecData{1, 3}},
		slices.Concat(whereBytes, []byte{0, 0, 0, 4}, sattrBytes, []byte{0, 0, 0, 1, 0, 0, 0, 3}),
	},
	{
		"MKNOD args of a fifo", &MknodArgs{Where: where, Type: TypeFIFO, Attr: sattr},
		slices.Concat(whereBytes, []byte{0, 0, 0, 7}, sattrBytes),
	},
	{
		"MKNOD args of a bad type", &MknodArgs{Where: where, Type: TypeDir},
		slices.Concat(whereBytes, []byte{0, 0, 0, 2}),
	},
}
