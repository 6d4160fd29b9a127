package nfs4

import "slices"

var (
	denied      = LockDenied{Offset: 0x1_0000_0002, Length: 3, Type: LockWrite, Owner: owner}
	deniedBytes = slices.Concat(words(1, 2, 0, 3, 2), ownerBytes)
)

var lockTests = []wireTest{
	{
		"LOCK args of a new owner", &LockArgs{
			Type: LockWriteWait, Reclaim: true, Offset: 0x1_0000_0002, Length: 0xffff_ffff_ffff_ffff, NewOwner: true,
			OpenSeqid: 5, OpenStateid: stateid, LockSeqid: 6, Owner: owner,
		},
		slices.Concat(words(4, 1, 1, 2, 0xffff_ffff, 0xffff_ffff, 1), words(5), stateidBytes, words(6), ownerBytes),
	},
	{
		"LOCK args", &LockArgs{Type: LockRead, Offset: 2, Length: 3, LockStateid: stateid, LockSeqid: 6},
		slices.Concat(words(1, 0, 0, 2, 0, 3, 0), stateidBytes, words(6)),
	},
	{"LOCK", &LockRes{Stateid: stateid}, okBytes(stateidBytes)},
	{"LOCK denied", &LockRes{Status: ErrDenied, Denied: denied}, slices.Concat(words(10010), deniedBytes)},
	{"LOCK refused", &LockRes{Status: ErrGrace}, words(10013)},
	{
		"LOCKT args", &LocktArgs{Type: LockReadWait, Offset: 2, Length: 3, Owner: owner},
		slices.Concat(words(3, 0, 2, 0, 3), ownerBytes),
	},
	{"LOCKT", &LocktRes{}, words(0)},
	{"LOCKT denied", &LocktRes{Status: ErrDenied, Denied: denied}, slices.Concat(words(10010), deniedBytes)},
	{
		"LOCKU args", &LockuArgs{Type: LockWrite, Seqid: 9, Stateid: stateid, Offset: 2, Length: 3},
		slices.Concat(words(2, 9), stateidBytes, words(0, 2, 0, 3)),
	},
}
