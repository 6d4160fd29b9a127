package nfstest4

import (
	"fmt"
	"testing"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/test/conformance/nfstest"
)

// Rights, at OPEN and by its stateid.

// Section 18.16.3: OPEN takes rights; who makes a file may write it, whatever its mode.
func testRightsAtOpen(e *env) {
	e.need(nfstest.FeatureIdentity)
	e.ok(putfh(e.dir), setattr(nfs4.Stateid{}, mode(0o777)))
	user := e.as(1000, 1000)
	args := user.openArgs(opening{name: "f", create: true})
	args.Attr = mode(0o444)
	r := user.ok(putfh(e.dir), open(args), getfh(), write(nfs4.CurrentStateid(), 0, "content"))
	fh, id := get[nfs4.GetfhRes](e, r).FH, get[nfs4.OpenRes](e, r).Stateid
	if a := e.attr([]op{putfh(fh)}, nfs4.AttrOwner, nfs4.AttrMode); string(a.Owner) != "1000" || a.Mode != 0o444 {
		e.Errorf("owner %q, mode %o", a.Owner, a.Mode)
	}
	user.ok(putfh(fh), write(id, 0, "CONTENT"), read(id, 0, 10), setattr(id, size(7)), commit(0, 0))
	e.ok(putfh(fh), setattr(nfs4.Stateid{}, nfs4.Sattr{Mask: nfs4.BitmapOf(nfs4.AttrMode, nfs4.AttrOwner, nfs4.AttrOwnerGroup), Owner: []byte("0"), OwnerGroup: []byte("0")}))
	user.refused([]op{putfh(e.dir), open(user.openArgs(opening{name: "f", owner: "2", access: nfs4.ShareAccessRead}))}, nfs4.ErrAccess)
	user.refused([]op{putfh(e.dir), open(user.openArgs(opening{name: "f", owner: "2", access: nfs4.ShareAccessWrite}))}, nfs4.ErrAccess)
	// To execute is to read (section 18.16.3), but not beside writing.
	for m, may := range map[uint32]uint32{0o004: 1, 0o002: 2, 0o006: 3, 0o001: 1, 0o003: 2} {
		e.ok(putfh(fh), setattr(nfs4.Stateid{}, mode(m)))
		for a := uint32(1); a <= 3; a++ {
			want := nfs4.OK
			if a&^may != 0 && (m != 0o003 || a != 1) {
				want = nfs4.ErrAccess
			}
			r := user.do(putfh(e.dir), open(user.openArgs(opening{name: "f", owner: fmt.Sprint(m, a), access: a})))
			if r.status != want {
				e.Errorf("mode %o, access %d: %v, want %v", m, a, r.status, want)
			}
		}
	}
	e.content(fh, "CONTENT")
	e.ok(putfh(fh), setattr(nfs4.Stateid{}, mode(0o006)))
	args = user.openArgs(opening{name: "f", owner: "truncates", create: true})
	args.Attr = size(0)
	user.ok(putfh(e.dir), open(args), write(nfs4.CurrentStateid(), 0, "x"), getattrs(nfs4.AttrSize), closeOp(nfs4.CurrentStateid()))
	e.content(fh, "x")
}

// Who may only read a file can't deny it to others, and is not told who has locked it without any right.
func testRightsToDeny(e *env) {
	e.need(nfstest.FeatureIdentity)
	fh := e.file("f", "content")
	user := e.as(1000, 1000)
	for m, want := range map[uint32]nfs4.Status{0o644: nfs4.ErrAccess, 0o646: nfs4.OK} {
		e.setMode(fh, m)
		for _, deny := range []uint32{nfs4.ShareDenyRead, nfs4.ShareDenyBoth} {
			args := user.openArgs(opening{name: "f", owner: fmt.Sprint("denies", deny), access: nfs4.ShareAccessRead})
			args.ShareDeny = deny
			r := user.do(putfh(e.dir), open(args))
			if r.status != want {
				e.Errorf("mode %o, OPEN that denies %d: %v, want %v", m, deny, r.status, want)
			}
			if r.status == nfs4.OK {
				user.ok(putfh(fh), closeOp(get[nfs4.OpenRes](e, r).Stateid))
			}
		}
	}
	asks := lockt(nfs4.LocktArgs{Type: nfs4.LockRead, Length: 1, Owner: nfs4.StateOwner{Owner: []byte("l")}})
	for m, want := range map[uint32]nfs4.Status{0o600: nfs4.ErrAccess, 0o604: nfs4.OK} {
		e.setMode(fh, m)
		if r := user.do(putfh(fh), asks); r.status != want {
			e.Errorf("mode %o, LOCKT: %v, want %v", m, r.status, want)
		}
	}
}

