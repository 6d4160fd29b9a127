package nfstest4

import (
	"math"
	"strings"

	"github.com/podnas/podnas/nfs/nfs4"
)

// rangeTests are the operations of version 4.2 on ranges of files: RFC 7862 section 15. They are by a client of that
// minor version, whatever the others are.
var rangeTests = []test{
	{"legal in 4.2 alone", testLegalIn42},
	{"minor version of attributes", testAttrsOf42},
	{"SEEK", testSeek},
	{"ALLOCATE", testAllocate},
	{"DEALLOCATE", testDeallocate},
	{"COPY", testCopy},
	{"CLONE", testClone},
	{"ranges that are too large", testLargeRanges},
	{"ranges that overlap", testOverlaps},
	{"rights", testRangeRights},
	{"a read-only volume", testRangesReadOnly},
	{"a reply that is kept", testRangeReplay},
	{"set-user-ID", testRangeSetuid},
	{"stateids of copies", testCopyStateids},
	{"files of copies", testCopyFiles},
	{"copy from a server", testCopyFromServer},
	{"between volumes", testBetweenVolumes},
	{"between disks", testBetweenDisks},
	{"replies of copies that are kept", testCopyReplay},
	{"change attribute of copies", testCopyChange},
	{"CLONE is one change", testCloneIsOne},
	{"CLONE beside what truncates", testCloneTruncated},
	{"COPY of much", testCopyMuch},
	{"COPY without its connection", testCopyConnection},
}

func seek(id nfs4.Stateid, offset uint64, what nfs4.DataContent) op {
	return op{nfs4.OpSeek, &nfs4.SeekArgs{Stateid: id, Offset: offset, What: what}, &nfs4.SeekRes{}}
}

func allocate(id nfs4.Stateid, offset, length uint64) op {
	return op{nfs4.OpAllocate, &nfs4.AllocateArgs{Stateid: id, Offset: offset, Length: length}, &nfs4.AllocateRes{}}
}

func deallocate(id nfs4.Stateid, offset, length uint64) op {
	return op{nfs4.OpDeallocate, &nfs4.DeallocateArgs{Stateid: id, Offset: offset, Length: length}, &nfs4.DeallocateRes{}}
}

func copyOp(src, dst nfs4.Stateid, from, to, count uint64) op {
	args := nfs4.CopyArgs{Src: src, Dst: dst, SrcOffset: from, DstOffset: to, Count: count, Consecutive: true, Synchronous: true}
	return op{nfs4.OpCopy, &args, &nfs4.CopyRes{}}
}

func clone(src, dst nfs4.Stateid, from, to, count uint64) op {
	return op{nfs4.OpClone, &nfs4.CloneArgs{Src: src, Dst: dst, SrcOffset: from, DstOffset: to, Count: count}, &nfs4.CloneRes{}}
}

// in42 is another client, of version 4.2.
func (e *env) in42() *client {
	e.Helper()
	return e.in(2)
}

// in is another client, of a minor version. The test is skipped if the server has not got that.
func (e *env) in(minor uint32) *client {
	e.Helper()
	c := e.stranger(e.T)
	c.minor = minor
	if r := c.bare(exchangeID(c.exchangeIDArgs())); r.status == nfs4.ErrMinorVersMismatch {
		e.Skipf("named skip: version 4.%d: the server has not got it", minor)
	}
	c.start()
	c.ok(reclaimComplete(false))
	e.Cleanup(func() {
		c.reconnect() // another connection was closed before, as it was made after this
		if err := c.leave(); err != nil {
			e.Errorf("clean up: %v", err)
		}
	})
	return c
}

// opened makes a file that stays open.
func (e *env) opened(c *client, name, content string) (nfs4.FH, nfs4.Stateid) {
	e.Helper()
	fh, id := c.open(e.dir, opening{name: name, create: true})
	if content != "" {
		c.ok(putfh(fh), write(id, 0, content))
	}
	return fh, id
}

// Section 11.2 of RFC 7862, and 8.6 of RFC 8276: the numbers end at 58 in version 4.1, and at 75 in 4.2.
func testLegalIn42(e *env) {
	c := e.in42()
	for op := nfs4.OpReclaimComplete + 1; op <= nfs4.OpRemovexattr+1; op++ {
		want := nfs4.ErrOpIllegal
		if op <= nfs4.OpRemovexattr {
			want = 0
		}
		// Without arguments, which are looked at after the number.
		r := c.do(plain(op))
		if want != 0 && r.status != want || want == 0 && (r.status == nfs4.ErrOpIllegal || r.status == nfs4.OK) {
			e.Errorf("operation %d in version 4.2: %v", op, r.status)
		}
	}
	one := e.in(1)
	one.wants(one.do(plain(nfs4.OpSeek)), nfs4.OpIllegal, 2, nfs4.ErrOpIllegal)
}

