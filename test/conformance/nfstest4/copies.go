package nfstest4

import (
	"strings"
	"testing"

	"github.com/podnas/podnas/nfs/nfs4"
)

// opensAs opens a file once more, as another owner.
func (e *env) opensAs(c *client, owner, name string, access uint32) nfs4.Stateid {
	c.Helper()
	_, id := c.open(e.dir, opening{name: name, owner: owner, access: access})
	return id
}

// copies are COPY and CLONE with the same arguments.
func copies(src, dst nfs4.Stateid, from, to, count uint64) []op {
	return []op{copyOp(src, dst, from, to, count), clone(src, dst, from, to, count)}
}

// Sections 15.2.3 and 15.13.3: the source is read and the target written, each by its stateid.
func testCopyStateids(e *env) {
	c := e.in42()
	text := strings.Repeat("0123456789abcdef", piece/16)
	src, from := e.opened(c, "from", text)
	dst, to := e.opened(c, "to", "before")
	reads, writes := e.opensAs(c, "reader", "to", nfs4.ShareAccessRead), e.opensAs(c, "writer", "from", nfs4.ShareAccessWrite)
	closed := e.opensAs(c, "closer", "from", nfs4.ShareAccessBoth)
	c.ok(putfh(src), closeOp(closed))
	var none nfs4.Stateid
	for _, tt := range []struct {
		name     string
		src, dst nfs4.Stateid
		want     nfs4.Status
	}{
		{"a source that is open for writing", writes, to, nfs4.ErrOpenMode},
		{"a target that is open for reading", from, reads, nfs4.ErrOpenMode},
		{"a source that is another file", to, to, nfs4.ErrBadStateid},
		{"a target that is another file", from, from, nfs4.ErrBadStateid},
		{"a source that was closed", closed, to, nfs4.ErrBadStateid},
		{"a target that was closed", from, closed, nfs4.ErrBadStateid},
		{"no current stateid", from, nfs4.CurrentStateid(), nfs4.ErrBadStateid},
		{"no saved stateid", nfs4.CurrentStateid(), to, nfs4.ErrBadStateid},
	} {
		e.Run(tt.name, func(t *testing.T) {
			for _, o := range copies(tt.src, tt.dst, 0, 0, piece) {
				c.with(t).refused([]op{putfh(src), savefh(), putfh(dst), o}, tt.want)
			}
		})
	}
	c.content(dst, "before")
	c.ok(putfh(src), savefh(), putfh(dst), copyOp(none, none, 0, 0, 0))
	c.content(dst, text)
	// A client that denies others to read the source has its way.
	other := e.another()
	c.ok(putfh(src), closeOp(from))
	c.ok(putfh(src), closeOp(writes))
	_, denies := other.open(e.dir, opening{name: "from", access: nfs4.ShareAccessRead, deny: nfs4.ShareDenyRead})
	for _, o := range copies(none, to, 0, 0, piece) {
		c.refused([]op{putfh(src), savefh(), putfh(dst), o}, nfs4.ErrLocked)
	}
	other.ok(putfh(src), closeOp(denies))
}

// Sections 15.2.3 and 15.13.3: both are regular files, and there are two.
func testCopyFiles(e *env) {
	c := e.in42()
	file, id := e.opened(c, "file", "content")
	var none nfs4.Stateid
	for name, r := range map[string]struct {
		fh   nfs4.FH
		kind nfs4.FType
	}{
		"a directory":     {e.dir, nfs4.TypeDir},
		"a symbolic link": {c.fh(putfh(e.dir), symlink("link", "file")), nfs4.TypeLnk},
		"a fifo":          {c.fh(putfh(e.dir), create(nfs4.CreateArgs{Type: nfs4.TypeFIFO, Name: []byte("fifo"), Attr: mode(0o644)})), nfs4.TypeFIFO},
	} {
		e.Run(name, func(t *testing.T) {
			c := c.with(t)
			for _, o := range copies(none, id, 0, 0, 1) {
				c.refused([]op{putfh(r.fh), savefh(), putfh(file), o}, nfs4.ErrWrongType)
			}
			for _, o := range copies(id, none, 0, 0, 1) {
				c.refused([]op{putfh(file), savefh(), putfh(r.fh), o}, nfs4.ErrWrongType)
			}
			for _, o := range []op{seek(none, 0, nfs4.ContentData), allocate(none, 0, 1), deallocate(none, 0, 1)} {
				c.refused([]op{putfh(r.fh), o}, notRegular(r.kind)...)
			}
		})
	}
	for _, o := range copies(id, id, 0, 0, 1) {
		c.refused([]op{putfh(file), o}, nfs4.ErrNoFileHandle) // none was saved
		c.refused([]op{o}, nfs4.ErrNoFileHandle)
	}
	c.content(file, "content")
}

