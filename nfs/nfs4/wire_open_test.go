package nfs4

import "slices"

// openHead is what precedes openflag4.
var openHead = slices.Concat(words(9, ShareAccessBoth|WantNoDeleg, ShareDenyWrite), ownerBytes)

// openArgs returns a without what openHead has.
func openArgs(a OpenArgs) *OpenArgs {
	a.Seqid, a.ShareAccess, a.ShareDeny, a.Owner = 9, ShareAccessBoth|WantNoDeleg, ShareDenyWrite, owner
	return &a
}

var openTests = []wireTest{
	{
		"OPEN args", openArgs(OpenArgs{Claim: ClaimNull, Name: name}),
		slices.Concat(openHead, words(0), words(0), nameBytes),
	},
	{
		"OPEN args, unchecked", openArgs(OpenArgs{Create: true, Mode: Unchecked, Attr: sattr, Claim: ClaimNull, Name: name}),
		slices.Concat(openHead, words(1, 0), sattrBytes, words(0), nameBytes),
	},
	{
		"OPEN args, guarded", openArgs(OpenArgs{Create: true, Mode: Guarded, Attr: sattr, Claim: ClaimNull, Name: name}),
		slices.Concat(openHead, words(1, 1), sattrBytes, words(0), nameBytes),
	},
	{
		"OPEN args, exclusive", openArgs(OpenArgs{Create: true, Mode: Exclusive, Verf: verf, Claim: ClaimNull, Name: name}),
		slices.Concat(openHead, words(1, 2), verfBytes, words(0), nameBytes),
	},
	{
		"OPEN args, EXCLUSIVE4_1", openArgs(OpenArgs{Create: true, Mode: ExclusiveAttrs, Verf: verf, Attr: sattr, Claim: ClaimNull, Name: name}),
		slices.Concat(openHead, words(1, 3), verfBytes, sattrBytes, words(0), nameBytes),
	},
	{
		"OPEN args, CLAIM_PREVIOUS", openArgs(OpenArgs{Claim: ClaimPrevious, DelegateType: DelegateWrite}),
		slices.Concat(openHead, words(0, 1, 2)),
	},
	{
		"OPEN args, CLAIM_DELEGATE_CUR", openArgs(OpenArgs{Claim: ClaimDelegateCur, DelegateStateid: stateid, Name: name}),
		slices.Concat(openHead, words(0, 2), stateidBytes, nameBytes),
	},
	{
		"OPEN args, CLAIM_DELEGATE_PREV", openArgs(OpenArgs{Claim: ClaimDelegatePrev, Name: name}),
		slices.Concat(openHead, words(0, 3), nameBytes),
	},
	{"OPEN args, CLAIM_FH", openArgs(OpenArgs{Claim: ClaimFH}), slices.Concat(openHead, words(0, 4))},
	{
		"OPEN args, CLAIM_DELEG_CUR_FH", openArgs(OpenArgs{Claim: ClaimDelegCurFH, DelegateStateid: stateid}),
		slices.Concat(openHead, words(0, 5), stateidBytes),
	},
	{"OPEN args, CLAIM_DELEG_PREV_FH", openArgs(OpenArgs{Claim: ClaimDelegPrevFH}), slices.Concat(openHead, words(0, 6))},
	{
		"OPEN", &OpenRes{Stateid: stateid, Change: change, Flags: OpenResultLocktypePosix | OpenResultMayNotifyLock, AttrSet: attrSet},
		okBytes(stateidBytes, changeBytes, words(0x24), attrSetBytes, words(0)),
	},
	{
		"OPEN without a delegation", &OpenRes{Stateid: stateid, Change: change, Delegation: Delegation{Type: DelegateNoneExt, Why: NoneNotWanted}},
		okBytes(stateidBytes, changeBytes, words(0), words(0), words(3, 0)),
	},
	{
		"OPEN with contention", &OpenRes{Stateid: stateid, Change: change, Delegation: Delegation{Type: DelegateNoneExt, Why: NoneContention, WillTell: true}},
		okBytes(stateidBytes, changeBytes, words(0), words(0), words(3, 1, 1)),
	},
	{
		"OPEN without resources", &OpenRes{Stateid: stateid, Change: change, Delegation: Delegation{Type: DelegateNoneExt, Why: NoneResource}},
		okBytes(stateidBytes, changeBytes, words(0), words(0), words(3, 2, 0)),
	},
	{
		"OPEN with a read delegation", &OpenRes{Stateid: stateid, Change: change, Delegation: Delegation{
			Type: DelegateRead, Stateid: stateid, Recall: true, Permissions: ace,
		}},
		okBytes(stateidBytes, changeBytes, words(0), words(0), words(1), stateidBytes, words(1), aceBytes),
	},
	{
		"OPEN with a write delegation", &OpenRes{Stateid: stateid, Change: change, Delegation: Delegation{
			Type: DelegateWrite, Stateid: stateid, Permissions: ace, Limit: SpaceLimit{By: LimitSize, FileSize: 0x1_0000_0002},
		}},
		okBytes(stateidBytes, changeBytes, words(0), words(0), words(2), stateidBytes, words(0), words(1, 1, 2), aceBytes),
	},
	{
		"OPEN with a write delegation of blocks", &OpenRes{Stateid: stateid, Change: change, Delegation: Delegation{
			Type: DelegateWrite, Stateid: stateid, Permissions: ace, Limit: SpaceLimit{By: LimitBlocks, Blocks: 3, BlockSize: 512},
		}},
		okBytes(stateidBytes, changeBytes, words(0), words(0), words(2), stateidBytes, words(0), words(2, 3, 512), aceBytes),
	},
	{"OPEN refused", &OpenRes{Status: ErrShareDenied}, words(10015)},
	{
		"OPEN_DOWNGRADE args", &OpenDowngradeArgs{Stateid: stateid, Seqid: 9, ShareAccess: ShareAccessRead, ShareDeny: ShareDenyNone},
		slices.Concat(stateidBytes, words(9, 1, 0)),
	},
	{"CLOSE args", &CloseArgs{Seqid: 9, Stateid: stateid}, slices.Concat(words(9), stateidBytes)},
	{
		"TEST_STATEID args", &TestStateidArgs{Stateids: []Stateid{stateid, CurrentStateid()}},
		slices.Concat(words(2), stateidBytes, words(1, 0, 0, 0)),
	},
	{"TEST_STATEID args of none", &TestStateidArgs{}, words(0)},
	{"TEST_STATEID", &TestStateidRes{Statuses: []Status{OK, ErrBadStateid}}, words(0, 2, 0, 10025)},
	{"TEST_STATEID refused", &TestStateidRes{Status: ErrDelay}, words(10008)},
}
