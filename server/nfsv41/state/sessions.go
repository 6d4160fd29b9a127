package state

import (
	"container/list"
	"slices"
	"time"
	"unsafe"

	"github.com/podnas/podnas/nfs/nfs4"
)

// sessions owns the clients with their leases, and the sessions with their slots and connections:
// what ends when a lease is over. It counts, too, what each client has, and each address (usage.go).
// State.mu guards all of it.
type sessions struct {
	*work
	log *stateLog

	clients map[uint64]*Client
	list    []*Client // the clients again: for what goes through all in steps
	owners  map[string]*ownerRecord
	byID    map[SessionID]*session
	conns   map[Conn][]*session
	replies int // bytes of slots, with what they may cache
	least   int // of replies: what the sessions would have at least

	addresses   map[string]*address
	unconfirmed list.List // *Client, in the order in which they came
	all         usage     // of all clients
	holders     int       // clients that have opens
	homes       int       // addresses of holders

	silent [silentKinds]silentHeap
	looked int // at list, by nextSilent
}

func newSessions(w *work, log *stateLog) sessions {
	t := sessions{
		work: w, log: log,
		clients:   map[uint64]*Client{},
		owners:    map[string]*ownerRecord{},
		byID:      map[SessionID]*session{},
		conns:     map[Conn][]*session{},
		addresses: map[string]*address{},
	}
	for kind := range t.silent {
		t.silent[kind].kind = kind
	}
	return t
}

// checkChannels says whether a session of what a client asks for is of any use.
func (t *sessions) checkChannels(a *CreateSessionArgs) nfs4.Status {
	least := t.cfg.Limits.MinMessageSize
	if a.Fore.MaxRequest < least || a.Fore.MaxResponse < least || a.Fore.MaxOps == 0 {
		return nfs4.ErrTooSmall
	}
	// CB_SEQUENCE and one more. A session without a back channel may get one later.
	if a.Back.MaxRequest < least || a.Back.MaxResponse < least || a.Back.MaxOps < 2 {
		return nfs4.ErrTooSmall
	}
	return nfs4.OK
}

// slotBytes is what a slot has beside its reply.
const slotBytes = int(unsafe.Sizeof(Slot{}))

// leastOf is the memory of a session that has the least.
func (t *sessions) leastOf(ses *session) int {
	return slotBytes + int(min(ses.fore.MaxResponseCached, t.cfg.Limits.LeastReply))
}

// negotiate returns the channels that the server agrees to. Linux gives up if a size
// is more than it asked for, or fore.MaxOps less.
//
// What is agreed is reserved, so that every reply that should be cached can be. Every session that there
// may be has one slot; what is left after that is for more and larger ones (RFC 8881 section 18.36.3 lets
// the server say how many and how large), and the less is left the less one session gets of it.
func (t *sessions) negotiate(a *CreateSessionArgs) (fore, back Channel) {
	l := &t.cfg.Limits
	fore, back = a.Fore, a.Back
	fore.MaxRequest = min(fore.MaxRequest, l.Request)
	fore.MaxResponse = min(fore.MaxResponse, l.Response)
	fore.MaxOps = min(fore.MaxOps, l.Ops)
	all := max(0, l.ReplyBytes-t.leastOfAll())
	left := max(0, all-(t.replies-t.least))
	reply := l.CachedReply
	if left < all*3/4 {
		reply = min(reply, l.LeastReply)
	}
	fore.MaxResponseCached = min(fore.MaxResponseCached, fore.MaxResponse, reply)
	more := left / 256 / (slotBytes + int(fore.MaxResponseCached))
	if more == 0 { // the one that it has anyway is a small one
		fore.MaxResponseCached = min(fore.MaxResponseCached, l.LeastReply)
	}
	fore.MaxSlots = max(1, min(fore.MaxSlots, uint32(l.Slots), uint32(1+more)))
	return fore, back
}

// leastOfAll is the memory of all sessions that there may be, if each has the least.
func (t *sessions) leastOfAll() int {
	l := &t.cfg.Limits
	return (l.Clients + l.MoreSessions) * (slotBytes + int(l.LeastReply))
}

