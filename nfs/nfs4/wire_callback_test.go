package nfs4

import "slices"

var callbackTests = []wireTest{
	{
		"CB_COMPOUND args", &CBCompoundArgs{Tag: name, MinorVersion: 1, Ident: 5, NumOps: 2},
		slices.Concat(nameBytes, words(1, 5, 2)),
	},
	{
		"CB_SEQUENCE args", &CBSequenceArgs{
			SessionID: session, SequenceID: 1, SlotID: 2, HighestSlotID: 3, CacheThis: true,
			ReferringCalls: []ReferringCallList{
				{SessionID: session, Calls: []ReferringCall{{SequenceID: 8, SlotID: 9}, {SequenceID: 10, SlotID: 11}}},
				{SessionID: session},
			},
		},
		slices.Concat(sessionBytes, words(1, 2, 3, 1, 2), sessionBytes, words(2, 8, 9, 10, 11), sessionBytes, words(0)),
	},
	{
		"CB_SEQUENCE args without referring calls", &CBSequenceArgs{SessionID: session, SequenceID: 1},
		slices.Concat(sessionBytes, words(1, 0, 0, 0, 0)),
	},
	{
		"CB_SEQUENCE", &CBSequenceRes{SessionID: session, SequenceID: 1, SlotID: 2, HighestSlotID: 3, TargetHighestSlotID: 4},
		okBytes(sessionBytes, words(1, 2, 3, 4)),
	},
	{"CB_SEQUENCE refused", &CBSequenceRes{Status: ErrBadSession}, words(10052)},
	{"CB_NOTIFY_LOCK args", &CBNotifyLockArgs{FH: fh, Owner: owner}, slices.Concat(fhBytes, ownerBytes)},
	{
		"CB_RECALL args", &CBRecallArgs{Stateid: stateid, Truncate: true, FH: fh},
		slices.Concat(stateidBytes, words(1), fhBytes),
	},
}
