package state_test

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/server/nfsv41/state"
)

const (
	lease   = 30 * time.Second
	fairFor = time.Second
	toEOF   = math.MaxUint64
)

// fakeConn is a connection.
type fakeConn string

func (c *fakeConn) Address() string { return string(*c) }

func newConn(address string) state.Conn {
	c := fakeConn(address)
	return &c
}

// fakeHeld counts its users.
type fakeHeld struct {
	t     testing.TB
	users atomic.Int64
}

func newHeld(t testing.TB) *fakeHeld {
	h := &fakeHeld{t: t}
	h.users.Store(1)
	return h
}

func (h *fakeHeld) Retain() {
	if h.users.Add(1) < 2 {
		h.t.Error("Retain of a closed descriptor")
	}
}

func (h *fakeHeld) Release() {
	if h.users.Add(-1) < 0 {
		h.t.Error("Release of a closed descriptor")
	}
}

// fakeTracking is the list on the disk.
type fakeTracking struct {
	mu     sync.Mutex
	list   map[uint64]state.TrackedClient
	err    error
	before func(add bool, e state.TrackedClient) // of a change
}

func (r *fakeTracking) change(add bool, e state.TrackedClient) error {
	if r.before != nil {
		r.before(add, e)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return r.err
	}
	if !add {
		delete(r.list, e.ClientID)
		return nil
	}
	if r.list == nil {
		r.list = map[uint64]state.TrackedClient{}
	}
	r.list[e.ClientID] = e
	return nil
}

func (r *fakeTracking) Add(e state.TrackedClient) error { return r.change(true, e) }
func (r *fakeTracking) Remove(entries ...state.TrackedClient) error {
	for _, e := range entries {
		if err := r.change(false, e); err != nil {
			return err
		}
	}
	return nil
}

// become has it be another.
func (r *fakeTracking) become(list []state.TrackedClient) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = map[uint64]state.TrackedClient{}
	for _, e := range list {
		r.list[e.ClientID] = e
	}
	return r.err
}

func (r *fakeTracking) entries() (list []state.TrackedClient) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.list {
		list = append(list, e)
	}
	return list
}

func (r *fakeTracking) owners() (owners []string) {
	for _, e := range r.entries() {
		owners = append(owners, e.Owner)
	}
	slices.Sort(owners)
	return slices.Compact(owners)
}

// world is a State with a clock and a disk.
type world struct {
	*state.State
	t        testing.TB
	now      time.Time
	tracking *fakeTracking
	events   []state.Event
	onEvent  func()
	fairFor  time.Duration // if it is not fairFor
	lease    time.Duration // if it is not lease
	held     bool          // nobody gets answers
	answered time.Time     // since when they get them
	free     []state.LockFree
	boot     uint32
	limits   state.Limits
	logged   *memoryLog
}

func newWorld(t testing.TB, limits state.Limits) *world {
	w := &world{t: t, now: time.Unix(1_700_000_000, 0), tracking: &fakeTracking{}, limits: limits}
	w.crash()
	return w
}

// crash starts a new process on the same disk.
func (w *world) crash() {
	w.boot++
	w.State = state.New(w.config())
	w.BeginGrace(w.tracking.entries())
	w.startLog()
}

// unlogged returns the world without a log: for tests with many steps that are about something
// else.
func (w *world) unlogged() *world {
	w.State, w.logged = state.New(w.config()), nil
	return w
}

func (w *world) startLog() {
	w.t.Helper()
	w.logged = &memoryLog{config: w.config(), long: 100}
	if err := w.StartLog(w.logged); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) config() state.Config {
	return state.Config{
		Lease: cmp.Or(w.lease, lease), Now: func() time.Time { return w.now }, Boot: w.boot, Limits: w.limits, Tracking: w.tracking,
		FairFor: w.fairFor,
		Answering: func() time.Time {
			if w.held {
				return w.now
			}
			return w.answered
		},
		Event: func(e state.Event) {
			w.events = append(w.events, e)
			if w.onEvent != nil {
				w.onEvent()
			}
		},
		LockFree: func(f state.LockFree) { w.free = append(w.free, f) },
	}
}

// save is what a process leaves behind that is meant to end.
func (w *world) save(notices ...state.LockFree) []byte {
	w.t.Helper()
	left := &memoryLog{config: w.config()}
	if err := w.Leave(left, encodeCallback, notices); err != nil {
		w.t.Fatal(err)
	}
	w.Stop()
	return left.bytes
}