// Section 15.2.3: what another server has is copied by the client, if this one can't.
func testCopyFromServer(e *env) {
	c := e.in42()
	src, from := e.opened(c, "from", "content")
	dst, to := e.opened(c, "to", "before")
	with := func(l nfs4.NetLoc) op {
		return op{nfs4.OpCopy, &nfs4.CopyArgs{Src: from, Dst: to, Servers: []nfs4.NetLoc{l}}, &nfs4.CopyRes{}}
	}
	for _, l := range []nfs4.NetLoc{
		{Type: nfs4.NetLocAddress, NetID: []byte("tcp"), Name: []byte("192.0.2.1.8.1")},
		{Type: nfs4.NetLocAddress, NetID: []byte("\x00"), Name: []byte("/")},
		{Type: nfs4.NetLocName, Name: []byte("server.example")},
		{Type: nfs4.NetLocName},
		{Type: nfs4.NetLocURL, Name: []byte("nfs://192.0.2.1/")},
	} {
		c.refused([]op{putfh(src), savefh(), putfh(dst), with(l)}, nfs4.ErrOffloadDenied, nfs4.ErrNotSupp, nfs4.ErrPartnerNotSupp)
	}
	c.refused([]op{putfh(src), savefh(), putfh(dst), with(nfs4.NetLoc{Type: 4})}, nfs4.ErrBadXDR)
	c.content(dst, "before")
	// One that may go on after the reply, and need not.
	args := nfs4.CopyArgs{Src: from, Dst: to, Count: 7, Consecutive: true}
	if r := get[nfs4.CopyRes](c, c.ok(putfh(src), savefh(), putfh(dst), op{nfs4.OpCopy, &args, &nfs4.CopyRes{}})); !r.GoesOn {
		c.content(dst, "content")
	}
}

// Section 15.13.3 and copy_file_range(2): both are on one disk, in whatever volumes.
func testBetweenVolumes(e *env) {
	if e.target.Other == "" {
		e.Skip("named skip: another volume: there is none")
	}
	c := e.in42()
	text := strings.Repeat("0123456789abcdef", piece/16)
	src, from := e.opened(c, "from", text)
	root := c.fh(walkOps(e.target.Other)...)
	dst, to := c.open(root, opening{name: e.dirName, create: true})
	e.Cleanup(func() {
		c := e.another()
		c.ok(putfh(c.fh(walkOps(e.target.Other)...)), remove(e.dirName))
	})
	r := get[nfs4.CopyRes](c, c.ok(putfh(src), savefh(), putfh(dst), copyOp(from, to, 0, 0, 0)))
	if r.Count != piece {
		e.Errorf("COPY of %d bytes", r.Count)
	}
	c.content(dst, text)
	c.ok(putfh(dst), setattr(to, size(0)))
	if r := c.do(putfh(src), savefh(), putfh(dst), clone(from, to, 0, 0, 0)); r.status == nfs4.OK {
		c.content(dst, text)
	} else if r.status != nfs4.ErrNotSupp && r.status != nfs4.ErrXDev {
		e.Errorf("CLONE: %v", r.status)
	}
	c.ok(putfh(dst), closeOp(to))
}

