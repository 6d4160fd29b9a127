package nfs3

// Program and version of RFC 1813 section 2.2, and the default port of clients.
const (
	Program = 100003
	Version = 3
	Port    = 2049
)

// Procedures of section 3.
const (
	ProcNull        = 0
	ProcGetattr     = 1
	ProcSetattr     = 2
	ProcLookup      = 3
	ProcAccess      = 4
	ProcReadlink    = 5
	ProcRead        = 6
	ProcWrite       = 7
	ProcCreate      = 8
	ProcMkdir       = 9
	ProcSymlink     = 10
	ProcMknod       = 11
	ProcRemove      = 12
	ProcRmdir       = 13
	ProcRename      = 14
	ProcLink        = 15
	ProcReaddir     = 16
	ProcReaddirplus = 17
	ProcFsstat      = 18
	ProcFsinfo      = 19
	ProcPathconf    = 20
	ProcCommit      = 21
)

// Sizes of section 2.4, and maxima that the RFC leaves to implementations.
const (
	FHSize         = 64
	CookieVerfSize = 8
	CreateVerfSize = 8
	WriteVerfSize  = 8

	// MaxName is the longest name of a directory entry. A longer one is
	// decoded, up to MaxPath, for a reply of ErrNameTooLong.
	MaxName = 255
	// MaxPath is the longest symbolic link, Linux's PATH_MAX. A longer one in SYMLINK is
	// decoded, up to MaxData, for a reply of ErrNameTooLong.
	MaxPath = 4096
	// MaxData is the maximum data of READ and WRITE, and the maximum size of a
	// reply to READDIR and READDIRPLUS.
	MaxData = 4 << 20
)

// FType is ftype3, a file's type.
type FType uint32

// Values of FType.
const (
	TypeReg  FType = 1
	TypeDir  FType = 2
	TypeBlk  FType = 3
	TypeChr  FType = 4
	TypeLnk  FType = 5
	TypeSock FType = 6
	TypeFIFO FType = 7
)

// Bits of a mode (section 2.6, mode3).
const (
	ModeSetUID = 0o4000
	ModeSetGID = 0o2000
	ModeSticky = 0o1000
	ModePerm   = 0o777
)

// Bits of ACCESS (section 3.3.4).
const (
	AccessRead    = 0x01
	AccessLookup  = 0x02
	AccessModify  = 0x04
	AccessExtend  = 0x08
	AccessDelete  = 0x10
	AccessExecute = 0x20
)

// StableHow is stable_how: the stability that a WRITE requests, or gets.
type StableHow uint32

// Values of StableHow, each stronger than the one before.
const (
	Unstable StableHow = 0
	DataSync StableHow = 1
	FileSync StableHow = 2
)

// CreateMode is createmode3.
type CreateMode uint32

// Values of CreateMode.
const (
	Unchecked CreateMode = 0
	Guarded   CreateMode = 1
	Exclusive CreateMode = 2
)

// TimeHow is time_how: the source of a time in SETATTR.
type TimeHow uint32

// Values of TimeHow.
const (
	DontChange      TimeHow = 0
	SetToServerTime TimeHow = 1
	SetToClientTime TimeHow = 2
)

// Properties of FSINFO (section 3.3.19).
const (
	FSFLink        = 0x01
	FSFSymlink     = 0x02
	FSFHomogeneous = 0x08
	FSFCanSetTime  = 0x10
)