func encodeCallback(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

func decodeCallback(b json.RawMessage) (any, error) {
	var owner string
	err := json.Unmarshal(b, &owner)
	return owner, err
}

// replay reads a log with as many frames as there are.
func replay(config state.Config, b []byte) (*state.Replay, error) {
	p := state.NewReplay(config, decodeCallback, nil)
	for {
		records, rest, ok := state.CutFrame(b)
		if !ok {
			return p, nil
		}
		if err := p.Apply(records); err != nil {
			return nil, err
		}
		b = rest
	}
}

// restore starts a process with what another left behind.
func (w *world) restore(b []byte, reopen func(state.FileKey, state.Access) state.Descriptor) error {
	w.t.Helper()
	w.boot++
	p, err := replay(w.config(), b)
	if err != nil {
		return err
	}
	if !p.Left() {
		return errors.New("it is not all that there was")
	}
	s, err := p.State(w.tracking.entries(), w.tracking.become, reopen)
	if err == nil {
		w.State = s
		w.startLog()
	}
	return err
}

func (w *world) pass(d time.Duration) { w.now = w.now.Add(d) }

// ok fails the test unless the invariants hold.
func (w *world) ok() {
	w.t.Helper()
	if err := w.Verify(); err != nil {
		w.t.Fatal(err)
	}
	w.checkLog()
}

var root = state.Principal{Flavor: 1, Machine: "node"}

func verifier(n uint64) (v [8]byte) {
	binary.BigEndian.PutUint64(v[:], n)
	return v
}

var channel = state.Channel{MaxRequest: 1 << 20, MaxResponse: 1 << 20, MaxResponseCached: 4096, MaxOps: 8, MaxSlots: 4}

func (w *world) exchange(owner string, v uint64) (state.ExchangeIDResult, nfs4.Status) {
	return w.exchangeFrom("10.0.0.1:700", owner, v)
}

func (w *world) exchangeFrom(address, owner string, v uint64) (state.ExchangeIDResult, nfs4.Status) {
	return w.ExchangeID(state.ExchangeIDArgs{Owner: []byte(owner), Verifier: verifier(v), Principal: root, Minor: uint32(1 + v%2), Conn: newConn(address)})
}

// node is a client with a session.
type node struct {
	w       *world
	c       *state.Client
	session state.SessionID
	seq     uint32
	conn    state.Conn
	last    nfs4.Stateid // of openBy
	create  state.CreateSessionArgs
}

// join makes a client with a session that has not said RECLAIM_COMPLETE.
func (w *world) join(owner string, v uint64) *node {
	w.t.Helper()
	return w.joinFrom("10.0.0.1:700", owner, v)
}

func (w *world) joinFrom(address, owner string, v uint64) *node {
	w.t.Helper()
	id, e := w.exchangeFrom(address, owner, v)
	w.want(e, nfs4.OK)
	n := &node{w: w, conn: newConn(address)}
	n.create = state.CreateSessionArgs{
		ClientID: id.ClientID, Seq: id.Seq, Principal: root, Fore: channel, Back: channel,
		BackChannel: true, Callback: owner, Conn: n.conn,
	}
	r, e := w.CreateSession(n.create)
	w.want(e, nfs4.OK)
	n.session = r.ID
	n.c = w.Client(id.ClientID)
	return n
}

// ready is join, and RECLAIM_COMPLETE.
func (w *world) ready(owner string, v uint64) *node {
	w.t.Helper()
	n := w.join(owner, v)
	w.want(w.ReclaimComplete(n.c, false), nfs4.OK)
	return n
}

// renew sends a SEQUENCE alone.
func (n *node) renew() (uint32, nfs4.Status) {
	n.seq++
	r, e := n.w.Sequence(state.SequenceArgs{Session: n.session, Seq: n.seq, Ops: 1, Size: 100, Conn: n.conn})
	if e != nfs4.OK {
		n.seq--
		return r.Status, e
	}
	r.Slot.Done(nil, false)
	return r.Status, nfs4.OK
}

func (w *world) want(got, want nfs4.Status) {
	w.t.Helper()
	if got != want {
		w.t.Fatalf("got %v, want %v", got, want)
	}
}

func file1(n int) (k state.FileKey) {
	k.Volume, k.Len = 1, 8
	k.ID[0] = byte(n)
	return k
}

func (n *node) open(owner string, f int, access, deny state.Access) (nfs4.Stateid, nfs4.Status) {
	id, _, e := n.w.Open(n.c, state.OpenArgs{Owner: []byte(owner), File: file1(f), Access: access, Deny: deny})
	return id, e
}

func (n *node) mustOpen(owner string, f int) nfs4.Stateid {
	n.w.t.Helper()
	id, e := n.open(owner, f, state.Both, 0)
	n.w.want(e, nfs4.OK)
	return id
}

func (n *node) lock(open nfs4.Stateid, owner string, f int, write bool, offset, length uint64) (nfs4.Stateid, state.Denied, nfs4.Status) {
	return n.w.Lock(n.c, state.LockArgs{
		Stateid: open, NewOwner: true, Owner: []byte(owner), File: file1(f), Write: write, Wait: true,
		Offset: offset, Length: length,
	})
}

func (w *world) saw(kind state.EventKind) int {
	n := 0
	for _, e := range w.events {
		if e.Kind == kind {
			n++
		}
	}
	return n
}
