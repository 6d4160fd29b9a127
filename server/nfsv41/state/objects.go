package state

import (
	"cmp"
	"container/list"
	"slices"
	"time"

	"github.com/podnas/podnas/nfs/nfs4"
)

// What the five types of State hold, and how it hangs together: a client has sessions and opens, an open has a file
// and lock owners, a file has its opens and waiters. What is here knows no table. State.mu guards all of it, but
// for what never changes.

// Client is a record of a client: one incarnation of one owner. The caller gets it
// from its Slot. Its fields are guarded by State.mu, but for the first group, which
// never changes.
type Client struct {
	id        uint64
	owner     string // co_ownerid
	verifier  [8]byte
	principal Principal
	minor     uint32 // version of its EXCHANGE_ID
	since     time.Time
	lease     time.Duration // that it was told, or a longer one

	came   string           // address of its EXCHANGE_ID
	home   *address         // of that one
	index  int              // in sessions.list
	listed [2]*list.Element // where it is in the lists of those that are not confirmed

	address   string // of its newest connection
	confirmed bool
	gone      bool // removed; a request can still have it in hand
	seen      time.Time
	returning bool // this process has it from the one before, and it has not been heard of since
	busy      int  // slots in use: its lease can't run out meanwhile

	createSeq uint32       // of the last CREATE_SESSION
	created   *createReply // its reply
	uncertain bool         // its reply may be lost, and its session is: it may come again
	settles   time.Time    // when it has sent again what had no reply; zero if there is nothing
	sessions  []*session

	recorded bool   // it is in the client tracking
	changing int    // calls of Tracking.Add that run
	leaving  bool   // dismissLocked runs
	complete bool   // it has said RECLAIM_COMPLETE
	gen      uint32 // see logCopy

	opens  *openState           // list
	ranges int                  // of usage.locks
	waits  map[string][]*waiter // by lock owner
	usage  usage

	silentAt  [silentKinds]int // see silentHeap
	unsettled []*openState     // repeatable ones of the process before, see settle
}

// ID returns the client ID.
func (c *Client) ID() uint64 { return c.id }

// Owner returns the co_ownerid: any bytes.
func (c *Client) Owner() string { return c.owner }

// tracked is the client's entry in the client tracking.
func (c *Client) tracked() TrackedClient {
	return TrackedClient{ClientID: c.id, Owner: c.owner, Address: host(c.address), Verifier: c.verifier, Lease: c.lease}
}

// usable says whether a request that has c in hand may go on.
func (c *Client) usable() nfs4.Status {
	switch {
	case c.gone:
		return nfs4.ErrDeadSession
	case c.leaving:
		return nfs4.ErrDelay
	}
	return nfs4.OK
}

func (c *Client) hasCallback() bool {
	for _, ses := range c.sessions {
		if ses.backConns > 0 {
			return true
		}
	}
	return false
}

func (c *Client) event(kind EventKind) Event {
	return Event{
		Kind: kind, ClientID: c.id, Owner: c.owner, Address: c.address,
		Opens: c.usage.opens, Locks: c.ranges,
	}
}

// ownerRecord has the records of one co_ownerid.
type ownerRecord struct {
	confirmed   *Client
	unconfirmed *Client
	// earlier are verifiers of incarnations that are gone. A node's verifier is the
	// time of its boot or mount, and does not come back: if one does, there are two
	// nodes of one name.
	earlier []formerVerifier
	refused *refusal  // nil: nobody
	tried   time.Time // see mayTry
}

type formerVerifier struct {
	verifier [8]byte
	address  string
}

const maxEarlier = 4

// address is where clients come from: a node, or many behind one NAT, or in one /64 network of IPv6. A client ID costs nothing, an
// address does, so what all share is shared out by address as well: see room.
type address struct {
	key         string
	clients     int // records
	holders     int // clients that have opens
	usage       usage
	unconfirmed list.List // *Client, in the order in which they came
}

// usage is what a client, an address, or all, have of what is limited.
type usage struct {
	opens      int
	locks      int // stateids of lock owners, and ranges
	ownerBytes int
	waiters    int
	more       int // sessions, but for the first of each client
}

