package nfs4

import "strconv"

// Status is nfsstat4.
type Status uint32

// Values of Status (RFC 8881 section 15.1).
const (
	OK                   Status = 0
	ErrPerm              Status = 1
	ErrNoEnt             Status = 2
	ErrIO                Status = 5
	ErrNXIO              Status = 6
	ErrAccess            Status = 13
	ErrExist             Status = 17
	ErrXDev              Status = 18
	ErrNotDir            Status = 20
	ErrIsDir             Status = 21
	ErrInval             Status = 22
	ErrFBig              Status = 27
	ErrNoSpc             Status = 28
	ErrROFS              Status = 30
	ErrMLink             Status = 31
	ErrNameTooLong       Status = 63
	ErrNotEmpty          Status = 66
	ErrDQuot             Status = 69
	ErrStale             Status = 70
	ErrBadHandle         Status = 10001
	ErrBadCookie         Status = 10003
	ErrNotSupp           Status = 10004
	ErrTooSmall          Status = 10005
	ErrServerFault       Status = 10006
	ErrBadType           Status = 10007
	ErrDelay             Status = 10008
	ErrSame              Status = 10009
	ErrDenied            Status = 10010
	ErrExpired           Status = 10011
	ErrLocked            Status = 10012
	ErrGrace             Status = 10013
	ErrFHExpired         Status = 10014
	ErrShareDenied       Status = 10015
	ErrWrongSec          Status = 10016
	ErrClidInUse         Status = 10017
	ErrResource          Status = 10018
	ErrMoved             Status = 10019
	ErrNoFileHandle      Status = 10020
	ErrMinorVersMismatch Status = 10021
	ErrStaleClientID     Status = 10022
	ErrStaleStateid      Status = 10023
	ErrOldStateid        Status = 10024
	ErrBadStateid        Status = 10025
	ErrBadSeqid          Status = 10026
	ErrNotSame           Status = 10027
	ErrLockRange         Status = 10028
	ErrSymlink           Status = 10029
	ErrRestoreFH         Status = 10030
	ErrLeaseMoved        Status = 10031
	ErrAttrNotSupp       Status = 10032
	ErrNoGrace           Status = 10033
	ErrReclaimBad        Status = 10034
	ErrReclaimConflict   Status = 10035
	ErrBadXDR            Status = 10036
	ErrLocksHeld         Status = 10037
	ErrOpenMode          Status = 10038
	ErrBadOwner          Status = 10039
	ErrBadChar           Status = 10040
	ErrBadName           Status = 10041
	ErrBadRange          Status = 10042
	ErrLockNotSupp       Status = 10043
	ErrOpIllegal         Status = 10044
	ErrDeadlock          Status = 10045
	ErrFileOpen          Status = 10046
	ErrAdminRevoked      Status = 10047
	ErrCBPathDown        Status = 10048

	// Those of version 4.1.
	ErrBadIOMode             Status = 10049
	ErrBadLayout             Status = 10050
	ErrBadSessionDigest      Status = 10051
	ErrBadSession            Status = 10052
	ErrBadSlot               Status = 10053
	ErrCompleteAlready       Status = 10054
	ErrConnNotBoundToSession Status = 10055
	ErrDelegAlreadyWanted    Status = 10056
	ErrBackChanBusy          Status = 10057
	ErrLayoutTryLater        Status = 10058
	ErrLayoutUnavailable     Status = 10059
	ErrNoMatchingLayout      Status = 10060
	ErrRecallConflict        Status = 10061
	ErrUnknownLayoutType     Status = 10062
	ErrSeqMisordered         Status = 10063
	ErrSequencePos           Status = 10064
	ErrReqTooBig             Status = 10065
	ErrRepTooBig             Status = 10066
	ErrRepTooBigToCache      Status = 10067
	ErrRetryUncachedRep      Status = 10068
	ErrUnsafeCompound        Status = 10069
	ErrTooManyOps            Status = 10070
	ErrOpNotInSession        Status = 10071
	ErrHashAlgUnsupp         Status = 10072
	ErrClientIDBusy          Status = 10074
	ErrPNFSIOHole            Status = 10075
	ErrSeqFalseRetry         Status = 10076
	ErrBadHighSlot           Status = 10077
	ErrDeadSession           Status = 10078
	ErrEncrAlgUnsupp         Status = 10079
	ErrPNFSNoLayout          Status = 10080
	ErrNotOnlyOp             Status = 10081
	ErrWrongCred             Status = 10082
	ErrWrongType             Status = 10083
	ErrDirDelegUnavail       Status = 10084
	ErrRejectDeleg           Status = 10085
	ErrReturnConflict        Status = 10086
	ErrDelegRevoked          Status = 10087

	// Those of version 4.2 (RFC 7862 section 11.1).
	ErrPartnerNotSupp Status = 10088
	ErrPartnerNoAuth  Status = 10089
	ErrUnionNotSupp   Status = 10090
	ErrOffloadDenied  Status = 10091
	ErrWrongLFS       Status = 10092
	ErrBadLabel       Status = 10093
	ErrOffloadNoReqs  Status = 10094

	// Those of extended attributes (RFC 8276).
	ErrNoXattr   Status = 10095
	ErrXattr2Big Status = 10096
)