// dataOps are the operations on a file's data by a stateid.
func dataOps(fh nfs4.FH, id nfs4.Stateid) (reads, writes map[string][]op) {
	return map[string][]op{"READ": {putfh(fh), read(id, 0, 10)}},
		map[string][]op{"WRITE": {putfh(fh), write(id, 0, "content")}, "SETATTR of the size": {putfh(fh), setattr(id, size(7))}, "COMMIT": {putfh(fh), commit(0, 0)}}
}

// mayUse does what has to do with a file's data by a stateid, several times.
func (c *client) mayUse(t *testing.T, fh nfs4.FH, id nfs4.Stateid, mayRead, mayWrite bool) {
	t.Helper()
	reads, writes := dataOps(fh, id)
	for range 3 {
		for _, some := range []struct {
			ops map[string][]op
			may bool
		}{{reads, mayRead}, {writes, mayWrite}} {
			want := nfs4.ErrAccess
			if some.may {
				want = nfs4.OK
			}
			for name, ops := range some.ops {
				if r := c.do(ops...); r.status != want {
					t.Errorf("%s: %v, want %v", name, r.status, want)
				}
			}
		}
	}
}

// setMode sets the mode, as root.
func (e *env) setMode(fh nfs4.FH, m uint32) {
	e.Helper()
	e.ok(putfh(fh), setattr(nfs4.Stateid{}, mode(m)))
}

// Sections 18.22.3, 18.32.3 and 5.9: an open is one client's, whose users have rights of their own.
func testRightsOfCaller(e *env) {
	e.need(nfstest.FeatureIdentity)
	e.setMode(e.dir, 0o777)
	owner := e.as(2000, 2000)
	args := owner.openArgs(opening{name: "f", create: true})
	args.Attr = mode(0o600)
	r := owner.ok(putfh(e.dir), open(args), getfh(), write(nfs4.CurrentStateid(), 0, "content"))
	fh, id := get[nfs4.GetfhRes](e, r).FH, get[nfs4.OpenRes](e, r).Stateid
	lockID := get[nfs4.LockRes](e, owner.ok(putfh(fh), lock(nfs4.LockArgs{
		Type: nfs4.LockWrite, Length: 10, NewOwner: true, OpenStateid: id, Owner: nfs4.StateOwner{Owner: []byte("l")},
	}))).Stateid
	users := map[string]*client{
		"owner": owner, "another": e.as(1000, 1000), "of the group": e.as(1000, 2000), "also of the group": e.as(1000, 1000, 2000), "root": e.as(0, 0), "root with a group": e.as(0, 5),
	}
	for _, m := range []uint32{0o600, 0, 0o640, 0o620, 0o604, 0o602, 0o666, 0o006, 0o611, 0o600} {
		e.setMode(fh, m)
		for name, user := range users {
			e.Run(fmt.Sprintf("%o/%s", m, name), func(t *testing.T) {
				bits := m & 7
				switch name {
				case "owner", "root", "root with a group": // an owner may whatever the mode
					bits = 6
				case "of the group", "also of the group":
					bits = m >> 3 & 7
				}
				for _, id := range []nfs4.Stateid{id, lockID} {
					user.mayUse(t, fh, id, bits&5 != 0, bits&2 != 0) // to execute is to read
				}
			})
		}
	}
	owner.ok(putfh(fh), closeOp(id))
}

// Section 18.16.3 leaves it to the server whether an open goes on with rights that its user has lost. Linux's own does
// not, but for the owner, and neither does version 3.
func testRightsTaken(e *env) {
	e.need(nfstest.FeatureIdentity)
	e.need(nfstest.FeatureChown)
	fh := e.file("f", "content")
	e.setMode(fh, 0o666)
	user := e.as(1000, 1000)
	_, id := user.open(e.dir, opening{name: "f"})
	own := func(owner string) {
		e.ok(putfh(fh), setattr(nfs4.Stateid{}, nfs4.Sattr{Mask: nfs4.BitmapOf(nfs4.AttrOwner), Owner: []byte(owner)}))
	}
	for _, step := range []struct {
		what        string
		do          func()
		read, write bool
	}{
		{"as opened", func() {}, true, true},
		{"none", func() { e.setMode(fh, 0) }, false, false},
		{"none, of its own", func() { own("1000") }, true, true},
		{"none, of another", func() { own("2000") }, false, false},
		{"to read", func() { e.setMode(fh, 0o604) }, true, false},
		{"to write", func() { e.setMode(fh, 0o602) }, false, true},
		{"given back", func() { e.setMode(fh, 0o666) }, true, true},
	} {
		step.do()
		e.Run(step.what, func(t *testing.T) { user.mayUse(t, fh, id, step.read, step.write) })
	}
	// A caller with other rights does not take those of the opener from it, nor lend it its own.
	e.setMode(fh, 0o640)
	e.ok(putfh(fh), read(id, 0, 10), write(id, 0, "content"))
	e.Run("after root", func(t *testing.T) { user.mayUse(t, fh, id, false, false) })
}