// Section 12.2.
func testAttrsOf42(e *env) {
	c := e.in42()
	if a := c.attr([]op{putfh(e.root)}, nfs4.AttrCloneBlksize, nfs4.AttrSupportedAttrs); !a.SupportedAttrs.Has(nfs4.AttrCloneBlksize) ||
		!a.Mask.Has(nfs4.AttrCloneBlksize) || a.CloneBlksize == 0 {
		e.Errorf("version 4.2: supported %v, clone_blksize %d", a.SupportedAttrs, a.CloneBlksize)
	}
	one := e.in(1)
	if a := one.attr([]op{putfh(e.root)}, nfs4.AttrCloneBlksize, nfs4.AttrSupportedAttrs); a.SupportedAttrs.Has(nfs4.AttrCloneBlksize) || a.Mask.Has(nfs4.AttrCloneBlksize) {
		e.Errorf("version 4.1 has an attribute of 4.2: supported %v", a.SupportedAttrs)
	}
}

const piece = 64 << 10 // more than a block of any file system

// Section 15.11.
func testSeek(e *env) {
	c := e.in42()
	fh, id := e.opened(c, "f", "")
	c.ok(putfh(fh), write(id, 0, strings.Repeat("d", piece)), write(id, 4*piece, strings.Repeat("d", piece)), commit(0, 0))
	for _, tt := range []struct {
		offset uint64
		what   nfs4.DataContent
		at     uint64
		eof    bool
	}{
		{0, nfs4.ContentData, 0, false},
		{10, nfs4.ContentData, 10, false},
		{2 * piece, nfs4.ContentData, 4 * piece, false},
		{0, nfs4.ContentHole, piece, false},
		{4*piece + 1, nfs4.ContentHole, 5 * piece, true},
	} {
		for _, with := range []nfs4.Stateid{id, {}} {
			r := get[nfs4.SeekRes](e, c.ok(putfh(fh), seek(with, tt.offset, tt.what)))
			// A server that knows of no holes may say that all is data.
			if r.Offset != tt.at || r.EOF != tt.eof {
				e.Errorf("SEEK of %d from %d: %d, eof %v, want %d, %v", tt.what, tt.offset, r.Offset, r.EOF, tt.at, tt.eof)
			}
		}
	}
	for _, offset := range []uint64{5 * piece, 5*piece + 1, 1 << 62, 1 << 63, math.MaxUint64} {
		c.refused([]op{putfh(fh), seek(id, offset, nfs4.ContentData)}, nfs4.ErrNXIO)
	}
	c.refused([]op{putfh(fh), seek(id, 0, 2)}, nfs4.ErrUnionNotSupp)
	_, toWrite := c.open(e.dir, opening{name: "f", access: nfs4.ShareAccessWrite, owner: "writer"}) // lseek(2) takes it
	if r := get[nfs4.SeekRes](e, c.ok(putfh(fh), seek(toWrite, 0, nfs4.ContentHole))); r.Offset != piece || r.EOF {
		e.Errorf("SEEK by an open for writing: %d, eof %v", r.Offset, r.EOF)
	}
	c.refused([]op{putfh(e.dir), seek(nfs4.Stateid{}, 0, nfs4.ContentData)}, nfs4.ErrIsDir, nfs4.ErrInval)
	c.refused([]op{seek(id, 0, nfs4.ContentData)}, nfs4.ErrNoFileHandle)
}

// Section 15.1.
func testAllocate(e *env) {
	c := e.in42()
	fh, id := e.opened(c, "f", "content")
	before := c.attr([]op{putfh(fh)}, nfs4.AttrChange)
	c.ok(putfh(fh), allocate(id, 0, piece))
	a := c.attr([]op{putfh(fh)}, nfs4.AttrChange, nfs4.AttrSize, nfs4.AttrSpaceUsed)
	if a.Size != piece || a.SpaceUsed < piece || a.Change == before.Change {
		e.Errorf("size %d, used %d, change attribute %d, was %d", a.Size, a.SpaceUsed, a.Change, before.Change)
	}
	if r := get[nfs4.ReadRes](e, c.ok(putfh(fh), read(id, 0, 8))); string(r.Data) != "content\x00" {
		e.Errorf("it holds %q", r.Data)
	}
	c.refused([]op{putfh(fh), allocate(id, 0, 0)}, nfs4.ErrInval)
	c.refused([]op{putfh(e.dir), allocate(nfs4.Stateid{}, 0, 1)}, nfs4.ErrIsDir, nfs4.ErrInval)
}