func (u *usage) add(d usage) {
	u.opens += d.opens
	u.locks += d.locks
	u.ownerBytes += d.ownerBytes
	u.waiters += d.waiters
	u.more += d.more
}

// session is guarded by State.mu. Its first group never changes.
type session struct {
	state    *State
	id       SessionID
	client   *Client
	fore     Channel
	back     Channel
	callback any
	slots    []Slot

	gone        bool
	busy        int  // slots in use
	backChannel bool // the client wants one
	last        Conn // of the last request
	conns       []boundConn
	backConns   int // of conns
}

type boundConn struct {
	conn Conn
	dir  Direction
	at   int // index in sessions.conns[conn]
}

func (ses *session) findConn(conn Conn) int {
	for i := range ses.conns {
		if ses.conns[i].conn == conn {
			return i
		}
	}
	return -1
}

// createReply is the one slot of a client's CREATE_SESSIONs.
type createReply struct {
	result     CreateSessionResult
	err        nfs4.Status
	fore, back Channel // that were asked for; not saved
}

// triesOther reports whether the request asks for something else after a failure, by the same
// sequence: there are clients that move theirs only when they have a session.
func (r *createReply) triesOther(a *CreateSessionArgs) bool {
	return r.err != nfs4.OK && (r.fore != a.Fore || r.back != a.Back)
}

// Slot is a slot of a session's fore channel, RFC 8881 section 2.10.6.1. Who has one
// from Sequence must call Done. It is guarded by State.mu, but for session.
type Slot struct {
	session *session
	seq     uint32 // of the last request
	seqid   uint32 // which opened then had
	opened  uint64 // number of the open that the last request has opened, or 0
	digest  uint64 // of that request
	reply   []byte // its memory is used again
	busy    bool   // that request is being processed
	cached  bool   // reply is that request's
}

// Client returns whose slot it is.
func (t *Slot) Client() *Client { return t.session.client }

// SessionID returns the session that the slot is of.
func (t *Slot) SessionID() SessionID { return t.session.id }

// Fore returns the limits of the session's requests and replies. They never change.
func (t *Slot) Fore() *Channel { return &t.session.fore }

// Callback is what CreateSession was given.
func (t *Slot) Callback() any { return t.session.callback }

// file is what is open of one file. It is there as long as it has opens, or locks that are being
// released.
type file struct {
	key     FileKey
	opens   [4]*openState // lists: those that deny something, or have no access yet, are in the first, others in that of their access
	counts  shareCounts
	lockers int                   // lock owners
	locked  intervals[*lockOwner] // what they have
	waits   *fileWaiters          // nil: nobody waits
}

// shareCounts are how many opens read, write, deny reading, deny writing.
type shareCounts [4]int32

// The indexes of shareCounts.
const (
	reading = iota
	writing
	denyingRead
	denyingWrite
)

// add adds n opens.
func (s *shareCounts) add(access, deny Access, n int32) {
	s[reading] += n * int32(access&Read)
	s[writing] += n * int32(access&Write>>1)
	s[denyingRead] += n * int32(deny&Read)
	s[denyingWrite] += n * int32(deny&Write>>1)
}

func (s *shareCounts) access() Access { return s.union(reading, writing) }

func (s *shareCounts) deny() Access { return s.union(denyingRead, denyingWrite) }

func (s *shareCounts) union(r, w int) (a Access) {
	if s[r] > 0 {
		a |= Read
	}
	if s[w] > 0 {
		a |= Write
	}
	return a
}

// denying is the list in file.opens of those that deny something.
const denying = 0

func (f *file) listOf(o *openState) **openState {
	if o.deny != 0 {
		return &f.opens[denying]
	}
	return &f.opens[o.access]
}

func (f *file) link(o *openState) {
	list := f.listOf(o)
	if o.prevOfFile, o.nextOfFile = nil, *list; *list != nil {
		(*list).prevOfFile = o
	}
	*list = o
}

func (f *file) unlink(o *openState) {
	if o.prevOfFile == nil {
		*f.listOf(o) = o.nextOfFile
	} else {
		o.prevOfFile.nextOfFile = o.nextOfFile
	}
	if o.nextOfFile != nil {
		o.nextOfFile.prevOfFile = o.prevOfFile
	}
}

