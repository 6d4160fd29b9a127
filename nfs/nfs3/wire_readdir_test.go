package nfs3

import "slices"

var (
	entryABytes = []byte{0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 11, 0, 0, 0, 1, 'a', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}
	entryBBytes = []byte{0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 12, 0, 0, 0, 2, 'b', 'b', 0, 0, 0x80, 0, 0, 0, 0, 0, 0, 2}
)

var readdirTests = []wireTest{
	{
		"READDIR args", &ReaddirArgs{Dir: fh, Cookie: 1 << 63, CookieVerf: verf, Count: 8192},
		slices.Concat(fhBytes, []byte{0x80, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0x20, 0}),
	},
	{
		"READDIR", &ReaddirRes{
			DirAttr: postOp, CookieVerf: verf,
			Entries: []Entry{{11, []byte("a"), 1}, {12, []byte("bb"), 1<<63 + 2}},
		},
		okBytes(postOpBytes, verf[:], entryABytes, entryBBytes, []byte{0, 0, 0, 0, 0, 0, 0, 0}),
	},
	{
		"READDIR at the end", &ReaddirRes{CookieVerf: verf, EOF: true},
		okBytes([]byte{0, 0, 0, 0}, verf[:], []byte{0, 0, 0, 0, 0, 0, 0, 1}),
	},
	{"READDIR refused", &ReaddirRes{Status: ErrBadCookie}, []byte{0, 0, 0x27, 0x13, 0, 0, 0, 0}},
	{
		"READDIRPLUS args", &ReaddirplusArgs{Dir: fh, Cookie: 3, CookieVerf: verf, DirCount: 512, MaxCount: 8192},
		slices.Concat(fhBytes, []byte{0, 0, 0, 0, 0, 0, 0, 3, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 2, 0, 0, 0, 0x20, 0}),
	},
	{
		"READDIRPLUS", &ReaddirplusRes{
			DirAttr: postOp, CookieVerf: verf, EOF: true,
			Entries: []EntryPlus{
				{Entry: Entry{11, []byte("a"), 1}, Attr: postOp, Object: fh},
				{Entry: Entry{12, []byte("bb"), 1<<63 + 2}},
			},
		},
		okBytes(postOpBytes, verf[:],
			entryABytes, postOpBytes, []byte{0, 0, 0, 1}, fhBytes,
			entryBBytes, []byte{0, 0, 0, 0, 0, 0, 0, 0},
			[]byte{0, 0, 0, 0, 0, 0, 0, 1}),
	},
	{"READDIRPLUS refused", &ReaddirplusRes{Status: ErrTooSmall, DirAttr: postOp}, slices.Concat([]byte{0, 0, 0x27, 0x15}, postOpBytes)},
}