// String returns the RFC's name of the status.
func (s Status) String() string {
	switch s {
	case OK:
		return "NFS4_OK"
	case ErrPerm:
		return "NFS4ERR_PERM"
	case ErrNoEnt:
		return "NFS4ERR_NOENT"
	case ErrIO:
		return "NFS4ERR_IO"
	case ErrNXIO:
		return "NFS4ERR_NXIO"
	case ErrAccess:
		return "NFS4ERR_ACCESS"
	case ErrExist:
		return "NFS4ERR_EXIST"
	case ErrXDev:
		return "NFS4ERR_XDEV"
	case ErrNotDir:
		return "NFS4ERR_NOTDIR"
	case ErrIsDir:
		return "NFS4ERR_ISDIR"
	case ErrInval:
		return "NFS4ERR_INVAL"
	case ErrFBig:
		return "NFS4ERR_FBIG"
	case ErrNoSpc:
		return "NFS4ERR_NOSPC"
	case ErrROFS:
		return "NFS4ERR_ROFS"
	case ErrMLink:
		return "NFS4ERR_MLINK"
	case ErrNameTooLong:
		return "NFS4ERR_NAMETOOLONG"
	case ErrNotEmpty:
		return "NFS4ERR_NOTEMPTY"
	case ErrDQuot:
		return "NFS4ERR_DQUOT"
	case ErrStale:
		return "NFS4ERR_STALE"
	case ErrBadHandle:
		return "NFS4ERR_BADHANDLE"
	case ErrBadCookie:
		return "NFS4ERR_BAD_COOKIE"
	case ErrNotSupp:
		return "NFS4ERR_NOTSUPP"
	case ErrTooSmall:
		return "NFS4ERR_TOOSMALL"
	case ErrServerFault:
		return "NFS4ERR_SERVERFAULT"
	case ErrBadType:
		return "NFS4ERR_BADTYPE"
	case ErrDelay:
		return "NFS4ERR_DELAY"
	case ErrSame:
		return "NFS4ERR_SAME"
	case ErrDenied:
		return "NFS4ERR_DENIED"
	case ErrExpired:
		return "NFS4ERR_EXPIRED"
	case ErrLocked:
		return "NFS4ERR_LOCKED"
	case ErrGrace:
		return "NFS4ERR_GRACE"
	case ErrFHExpired:
		return "NFS4ERR_FHEXPIRED"
	case ErrShareDenied:
		return "NFS4ERR_SHARE_DENIED"
	case ErrWrongSec:
		return "NFS4ERR_WRONGSEC"
	case ErrClidInUse:
		return "NFS4ERR_CLID_INUSE"
	case ErrResource:
		return "NFS4ERR_RESOURCE"
	case ErrMoved:
		return "NFS4ERR_MOVED"
	case ErrNoFileHandle:
		return "NFS4ERR_NOFILEHANDLE"
	case ErrMinorVersMismatch:
		return "NFS4ERR_MINOR_VERS_MISMATCH"
	case ErrStaleClientID:
		return "NFS4ERR_STALE_CLIENTID"
	case ErrStaleStateid:
		return "NFS4ERR_STALE_STATEID"
	case ErrOldStateid:
		return "NFS4ERR_OLD_STATEID"
	case ErrBadStateid:
		return "NFS4ERR_BAD_STATEID"
	case ErrBadSeqid:
		return "NFS4ERR_BAD_SEQID"
	case ErrNotSame:
		return "NFS4ERR_NOT_SAME"
	case ErrLockRange:
		return "NFS4ERR_LOCK_RANGE"
	case ErrSymlink:
		return "NFS4ERR_SYMLINK"
	case ErrRestoreFH:
		return "NFS4ERR_RESTOREFH"
	case ErrLeaseMoved:
		return "NFS4ERR_LEASE_MOVED"
	case ErrAttrNotSupp:
		return "NFS4ERR_ATTRNOTSUPP"
	case ErrNoGrace:
		return "NFS4ERR_NO_GRACE"
	case ErrReclaimBad:
		return "NFS4ERR_RECLAIM_BAD"
	case ErrReclaimConflict:
		return "NFS4ERR_RECLAIM_CONFLICT"
	case ErrBadXDR:
		return "NFS4ERR_BADXDR"
	case ErrLocksHeld:
		return "NFS4ERR_LOCKS_HELD"
	case ErrOpenMode:
		return "NFS4ERR_OPENMODE"
	case ErrBadOwner:
		return "NFS4ERR_BADOWNER"
	case ErrBadChar:
		return "NFS4ERR_BADCHAR"
	case ErrBadName:
		return "NFS4ERR_BADNAME"
	case ErrBadRange:
		return "NFS4ERR_BAD_RANGE"
	case ErrLockNotSupp:
		return "NFS4ERR_LOCK_NOTSUPP"
	case ErrOpIllegal:
		return "NFS4ERR_OP_ILLEGAL"
	case ErrDeadlock:
		return "NFS4ERR_DEADLOCK"
	case ErrFileOpen:
		return "NFS4ERR_FILE_OPEN"
	case ErrAdminRevoked:
		return "NFS4ERR_ADMIN_REVOKED"
	case ErrCBPathDown:
		return "NFS4ERR_CB_PATH_DOWN"
	case ErrBadIOMode:
		return "NFS4ERR_BADIOMODE"
	case ErrBadLayout:
		return "NFS4ERR_BADLAYOUT"
	case ErrBadSessionDigest:
		return "NFS4ERR_BAD_SESSION_DIGEST"
	case ErrBadSession:
		return "NFS4ERR_BADSESSION"
	case ErrBadSlot:
		return "NFS4ERR_BADSLOT"
	case ErrCompleteAlready:
		return "NFS4ERR_COMPLETE_ALREADY"
	case ErrConnNotBoundToSession:
		return "NFS4ERR_CONN_NOT_BOUND_TO_SESSION"
	case ErrDelegAlreadyWanted:
		return "NFS4ERR_DELEG_ALREADY_WANTED"
	case ErrBackChanBusy:
		return "NFS4ERR_BACK_CHAN_BUSY"
	case ErrLayoutTryLater:
		return "NFS4ERR_LAYOUTTRYLATER"
	case ErrLayoutUnavailable:
		return "NFS4ERR_LAYOUTUNAVAILABLE"
	case ErrNoMatchingLayout:
		return "NFS4ERR_NOMATCHING_LAYOUT"
	case ErrRecallConflict:
		return "NFS4ERR_RECALLCONFLICT"
	case ErrUnknownLayoutType:
		return "NFS4ERR_UNKNOWN_LAYOUTTYPE"
	case ErrSeqMisordered:
		return "NFS4ERR_SEQ_MISORDERED"
	case ErrSequencePos:
		return "NFS4ERR_SEQUENCE_POS"
	case ErrReqTooBig:
		return "NFS4ERR_REQ_TOO_BIG"
	case ErrRepTooBig:
		return "NFS4ERR_REP_TOO_BIG"
	case ErrRepTooBigToCache:
		return "NFS4ERR_REP_TOO_BIG_TO_CACHE"
	case ErrRetryUncachedRep:
		return "NFS4ERR_RETRY_UNCACHED_REP"
	case ErrUnsafeCompound:
		return "NFS4ERR_UNSAFE_COMPOUND"
	case ErrTooManyOps:
		return "NFS4ERR_TOO_MANY_OPS"
	case ErrOpNotInSession:
		return "NFS4ERR_OP_NOT_IN_SESSION"
	case ErrHashAlgUnsupp:
		return "NFS4ERR_HASH_ALG_UNSUPP"
	case ErrClientIDBusy:
		return "NFS4ERR_CLIENTID_BUSY"
	case ErrPNFSIOHole:
		return "NFS4ERR_PNFS_IO_HOLE"
	case ErrSeqFalseRetry:
		return "NFS4ERR_SEQ_FALSE_RETRY"
	case ErrBadHighSlot:
		return "NFS4ERR_BAD_HIGH_SLOT"
	case ErrDeadSession:
		return "NFS4ERR_DEADSESSION"
	case ErrEncrAlgUnsupp:
		return "NFS4ERR_ENCR_ALG_UNSUPP"
	case ErrPNFSNoLayout:
		return "NFS4ERR_PNFS_NO_LAYOUT"
	case ErrNotOnlyOp:
		return "NFS4ERR_NOT_ONLY_OP"
	case ErrWrongCred:
		return "NFS4ERR_WRONG_CRED"
	case ErrWrongType:
		return "NFS4ERR_WRONG_TYPE"
	case ErrDirDelegUnavail:
		return "NFS4ERR_DIRDELEG_UNAVAIL"
	case ErrRejectDeleg:
		return "NFS4ERR_REJECT_DELEG"
	case ErrReturnConflict:
		return "NFS4ERR_RETURNCONFLICT"
	case ErrDelegRevoked:
		return "NFS4ERR_DELEG_REVOKED"
	case ErrPartnerNotSupp:
		return "NFS4ERR_PARTNER_NOTSUPP"
	case ErrPartnerNoAuth:
		return "NFS4ERR_PARTNER_NO_AUTH"
	case ErrUnionNotSupp:
		return "NFS4ERR_UNION_NOTSUPP"
	case ErrOffloadDenied:
		return "NFS4ERR_OFFLOAD_DENIED"
	case ErrWrongLFS:
		return "NFS4ERR_WRONG_LFS"
	case ErrBadLabel:
		return "NFS4ERR_BADLABEL"
	case ErrOffloadNoReqs:
		return "NFS4ERR_OFFLOAD_NO_REQS"
	case ErrNoXattr:
		return "NFS4ERR_NOXATTR"
	case ErrXattr2Big:
		return "NFS4ERR_XATTR2BIG"
	default:
		return "nfsstat4(" + strconv.FormatUint(uint64(s), 10) + ")"
	}
}
