package nfs4

import "strconv"

// OpNum is nfs_opnum4: an operation of a COMPOUND.
type OpNum uint32

// Operations of RFC 8881 section 18.
const (
	OpAccess             OpNum = 3
	OpClose              OpNum = 4
	OpCommit             OpNum = 5
	OpCreate             OpNum = 6
	OpDelegpurge         OpNum = 7
	OpDelegreturn        OpNum = 8
	OpGetattr            OpNum = 9
	OpGetfh              OpNum = 10
	OpLink               OpNum = 11
	OpLock               OpNum = 12
	OpLockt              OpNum = 13
	OpLocku              OpNum = 14
	OpLookup             OpNum = 15
	OpLookupp            OpNum = 16
	OpNverify            OpNum = 17
	OpOpen               OpNum = 18
	OpOpenattr           OpNum = 19
	OpOpenConfirm        OpNum = 20
	OpOpenDowngrade      OpNum = 21
	OpPutfh              OpNum = 22
	OpPutpubfh           OpNum = 23
	OpPutrootfh          OpNum = 24
	OpRead               OpNum = 25
	OpReaddir            OpNum = 26
	OpReadlink           OpNum = 27
	OpRemove             OpNum = 28
	OpRename             OpNum = 29
	OpRenew              OpNum = 30
	OpRestorefh          OpNum = 31
	OpSavefh             OpNum = 32
	OpSecinfo            OpNum = 33
	OpSetattr            OpNum = 34
	OpSetclientid        OpNum = 35
	OpSetclientidConfirm OpNum = 36
	OpVerify             OpNum = 37
	OpWrite              OpNum = 38
	OpReleaseLockowner   OpNum = 39

	// Those of version 4.1.
	OpBackchannelCtl    OpNum = 40
	OpBindConnToSession OpNum = 41
	OpExchangeID        OpNum = 42
	OpCreateSession     OpNum = 43
	OpDestroySession    OpNum = 44
	OpFreeStateid       OpNum = 45
	OpGetDirDelegation  OpNum = 46
	OpGetdeviceinfo     OpNum = 47
	OpGetdevicelist     OpNum = 48
	OpLayoutcommit      OpNum = 49
	OpLayoutget         OpNum = 50
	OpLayoutreturn      OpNum = 51
	OpSecinfoNoName     OpNum = 52
	OpSequence          OpNum = 53
	OpSetSSV            OpNum = 54
	OpTestStateid       OpNum = 55
	OpWantDelegation    OpNum = 56
	OpDestroyClientID   OpNum = 57
	OpReclaimComplete   OpNum = 58

	// Those of version 4.2 (RFC 7862 section 15).
	OpAllocate      OpNum = 59
	OpCopy          OpNum = 60
	OpCopyNotify    OpNum = 61
	OpDeallocate    OpNum = 62
	OpIOAdvise      OpNum = 63
	OpLayouterror   OpNum = 64
	OpLayoutstats   OpNum = 65
	OpOffloadCancel OpNum = 66
	OpOffloadStatus OpNum = 67
	OpReadPlus      OpNum = 68
	OpSeek          OpNum = 69
	OpWriteSame     OpNum = 70
	OpClone         OpNum = 71

	// Those of extended attributes (RFC 8276).
	OpGetxattr    OpNum = 72
	OpSetxattr    OpNum = 73
	OpListxattrs  OpNum = 74
	OpRemovexattr OpNum = 75

	OpIllegal OpNum = 10044
)

