package nfstest4

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/test/conformance/nfstest"
)

// failedTests are creates that fail. They leave nothing, so that who tries again meets the same as before.
var failedTests = []test{
	{"owner that may not be set", testFailedOwner},
	{"owner, and the name exists", testFailedOwnerExists},
	{"size too large", testFailedSize},
	{"at the bound of opens", testFailedBound},
}

// creates are OPEN and CREATE of a name in the test's directory, with attributes.
func (c *client) creates(dir nfs4.FH, name string, attr nfs4.Sattr) map[string][]op {
	all := map[string][]op{}
	for what, m := range map[string]nfs4.CreateMode{"OPEN unchecked": nfs4.Unchecked, "OPEN guarded": nfs4.Guarded, "OPEN exclusive": nfs4.ExclusiveAttrs} {
		args := c.openArgs(opening{name: name, create: true})
		args.Mode, args.Attr = m, attr
		all[what] = []op{putfh(dir), open(args)}
	}
	for what, kind := range map[string]nfs4.FType{"CREATE of a directory": nfs4.TypeDir, "CREATE of a fifo": nfs4.TypeFIFO, "CREATE of a socket": nfs4.TypeSock} {
		all[what] = []op{putfh(dir), create(nfs4.CreateArgs{Type: kind, Name: []byte(name), Attr: attr})}
	}
	all["CREATE of a link"] = []op{putfh(dir), create(nfs4.CreateArgs{Type: nfs4.TypeLnk, Name: []byte(name), Link: []byte("to"), Attr: attr})}
	return all
}

// badOwners are owners that the user 1000 may not give.
func badOwners() map[string]nfs4.Sattr {
	return map[string]nfs4.Sattr{
		"root":          {Mask: nfs4.BitmapOf(nfs4.AttrMode, nfs4.AttrOwner), Mode: 0o600, Owner: []byte("0")},
		"another group": {Mask: nfs4.BitmapOf(nfs4.AttrMode, nfs4.AttrOwnerGroup), Mode: 0o600, OwnerGroup: []byte("2000")},
		"set group ID":  {Mask: nfs4.BitmapOf(nfs4.AttrMode, nfs4.AttrOwner, nfs4.AttrOwnerGroup), Mode: 0o6755, Owner: []byte("1000"), OwnerGroup: []byte("0")},
	}
}

// Section 18.16.3, 18.4.3.
func testFailedOwner(e *env) {
	e.need(nfstest.FeatureIdentity)
	e.ok(putfh(e.dir), setattr(nfs4.Stateid{}, mode(0o777)))
	user := e.as(1000, 1000)
	for whose, attr := range badOwners() {
		for what, ops := range user.creates(e.dir, "new", attr) {
			e.Run(what+"/"+whose, func(t *testing.T) {
				c := user.with(t)
				for range 2 { // the second is no EXIST
					c.refused(ops, nfs4.ErrPerm)
				}
				if names := c.names(e.dir); len(names) > 0 {
					t.Errorf("there is %q", names)
				}
			})
		}
	}
	// With its own owner each succeeds.
	own := nfs4.Sattr{Mask: nfs4.BitmapOf(nfs4.AttrMode, nfs4.AttrOwner, nfs4.AttrOwnerGroup), Mode: 0o600, Owner: []byte("1000"), OwnerGroup: []byte("1000")}
	for what, ops := range user.creates(e.dir, "new", own) {
		e.Run(what, func(t *testing.T) {
			c := user.with(t)
			c.ok(ops...)
			c.ok(putfh(e.dir), remove("new"))
		})
	}
}

// What was there stays, and decides: section 18.16.3 has no attributes set of a file that UNCHECKED4 finds.
func testFailedOwnerExists(e *env) {
	e.need(nfstest.FeatureIdentity)
	e.ok(putfh(e.dir), setattr(nfs4.Stateid{}, mode(0o777)))
	fh := e.file("f", "content")
	e.ok(putfh(fh), setattr(nfs4.Stateid{}, mode(0o666)))
	user := e.as(1000, 1000)
	for whose, attr := range badOwners() {
		for what, ops := range user.creates(e.dir, "f", attr) {
			e.Run(what+"/"+whose, func(t *testing.T) {
				if what == "OPEN unchecked" {
					user.with(t).ok(ops...)
					return
				}
				user.with(t).refused(ops, nfs4.ErrExist)
			})
		}
	}
	e.content(fh, "content")
}