// Between two disks nothing can be shared, and the client copies; it asks again for other files.
func testBetweenDisks(e *env) {
	if e.target.OtherDisk == "" {
		e.Skip("named skip: another disk: there is none")
	}
	c := e.in42()
	src, from := e.opened(c, "from", strings.Repeat("0123456789abcdef", piece/16))
	root := c.fh(walkOps(e.target.OtherDisk)...)
	dst, to := c.open(root, opening{name: e.dirName, create: true})
	c.ok(putfh(dst), write(to, 0, "before"))
	for _, pair := range [][2]nfs4.FH{{src, dst}, {dst, src}} {
		id := map[bool][2]nfs4.Stateid{true: {from, to}, false: {to, from}}[&pair[0][0] == &src[0]]
		r := c.do(putfh(pair[0]), savefh(), putfh(pair[1]), copyOp(id[0], id[1], 0, 0, 0))
		if r.status != nfs4.OK {
			c.wants(r, nfs4.OpCopy, 5, nfs4.ErrOffloadDenied, nfs4.ErrXDev)
		}
		c.refused([]op{putfh(pair[0]), savefh(), putfh(pair[1]), clone(id[0], id[1], 0, 0, 0)}, nfs4.ErrXDev, nfs4.ErrNotSupp)
	}
	c.ok(putfh(dst), closeOp(to), putfh(root), remove(e.dirName))
}

// RFC 8881 section 2.10.6.1: done again, they would take away what another client has written since.
func testCopyReplay(e *env) {
	c := e.in42()
	text := strings.Repeat("0123456789abcdef", piece/16)
	src, from := e.opened(c, "from", text)
	dst, to := e.opened(c, "to", "before")
	other := e.another()
	_, otherID := other.open(e.dir, opening{name: "to"})
	for _, o := range copies(from, to, 0, 0, piece) {
		c.ok(putfh(dst), setattr(to, size(0)))
		first := c.next()
		first.args.(*nfs4.SequenceArgs).CacheThis = false // as Linux has it for WRITE
		ops := []op{first, putfh(src), savefh(), putfh(dst), o}
		r := c.compound(&call{minor: 2, ops: ops})
		if o.num == nfs4.OpClone && r.status == nfs4.ErrNotSupp {
			continue
		}
		if r.status != nfs4.OK {
			e.Fatalf("%v: %v", o.num, r.status)
		}
		other.ok(putfh(dst), write(otherID, 0, "new!"))
		again := c.compound(&call{minor: 2, ops: ops})
		if again.status != nfs4.OK && again.status != nfs4.ErrRetryUncachedRep {
			e.Errorf("%v again: %v of %v", o.num, again.status, again.nums)
		}
		c.content(dst, "new!"+text[4:])
	}
}

// What is copied over is another file for who looks at its change attribute, and the source is not.
func testCopyChange(e *env) {
	c := e.in42()
	text := strings.Repeat("0123456789abcdef", piece/16)
	src, from := e.opened(c, "from", text)
	dst, to := e.opened(c, "to", text)
	for _, o := range copies(from, to, 0, 0, piece) {
		before := c.attr([]op{putfh(dst)}, nfs4.AttrChange)
		source := c.attr([]op{putfh(src)}, nfs4.AttrChange)
		r := c.do(putfh(src), savefh(), putfh(dst), o, getattrs(nfs4.AttrChange))
		if o.num == nfs4.OpClone && r.status == nfs4.ErrNotSupp {
			continue
		}
		if r.status != nfs4.OK {
			e.Fatalf("%v: %v", o.num, r.status)
		}
		if after := get[nfs4.GetattrRes](c, r).Attr; after.Change == before.Change {
			e.Errorf("%v: the change attribute stays", o.num)
		}
		if after := c.attr([]op{putfh(src)}, nfs4.AttrChange); after.Change != source.Change {
			e.Errorf("%v: the change attribute of the source was %d, and is %d", o.num, source.Change, after.Change)
		}
	}
}