// String returns the name of the operation's section in the RFC.
func (op OpNum) String() string {
	switch op {
	case OpAccess:
		return "ACCESS"
	case OpClose:
		return "CLOSE"
	case OpCommit:
		return "COMMIT"
	case OpCreate:
		return "CREATE"
	case OpDelegpurge:
		return "DELEGPURGE"
	case OpDelegreturn:
		return "DELEGRETURN"
	case OpGetattr:
		return "GETATTR"
	case OpGetfh:
		return "GETFH"
	case OpLink:
		return "LINK"
	case OpLock:
		return "LOCK"
	case OpLockt:
		return "LOCKT"
	case OpLocku:
		return "LOCKU"
	case OpLookup:
		return "LOOKUP"
	case OpLookupp:
		return "LOOKUPP"
	case OpNverify:
		return "NVERIFY"
	case OpOpen:
		return "OPEN"
	case OpOpenattr:
		return "OPENATTR"
	case OpOpenConfirm:
		return "OPEN_CONFIRM"
	case OpOpenDowngrade:
		return "OPEN_DOWNGRADE"
	case OpPutfh:
		return "PUTFH"
	case OpPutpubfh:
		return "PUTPUBFH"
	case OpPutrootfh:
		return "PUTROOTFH"
	case OpRead:
		return "READ"
	case OpReaddir:
		return "READDIR"
	case OpReadlink:
		return "READLINK"
	case OpRemove:
		return "REMOVE"
	case OpRename:
		return "RENAME"
	case OpRenew:
		return "RENEW"
	case OpRestorefh:
		return "RESTOREFH"
	case OpSavefh:
		return "SAVEFH"
	case OpSecinfo:
		return "SECINFO"
	case OpSetattr:
		return "SETATTR"
	case OpSetclientid:
		return "SETCLIENTID"
	case OpSetclientidConfirm:
		return "SETCLIENTID_CONFIRM"
	case OpVerify:
		return "VERIFY"
	case OpWrite:
		return "WRITE"
	case OpReleaseLockowner:
		return "RELEASE_LOCKOWNER"
	case OpBackchannelCtl:
		return "BACKCHANNEL_CTL"
	case OpBindConnToSession:
		return "BIND_CONN_TO_SESSION"
	case OpExchangeID:
		return "EXCHANGE_ID"
	case OpCreateSession:
		return "CREATE_SESSION"
	case OpDestroySession:
		return "DESTROY_SESSION"
	case OpFreeStateid:
		return "FREE_STATEID"
	case OpGetDirDelegation:
		return "GET_DIR_DELEGATION"
	case OpGetdeviceinfo:
		return "GETDEVICEINFO"
	case OpGetdevicelist:
		return "GETDEVICELIST"
	case OpLayoutcommit:
		return "LAYOUTCOMMIT"
	case OpLayoutget:
		return "LAYOUTGET"
	case OpLayoutreturn:
		return "LAYOUTRETURN"
	case OpSecinfoNoName:
		return "SECINFO_NO_NAME"
	case OpSequence:
		return "SEQUENCE"
	case OpSetSSV:
		return "SET_SSV"
	case OpTestStateid:
		return "TEST_STATEID"
	case OpWantDelegation:
		return "WANT_DELEGATION"
	case OpDestroyClientID:
		return "DESTROY_CLIENTID"
	case OpReclaimComplete:
		return "RECLAIM_COMPLETE"
	case OpAllocate:
		return "ALLOCATE"
	case OpCopy:
		return "COPY"
	case OpCopyNotify:
		return "COPY_NOTIFY"
	case OpDeallocate:
		return "DEALLOCATE"
	case OpIOAdvise:
		return "IO_ADVISE"
	case OpLayouterror:
		return "LAYOUTERROR"
	case OpLayoutstats:
		return "LAYOUTSTATS"
	case OpOffloadCancel:
		return "OFFLOAD_CANCEL"
	case OpOffloadStatus:
		return "OFFLOAD_STATUS"
	case OpReadPlus:
		return "READ_PLUS"
	case OpSeek:
		return "SEEK"
	case OpWriteSame:
		return "WRITE_SAME"
	case OpClone:
		return "CLONE"
	case OpGetxattr:
		return "GETXATTR"
	case OpSetxattr:
		return "SETXATTR"
	case OpListxattrs:
		return "LISTXATTRS"
	case OpRemovexattr:
		return "REMOVEXATTR"
	case OpIllegal:
		return "ILLEGAL"
	default:
		return "nfs_opnum4(" + strconv.FormatUint(uint64(op), 10) + ")"
	}
}

// CBOpNum is nfs_cb_opnum4: an operation of a CB_COMPOUND.
type CBOpNum uint32

// Operations of RFC 8881 section 20, and of RFC 7862 section 16.
const (
	OpCBGetattr            CBOpNum = 3
	OpCBRecall             CBOpNum = 4
	OpCBLayoutrecall       CBOpNum = 5
	OpCBNotify             CBOpNum = 6
	OpCBPushDeleg          CBOpNum = 7
	OpCBRecallAny          CBOpNum = 8
	OpCBRecallableObjAvail CBOpNum = 9
	OpCBRecallSlot         CBOpNum = 10
	OpCBSequence           CBOpNum = 11
	OpCBWantsCancelled     CBOpNum = 12
	OpCBNotifyLock         CBOpNum = 13
	OpCBNotifyDeviceid     CBOpNum = 14
	OpCBOffload            CBOpNum = 15

	OpCBIllegal CBOpNum = 10044
)

// String returns the name of the operation's section in the RFC.
func (op CBOpNum) String() string {
	switch op {
	case OpCBGetattr:
		return "CB_GETATTR"
	case OpCBRecall:
		return "CB_RECALL"
	case OpCBLayoutrecall:
		return "CB_LAYOUTRECALL"
	case OpCBNotify:
		return "CB_NOTIFY"
	case OpCBPushDeleg:
		return "CB_PUSH_DELEG"
	case OpCBRecallAny:
		return "CB_RECALL_ANY"
	case OpCBRecallableObjAvail:
		return "CB_RECALLABLE_OBJ_AVAIL"
	case OpCBRecallSlot:
		return "CB_RECALL_SLOT"
	case OpCBSequence:
		return "CB_SEQUENCE"
	case OpCBWantsCancelled:
		return "CB_WANTS_CANCELLED"
	case OpCBNotifyLock:
		return "CB_NOTIFY_LOCK"
	case OpCBNotifyDeviceid:
		return "CB_NOTIFY_DEVICEID"
	case OpCBOffload:
		return "CB_OFFLOAD"
	case OpCBIllegal:
		return "CB_ILLEGAL"
	default:
		return "nfs_cb_opnum4(" + strconv.FormatUint(uint64(op), 10) + ")"
	}
}
