package state

import "github.com/podnas/podnas/nfs/nfs4"

// Reservation is what an OPEN that is under way has of a file's share reservations, before it has an open: nobody gets what it excludes.
// With it an OPEN does first what may fail, such as setting the size, and changes what its owner has open at the very end, or not at
// all (RFC 8881 section 18.16). The zero Reservation reserves nothing.
type Reservation struct {
	file         FileKey
	access, deny Access // zero: nothing
}

// Reserve checks an Open as MayOpen does, and makes a reservation for it. Open takes the reservation over, Unreserve ends it.
//
// It may call Tracking, so it can wait for the disk.
func (s *State) Reserve(c *Client, a OpenArgs, r *Reservation) nfs4.Status {
	s.mu.Lock()
	defer s.unlock()
	if _, e := s.mayOpenLocked(c, &a); e != nfs4.OK {
		return e
	}
	*r = Reservation{a.File, a.does(), a.Deny}
	s.opens.reserve(r, 1)
	return nfs4.OK
}

// Unreserve ends a reservation, unless Open has.
func (s *State) Unreserve(r *Reservation) {
	if r.access == 0 { // only one goroutine has it
		return
	}
	s.mu.Lock()
	defer s.unlock()
	s.opens.unreserve(r)
}

func (t *opens) unreserve(r *Reservation) {
	if r != nil && r.access != 0 {
		t.reserve(r, -1)
		*r = Reservation{}
	}
}

// reserve adds n reservations like r.
func (t *opens) reserve(r *Reservation, n int32) {
	counts := t.reserved[r.file]
	counts.add(r.access, r.deny, n)
	if counts == (shareCounts{}) {
		delete(t.reserved, r.file)
	} else {
		t.reserved[r.file] = counts
	}
	if r.deny != 0 {
		t.denying.Add(int64(n))
	}
}

// isReserved reports whether an OPEN that is under way excludes another one.
func (t *opens) isReserved(f FileKey, access, deny Access) bool {
	if len(t.reserved) == 0 {
		return false
	}
	counts := t.reserved[f]
	return access&counts.deny() != 0 || deny&counts.access() != 0
}
