package nfs4

import "slices"

// cloneBytes are those of cloneArgs, and the beginning of COPY's.
var (
	cloneArgs = CloneArgs{
		SrcStateid: stateid, DstStateid: CurrentStateid(), SrcOffset: 0x1_0000_0002, DstOffset: 3, Count: 4,
	}
	cloneBytes = slices.Concat(stateidBytes, words(1, 0, 0, 0), words(1, 2, 0, 3, 0, 4))
)

var copyTests = []wireTest{
	{
		"ALLOCATE args", &AllocateArgs{Stateid: stateid, Offset: 0x1_0000_0002, Length: 3},
		slices.Concat(stateidBytes, words(1, 2, 0, 3)),
	},
	{"CLONE args", &cloneArgs, cloneBytes},
	{
		"COPY args", &CopyArgs{CloneArgs: cloneArgs, Consecutive: true},
		slices.Concat(cloneBytes, words(1, 0, 0)),
	},
	{
		"COPY args from other servers", &CopyArgs{CloneArgs: cloneArgs, Synchronous: true, Sources: []Netloc{
			{Type: NetlocName, Name: name}, {Type: NetlocAddr, NetID: []byte("tcp"), Addr: []byte("::1.8.1")}, {Type: NetlocURL, Name: link},
		}},
		slices.Concat(cloneBytes, words(0, 1, 3),
			words(1), nameBytes, words(3, 3), []byte("tcp\x00"), words(7), []byte("::1.8.1\x00"), words(2), linkBytes),
	},
	{
		"COPY", &CopyRes{Count: 0x1_0000_0002, Committed: FileSync, Verf: verf, Consecutive: true, Synchronous: true},
		okBytes(words(0, 1, 2, 2), verfBytes, words(1, 1)),
	},
	{
		"COPY that goes on", &CopyRes{Asynchronous: true, CallbackID: stateid, Verf: verf},
		okBytes(words(1), stateidBytes, words(0, 0, 0), verfBytes, words(0, 0)),
	},
	{"COPY that can't be as asked", &CopyRes{Status: ErrOffloadNoReqs, Synchronous: true}, words(10094, 0, 1)},
	{"COPY refused", &CopyRes{Status: ErrXDev}, words(18)},
	{
		"SEEK args", &SeekArgs{Stateid: stateid, Offset: 0x1_0000_0002, What: ContentHole},
		slices.Concat(stateidBytes, words(1, 2, 1)),
	},
	{"SEEK", &SeekRes{EOF: true, Offset: 0x1_0000_0002}, words(0, 1, 1, 2)},
	{"SEEK refused", &SeekRes{Status: ErrNXIO}, words(6)},
	{
		"IO_ADVISE args", &IOAdviseArgs{Stateid: stateid, Offset: 1, Count: 2, Hints: BitmapOf(AdviseWillneed, AdviseRead)},
		slices.Concat(stateidBytes, words(0, 1, 0, 2, 1, 0x110)),
	},
	{"IO_ADVISE", &IOAdviseRes{Hints: BitmapOf(AdviseWillneed)}, words(0, 1, 0x10)},
	{"IO_ADVISE refused", &IOAdviseRes{Status: ErrBadStateid}, words(10025)},
	{"GETXATTR", &GetxattrRes{Value: []byte("value")}, okBytes(words(5), []byte("value\x00\x00\x00"))},
	{"GETXATTR refused", &GetxattrRes{Status: ErrNoXattr}, words(10095)},
	{
		"SETXATTR args", &SetxattrArgs{Option: XattrReplace, Name: name, Value: []byte("v")},
		slices.Concat(words(2), nameBytes, words(1), []byte("v\x00\x00\x00")),
	},
	{"LISTXATTRS args", &ListxattrsArgs{Cookie: 0x1_0000_0002, MaxCount: 4096}, words(1, 2, 4096)},
	{
		"LISTXATTRS", &ListxattrsRes{Cookie: 2, Names: [][]byte{name, link}, EOF: true},
		okBytes(words(0, 2, 2), nameBytes, linkBytes, words(1)),
	},
	{"LISTXATTRS of none", &ListxattrsRes{Cookie: 2}, words(0, 0, 2, 0, 0)},
	{"LISTXATTRS refused", &ListxattrsRes{Status: ErrTooSmall}, words(10005)},
}
