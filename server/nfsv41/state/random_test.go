package state_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/server/nfsv41/state"
)

// TestModel does random steps with State and its model, and compares what each
// returns, the client tracking on the disk, and the invariants.
func TestModel(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	outcomes := map[string]int{}
	for i := range uint64(10) {
		t.Run(fmt.Sprint(seed+i), func(t *testing.T) { runModel(t, seed+i, 2000, outcomes) })
	}
	for _, what := range slices.Sorted(maps.Keys(outcomes)) {
		t.Logf("%6d %s", outcomes[what], what)
	}
}

// runner keeps State and model in step.
type runner struct {
	*world
	t        *testing.T
	m        *model
	rand     *rand.Rand
	conn     state.Conn
	log      []string
	outcomes map[string]int
	stale    []nfs4.Stateid // of all times
	helds    []*fakeHeld
	slot     *state.Slot // of the request
	mslot    *mSlot
}

const courtesy = 24 * time.Hour

func runModel(t *testing.T, seed uint64, steps int, outcomes map[string]int) {
	r := &runner{
		world: newWorld(t, state.Limits{}), t: t, rand: rand.New(rand.NewPCG(seed, seed)),
		conn: newConn("10.0.0.1:700"), outcomes: outcomes,
	}
	r.m = &model{now: r.now, tracking: map[uint64]string{}}
	defer func() {
		if t.Failed() {
			for _, line := range r.log[max(0, len(r.log)-40):] {
				t.Log(line)
			}
		}
	}()
	for range steps {
		r.step()
		r.compare()
	}
	for _, c := range r.m.clients {
		r.want(r.Evict(c.id), nfs4.OK)
	}
	r.ok()
	if n := r.Counts(); n != (state.Counts{InGrace: n.InGrace, Awaited: n.Awaited}) {
		t.Errorf("without clients there are %+v", n)
	}
	for _, h := range r.helds {
		if n := h.users.Load(); n != 0 {
			t.Errorf("a descriptor has %d users after all", n)
		}
	}
}

func (r *runner) note(format string, args ...any) {
	r.log = append(r.log, fmt.Sprintf(format, args...))
}

// same compares an outcome with that of the model.
func (r *runner) same(what string, got, want nfs4.Status) {
	r.t.Helper()
	r.note("%s: %v", what, got)
	r.outcomes[what+" "+got.String()]++
	if got != want {
		r.t.Fatalf("%s: got %v, the model says %v", what, got, want)
	}
}

// compare looks at what no call returns.
func (r *runner) compare() {
	r.t.Helper()
	if err := r.Verify(); err != nil {
		r.t.Fatal(err)
	}
	if r.rand.IntN(5) == 0 {
		r.checkLog()
	}
	if r.rand.IntN(3) == 0 {
		r.copySomeThings(r.rand.IntN(4))
	}
	disk := map[uint64]string{}
	for _, e := range r.tracking.entries() {
		disk[e.ClientID] = e.Owner
	}
	if !maps.Equal(disk, r.m.tracking) {
		r.t.Fatalf("the client tracking is %v, the model says %v", disk, r.m.tracking)
	}
	if r.InGrace() != (r.m.grace != nil) {
		r.t.Fatalf("grace is %t", r.InGrace())
	}
	n, clients := r.Counts().Opens, len(r.Snapshot(0).Clients)
	if n != len(r.m.opens) || clients != len(r.m.clients) {
		r.t.Fatalf("%d opens and %d clients, the model has %d and %d", n, clients, len(r.m.opens), len(r.m.clients))
	}
	for _, mo := range r.m.opens {
		o, _, locks := r.ByStateid(mo.id)
		if a, d := mo.share(); o.Access != a || o.Deny != d || len(locks) != len(mo.locks) {
			r.t.Fatalf("open %v has %d, %d, and %d locks; the model %d, %d, and %d", mo.id, o.Access, o.Deny, len(locks), a, d, len(mo.locks))
		}
		for _, ml := range mo.locks {
			r.compareLocks(ml)
		}
	}
}