// keepSession puts a session into the tables.
func (t *sessions) keepSession(ses *session) {
	t.byID[ses.id] = ses
	t.replies += ses.reserved()
	t.least += t.leastOf(ses)
	c := ses.client
	if c.sessions = append(c.sessions, ses); len(c.sessions) > 1 {
		t.use(c, usage{more: 1})
	}
}

// reserved is how many bytes the slots have, with the replies that they may cache.
func (ses *session) reserved() int {
	return len(ses.slots) * (slotBytes + int(ses.fore.MaxResponseCached))
}

func (t *sessions) removeSession(ses *session) {
	ses.gone = true
	delete(t.byID, ses.id)
	t.replies -= ses.reserved()
	t.least -= t.leastOf(ses)
	for len(ses.conns) > 0 {
		t.unbind(ses, len(ses.conns)-1)
	}
	c := ses.client
	t.notSilent(c) // its place in there may be of how many it has; the next tick puts it back
	c.sessions = slices.DeleteFunc(c.sessions, func(o *session) bool { return o == ses })
	if len(c.sessions) > 0 {
		t.use(c, usage{more: -1})
	}
	ses.last = nil
	t.steps++
}

// keepCreated moves the sequence: failures are cached like successes.
func (t *sessions) keepCreated(c *Client, a *CreateSessionArgs, r CreateSessionResult, e nfs4.Status) (CreateSessionResult, nfs4.Status) {
	if c.uncertain {
		c.settles = t.cfg.Now().Add(settleFor)
		t.soon()
	}
	c.createSeq, c.uncertain = a.Seq, false
	c.created = &createReply{result: r, err: e, fore: a.Fore, back: a.Back}
	t.logClient(c)
	return r, e
}

// settleFor is how long a client may take to send again what had no reply when the process before
// died, once it has a new session. Linux does it at once.
const settleFor = 2 * time.Second

// bind adds directions to a connection. A session that has too many connections
// forgets its oldest: it is bound anew by the next request on it.
func (t *sessions) bind(ses *session, conn Conn, dir Direction) {
	if i := ses.findConn(conn); i >= 0 {
		dir |= ses.conns[i].dir
		t.unbind(ses, i)
	} else if len(ses.conns) >= t.cfg.Limits.Conns {
		t.unbind(ses, 0)
	}
	ses.conns = append(ses.conns, boundConn{conn, dir, len(t.conns[conn])})
	if dir&Back != 0 {
		ses.backConns++
	}
	t.conns[conn] = append(t.conns[conn], ses)
	ses.client.address = conn.Address()
}

func (t *sessions) unbind(ses *session, i int) {
	b := ses.conns[i]
	ses.conns = slices.Delete(ses.conns, i, i+1)
	if b.dir&Back != 0 {
		ses.backConns--
	}
	if ses.last == b.conn {
		ses.last = nil
	}
	t.steps++
	list := t.conns[b.conn]
	end := len(list) - 1
	if end == 0 {
		delete(t.conns, b.conn)
		return
	}
	if last := list[end]; last != ses {
		list[b.at] = last
		last.conns[last.findConn(b.conn)].at = b.at
	}
	list[end] = nil
	t.conns[b.conn] = list[:end]
}

// unbindAll is the task that unbinds a connection from all sessions.
func (t *sessions) unbindAll(conn Conn) (more bool) {
	for began := t.steps; t.steps-began < stepWork; {
		list := t.conns[conn]
		if len(list) == 0 {
			return false
		}
		last := list[len(list)-1]
		t.unbind(last, last.findConn(conn))
	}
	return true
}

// renew notes the connection of a request, which binds it to the fore channel (RFC
// 8881 section 2.10.3.1), and tells the client what it has to know.
func (t *sessions) renew(ses *session, conn Conn, r *SequenceResult) {
	if conn != nil && conn != ses.last {
		if ses.findConn(conn) < 0 {
			t.bind(ses, conn, Fore)
		}
		ses.last = conn
	}
	c := ses.client
	if ses.backChannel && ses.backConns == 0 {
		r.Status |= StatusCallbackPathDownSession
		if !c.hasCallback() {
			r.Status |= StatusCallbackPathDown
		}
	}
}