// Section 15.4.
func testDeallocate(e *env) {
	c := e.in42()
	fh, id := e.opened(c, "f", strings.Repeat("d", 4*piece))
	before := c.attr([]op{putfh(fh)}, nfs4.AttrChange)
	c.ok(putfh(fh), deallocate(id, piece, piece))
	a := c.attr([]op{putfh(fh)}, nfs4.AttrChange, nfs4.AttrSize)
	if a.Size != 4*piece || a.Change == before.Change {
		e.Errorf("size %d, change attribute %d, was %d", a.Size, a.Change, before.Change)
	}
	c.content(fh, strings.Repeat("d", piece)+strings.Repeat("\x00", piece)+strings.Repeat("d", 2*piece))
	if r := get[nfs4.SeekRes](e, c.ok(putfh(fh), seek(id, 0, nfs4.ContentHole))); r.Offset != piece {
		e.Errorf("the hole is at %d", r.Offset)
	}
	c.ok(putfh(fh), deallocate(id, 8*piece, piece)) // behind the end: nothing changes
	if a := c.attr([]op{putfh(fh)}, nfs4.AttrSize); a.Size != 4*piece {
		e.Errorf("size %d", a.Size)
	}
	c.refused([]op{putfh(fh), deallocate(id, 0, 0)}, nfs4.ErrInval)
}

// Section 15.2.
func testCopy(e *env) {
	c := e.in42()
	text := strings.Repeat("0123456789abcdef", piece/16)
	src, from := e.opened(c, "from", text+"end")
	dst, to := e.opened(c, "to", "before")
	both := func(o op) []op { return []op{putfh(src), savefh(), putfh(dst), o} }
	for _, tt := range []struct {
		name             string
		from, to, count  uint64
		copied           uint64
		content, earlier string
	}{
		{"all of it", 0, 0, piece + 3, piece + 3, text + "end", ""},
		{"up to the end", 10, 0, 0, piece - 7, text[10:] + "end", ""},
		{"more than there is", piece, 2, 1 << 40, 3, "beend", "be"},
		{"behind the end", piece + 3, 0, 10, 0, "", ""},
		{"to where nothing is", piece, 8, 3, 3, "before\x00\x00end", "before"},
	} {
		c.ok(putfh(dst), setattr(to, size(0)))
		if tt.earlier != "" {
			c.ok(putfh(dst), write(to, 0, tt.earlier))
		}
		r := get[nfs4.CopyRes](e, c.ok(both(copyOp(from, to, tt.from, tt.to, tt.count))...))
		if r.GoesOn || r.Count != tt.copied || !r.Synchronous || !r.Consecutive {
			e.Errorf("%s: %+v, want %d", tt.name, r, tt.copied)
		}
		c.content(dst, tt.content)
	}
	// The verifier is that of the COMMIT, or the client copies again.
	r := c.ok(append(both(copyOp(from, to, 0, 0, 10)), commit(0, 0))...)
	if copied, committed := get[nfs4.CopyRes](e, r), get[nfs4.CommitRes](e, r); copied.Verf != committed.Verf {
		e.Errorf("COPY says %x, COMMIT %x", copied.Verf, committed.Verf)
	}
	c.refused([]op{putfh(src), savefh(), copyOp(from, from, 0, piece, 3)}, nfs4.ErrInval) // one file
	c.refused([]op{putfh(dst), copyOp(from, to, 0, 0, 1)}, nfs4.ErrNoFileHandle)
	c.refused([]op{putfh(e.dir), savefh(), putfh(dst), copyOp(nfs4.Stateid{}, to, 0, 0, 1)}, nfs4.ErrIsDir, nfs4.ErrInval, nfs4.ErrWrongType)
	c.content(src, text+"end")
}

