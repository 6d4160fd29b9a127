package nfstest4

import (
	"math"
	"strings"

	"github.com/podnas/podnas/nfs/nfs4"
)

const (
	largest = math.MaxInt64 // off_t's
	block   = 64 << 10      // of whole blocks of all disks
)

// What ends behind the largest offset, or has no room on any disk, is refused, and changes nothing.
func testLargeRanges(e *env) {
	c := e.in42()
	fh, id := e.opened(c, "f", "content")
	other, from := e.opened(c, "other", "content")
	c.ok(putfh(fh), commit(0, 0), putfh(other), commit(0, 0))
	used := c.attr([]op{putfh(fh)}, nfs4.AttrSpaceUsed).SpaceUsed
	unchanged := func() {
		e.Helper()
		c.content(fh, "content")
		c.content(other, "content")
		if a := c.attr([]op{putfh(fh)}, nfs4.AttrSize, nfs4.AttrSpaceUsed); a.Size != 7 || a.SpaceUsed != used {
			e.Errorf("%d bytes, of which %d are in use, were 7 and %d", a.Size, a.SpaceUsed, used)
		}
	}
	for _, at := range []uint64{1 << 63, 1<<63 + block, math.MaxUint64 - block + 1, math.MaxUint64 - 1, math.MaxUint64} {
		for _, o := range []op{allocate(id, at, 1), deallocate(id, at, 1), allocate(id, 1, at), deallocate(id, 1, at), allocate(id, at, at), deallocate(id, at, at)} {
			c.refused([]op{putfh(fh), o}, nfs4.ErrInval, nfs4.ErrFBig)
		}
		for _, o := range []op{copyOp(from, id, at, 0, 1), copyOp(from, id, 0, at, 1), clone(from, id, at, 0, 1), clone(from, id, 0, at, 1), clone(from, id, 0, 0, at), clone(from, id, at, at, at)} {
			c.refused([]op{putfh(other), savefh(), putfh(fh), o}, nfs4.ErrInval, nfs4.ErrFBig, nfs4.ErrNotSupp)
		}
	}
	unchanged()
	// Up to the largest offset it is the disk that says no, or does it.
	for _, o := range []op{allocate(id, 0, largest), allocate(id, block, 1<<62)} {
		c.refused([]op{putfh(fh), o}, nfs4.ErrFBig, nfs4.ErrNoSpc, nfs4.ErrDQuot)
	}
	for _, o := range []op{copyOp(from, id, 0, largest, 1), copyOp(from, id, 0, largest-3, 0), clone(from, id, 0, largest, 7), clone(from, id, 0, 0, largest)} {
		c.refused([]op{putfh(other), savefh(), putfh(fh), o}, nfs4.ErrInval, nfs4.ErrFBig, nfs4.ErrNotSupp, nfs4.ErrNoSpc)
	}
	for _, o := range []op{deallocate(id, 7, largest-7), deallocate(id, 1<<62, block), deallocate(id, largest-1, 1)} { // there is nothing
		if r := c.do(putfh(fh), o); r.status != nfs4.OK {
			c.wants(r, nfs4.OpDeallocate, 3, nfs4.ErrFBig)
		}
	}
	if r := c.do(putfh(other), savefh(), putfh(fh), copyOp(from, id, largest, 0, 1)); r.status != nfs4.OK { // nor is there there
		c.wants(r, nfs4.OpCopy, 5, nfs4.ErrInval)
	}
	unchanged()
	// A count is at most what there is. The client may have known the file longer.
	for _, count := range []uint64{1 << 63, math.MaxUint64} {
		if r := c.do(putfh(other), savefh(), putfh(fh), copyOp(from, id, 0, 0, count)); r.status != nfs4.OK {
			c.wants(r, nfs4.OpCopy, 5, nfs4.ErrInval)
		} else if n := get[nfs4.CopyRes](e, r).Count; n != 7 {
			e.Errorf("COPY of %d bytes: %d", count, n)
		}
	}
	unchanged()
	e.largestFile(c, other, from)
	c.content(fh, "content")
	for _, what := range []nfs4.DataContent{2, 3, math.MaxUint32} {
		c.refused([]op{putfh(fh), seek(id, 0, what)}, nfs4.ErrUnionNotSupp)
	}
}