// openKey finds an open by its owner.
type openKey struct {
	client *Client
	file   *file
	owner  string
}

// openState is what a client's open owner has open of a file, by one or several OPENs.
type openState struct {
	number      uint64 // of its stateid
	client      *Client
	file        *file
	owner       string // of open_owner4
	descriptors [2]Descriptor
	locks       []*lockOwner
	since       time.Time
	seqid       uint32
	combos      uint16 // which access and deny its OPENs had: for OPEN_DOWNGRADE
	// unanswered is the combo of the last OPEN, while its reply may be lost. uncertain and
	// repeatable are for the time after this process went on with the log of one that died: the
	// client may not know the seqid, or may send again an OPEN with that combo.
	unanswered uint16
	repeatable uint16
	uncertain  bool
	gone       bool   // it is closed
	gen        uint32 // see logCopy
	access     Access // their union
	deny       Access // their union

	nextOfClient, prevOfClient *openState
	nextOfFile, prevOfFile     *openState
	nextOfVolume, prevOfVolume *openState
}

// void reports whether it is closed, or its client is gone. What it denies and has locked excludes nobody
// any more, though it takes some steps until all of that is removed.
func (o *openState) void() bool { return o.gone || o.client.gone }

// combo is the bit of openState.combos for an OPEN.
func combo(access, deny Access) uint16 { return 1 << ((access-1)<<2 | deny) }

// isUnion reports whether access and deny are what the OPENs of combos had together.
func isUnion(combos uint16, access, deny Access) bool {
	var hasAccess, hasDeny Access
	for a := Read; a <= Both; a++ {
		for d := Access(0); d <= Both; d++ {
			if combos&combo(a, d) != 0 {
				hasAccess |= a
				hasDeny |= d
			}
		}
	}
	return hasAccess == access && hasDeny == deny
}

// validShare reports whether OPEN may have these.
func validShare(access, deny Access) bool {
	return access != 0 && access <= Both && deny <= Both
}

// lockOwner is what a lock owner has locked through one open: lock_owner4 and its
// lock stateid. The same owner may have others through other opens of the client, of which it has locked each byte
// through one: RFC 8881 section 9.5.
type lockOwner struct {
	number uint64 // of its stateid
	open   *openState
	at     int        // in openState.locks
	next   *lockOwner // of this owner, through another open of the file
	owner  string
	ranges []lockRange // in order, apart; file.locked has them, too
	seqid  uint32
	// uncertain is that of open.
	uncertain bool
	gen       uint32 // see logCopy
}

// lockerKey finds what an owner has locked of a file, through all opens.
type lockerKey struct {
	client *Client
	file   *file
	owner  string
}

// isOf reports whether it is the lock owner of this name.
func (l *lockOwner) isOf(c *Client, owner string) bool { return l.open.client == c && l.owner == owner }

// waiter is a blocking LOCK that was denied, RFC 8881 section 9.6: the client asks
// again by itself now and then, and at once when it is told that the lock is free.
type waiter struct {
	lockRange
	number uint64 // in the order in which they asked first
	open   *openState
	owner  string
	asked  time.Time // the last time
	told   time.Time // that it is free, since it asked; zero if not
	// reached is set if the client has got that: Told.
	reached bool
	// prompted is when it was told last to ask again, see deadlocked.
	prompted time.Time
}

// waiterKey finds a waiter.
type waiterKey struct {
	open  *openState
	owner string
	lockRange
}

func (w *waiter) key() waiterKey { return waiterKey{w.open, w.owner, w.lockRange} }

// fileWaiters are those of a file.
type fileWaiters struct {
	index int                // in locks.waiting
	list  []*waiter          // who asked first comes first; at most Limits.FileWaiters
	told  intervals[*waiter] // those that were told and have not asked again since
	gen   uint32             // see logCopy
}

// after returns the index of the first waiter after the one of a number.
func (f *fileWaiters) after(number uint64) int {
	i, _ := slices.BinarySearchFunc(f.list, number+1, func(w *waiter, n uint64) int { return cmp.Compare(w.number, n) })
	return i
}
