package nfstest4

import (
	"time"

	"github.com/podnas/podnas/nfs/nfs4"
)

// much is what a COPY takes some time for: nothing is at a block's beginning, so that no disk can share it.
const much = 24 << 20

// copyOfMuch makes two files, and returns a COPY of almost all of one to the other, that nobody has sent yet.
func (e *env) copyOfMuch(c *client) (a *call, src, dst nfs4.FH, to nfs4.Stateid) {
	e.Helper()
	src, from := e.opened(c, "from", stamp(1))
	dst, to = e.opened(c, "to", "")
	c.ok(putfh(src), write(from, much-8, stamp(2)), commit(0, 0))
	return &call{minor: 2, ops: []op{c.next(), putfh(src), savefh(), putfh(dst), copyOp(from, to, 1, 0, much-1)}}, src, dst, to
}

// copied checks a reply to copyOfMuch, and what is in the target: what the server says it has copied.
func (e *env) copied(c *client, r *reply, dst nfs4.FH, to nfs4.Stateid) {
	e.Helper()
	res := get[nfs4.CopyRes](e, r)
	if res.Status != nfs4.OK || res.Count == 0 || res.Count > much-1 {
		e.Fatalf("COPY: %+v", res)
	}
	if a := c.attr([]op{putfh(dst)}, nfs4.AttrSize); a.Size != res.Count {
		e.Errorf("%d bytes were copied, and the file has %d", res.Count, a.Size)
	}
	ends := "\x00\x00\x00\x00\x00\x00\x00\x00"
	if res.Count == much-1 {
		ends = stamp(2)
	}
	if got := reads(c.ok(putfh(dst), read(to, 0, 8), read(to, res.Count-8, 8))); got[0] != stamp(1)[1:]+"\x00" || got[1] != ends {
		e.Errorf("of %d bytes it begins and ends with %q", res.Count, got)
	}
}

// Section 15.2.3: a COPY may be short. Others do not wait for it, those that use one of the files no longer than for a
// piece.
func testCopyMuch(e *env) {
	c, neighbour := e.in42(), e.in42()
	a, src, dst, to := e.copyOfMuch(c)
	done := make(chan *reply, 1)
	sent := time.Now()
	go func() {
		r, err := c.try(a)
		if err != nil {
			e.Error(err)
		}
		done <- r
	}()
	longest, calls := time.Duration(0), 0
	for {
		began := time.Now()
		neighbour.ok(putfh(src), getattrs(nfs4.AttrSize), read(nfs4.Stateid{}, much-8, 8), putfh(dst), getattrs(nfs4.AttrSize))
		longest, calls = max(longest, time.Since(began)), calls+1
		select {
		case r := <-done:
			e.Logf("COPY of %d MiB took %v; %d calls of a neighbour meanwhile, %v at most", much>>20, time.Since(sent), calls, longest)
			if r == nil {
				return
			}
			e.copied(c, r, dst, to)
			if took := time.Since(sent); calls < 3 && took > 100*time.Millisecond {
				e.Errorf("%d calls of a neighbour while a COPY took %v", calls, took)
			}
			return
		default:
		}
	}
}

// RFC 8881 section 2.10.6.1: a COPY whose connection breaks is done once, and its reply is there for who comes
// again.
func testCopyConnection(e *env) {
	c := e.in42()
	a, _, dst, to := e.copyOfMuch(c)
	lost := make(chan struct{})
	go func() {
		defer close(lost)
		_, _ = c.try(a) // its connection is closed
	}()
	time.Sleep(2 * time.Millisecond)
	c.conn.Close()
	<-lost
	c.conn = c.dial()
	c.untilDone(a)
	other := e.in42()
	_, id := other.open(e.dir, opening{name: "to"})
	other.ok(putfh(dst), write(id, 16, "changed!"))
	e.copied(c, c.untilDone(a), dst, to)
	if got := reads(c.ok(putfh(dst), read(to, 16, 8))); got[0] != "changed!" {
		e.Errorf("it was copied again: %q", got)
	}
}

// untilDone sends a call that was sent already until it is done.
func (c *client) untilDone(a *call) *reply {
	c.Helper()
	for range 1000 {
		r := c.compound(a)
		if r.status != nfs4.ErrDelay {
			if r.status != nfs4.OK {
				c.Fatalf("again: %v of %v", r.status, r.nums)
			}
			return r
		}
		time.Sleep(10 * time.Millisecond)
	}
	c.Fatal("the call never ends")
	return nil
}

// A COPY that a restart cuts off is done, once, by the process before it or by the one after it.
func testHandoverCopy(e *env) {
	c := e.in42()
	a, _, dst, to := e.copyOfMuch(c)
	lost := make(chan struct{})
	go func() {
		defer close(lost)
		_, _ = c.try(a)
	}()
	time.Sleep(2 * time.Millisecond)
	began := time.Now()
	e.handover()
	if took := time.Since(began); took > 10*time.Second {
		e.Errorf("the restart takes %v", took)
	}
	c.conn.Close()
	<-lost
	c.conn = c.dial()
	e.copied(c, c.untilDone(a), dst, to)
}

// Section 15.2.3: what a COPY has copied is on the disk when a COMMIT has the same verifier. After a crash it never has.
func testDiedCopy(e *env) {
	c := e.in42()
	src, from := e.opened(c, "from", "content")
	dst, to := e.opened(c, "to", "")
	copied := get[nfs4.CopyRes](e, c.ok(putfh(src), savefh(), putfh(dst), copyOp(from, to, 0, 0, 0)))
	if copied.Committed != nfs4.Unstable {
		e.Skip("named skip: COPY: it is on the disk at once")
	}
	before := get[nfs4.CommitRes](e, c.ok(putfh(dst), commit(0, 0)))
	e.died()
	c.again()
	after := get[nfs4.CommitRes](e, c.ok(putfh(dst), commit(0, 0)))
	if copied.Verf != before.Verf || copied.Verf == after.Verf {
		e.Errorf("COPY says %x, COMMIT %x, and after a crash %x", copied.Verf, before.Verf, after.Verf)
	}
	c.content(dst, "content")
}
