package nfstest4

import (
	"fmt"
	"testing"

	"github.com/podnas/podnas/nfs/nfs4"
)

// modeUmask is an Sattr that sets a new file's mode with a umask: RFC 8275.
func modeUmask(mode, umask uint32) nfs4.Sattr {
	return nfs4.Sattr{Mask: nfs4.BitmapOf(nfs4.AttrModeUmask), ModeUmask: nfs4.ModeUmask{Mode: mode, Umask: umask}}
}

// made is one way to make a file with attributes.
type made struct {
	name string
	ops  func(c *client, dir nfs4.FH, name string, attr nfs4.Sattr) []op
	link bool
}

// waysToMake are all of them.
func waysToMake() []made {
	byOpen := func(how nfs4.CreateMode) func(*client, nfs4.FH, string, nfs4.Sattr) []op {
		return func(c *client, dir nfs4.FH, name string, attr nfs4.Sattr) []op {
			args := c.openArgs(opening{name: name, create: true})
			args.Mode, args.Attr, args.Verf = how, attr, nfs4.Verifier{1, 2, 3, 4}
			return []op{putfh(dir), open(args)}
		}
	}
	byCreate := func(what nfs4.FType) func(*client, nfs4.FH, string, nfs4.Sattr) []op {
		return func(_ *client, dir nfs4.FH, name string, attr nfs4.Sattr) []op {
			return []op{putfh(dir), create(nfs4.CreateArgs{Type: what, Name: []byte(name), Link: []byte("f"), Attr: attr})}
		}
	}
	return []made{
		{"OPEN unchecked", byOpen(nfs4.Unchecked), false},
		{"OPEN guarded", byOpen(nfs4.Guarded), false},
		{"OPEN exclusive", byOpen(nfs4.ExclusiveAttrs), false},
		{"directory", byCreate(nfs4.TypeDir), false},
		{"fifo", byCreate(nfs4.TypeFIFO), false},
		{"socket", byCreate(nfs4.TypeSock), false},
		{"link", byCreate(nfs4.TypeLnk), true},
	}
}

// RFC 8275 section 3: the umask is taken from the mode of what is made, unless the directory has a default ACL.
func testUmask(e *env) {
	c := e.in42()
	a := c.attr([]op{putfh(e.dir)}, nfs4.AttrSupportedAttrs, nfs4.AttrSuppattrExclcreat)
	if !a.SupportedAttrs.Has(nfs4.AttrModeUmask) || !a.SuppattrExclcreat.Has(nfs4.AttrModeUmask) {
		e.Fatalf("mode_umask: supported %v, with EXCLUSIVE4_1 %v", a.SupportedAttrs.Has(nfs4.AttrModeUmask), a.SuppattrExclcreat.Has(nfs4.AttrModeUmask))
	}
	for n, way := range waysToMake() {
		e.Run(way.name, func(t *testing.T) {
			c := c.with(t)
			for i, tt := range []struct{ mode, umask, want uint32 }{
				{0o666, 0o22, 0o644}, {0o777, 0o77, 0o700}, {0o600, 0, 0o600}, {0o666, 0o377, 0o400}, {0o7777, 0o27, 0o7750}, {0o640, 0o7, 0o640},
			} {
				name := fmt.Sprintf("f%d-%d", n, i)
				ops := append(way.ops(c, e.dir, name, modeUmask(tt.mode, tt.umask)), getattrs(nfs4.AttrMode))
				if got := get[nfs4.GetattrRes](c, c.ok(ops...)).Attr.Mode; got != tt.want && !way.link {
					t.Errorf("mode %o, umask %o: %o, want %o", tt.mode, tt.umask, got, tt.want)
				}
			}
			both := modeUmask(0o666, 0o22)
			both.Mask.Set(nfs4.AttrMode)
			for what, attr := range map[string]nfs4.Sattr{
				"with a mode": both, "a bit more than a mode has": modeUmask(0o10666, 0o22), "a bit more than a umask has": modeUmask(0o666, 0o1022),
				"all bits": modeUmask(1<<32-1, 1<<32-1),
			} {
				name := "refused"
				if r := c.do(way.ops(c, e.dir, name, attr)...); r.status != nfs4.ErrInval {
					t.Errorf("%s: %v", what, r.status)
				}
				c.refused([]op{putfh(e.dir), lookup(name)}, nfs4.ErrNoEnt)
			}
		})
	}
}

// RFC 8275 section 3: it is for what is made alone, can't be read, and is of version 4.2.
func testUmaskElsewhere(e *env) {
	c := e.in42()
	fh, _ := e.opened(c, "f", "")
	attr := fattr(nfs4.AttrModeUmask, 0, 0, 1, 0o200, 0, 0, 0, 0o22)
	value := nfs4.Fattr{Mask: nfs4.BitmapOf(nfs4.AttrModeUmask), Vals: make([]byte, 8)}
	before := c.attr([]op{putfh(fh)}, nfs4.AttrChange).Change
	c.expect([]expect{
		{"SETATTR", []op{putfh(fh), {nfs4.OpSetattr, append(make(raw, 16), attr...), &nfs4.SetattrRes{}}}, is(nfs4.ErrInval)},
		{"GETATTR", []op{putfh(fh), getattrs(nfs4.AttrModeUmask)}, is(nfs4.ErrInval)},
		{"VERIFY", []op{putfh(fh), verify(value)}, is(nfs4.ErrInval)},
		{"NVERIFY", []op{putfh(fh), nverify(value)}, is(nfs4.ErrInval)},
		{"READDIR", []op{putfh(e.dir), readdir(nfs4.ReaddirArgs{MaxCount: 4096, Request: value.Mask})}, is(nfs4.ErrInval)},
	})
	if after := c.attr([]op{putfh(fh)}, nfs4.AttrChange).Change; after != before {
		e.Errorf("refused, and the file changed: %d, %d", before, after)
	}
	one := e.in(1)
	if a := one.attr([]op{putfh(e.dir)}, nfs4.AttrSupportedAttrs); a.SupportedAttrs.Has(nfs4.AttrModeUmask) {
		e.Error("version 4.1 has mode_umask")
	}
	args := one.openArgs(opening{name: "one", create: true})
	args.Attr = modeUmask(0o666, 0o22)
	one.refused([]op{putfh(e.dir), open(args)}, nfs4.ErrAttrNotSupp)
}