func (r *runner) compareLocks(ml *mLocks) {
	r.t.Helper()
	owner, _, ranges := r.ByStateid(ml.id)
	if owner.ClientID == 0 {
		r.t.Fatalf("lock owner %v of the model is not there", ml.id)
	}
	var cells [cells]byte
	for _, rg := range ranges {
		for k := range cells {
			if rg.First <= cellStart(k) && cellEnd(k) <= rg.Last {
				cells[k] = 'r'
				if rg.Write {
					cells[k] = 'w'
				}
			}
		}
	}
	if cells != ml.cells {
		r.t.Fatalf("lock owner %v has %q, the model %q", ml.id, cells, ml.cells)
	}
}

func pick[T any](r *runner, list []T) (x T) {
	if len(list) > 0 {
		x = list[r.rand.IntN(len(list))]
	}
	return x
}

// mostly returns x, and seldom another.
func mostly[T any](r *runner, x, other T) T {
	if r.rand.IntN(10) == 0 {
		return other
	}
	return x
}

var testOwners = []string{"a", "b\x00\xff\n", "c", "a\x00"}

func (r *runner) step() {
	ready := slices.ContainsFunc(r.m.clients, func(c *mClient) bool { return len(c.sessions) > 0 })
	switch n := r.rand.IntN(1000); {
	case n < 6, len(r.m.clients) < 2:
		r.stepExchange()
	case n < 16, !ready:
		r.stepCreateSession()
	case n < 22:
		r.stepDestroy()
	case n < 90:
		r.stepTime()
	case n < 94:
		r.crash()
		r.m.crash()
		r.helds = nil // a process that dies closes what it has
		r.note("crash, client tracking %v", r.m.tracking)
	case n < 96:
		r.restart()
	case n < 98:
		r.dies()
	case n < 101:
		if c := pick(r, r.m.clients); c != nil {
			r.same("evict", r.Evict(c.id), nfs4.OK)
			r.m.dismiss(c)
		}
	case n < 130:
		f, a := r.rand.IntN(3), state.Access(1+r.rand.IntN(3))
		want := nfs4.OK
		if r.m.grace != nil {
			want = nfs4.ErrGrace
		} else if r.m.denied(f, nil, a, 0) {
			want = nfs4.ErrLocked
		}
		r.same("special", r.CheckSpecial(nfs4.Stateid{}, file1(f), a), want)
	default:
		r.stepCompound()
	}
}

// restart is one that is meant: the clients keep all they have, for another lease.
func (r *runner) restart() {
	b := r.save()
	for _, h := range r.helds {
		if n := h.users.Load(); n != 0 {
			r.t.Fatalf("a descriptor has %d users after the end", n)
		}
	}
	r.helds = nil
	if err := r.restore(b, r.reopen); err != nil {
		r.t.Fatal(err)
	}
	for _, o := range r.m.opens {
		o.unanswered = o.repeatable // replies are kept
	}
	for _, c := range r.m.clients {
		if c.settles = (time.Time{}); !c.uncertain {
			c.settles = r.now.Add(state.SettleFor)
		}
	}
	for _, c := range r.m.clients {
		c.seen, c.returning = r.now, c.confirmed
	}
	r.note("restart")
}

// dies ends the process at any moment. The next one goes on with its log.
func (r *runner) dies() {
	whole := r.logged.bytes
	cut := append(slices.Clone(whole), r.tornFrame()...)
	r.helds = nil // a process that dies closes what it has
	r.boot++
	p, err := replay(r.config(), cut)
	if err != nil {
		r.t.Fatal(err)
	}
	s, err := p.State(r.tracking.entries(), r.tracking.become, r.reopen)
	if err != nil {
		r.t.Fatal(err)
	}
	r.State = s
	r.startLog()
	r.m.dies()
	if r.m.grace != nil {
		r.m.grace.until = r.Snapshot(0).Grace.Until
	}
	for _, o := range r.m.opens {
		_, again, _ := r.ByStateid(o.id)
		if had := o.unanswered; had != [2]state.Access{} && again != had {
			r.t.Fatalf("an OPEN that may come again is forgotten: %v", had)
		}
		o.repeatable, o.unanswered = again, again
	}
	r.note("the process dies")
}

