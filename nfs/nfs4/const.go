package nfs4

// Program and version of RFC 8881 section 16, its procedures, and the default port.
const (
	Program = 100003
	Version = 4
	Port    = 2049

	ProcNull     = 0
	ProcCompound = 1
)

// Version and procedures of the callback program (section 19). The client chooses its
// number.
const (
	CBVersion = 1

	ProcCBNull     = 0
	ProcCBCompound = 1
)

// Sizes of section 3.1, and maxima that the RFC leaves to implementations.
const (
	FHSize        = 128
	VerifierSize  = 8
	SessionIDSize = 16
	OtherSize     = 12
	OpaqueLimit   = 1024

	// MaxName is the longest name of a directory entry. A longer one is decoded, up
	// to MaxPath, for a reply of ErrNameTooLong.
	MaxName = 255
	// MaxPath is the longest symbolic link, Linux's PATH_MAX. A longer one in CREATE is decoded,
	// up to MaxData, for a reply of ErrNameTooLong.
	MaxPath = 4096
	// MaxData is the maximum data of READ and WRITE.
	MaxData = 4 << 20
	// MaxTag is the longest tag of a COMPOUND.
	MaxTag = 1024
	// MaxAttrs is the most that one file's attributes take, an ACL included.
	MaxAttrs = 64 << 10
	// MaxServers is how many servers COPY names.
	MaxServers = 16
	// MaxSecParms is how many security flavors a client offers, or a server.
	MaxSecParms = 16
)

// FType is nfs_ftype4, a file's type.
type FType uint32

// Values of FType that have a use here.
const (
	TypeReg       FType = 1
	TypeDir       FType = 2
	TypeBlk       FType = 3
	TypeChr       FType = 4
	TypeLnk       FType = 5
	TypeSock      FType = 6
	TypeFIFO      FType = 7
	TypeNamedAttr FType = 9
)

// Bits of a mode (section 6.2.4).
const (
	ModeSetUID = 0o4000
	ModeSetGID = 0o2000
	ModeSticky = 0o1000
	ModePerm   = 0o777
)

// Bits of ACCESS (section 18.1); those of extended attributes are RFC 8276's.
const (
	AccessRead    = 0x001
	AccessLookup  = 0x002
	AccessModify  = 0x004
	AccessExtend  = 0x008
	AccessDelete  = 0x010
	AccessExecute = 0x020
	AccessXARead  = 0x040
	AccessXAWrite = 0x080
	AccessXAList  = 0x100
)

// Some values of fh_expire_type (section 5.8.1.3).
const (
	FHPersistent = 0x0
	FHVolRename  = 0x8
)

// StableHow is stable_how4: the stability that a WRITE requests, or gets.
type StableHow uint32

// Values of StableHow, each stronger than the one before.
const (
	Unstable StableHow = 0
	DataSync StableHow = 1
	FileSync StableHow = 2
)

// TimeHow is time_how4: the source of a time in SETATTR.
type TimeHow uint32

// Values of TimeHow.
const (
	SetToServerTime TimeHow = 0
	SetToClientTime TimeHow = 1
)

// CreateMode is createmode4.
type CreateMode uint32

// Values of CreateMode. ExclusiveAttrs is EXCLUSIVE4_1: a verifier, and attributes.
const (
	Unchecked      CreateMode = 0
	Guarded        CreateMode = 1
	Exclusive      CreateMode = 2
	ExclusiveAttrs CreateMode = 3
)

// Bits of OPEN's share_access and share_deny (section 18.16).
const (
	ShareAccessRead  = 0x1
	ShareAccessWrite = 0x2
	ShareAccessBoth  = 0x3

	ShareDenyNone  = 0x0
	ShareDenyRead  = 0x1
	ShareDenyWrite = 0x2
	ShareDenyBoth  = 0x3

	// What share_access says of delegations: one of the values under the mask, and
	// the two flags.
	WantDelegMask    = 0xff00
	WantNoPreference = 0x0000
	WantReadDeleg    = 0x0100
	WantWriteDeleg   = 0x0200
	WantAnyDeleg     = 0x0300
	WantNoDeleg      = 0x0400
	WantCancel       = 0x0500

	WantSignalDelegWhenRescAvail = 0x10000
	WantPushDelegWhenUncontended = 0x20000
)

