package state_test

import (
	"time"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/server/nfsv41/state"
)

// model is a simple specification of State: lists that are searched from one end to
// the other, every byte of a lock by itself. TestModel compares the two.
type model struct {
	now      time.Time
	clients  []*mClient
	opens    []*mOpen
	tracking map[uint64]string // client ID to owner
	grace    *mGrace           // nil if there is none
}

type mGrace struct {
	until   time.Time
	old     map[uint64]string
	awaited map[string]bool // whether it has not said RECLAIM_COMPLETE
}

type mClient struct {
	id        uint64
	owner     string
	verifier  uint64
	principal state.Principal
	confirmed bool
	complete  bool
	seen      time.Time
	returning bool
	createSeq uint32
	created   *state.CreateSessionResult
	uncertain bool // whether it has the reply to its last CREATE_SESSION
	settles   time.Time
	sessions  []*mSession
}

type mSession struct {
	id    state.SessionID
	slots []mSlot
}

type mSlot struct {
	seq    uint32
	digest uint64
	cached bool
	reply  string
	opened *mOpen // by the last request
	seqid  uint32 // which it then had
}

type mOpen struct {
	client *mClient
	owner  string
	file   int
	id     nfs4.Stateid
	shares [][2]state.Access // one for each OPEN that is in effect
	locks  []*mLocks
	// unanswered is what the last OPEN was for, if its reply may be lost.
	unanswered [2]state.Access
	repeatable [2]state.Access
	uncertain  bool // whether the client knows the seqid
}

type mLocks struct {
	open  *mOpen
	owner string
	id    nfs4.Stateid
	cells [cells]byte // 0, 'r', 'w'

	uncertain bool
}

// The bytes of a file: the first 16, the last 16 of those that can be locked, and
// all between as one.
const (
	cells  = 33
	middle = 16
)

func cellStart(i int) uint64 {
	if i > middle {
		return ^uint64(0) - uint64(cells-1-i)
	}
	return uint64(i)
}

func cellEnd(i int) uint64 {
	if i == middle {
		return cellStart(middle+1) - 1
	}
	return cellStart(i)
}

func (m *model) client(id uint64) *mClient {
	for _, c := range m.clients {
		if c.id == id {
			return c
		}
	}
	return nil
}

func (m *model) find(owner string, confirmed bool) *mClient {
	for _, c := range m.clients {
		if c.owner == owner && c.confirmed == confirmed {
			return c
		}
	}
	return nil
}

func (m *model) silent(c *mClient) bool {
	limit := lease
	if c.returning {
		limit *= state.ReturnLeases
	}
	return m.now.Sub(c.seen) > limit
}

func (m *model) opensOf(c *mClient) (list []*mOpen) {
	for _, o := range m.opens {
		if o.client == c {
			list = append(list, o)
		}
	}
	return list
}

func without[T comparable](list []T, x T) (left []T) {
	for _, y := range list {
		if y != x {
			left = append(left, y)
		}
	}
	return left
}

func (m *model) remove(c *mClient) {
	for _, o := range m.opensOf(c) {
		m.opens = without(m.opens, o)
	}
	m.clients = without(m.clients, c)
	delete(m.tracking, c.id)
}

func (m *model) forgetOwner(owner string) {
	if m.grace == nil {
		return
	}
	for id, o := range m.grace.old {
		if o == owner {
			delete(m.grace.old, id)
			delete(m.tracking, id)
		}
	}
	delete(m.grace.awaited, owner)
}

func (m *model) dismiss(c *mClient) {
	m.remove(c)
	m.forgetOwner(c.owner)
}

// The nine cases of RFC 8881 section 18.35.4, and whether there will be a new record.
func (m *model) exchange(owner string, v uint64, p state.Principal, update bool) (isNew bool, e nfs4.Status) {
	c := m.find(owner, true)
	if update {
		switch {
		case c == nil:
			return false, nfs4.ErrNoEnt
		case c.verifier != v:
			return false, nfs4.ErrNotSame
		case c.principal != p:
			return false, nfs4.ErrPerm
		}
		return false, nfs4.OK
	}
	if c != nil && c.principal != p {
		if (len(m.opensOf(c)) > 0 || len(c.sessions) > 0) && !m.silent(c) {
			return false, nfs4.ErrClidInUse
		}
		m.remove(c)
		c = nil
	}
	if c != nil && c.verifier == v {
		return false, nfs4.OK
	}
	if u := m.find(owner, false); u != nil {
		m.remove(u)
	}
	return true, nfs4.OK
}

func (m *model) mayGrant(c *mClient, reclaim bool) nfs4.Status {
	if reclaim {
		if m.grace == nil || c.complete || !m.grace.awaited[c.owner] {
			return nfs4.ErrNoGrace
		}
		return nfs4.OK
	}
	if m.grace != nil || !c.complete {
		return nfs4.ErrGrace
	}
	return nfs4.OK
}

func (o *mOpen) share() (access, deny state.Access) {
	for _, s := range o.shares {
		access |= s[0]
		deny |= s[1]
	}
	return access, deny
}

// denied says whether an open of the file but own is in the way; silent clients go if
// nobody else is.
func (m *model) denied(file int, own *mOpen, access, deny state.Access) bool {
	var losers []*mClient
	for _, o := range m.opens {
		a, d := o.share()
		if o.file != file || o == own || access&d == 0 && deny&a == 0 {
			continue
		}
		if !m.silent(o.client) {
			return true
		}
		losers = append(losers, o.client)
	}
	for _, c := range losers {
		m.dismiss(c)
	}
	return false
}

func (m *model) openOf(c *mClient, owner string, file int) *mOpen {
	for _, o := range m.opens {
		if o.client == c && o.owner == owner && o.file == file {
			return o
		}
	}
	return nil
}