// A size may be too large for the protocol's server, its disk, or neither.
func testFailedSize(e *env) {
	for _, n := range []uint64{1 << 44, 1 << 62, 1<<63 - 1, 1 << 63, 1<<64 - 1} {
		for _, m := range []nfs4.CreateMode{nfs4.Unchecked, nfs4.Guarded} {
			args := e.openArgs(opening{name: "f", create: true})
			args.Mode, args.Attr = m, size(n)
			r := e.do(putfh(e.dir), open(args), getfh())
			switch {
			case r.status == nfs4.OK && n < 1<<63:
				e.ok(putfh(get[nfs4.GetfhRes](e, r).FH), closeOp(get[nfs4.OpenRes](e, r).Stateid))
				e.ok(putfh(e.dir), remove("f"))
			case r.status != nfs4.ErrFBig && r.status != nfs4.ErrInval && r.status != nfs4.ErrNoSpc:
				e.Errorf("OPEN with a size of %d: %v", n, r.status)
			}
			if names := e.names(e.dir); len(names) > 0 {
				e.Fatalf("OPEN with a size of %d: %v, and there is %q", n, r.status, names)
			}
		}
	}
}

// A client that has as many opens as it may have.
func testFailedBound(e *env) {
	if e.target.Opens == 0 {
		e.Skip("named skip: open: it is not known how many opens a client may have")
	}
	had, last := e.file("had", ""), nfs4.Stateid{}
	for n := 0; ; n++ {
		r := e.do(putfh(e.dir), open(e.openArgs(opening{name: "had", owner: fmt.Sprint(n)})))
		if r.status == nfs4.ErrNoSpc {
			break
		}
		if r.status != nfs4.OK || n == e.target.Opens {
			e.Fatalf("open %d: %v", n, r.status)
		}
		last = get[nfs4.OpenRes](e, r).Stateid
	}
	by := func(name, owner string, m nfs4.CreateMode) []op {
		args := e.openArgs(opening{name: name, owner: owner, create: true})
		args.Mode, args.Verf = m, nfs4.Verifier{1, 2, 3}
		return []op{putfh(e.dir), open(args)}
	}
	modes := []nfs4.CreateMode{nfs4.Unchecked, nfs4.Guarded, nfs4.Exclusive, nfs4.ExclusiveAttrs}
	for _, m := range modes {
		for range 2 {
			e.refused(by("new", "", m), nfs4.ErrNoSpc)
			e.refused([]op{putfh(e.dir), lookup("new")}, nfs4.ErrNoEnt)
		}
	}
	// What is there says so, and may be opened by who has it open.
	e.ok(by("had", "0", nfs4.Unchecked)...)
	e.refused(by("had", "another", nfs4.Unchecked), nfs4.ErrNoSpc)
	e.refused(by("had", "0", nfs4.Guarded), nfs4.ErrExist)
	// One less, and the same succeeds. An exclusive one may be repeated at the bound.
	for _, m := range modes {
		e.ok(putfh(had), closeOp(last))
		r := e.ok(append(by("new", "", m), getfh())...)
		if m == nfs4.Exclusive || m == nfs4.ExclusiveAttrs {
			r = e.ok(append(by("new", "", m), getfh())...)
		}
		e.ok(putfh(get[nfs4.GetfhRes](e, r).FH), closeOp(get[nfs4.OpenRes](e, r).Stateid))
		e.ok(putfh(e.dir), remove("new"))
		last = get[nfs4.OpenRes](e, e.ok(putfh(e.dir), open(e.openArgs(opening{name: "had", owner: "once more"})))).Stateid
	}
	e.ok(putfh(had), closeOp(last))
	e.leftOfRace(func(name string) []op { return by(name, name, nfs4.Guarded) })
}

// leftOfRace makes files in several slots at once while there is room for one open. What does not get it is not there.
func (e *env) leftOfRace(ops func(name string) []op) {
	e.Helper()
	slots := min(e.fore.MaxRequests, 8)
	opened := make([]*nfs4.OpenRes, slots)
	var wg sync.WaitGroup
	for slot := uint32(1); slot < slots; slot++ {
		wg.Go(func() {
			name := fmt.Sprint("race", slot)
			first := sequence(nfs4.SequenceArgs{SessionID: e.session, SequenceID: 1, SlotID: slot, HighestSlotID: slots - 1, CacheThis: true})
			r, err := e.try(&call{minor: e.minor, ops: append([]op{first}, ops(name)...)})
			switch {
			case err == nil && r.status == nfs4.OK:
				opened[slot] = get[nfs4.OpenRes](e, r)
			case err != nil || r.status != nfs4.ErrNoSpc:
				e.Errorf("%s: %v, %v", name, r, err)
			}
		})
	}
	wg.Wait()
	var want []string
	for slot, res := range opened {
		if res != nil {
			want = append(want, fmt.Sprint("race", slot))
		}
	}
	if names := slices.DeleteFunc(e.names(e.dir), func(name string) bool { return name == "had" }); len(want) != 1 || !slices.Equal(names, want) {
		e.Errorf("OPEN was OK for %q, and there is %q", want, names)
	}
}