// largestFile makes a file of the largest size, where a disk can have one, and copies it over another file, as far as that goes.
func (e *env) largestFile(c *client, other nfs4.FH, to nfs4.Stateid) {
	e.Helper()
	fh, id := e.opened(c, "largest", "content")
	if r := c.do(putfh(fh), allocate(id, largest-1, 1)); r.status != nfs4.OK {
		c.wants(r, nfs4.OpAllocate, 3, nfs4.ErrFBig, nfs4.ErrNoSpc)
		return
	}
	if a := c.attr([]op{putfh(fh)}, nfs4.AttrSize); a.Size != largest {
		e.Errorf("the size is %d", a.Size)
	}
	if r := get[nfs4.SeekRes](e, c.ok(putfh(fh), seek(id, 0, nfs4.ContentHole))); r.EOF || r.Offset == 0 {
		e.Errorf("the first hole is at %d, eof %v", r.Offset, r.EOF)
	}
	for _, o := range copies(id, to, 0, 0, 0) {
		if r := c.do(putfh(fh), savefh(), putfh(other), o); r.status == nfs4.OK {
			if got := reads(c.ok(putfh(other), read(to, 0, 7))); got[0] != "content" {
				e.Errorf("%v of the largest file begins with %q", o.num, got)
			}
		} else {
			c.wants(r, o.num, 5, nfs4.ErrInval, nfs4.ErrFBig, nfs4.ErrNotSupp, nfs4.ErrNoSpc)
		}
		if r := c.do(putfh(fh), savefh(), putfh(other), copyOp(id, to, 0, block, 0)); r.status != nfs4.OK { // which would be larger
			c.wants(r, nfs4.OpCopy, 5, nfs4.ErrInval, nfs4.ErrFBig, nfs4.ErrNoSpc)
		}
		c.ok(putfh(other), setattr(to, size(0)))
	}
	c.ok(putfh(fh), deallocate(id, 0, largest), setattr(id, size(0)))
}

// Sections 15.2.3 and 15.13.3: ranges of one file may not overlap, and COPY is between two, whatever handles they
// have.
func testOverlaps(e *env) {
	c := e.in42()
	text := strings.Repeat("a", block) + strings.Repeat("b", block) + strings.Repeat("c", block)
	fh, id := e.opened(c, "f", text)
	for _, r := range [][3]uint64{{0, 0, block}, {0, 0, 0}, {0, block, 2 * block}, {block, 0, 2 * block}, {0, block, 0}, {block, 0, 0}} {
		for _, o := range copies(id, id, r[0], r[1], r[2]) {
			c.refused([]op{putfh(fh), savefh(), o}, nfs4.ErrInval, nfs4.ErrNotSupp)
		}
	}
	c.refused([]op{putfh(fh), savefh(), copyOp(id, id, 0, 2*block, block)}, nfs4.ErrInval) // it is one file
	c.content(fh, text)
	if e.target.ReadOnly != "" { // the same directory
		alias := c.fh(append(walkOps(e.target.ReadOnly), lookup(e.dirName), lookup("f"))...)
		c.refused([]op{putfh(alias), savefh(), putfh(fh), copyOp(nfs4.Stateid{}, id, 0, 2*block, block)}, nfs4.ErrInval)
		if r := c.do(putfh(alias), savefh(), putfh(fh), clone(nfs4.Stateid{}, id, 0, block, 2*block)); r.status != nfs4.ErrNotSupp {
			c.wants(r, nfs4.OpClone, 5, nfs4.ErrInval)
		}
		c.content(fh, text)
	}
	if r := c.do(putfh(fh), savefh(), clone(id, id, 0, 2*block, block)); r.status == nfs4.OK { // which do not overlap
		c.content(fh, text[:2*block]+strings.Repeat("a", block))
	} else if r.status != nfs4.ErrNotSupp {
		e.Errorf("CLONE of a file's range to another of its ranges: %v", r.status)
	}
}