// tornFrame is what a process can leave that is killed while it writes.
func (r *runner) tornFrame() []byte {
	frame := state.AppendFrame(nil, []byte(`{"gone":1}`))
	if r.rand.IntN(2) == 0 {
		return frame[:r.rand.IntN(len(frame))]
	}
	frame[r.rand.IntN(len(frame))] ^= 1 << r.rand.IntN(8)
	return frame
}

func (r *runner) reopen(state.FileKey, state.Access) state.Descriptor {
	h := newHeld(r.t)
	r.helds = append(r.helds, h)
	return h
}

func (r *runner) stepTime() {
	d := time.Second
	switch r.rand.IntN(60) {
	case 0:
		d = courtesy + 1
	case 1, 2, 3, 4, 5, 6, 7, 8, 9, 10:
		d = lease + 1
	case 11, 12, 13, 14, 15:
		d = lease / 2
	}
	r.pass(d)
	r.m.now = r.now
	r.note("%v pass", d)
	r.Expire()
	r.m.expire(courtesy)
}

func (r *runner) stepExchange() {
	owner, v := pick(r, testOwners), uint64(mostly(r, 1, 2))
	p := mostly(r, root, state.Principal{Flavor: 1, UID: 1000})
	update := mostly(r, false, true)
	got, e := r.ExchangeID(state.ExchangeIDArgs{
		Owner: []byte(owner), Verifier: verifier(v), Principal: p, Update: update, Conn: r.conn,
	})
	isNew, want := r.m.exchange(owner, v, p, update)
	r.same(fmt.Sprintf("exchange new=%t update=%t", isNew, update), e, want)
	if e != nfs4.OK {
		return
	}
	if isNew {
		if got.Confirmed || got.Seq != 1 || r.m.client(got.ClientID) != nil {
			r.t.Fatalf("a new record is %+v", got)
		}
		r.m.clients = append(r.m.clients, &mClient{
			id: got.ClientID, owner: owner, verifier: v, principal: p, seen: r.now,
		})
		return
	}
	c := r.m.find(owner, true)
	if !got.Confirmed || got.ClientID != c.id || got.Seq != c.createSeq+1 {
		r.t.Fatalf("a known record is %+v", got)
	}
}

func (r *runner) stepCreateSession() {
	c := pick(r, r.m.clients)
	if c == nil {
		_, e := r.CreateSession(state.CreateSessionArgs{ClientID: 1, Principal: root})
		r.same("create", e, nfs4.ErrStaleClientID)
		return
	}
	a := state.CreateSessionArgs{
		ClientID: c.id, Seq: c.createSeq + uint32(mostly(r, 1, r.rand.IntN(3))), Conn: r.conn,
		Principal: mostly(r, c.principal, state.Principal{UID: 7}), Fore: channel, Back: channel,
	}
	got, e := r.CreateSession(a)
	want := nfs4.OK
	switch {
	case !c.confirmed && a.Principal != c.principal:
		want = nfs4.ErrClidInUse
	case a.Seq == c.createSeq && c.uncertain: // as if it were new
	case a.Seq == c.createSeq && c.createSeq > 0:
		r.same("create again", e, OKor(c.created == nil, nfs4.ErrNoSpc))
		if c.created != nil && got != *c.created {
			r.t.Fatalf("the reply again is %+v, was %+v", got, *c.created)
		}
		return
	case a.Seq != c.createSeq+1:
		want = nfs4.ErrSeqMisordered
	case len(c.sessions) >= r.LimitsOf().Sessions:
		want = nfs4.ErrNoSpc
		c.createSeq = a.Seq
		c.created = nil
		c.settle(r.now)
	}
	r.same("create", e, want)
	if e != nfs4.OK {
		return
	}
	if old := r.m.find(c.owner, true); old != nil && old != c {
		r.m.remove(old)
	}
	c.settle(r.now)
	c.confirmed, c.seen, c.returning = true, r.now, false
	c.createSeq, c.created = a.Seq, &got
	c.sessions = append(c.sessions, &mSession{id: got.ID, slots: make([]mSlot, got.Fore.MaxSlots)})
}

