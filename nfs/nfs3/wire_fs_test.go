package nfs3

import "slices"

var fsTests = []wireTest{
	{
		"FSSTAT", &FsstatRes{Attr: postOp, TBytes: 1 << 40, FBytes: 1 << 39, ABytes: 3, TFiles: 4, FFiles: 5, AFiles: 6, Invarsec: 7},
		okBytes(postOpBytes, []byte{
			0, 0, 1, 0, 0, 0, 0, 0, // total
			0, 0, 0, 0x80, 0, 0, 0, 0, // free
			0, 0, 0, 0, 0, 0, 0, 3, // available
			0, 0, 0, 0, 0, 0, 0, 4,
			0, 0, 0, 0, 0, 0, 0, 5,
			0, 0, 0, 0, 0, 0, 0, 6,
			0, 0, 0, 7, // invarsec
		}),
	},
	{"FSSTAT refused", &FsstatRes{Status: ErrIO}, []byte{0, 0, 0, 5, 0, 0, 0, 0}},
	{
		"FSINFO", &FsinfoRes{
			Attr: postOp, RtMax: 1, RtPref: 2, RtMult: 3, WtMax: 4, WtPref: 5, WtMult: 6, DtPref: 7,
			MaxFileSize: 1<<63 - 1, TimeDelta: Time{0, 1}, Properties: FSFLink | FSFSymlink | FSFHomogeneous | FSFCanSetTime,
		},
		okBytes(postOpBytes, []byte{
			0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3,
			0, 0, 0, 4, 0, 0, 0, 5, 0, 0, 0, 6,
			0, 0, 0, 7,
			0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
			0, 0, 0, 0, 0, 0, 0, 1,
			0, 0, 0, 0x1b,
		}),
	},
	{"FSINFO refused", &FsinfoRes{Status: ErrStale, Attr: postOp}, slices.Concat([]byte{0, 0, 0, 70}, postOpBytes)},
	{
		"PATHCONF", &PathconfRes{Attr: postOp, LinkMax: 32000, NameMax: 255, NoTrunc: true, ChownRestricted: true, CasePreserving: true},
		okBytes(postOpBytes, []byte{0, 0, 0x7d, 0, 0, 0, 0, 255, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1}),
	},
	{"PATHCONF refused", &PathconfRes{Status: ErrBadHandle}, []byte{0, 0, 0x27, 0x11, 0, 0, 0, 0}},
}
