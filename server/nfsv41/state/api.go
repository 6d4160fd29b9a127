package state

import "github.com/podnas/podnas/nfs/nfs4"

// ExchangeIDArgs are the arguments of EXCHANGE_ID.
type ExchangeIDArgs struct {
	Owner     []byte
	Verifier  [8]byte
	Principal Principal
	Minor     uint32 // version of the COMPOUND; 0 is 1
	Update    bool   // EXCHGID4_FLAG_UPD_CONFIRMED_REC_A
	Conn      Conn
}

// ExchangeIDResult is the result of EXCHANGE_ID.
type ExchangeIDResult struct {
	ClientID  uint64
	Seq       uint32 // of the first CREATE_SESSION
	Confirmed bool   // EXCHGID4_FLAG_CONFIRMED_R
}

// SessionID is sessionid4.
type SessionID [16]byte

// Channel is channel_attrs4 without what is for RDMA.
type Channel struct {
	MaxRequest        uint32
	MaxResponse       uint32
	MaxResponseCached uint32
	MaxOps            uint32
	MaxSlots          uint32 // ca_maxrequests
}

// CreateSessionArgs are the arguments of CREATE_SESSION.
type CreateSessionArgs struct {
	ClientID  uint64
	Seq       uint32
	Principal Principal
	Fore      Channel
	Back      Channel
	// BackChannel is CREATE_SESSION4_FLAG_CONN_BACK_CHAN.
	BackChannel bool
	// Callback is what the caller needs to make callbacks; see CallbackPaths. Without it
	// there is no back channel.
	Callback any
	Conn     Conn
}

// CreateSessionResult is the result of CREATE_SESSION, and the same again for a
// retransmission.
type CreateSessionResult struct {
	ID          SessionID
	Seq         uint32
	Fore        Channel
	Back        Channel
	BackChannel bool
}

// Direction says in which directions a connection is used.
type Direction uint8

// The directions are those of channel_dir_from_server4.
const (
	Fore Direction = 1
	Back Direction = 2
)

// CallbackPath is a way to call a client back: any of Conns, newest first.
type CallbackPath struct {
	Session  SessionID
	Back     Channel
	Callback any // as given to CreateSession
	Conns    []Conn
}

// SequenceArgs are the arguments of SEQUENCE, and what else its checks need.
type SequenceArgs struct {
	Session     SessionID
	Slot        uint32
	Seq         uint32
	HighestSlot uint32
	// Digest is of the whole COMPOUND and of its principal: a retransmission has the
	// same.
	Digest uint64
	// Ops and Size are the number of the COMPOUND's operations, and of the bytes of
	// the request. Reply is how many bytes the reply has at least, and Cache whether it is
	// to be cached.
	Ops   uint32
	Size  uint32
	Reply uint32
	Cache bool
	Conn  Conn
}

// SequenceResult is the result of SEQUENCE. With OK there is either a Slot, for which
// Done must be called, or a Reply that was cached. With nfs4.ErrRetryUncachedRep the rest
// is valid as well: SEQUENCE succeeds, and it is the operation after it that gets the
// error; a COMPOUND that is SEQUENCE alone succeeds.
type SequenceResult struct {
	Slot              *Slot
	Reply             []byte // the caller may keep it
	HighestSlot       uint32
	TargetHighestSlot uint32
	Status            uint32 // SEQ4_STATUS_*
}

// SEQ4_STATUS_*, RFC 8881 section 18.46.
const (
	StatusCallbackPathDown        = 0x1
	StatusCallbackPathDownSession = 0x200
)

// OpenArgs are the arguments of Open.
type OpenArgs struct {
	Owner   []byte // of the client's open_owner4
	File    FileKey
	Access  Access
	Deny    Access
	Reclaim bool // CLAIM_PREVIOUS
	// Truncates is set as long as the OPEN is to set the file's size, for which nobody may deny writing, whatever Access is.
	Truncates bool
	// Descriptor is the file, open for Access. Open takes the caller's use of it over
	// if it returns OK; otherwise it stays the caller's.
	Descriptor Descriptor
	// Slot is the request's, or nil.
	Slot *Slot
	// Reserved is what Reserve has made for this OPEN, or nil.
	Reserved *Reservation
}

// does is all that the OPEN does to the file.
func (a *OpenArgs) does() Access {
	if a.Truncates {
		return a.Access | Write
	}
	return a.Access
}

// LockArgs are the arguments of Lock.
type LockArgs struct {
	// Stateid is of the open if NewOwner, or else of the lock owner.
	Stateid  nfs4.Stateid
	NewOwner bool
	Owner    []byte // with NewOwner
	File     FileKey
	Write    bool // WRITE_LT, WRITEW_LT
	Wait     bool // READW_LT, WRITEW_LT
	Offset   uint64
	Length   uint64
	Reclaim  bool
}

// Denied is LOCK4denied.
type Denied struct {
	ClientID uint64 // 0: another client's, which nobody else is to know
	Owner    string
	Write    bool
	Offset   uint64
	Length   uint64
}