// Bits of OPEN's result flags.
const (
	OpenResultLocktypePosix    = 0x04
	OpenResultPreserveUnlinked = 0x08
	OpenResultMayNotifyLock    = 0x20
)

// ClaimType is open_claim_type4.
type ClaimType uint32

// Values of ClaimType.
const (
	ClaimNull         ClaimType = 0
	ClaimPrevious     ClaimType = 1
	ClaimDelegateCur  ClaimType = 2
	ClaimDelegatePrev ClaimType = 3
	ClaimFH           ClaimType = 4
	ClaimDelegCurFH   ClaimType = 5
	ClaimDelegPrevFH  ClaimType = 6
)

// DelegationType is open_delegation_type4.
type DelegationType uint32

// Values of DelegationType.
const (
	DelegateNone    DelegationType = 0
	DelegateRead    DelegationType = 1
	DelegateWrite   DelegationType = 2
	DelegateNoneExt DelegationType = 3
)

// WhyNone is why_no_delegation4: why there is no delegation.
type WhyNone uint32

// Values of WhyNone: those that podnas gives, those that WillTell belongs to, and the largest.
const (
	NoneNotWanted  WhyNone = 0
	NoneContention WhyNone = 1
	NoneResource   WhyNone = 2
	NoneIsDir      WhyNone = 8
)

// LimitBy is limit_by4: how a write delegation bounds what the client holds back.
type LimitBy uint32

// Values of LimitBy.
const (
	LimitSize   LimitBy = 1
	LimitBlocks LimitBy = 2
)

// LockType is nfs_lock_type4.
type LockType uint32

// Values of LockType. One that may wait is for a client that asks again, and wants to be
// told by CB_NOTIFY_LOCK.
const (
	LockRead      LockType = 1
	LockWrite     LockType = 2
	LockReadWait  LockType = 3
	LockWriteWait LockType = 4
)

// Bits of EXCHANGE_ID's flags (section 18.35).
const (
	ExchangeSuppMovedRefer   = 0x00000001
	ExchangeSuppMovedMigr    = 0x00000002
	ExchangeSuppFenceOps     = 0x00000004 // of version 4.2
	ExchangeBindPrincStateid = 0x00000100
	ExchangeUseNonPNFS       = 0x00010000
	ExchangeUsePNFSDS        = 0x00040000
	ExchangeMaskPNFS         = 0x00070000
	ExchangeUpdConfirmedRecA = 0x40000000
	ExchangeConfirmedR       = 0x80000000
)

// ProtectHow is state_protect_how4.
type ProtectHow uint32

// Values of ProtectHow.
const (
	ProtectNone     ProtectHow = 0
	ProtectMachCred ProtectHow = 1
	ProtectSSV      ProtectHow = 2
)

// Bits of CREATE_SESSION's flags (section 18.36).
const (
	SessionPersist      = 0x1
	SessionConnBackChan = 0x2
	SessionConnRDMA     = 0x4
)

// Bits of SEQUENCE's status flags (section 18.46). Those of GSS, pNFS and migration are left out.
const (
	SeqCBPathDown              = 0x0001
	SeqExpiredAllStateRevoked  = 0x0008
	SeqExpiredSomeStateRevoked = 0x0010
	SeqAdminStateRevoked       = 0x0020
	SeqRestartReclaimNeeded    = 0x0100
	SeqCBPathDownSession       = 0x0200
)

// ConnDir is channel_dir_from_client4 and channel_dir_from_server4: the channels that
// BIND_CONN_TO_SESSION binds a connection to.
type ConnDir uint32

// Values of ConnDir.
const (
	ConnFore       ConnDir = 1
	ConnBack       ConnDir = 2
	ConnBoth       ConnDir = 3 // from a server
	ConnForeOrBoth ConnDir = 3 // from a client
	ConnBackOrBoth ConnDir = 7
)

// SecinfoStyle is secinfo_style4.
type SecinfoStyle uint32

// Values of SecinfoStyle.
const (
	SecinfoCurrentFH SecinfoStyle = 0
	SecinfoParent    SecinfoStyle = 1
)
