package nfs4

import "slices"

var namesTests = []wireTest{
	{"PUTFH args", &PutfhArgs{FH: fh}, fhBytes},
	{"GETFH", &GetfhRes{FH: fh}, okBytes(fhBytes)},
	{"GETFH refused", &GetfhRes{Status: ErrNoFileHandle}, words(10020)},
	{"ACCESS args", &AccessArgs{Access: AccessRead | AccessExecute | AccessXAList}, words(0x121)},
	{"ACCESS", &AccessRes{Supported: 0x3f, Access: AccessModify | AccessExtend | AccessDelete}, words(0, 0x3f, 0x1c)},
	{"ACCESS refused", &AccessRes{Status: ErrStale}, words(70)},
	{
		"CREATE args of a directory", &CreateArgs{Type: TypeDir, Name: name, Attr: sattr},
		slices.Concat(words(2), nameBytes, sattrBytes),
	},
	{
		"CREATE args of a link", &CreateArgs{Type: TypeLnk, Link: link, Name: name},
		slices.Concat(words(5), linkBytes, nameBytes, words(0, 0)),
	},
	{
		"CREATE args of a device", &CreateArgs{Type: TypeChr, Spec: SpecData{5, 1}, Name: name},
		slices.Concat(words(4, 5, 1), nameBytes, words(0, 0)),
	},
	{
		"CREATE args of what can't be", &CreateArgs{Type: 77, Name: name},
		slices.Concat(words(77), nameBytes, words(0, 0)),
	},
	{"CREATE", &CreateRes{Change: change, AttrSet: attrSet}, okBytes(changeBytes, attrSetBytes)},
	{"CREATE refused", &CreateRes{Status: ErrExist}, words(17)},
	{
		"RENAME args", &RenameArgs{OldName: name, NewName: link},
		slices.Concat(nameBytes, linkBytes),
	},
	{
		"RENAME", &RenameRes{Source: change, Target: ChangeInfo{Before: 5, After: 6}},
		okBytes(changeBytes, words(0, 0, 5, 0, 6)),
	},
	{"RENAME refused", &RenameRes{Status: ErrXDev}, words(18)},
	{"READLINK", &ReadlinkRes{Link: link}, okBytes(linkBytes)},
	{"READLINK refused", &ReadlinkRes{Status: ErrInval}, words(22)},
	{"SECINFO", &SecinfoRes{Flavors: []Secinfo{
		{Flavor: 1}, {Flavor: 6, OID: []byte{0x2a, 0x86}, QOP: 3, Service: 2},
	}}, okBytes(words(2, 1, 6, 2), []byte{0x2a, 0x86, 0, 0}, words(3, 2))},
	{"SECINFO without flavors", &SecinfoRes{}, words(0, 0)},
	{"SECINFO refused", &SecinfoRes{Status: ErrNoEnt}, words(2)},
	{"SECINFO_NO_NAME args", &SecinfoNoNameArgs{Style: SecinfoParent}, words(1)},
	{
		"READDIR args", &ReaddirArgs{Cookie: 0x1_0000_0002, CookieVerf: verf, DirCount: 512, MaxCount: 4096, Request: attrSet},
		slices.Concat(words(1, 2), verfBytes, words(512, 4096), attrSetBytes),
	},
	{
		"READDIR", &ReaddirRes{CookieVerf: verf, EOF: true, Entries: []Entry{
			{Cookie: 3, Name: name, Attr: Fattr{Mask: BitmapOf(AttrFileID), Vals: words(0, 77)}},
			{Cookie: 4, Name: link, Attr: Fattr{Vals: []byte{}}},
		}},
		okBytes(
			verfBytes,
			words(1, 0, 3), nameBytes, words(1, 1<<20, 8, 0, 77),
			words(1, 0, 4), linkBytes, words(0, 0),
			words(0, 1),
		),
	},
	{"READDIR of nothing", &ReaddirRes{CookieVerf: verf}, okBytes(verfBytes, words(0, 0))},
	{"READDIR refused", &ReaddirRes{Status: ErrTooSmall}, words(10005)},
}
