package state

import "time"

// Config says what a State needs.
type Config struct {
	// Lease is how long a client may be silent, RFC 8881 section 8.3: LongestLease at most. One that was told a longer one
	// by the process before keeps that.
	Lease time.Duration
	// Answering returns since when clients get answers, which is now while they get none; nil: always. Nobody's lease runs
	// before.
	Answering func() time.Time
	// Courtesy is how long the state of a silent client is kept while nobody else
	// wants it; 24 hours if zero.
	Courtesy time.Duration
	// FairFor is how long a lock that became free is kept from others that wait for the waiter that was
	// told so; a second if zero.
	FairFor time.Duration
	// Now is the clock; time.Now if nil.
	Now func() time.Time
	// Random fills b with bits that nobody can guess; crypto/rand if nil.
	Random func(b []byte)
	// Boot differs in every process that serves this disk. It is in the stateids, so
	// that none of an earlier process is ever taken for one of this.
	Boot uint32
	// Limits has defaults for what is zero.
	Limits Limits
	// Tracking is the list on the disk of clients that have state. It may be nil.
	Tracking Tracking
	// Event is called with what is worth a line in the log, LockFree with a lock that
	// a waiter may try again (CB_NOTIFY_LOCK), see Told. Both may be nil. They are called
	// without any lock, before the call returns that was the reason.
	Event    func(Event)
	LockFree func(LockFree)
	// Abandoned is given what clients had open that are gone, and releases it: soon is enough, since nobody can use it any more.
	// It is called as Event is. If it is nil, the descriptors are released by the call that was the reason.
	Abandoned func([]Abandoned)
}

// Limits bound what clients can make the server remember. What is zero has the
// default that New documents.
type Limits struct {
	Clients        int // of all
	Sessions       int // of a client
	MoreSessions   int // of all, but for the first of each client
	Slots          int // of a session
	Conns          int // of a session
	Opens          int // of a client
	Locks          int // of a client: stateids of lock owners, and ranges
	Ranges         int // of a lock owner in a file
	Waiters        int // of a client
	FileWaiters    int // of a file
	OwnerBytes     int // of a client: the names of its open and lock owners
	AllOpens       int // of all clients, as the next three
	AllLocks       int
	AllWaiters     int
	AllOwnerBytes  int
	ReplyBytes     int // of all slots, with what they may cache
	CachedReply    uint32
	LeastReply     uint32 // what a slot may cache where there are many
	Request        uint32 // bytes
	Response       uint32 // bytes
	Ops            uint32 // of a COMPOUND
	MinMessageSize uint32 // less is TOOSMALL
}

// LongestLease bounds a lease.
const LongestLease = 2 * time.Minute

// OwnerMax is NFS4_OPAQUE_LIMIT, RFC 8881 section 3.1.
const OwnerMax = 1024

// Tracking is the list on the disk of clients that have state; those on it may
// reclaim after a crash (RFC 8881 section 8.4.2). Both methods return when the disk
// has the change. They are called without any lock, and several at a time. To add
// what is there and to remove what isn't is no error. Entries are told apart by
// their ClientID.
type Tracking interface {
	Add(TrackedClient) error
	Remove(...TrackedClient) error // in their order; if it fails, the last may be there still
}

// TrackedClient is one client of the client tracking.
type TrackedClient struct {
	ClientID uint64
	Owner    string        // co_ownerid: any bytes
	Address  string        // IP address from which it came; empty: not known
	Verifier [8]byte       // of its incarnation; zero: not known
	Lease    time.Duration // that it was told
}

// Principal is who sent a request. Clients and sessions belong to the principal
// that made them.
type Principal struct {
	Flavor  uint32
	UID     uint32
	Machine string
}

// Conn is a connection. It must be comparable, a pointer.
type Conn interface {
	// Address is for people.
	Address() string
}

// Descriptor is what an open holds: the caller's descriptor of the file. It counts its
// users.
type Descriptor interface {
	// Retain adds a user. It is called under the lock of State, so it must be quick
	// and must not call State.
	Retain()
	// Release removes a user; the last one closes the descriptor. It is called
	// without any lock.
	Release()
}

// Abandoned is a descriptor of a client that is gone, and the volume that its file is in.
type Abandoned struct {
	Descriptor

	Volume uint64
}

// FileKey identifies a file. State only compares it.
type FileKey struct {
	Volume uint64
	Len    uint8
	ID     [46]byte
}

// Access is a set of READ and WRITE: what an open may do, or denies to others, or
// what a call is about to do. The values are those of share_access and share_deny.
type Access uint8

// The members of Access.
const (
	Read  Access = 1
	Write Access = 2
	Both         = Read | Write
)

// EventKind is what happened to a client.
type EventKind uint8

// The kinds of events.
const (
	// ClientCame: it made its first session.
	ClientCame EventKind = iota
	// ClientReturned: it came as another incarnation, and the state of the one before
	// is gone.
	ClientReturned
	// ClientLeft: it destroyed its client ID.
	ClientLeft
	// ClientRevoked: its lease had run out, and somebody else wanted what it held. If
	// it returns, it finds its sessions and its client ID gone.
	ClientRevoked
	// ClientExpired: it was silent for longer than Config.Courtesy, or its place was
	// needed.
	ClientExpired
	// ClientEvicted: Evict was called.
	ClientEvicted
	// OwnerShared: two nodes use one name. One waits for the other, or, from one address, they take each other's lease
	// in turns. Other is the address of the other node.
	OwnerShared
	// GraceEnded: ClientID is zero; Owner is of a client that did not reclaim in time,
	// or empty if all did.
	GraceEnded
	// GraceExcused: the grace period has ended without Owner, as nobody waited for it: Excuse. ClientID is zero.
	GraceExcused
)

// Event is something that happened to a client.
type Event struct {
	Kind     EventKind
	ClientID uint64
	Owner    string
	Address  string
	Other    string
	Opens    int // that it lost
	Locks    int // that it lost
}

// Gone reports whether the client with this ID is no more.
func (e *Event) Gone() bool {
	switch e.Kind {
	case ClientReturned, ClientLeft, ClientRevoked, ClientExpired, ClientEvicted:
		return true
	}
	return false
}

// LockFree says that a lock that ClientID waits for may be tried again.
type LockFree struct {
	ClientID uint64
	File     FileKey
	Owner    string
}
