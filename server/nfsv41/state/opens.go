package state

import (
	"cmp"
	"encoding/binary"
	"sync/atomic"
	"time"

	"github.com/podnas/podnas/nfs/nfs4"
)

// opens owns the open files, with their share reservations and descriptors, and the numbers of all
// stateids. State.mu guards all of it.
type opens struct {
	*work
	sessions *sessions
	log      *stateLog

	files    map[FileKey]*file
	byNumber map[uint64]*openState
	byOwner  map[openKey]*openState
	volumes  map[uint64]*openState   // a list for each volume
	reserved map[FileKey]shareCounts // by OPENs that are under way, see Reservation
	next     uint64                  // number of the next stateid
	denying  *atomic.Int64           // State.denying
}

func newOpens(w *work, ss *sessions, log *stateLog, denying *atomic.Int64) opens {
	return opens{
		work: w, sessions: ss, log: log, denying: denying,
		files:    map[FileKey]*file{},
		byNumber: map[uint64]*openState{},
		byOwner:  map[openKey]*openState{},
		volumes:  map[uint64]*openState{},
		reserved: map[FileKey]shareCounts{},
	}
}

// newNumber returns the number of a new stateid. kind is 0 for opens, 1 for locks.
func (t *opens) newNumber(kind uint64) uint64 {
	t.next += 2
	return t.next | kind
}

func isLock(number uint64) bool { return number&1 == 1 }

// An Other is the boot epoch and a number that is never used again; the number's
// lowest bit tells locks from opens.
func (t *opens) other(number uint64) (o [12]byte) {
	binary.BigEndian.PutUint32(o[:], t.cfg.Boot)
	binary.BigEndian.PutUint64(o[4:], number)
	return o
}

// number returns the number of a stateid that this process made, otherwise 0. One of
// an earlier process is as bad as any other that was never given out: clients hang
// if TEST_STATEID says STALE_STATEID.
func (t *opens) number(i *nfs4.Stateid) uint64 {
	if binary.BigEndian.Uint32(i.Other[:]) != t.cfg.Boot {
		return 0
	}
	return binary.BigEndian.Uint64(i.Other[4:])
}

// nextSeqid is the seqid after n: 0 means the current one, so no stateid has it.
func nextSeqid(n uint32) uint32 {
	if n++; n == 0 {
		n = 1
	}
	return n
}

// checkSeqid compares the seqid of a request with that of the state, RFC 8881
// section 8.2.2. If it is uncertain whether the client was told the current one, an older one
// is as good.
func checkSeqid(got, current uint32, uncertain bool) nfs4.Status {
	switch {
	case got == 0 || got == current:
		return nfs4.OK
	case int32(got-current) < 0: // they wrap around
		if uncertain {
			return nfs4.OK
		}
		return nfs4.ErrOldStateid
	}
	return nfs4.ErrBadStateid
}

func (t *opens) openID(o *openState) nfs4.Stateid {
	return nfs4.Stateid{Seqid: o.seqid, Other: t.other(o.number)}
}

// findOpen returns the open of a stateid that must be of an open.
func (t *opens) findOpen(c *Client, id *nfs4.Stateid, f *FileKey) (*openState, nfs4.Status) {
	if e := c.usable(); e != nfs4.OK {
		return nil, e
	}
	o := t.byNumber[t.number(id)]
	if o == nil || o.client != c || o.file.key != *f {
		return nil, nfs4.ErrBadStateid
	}
	e := checkSeqid(id.Seqid, o.seqid, o.uncertain)
	if e == nfs4.OK && o.repeatable != 0 && (id.Seqid == o.seqid || o.seqid == 1) {
		t.notRepeated(o) // the client has the reply to its last OPEN
	}
	return o, e
}

// addOpen adds an open that may do nothing yet.
func (t *opens) addOpen(c *Client, number uint64, a *OpenArgs) *openState {
	f := t.files[a.File]
	if f == nil {
		f = &file{key: a.File}
		t.files[a.File] = f
	}
	o := &openState{
		number: number, client: c, file: f,
		owner: string(a.Owner), since: t.cfg.Now(), gen: c.gen,
	}
	t.byNumber[o.number] = o
	t.byOwner[openKey{c, f, o.owner}] = o
	if o.nextOfClient = c.opens; c.opens != nil {
		c.opens.prevOfClient = o
	}
	c.opens = o
	f.link(o)
	t.linkOfVolume(o)
	t.sessions.use(c, usage{opens: 1, ownerBytes: len(o.owner)})
	return o
}

func (t *opens) linkOfVolume(o *openState) {
	first := t.volumes[o.file.key.Volume]
	if o.nextOfVolume = first; first != nil {
		first.prevOfVolume = o
	}
	t.volumes[o.file.key.Volume] = o
}