// settle ends the uncertainty about a session.
func (c *mClient) settle(now time.Time) {
	if c.uncertain {
		c.uncertain, c.settles = false, now.Add(state.SettleFor)
	}
}

// OKor returns OK, or e if the condition holds.
func OKor(condition bool, e nfs4.Status) nfs4.Status {
	if condition {
		return e
	}
	return nfs4.OK
}

func (r *runner) stepDestroy() {
	c := pick(r, r.m.clients)
	if c == nil {
		return
	}
	if ses := pick(r, c.sessions); ses != nil && r.rand.IntN(3) > 0 {
		r.same("destroy session", r.DestroySession(ses.id, r.conn, nil), nfs4.OK)
		c.sessions = without(c.sessions, ses)
		return
	}
	e := r.DestroyClientID(c.id, c.principal, r.conn)
	r.same("destroy client", e, OKor(len(c.sessions) > 0 || len(r.m.opensOf(c)) > 0, nfs4.ErrClientIDBusy))
	if e == nfs4.OK {
		r.m.remove(c)
	}
}

// stepCompound sends SEQUENCE and one operation, or something that is wrong with it.
func (r *runner) stepCompound() {
	c := pick(r, r.m.clients)
	if c == nil {
		return
	}
	ses := pick(r, c.sessions)
	if ses == nil {
		return
	}
	n := r.rand.IntN(len(ses.slots))
	slot := &ses.slots[n]
	a := state.SequenceArgs{
		Session: ses.id, Slot: uint32(n), Seq: slot.seq + uint32(mostly(r, 1, r.rand.IntN(4))),
		HighestSlot: uint32(n), Digest: r.rand.Uint64(), Ops: 2, Size: 100, Conn: r.conn,
	}
	if a.Seq == slot.seq {
		a.Digest = mostly(r, slot.digest, 1)
	}
	a.Slot += uint32(mostly(r, 0, mostly(r, 0, 100)))
	got, e := r.Sequence(a)
	switch {
	case int(a.Slot) >= len(ses.slots):
		r.same("sequence", e, nfs4.ErrBadSlot)
		return
	case a.Seq == slot.seq && slot.seq == 0:
		r.same("sequence", e, nfs4.ErrSeqMisordered)
		return
	case a.Seq == slot.seq && a.Digest != slot.digest:
		r.same("sequence again", e, nfs4.ErrSeqFalseRetry)
		return
	case a.Seq == slot.seq:
		r.same("sequence again", e, OKor(!slot.cached, nfs4.ErrRetryUncachedRep))
		if slot.cached && (got.Slot != nil || string(got.Reply) != slot.reply) {
			r.t.Fatalf("the reply again is %q, was %q", got.Reply, slot.reply)
		}
		c.seen, c.returning = r.now, false
		return
	case a.Seq != slot.seq+1:
		r.same("sequence", e, nfs4.ErrSeqMisordered)
		return
	}
	r.same("sequence", e, nfs4.OK)
	c.seen, c.returning = r.now, false
	if again, e := r.Sequence(a); e != nfs4.ErrDelay || again.Slot != nil {
		r.t.Fatalf("a duplicate of what runs gets %v", e)
	}
	if id := got.Slot.Client().ID(); id != c.id {
		r.t.Fatalf("the slot is of client %x", id)
	}
	if o := slot.opened; o != nil && o.id.Seqid == slot.seqid {
		o.unanswered = [2]state.Access{}
	}
	slot.opened = nil
	r.slot, r.mslot = got.Slot, slot
	r.operation(got.Slot.Client(), c)
	reply := fmt.Sprint("reply ", r.rand.IntN(1000), "of", slot.seq)
	slot.seq, slot.digest = a.Seq, a.Digest
	slot.cached, slot.reply = r.rand.IntN(2) == 0, reply
	got.Slot.Done([]byte(reply), slot.cached)
}