// Section 15.13.
func testClone(e *env) {
	c := e.in42()
	text := strings.Repeat("0123456789abcdef", piece/16)
	src, from := e.opened(c, "from", text)
	dst, to := e.opened(c, "to", "")
	both := func(o op) []op { return []op{putfh(src), savefh(), putfh(dst), o} }
	r := c.do(both(clone(from, to, 0, 0, 0))...)
	if r.status == nfs4.ErrNotSupp {
		e.Skip("named skip: CLONE: the file system of the volume shares no blocks")
	}
	if r.status != nfs4.OK {
		e.Fatalf("CLONE: %v", r.status)
	}
	c.content(dst, text)
	c.ok(putfh(src), write(from, 0, "changed"))
	c.content(dst, text)
	c.refused(both(clone(from, to, 1, 0, piece)), nfs4.ErrInval)
	c.refused(both(clone(from, to, 0, 1, piece)), nfs4.ErrInval)
	c.refused(both(clone(from, to, 0, 0, 2*piece)), nfs4.ErrInval)                       // more than there is
	c.refused([]op{putfh(src), savefh(), clone(from, from, 0, 0, piece)}, nfs4.ErrInval) // over itself
	c.content(dst, text)
}

// The rights are those of READ and WRITE, as the caller has them, and as the file was opened.
func testRangeRights(e *env) {
	c := e.in42()
	fh, id := e.opened(c, "f", "content")
	c.ok(putfh(fh), setattr(id, mode(0o600)), closeOp(id))
	_, reads := c.open(e.dir, opening{name: "f", access: nfs4.ShareAccessRead})
	for _, o := range []op{allocate(reads, 0, piece), deallocate(reads, 0, piece)} {
		c.refused([]op{putfh(fh), o}, nfs4.ErrOpenMode)
	}
	e.asOther(func(other *client) {
		other.minor = 2
		other.conn = other.dial()
		other.owner += " of another user"
		other.start()
		other.ok(reclaimComplete(false))
		for _, o := range []op{seek(nfs4.Stateid{}, 0, nfs4.ContentData), allocate(nfs4.Stateid{}, 0, piece), deallocate(nfs4.Stateid{}, 0, piece)} {
			other.refused([]op{putfh(fh), o}, nfs4.ErrAccess)
		}
		if err := other.leave(); err != nil {
			e.Errorf("clean up: %v", err)
		}
	})
	c.content(fh, "content")
}

func testRangesReadOnly(e *env) {
	if e.target.ReadOnly == "" {
		e.Skip("named skip: a read-only volume: there is none")
	}
	c := e.in42()
	e.file("f", "content")
	fh := c.fh(append(walkOps(e.target.ReadOnly), lookup(e.dirName), lookup("f"))...)
	for _, o := range []op{allocate(nfs4.Stateid{}, 0, 1), deallocate(nfs4.Stateid{}, 0, 1)} {
		c.refused([]op{putfh(fh), o}, nfs4.ErrROFS)
	}
	for _, o := range []op{copyOp(nfs4.Stateid{}, nfs4.Stateid{}, 0, 0, 1), clone(nfs4.Stateid{}, nfs4.Stateid{}, 0, 0, 0)} {
		c.refused([]op{putfh(fh), savefh(), putfh(fh), o}, nfs4.ErrROFS)
	}
	c.ok(putfh(fh), seek(nfs4.Stateid{}, 0, nfs4.ContentData))
}

// A call that comes again is not done again.
func testRangeReplay(e *env) {
	c := e.in42()
	fh, id := e.opened(c, "f", "content")
	ops := []op{c.next(), putfh(fh), deallocate(id, 0, 4)}
	if r := c.compound(&call{minor: 2, ops: ops}); r.status != nfs4.OK {
		e.Fatalf("DEALLOCATE: %v", r.status)
	}
	other := e.another()
	otherFH, otherID := other.open(e.dir, opening{name: "f"})
	other.ok(putfh(otherFH), write(otherID, 0, "new!"))
	if r := c.compound(&call{minor: 2, ops: ops}); r.status != nfs4.OK || len(r.nums) != 3 {
		e.Errorf("again: %v of %v", r.status, r.nums)
	}
	c.content(fh, "new!ent")
}

// They take away set-user-ID as a WRITE does, unless root makes them.
func testRangeSetuid(e *env) {
	c := e.in42()
	e.asOther(func(other *client) {
		other.minor = 2
		fh, id := e.opened(c, "f", strings.Repeat("d", piece))
		c.ok(putfh(fh), setattr(id, mode(0o4777)))
		other.conn = other.dial()
		other.owner += " of another user"
		other.start()
		other.ok(reclaimComplete(false))
		other.ok(putfh(fh), deallocate(nfs4.Stateid{}, 0, piece))
		if a := c.attr([]op{putfh(fh)}, nfs4.AttrMode); a.Mode != 0o777 {
			e.Errorf("the mode is %o", a.Mode)
		}
		if err := other.leave(); err != nil {
			e.Errorf("clean up: %v", err)
		}
	})
}