func (t *opens) unlinkOfVolume(o *openState) {
	switch {
	case o.prevOfVolume != nil:
		o.prevOfVolume.nextOfVolume = o.nextOfVolume
	case o.nextOfVolume != nil:
		t.volumes[o.file.key.Volume] = o.nextOfVolume
	default:
		delete(t.volumes, o.file.key.Volume)
	}
	if o.nextOfVolume != nil {
		o.nextOfVolume.prevOfVolume = o.prevOfVolume
	}
}

// upgrade adds what one OPEN may do.
func (t *opens) upgrade(o *openState, access, deny Access) {
	t.setShare(o, o.access|access, o.deny|deny)
	o.combos |= combo(access, deny)
	o.seqid, o.uncertain = nextSeqid(o.seqid), false
}

// setShare changes what the open may do and denies.
func (t *opens) setShare(o *openState, access, deny Access) {
	if had, has := o.deny != 0, deny != 0; had != has {
		if has {
			t.denying.Add(1)
		} else {
			t.denying.Add(-1)
		}
	}
	o.file.counts.add(o.access, o.deny, -1)
	o.file.unlink(o)
	o.access, o.deny = access, deny
	o.file.link(o)
	o.file.counts.add(o.access, o.deny, 1)
}

// keepDescriptor takes over h, for what the open had no descriptor for.
func (t *opens) keepDescriptor(o *openState, access Access, h Descriptor) {
	if h == nil {
		return
	}
	used := false
	for i, a := range [...]Access{Read, Write} {
		if access&a == 0 || o.descriptors[i] != nil {
			continue
		}
		if used {
			h.Retain()
		}
		o.descriptors[i] = h
		used = true
	}
	if !used {
		t.release(h)
	}
}

// releaseDescriptors releases the descriptors for what the open may no longer do.
func (t *opens) releaseDescriptors(o *openState) {
	for i, a := range [...]Access{Read, Write} {
		if o.access&a != 0 {
			continue
		}
		if o.client.gone {
			t.abandon(o.descriptors[i], o.file.key.Volume)
		} else {
			t.release(o.descriptors[i])
		}
		o.descriptors[i] = nil
	}
}

// dropFile forgets a file that has nothing.
func (t *opens) dropFile(f *file) {
	if f.opens == [4]*openState{} && f.lockers == 0 {
		delete(t.files, f.key)
	}
}

// findDescriptor looks at a bounded number of opens.
func (t *opens) findDescriptor(f *file) (found Descriptor) {
	if f == nil {
		return nil
	}
	looked := 0
	for _, of := range [...]Access{Both, Write, denying, Read} {
		for o := f.opens[of]; o != nil && looked < silentMax; o = o.nextOfFile {
			looked++
			t.steps++
			if o.descriptors[1] != nil {
				return o.descriptors[1]
			}
			found = cmp.Or(found, o.descriptors[0])
		}
	}
	return found
}

// logOpen logs an open, but not its locks.
func (t *opens) logOpen(o *openState) {
	if t.log.out != nil {
		t.log.note(o.gen, func(b []byte) []byte { return appendOpen(b, o) })
	}
}

func (t *opens) logClosed(o *openState) {
	if t.log.out != nil && !o.client.gone {
		t.log.note(o.gen, func(b []byte) []byte { return appendOne(b, `"closed":`, o.number) })
	}
}

// answered notes that the client has sent the next request of a slot, so that it has the reply
// to an OPEN. It is no reason to write: if it is lost, an OPEN may get a seqid a second time.
func (t *opens) answered(number uint64, seqid uint32) {
	if o := t.byNumber[number]; o != nil && o.seqid == seqid && o.unanswered != 0 {
		o.unanswered = 0
		if t.log.out != nil {
			t.log.noteLater(o.gen, func(b []byte) []byte { return appendOne(b, `"answered":`, number) })
		}
	}
}

// settle ends the time in which a client may send an OPEN again.
func (t *opens) settle(c *Client) {
	c.settles = time.Time{}
	t.begin(func() bool {
		for began := t.steps; len(c.unsettled) > 0 && t.steps-began < stepWork; t.steps++ {
			last := len(c.unsettled) - 1
			if o := c.unsettled[last]; o.repeatable != 0 && !o.gone {
				t.notRepeated(o)
			}
			c.unsettled[last] = nil
			c.unsettled = c.unsettled[:last]
		}
		return len(c.unsettled) > 0
	})
}

// notRepeated notes that the client does not send the last OPEN again.
func (t *opens) notRepeated(o *openState) {
	o.repeatable = 0
	t.answered(o.number, o.seqid)
}