func (m *model) open(c *mClient, owner string, file int, access, deny state.Access, reclaim bool) nfs4.Status {
	if access == 0 || access > 3 || deny > 3 {
		return nfs4.ErrInval
	}
	if e := m.mayGrant(c, reclaim); e != nfs4.OK {
		return e
	}
	o := m.openOf(c, owner, file)
	repeats := o != nil && o.repeatable == [2]state.Access{access, deny}
	var own *mOpen
	if repeats {
		own = o
	}
	if m.denied(file, own, access, deny) {
		if reclaim {
			return nfs4.ErrReclaimConflict
		}
		return nfs4.ErrShareDenied
	}
	m.tracking[c.id] = c.owner
	if o = m.openOf(c, owner, file); o == nil {
		o = &mOpen{client: c, owner: owner, file: file}
		m.opens = append(m.opens, o)
	}
	if !repeats {
		o.shares = append(o.shares, [2]state.Access{access, deny})
		o.id.Seqid++
		o.uncertain = false
	}
	o.repeatable, o.unanswered = [2]state.Access{}, [2]state.Access{}
	return nfs4.OK
}

func (m *model) downgrade(o *mOpen, access, deny state.Access) nfs4.Status {
	if access == 0 || access > 3 || deny > 3 {
		return nfs4.ErrInval
	}
	var left mOpen
	for _, s := range o.shares {
		if s[0]|access == access && s[1]|deny == deny {
			left.shares = append(left.shares, s)
		}
	}
	if a, d := left.share(); a != access || d != deny {
		return nfs4.ErrInval
	}
	o.shares = left.shares
	o.id.Seqid++
	o.uncertain, o.repeatable, o.unanswered = false, [2]state.Access{}, [2]state.Access{}
	return nfs4.OK
}

// excluded says whether another owner's lock is in the way of cells i to j; silent
// clients go if nobody else is.
func (m *model) excluded(c *mClient, owner string, file, i, j int, write, take bool) bool {
	var losers []*mClient
	for _, o := range m.opens {
		for _, l := range o.locks {
			if o.file != file || o.client == c && l.owner == owner {
				continue
			}
			for k := i; k <= j; k++ {
				if l.cells[k] == 'w' || l.cells[k] == 'r' && write {
					if !m.silent(o.client) {
						return true
					}
					losers = append(losers, o.client)
				}
			}
		}
	}
	for _, c := range losers {
		if take {
			m.dismiss(c)
		}
	}
	return false
}

func (m *model) lock(o *mOpen, l *mLocks, owner string, i, j int, write, reclaim bool) (*mLocks, nfs4.Status) {
	need, cell := state.Read, byte('r')
	if write {
		need, cell = state.Write, 'w'
	}
	if a, _ := o.share(); a&need == 0 {
		return nil, nfs4.ErrOpenMode
	}
	if e := m.mayGrant(o.client, reclaim); e != nfs4.OK {
		return nil, e
	}
	if m.excluded(o.client, owner, o.file, i, j, write, true) {
		if reclaim {
			return nil, nfs4.ErrReclaimConflict
		}
		return nil, nfs4.ErrDenied
	}
	for _, known := range o.locks {
		if known.owner == owner {
			l = known
		}
	}
	if l == nil {
		l = &mLocks{open: o, owner: owner}
		o.locks = append(o.locks, l)
	}
	m.set(l, i, j, cell)
	return l, nfs4.OK
}

// set is what LOCK, or with 0 LOCKU, does to the owner's cells, through whatever open it has them.
func (m *model) set(l *mLocks, i, j int, cell byte) {
	for _, o := range m.opens {
		for _, other := range o.locks {
			for k := i; k <= j && o.client == l.open.client && o.file == l.open.file && other.owner == l.owner; k++ {
				other.cells[k] = 0
			}
		}
	}
	for k := i; k <= j; k++ {
		l.cells[k] = cell
	}
	l.id.Seqid++
	l.uncertain = false
}

func (m *model) endGrace() {
	if m.grace == nil {
		return
	}
	for _, waits := range m.grace.awaited {
		if waits && m.now.Before(m.grace.until) {
			return
		}
	}
	for id := range m.grace.old {
		delete(m.tracking, id)
	}
	m.grace = nil
}

func (m *model) expire(courtesy time.Duration) {
	m.endGrace()
	for _, c := range m.clients {
		if !c.settles.IsZero() && m.now.After(c.settles) {
			c.settles = time.Time{}
			for _, o := range m.opensOf(c) {
				o.notRepeated()
			}
		}
		switch {
		case !c.confirmed && m.silent(c):
			m.remove(c)
		case m.now.Sub(c.seen) > courtesy:
			m.dismiss(c)
		}
	}
}

func (m *model) crash() {
	m.clients, m.opens, m.grace = nil, nil, nil
	if len(m.tracking) > 0 {
		m.grace = &mGrace{until: m.now.Add(2 * lease), old: map[uint64]string{}, awaited: map[string]bool{}}
		for id, owner := range m.tracking {
			m.grace.old[id] = owner
			m.grace.awaited[owner] = true
		}
	}
}

// dies ends the process, and the next one goes on with its log.
func (m *model) dies() {
	for _, c := range m.clients {
		if !c.confirmed {
			m.remove(c)
			continue
		}
		c.sessions, c.created, c.uncertain, c.seen, c.returning, c.settles = nil, nil, true, m.now, true, time.Time{}
	}
	for _, o := range m.opens {
		o.uncertain = true
		for _, l := range o.locks {
			l.uncertain = true
		}
	}
}

func (o *mOpen) notRepeated() {
	if o.repeatable != [2]state.Access{} {
		o.repeatable, o.unanswered = [2]state.Access{}, [2]state.Access{}
	}
}
