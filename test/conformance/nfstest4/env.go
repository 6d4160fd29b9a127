package nfstest4

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/test/conformance/nfstest"
)

// env is a test's environment: a client, and a directory of its own, empty at the start.
type env struct {
	*client
	target  Target
	root    nfs4.FH // of the export
	dir     nfs4.FH // of the test's own directory
	dirName string
}

func newEnv(t *testing.T, target Target) *env {
	t.Helper()
	e := &env{target: target}
	e.client = e.newClient(t)
	e.ok(reclaimComplete(false))
	e.root = e.walk(target.Export)
	e.dirName = fmt.Sprintf("nfstest-%d", time.Now().UnixNano())
	e.dir = e.fh(putfh(e.root), mkdir(e.dirName))
	t.Cleanup(func() {
		// A failed server may have moved files here that are not the test's, so
		// the directory is left for a person to inspect.
		if t.Failed() {
			t.Logf("%s is left in the export", e.dirName)
			return
		}
		c := e.client.with(t)
		c.conn = c.dial()
		c.verf[1]++
		c.start()
		c.ok(reclaimComplete(false))
		removeTree(c, e.root, e.dirName)
		if err := c.leave(); err != nil {
			t.Errorf("clean up: %v", err)
		}
	})
	return e
}

// need skips the test if the target lacks a feature.
func (e *env) need(f nfstest.Feature) { needs(e.T, &e.target, f) }

func needs(t *testing.T, target *Target, f nfstest.Feature) {
	t.Helper()
	if reason, ok := target.Lacks[f]; ok {
		t.Skipf("named skip: %s: %s", f, reason)
	}
}

// asOther runs what another user, 1000, does. It is skipped if the server tells no users apart.
func (e *env) asOther(do func(other *client)) {
	e.Helper()
	e.Run("another-user", func(t *testing.T) {
		needs(t, &e.target, nfstest.FeatureIdentity)
		do(e.as(1000, 1000).with(t))
	})
}

// newClient makes another client, as another node is, with a session. What it has goes
// when the test ends.
func (e *env) newClient(t *testing.T) *client {
	t.Helper()
	c := e.stranger(t)
	c.start()
	t.Cleanup(func() {
		gone := c.with(t)
		gone.conn = gone.dial()
		if err := gone.leave(); err != nil {
			t.Errorf("clean up: %v", err)
		}
	})
	return c
}

// stranger is a client that the server does not know.
func (e *env) stranger(t *testing.T) *client {
	t.Helper()
	c := (&client{T: t, addr: e.target.Addr, minor: max(e.target.Minor, 1), seq: new(uint32)}).as(0, 0)
	c.owner = fmt.Sprintf("nfstest4 %s %d", t.Name(), time.Now().UnixNano())
	c.verf = nfs4.Verifier{7: 1}
	c.conn = c.dial()
	return c
}

// another is another client, that may open and lock.
func (e *env) another() *client {
	e.Helper()
	c := e.newClient(e.T)
	c.ok(reclaimComplete(false))
	return c
}

// walkOps are the operations that lead to a path from the pseudo root.
func walkOps(path string) []op {
	ops := []op{putrootfh()}
	for name := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		ops = append(ops, lookup(name))
	}
	return ops
}

func (e *env) walk(path string) nfs4.FH {
	e.Helper()
	return e.fh(walkOps(path)...)
}

// fh sends operations, and returns the file handle that is current then.
func (c *client) fh(ops ...op) nfs4.FH {
	c.Helper()
	return get[nfs4.GetfhRes](c, c.ok(append(ops, getfh())...)).FH
}

// attr sends operations, and returns attributes of the current file.
func (c *client) attr(ops []op, attrs ...uint32) *nfs4.Attrs {
	c.Helper()
	return &get[nfs4.GetattrRes](c, c.ok(append(ops, getattrs(attrs...))...)).Attr
}

// file makes a file with content in the test's directory.
func (e *env) file(name, content string) nfs4.FH {
	e.Helper()
	fh, id := e.client.open(e.dir, opening{name: name, create: true})
	if content != "" {
		e.ok(putfh(fh), write(id, 0, content))
	}
	e.ok(putfh(fh), closeOp(id))
	return fh
}

// opening is an OPEN in short.
type opening struct {
	name         string
	owner        string
	access, deny uint32 // access 0: both
	create       bool
}

func (c *client) openArgs(o opening) nfs4.OpenArgs {
	if o.access == 0 {
		o.access = nfs4.ShareAccessBoth
	}
	args := nfs4.OpenArgs{
		ShareAccess: o.access | nfs4.WantNoDeleg, ShareDeny: o.deny,
		Owner: nfs4.StateOwner{ClientID: c.id, Owner: []byte("owner" + o.owner)}, Create: o.create, Name: []byte(o.name),
	}
	if o.create {
		args.Attr = mode(0o644)
	}
	return args
}

// open opens a file.
func (c *client) open(dir nfs4.FH, o opening) (nfs4.FH, nfs4.Stateid) {
	c.Helper()
	r := c.ok(putfh(dir), open(c.openArgs(o)), getfh())
	return get[nfs4.GetfhRes](c, r).FH, get[nfs4.OpenRes](c, r).Stateid
}

// content checks a file's content.
func (c *client) content(fh nfs4.FH, want string) {
	c.Helper()
	res := get[nfs4.ReadRes](c, c.ok(putfh(fh), read(nfs4.Stateid{}, 0, uint32(len(want))+100)))
	if !bytes.Equal(res.Data, []byte(want)) || !res.EOF {
		c.Errorf("the file holds %q, eof %v, want %q", res.Data, res.EOF, want)
	}
}

// list returns the entries of a directory, with attributes.
func (c *client) list(dir nfs4.FH, args nfs4.ReaddirArgs) []nfs4.Entry {
	c.Helper()
	var all []nfs4.Entry
	for range 10_000 {
		res := get[nfs4.ReaddirRes](c, c.ok(putfh(dir), readdir(args)))
		all = append(all, res.Entries...)
		if res.EOF {
			return all
		}
		if len(res.Entries) == 0 {
			c.Fatal("READDIR: neither an entry nor the end")
		}
		args.Cookie, args.CookieVerf = all[len(all)-1].Cookie, res.CookieVerf
	}
	c.Fatal("READDIR does not end")
	return nil
}

// names lists a directory, sorted.
func (c *client) names(dir nfs4.FH) []string {
	c.Helper()
	var names []string
	for _, e := range c.list(dir, nfs4.ReaddirArgs{DirCount: 8192, MaxCount: 8192}) {
		names = append(names, string(e.Name))
	}
	slices.Sort(names)
	return names
}

// removeTree removes a name and everything in it.
func removeTree(c *client, dir nfs4.FH, name string) {
	c.Helper()
	r := c.do(putfh(dir), lookup(name), getfh(), getattrs(nfs4.AttrType))
	if r.status != nfs4.OK {
		return
	}
	if get[nfs4.GetattrRes](c, r).Attr.Type == nfs4.TypeDir {
		fh := get[nfs4.GetfhRes](c, r).FH
		for _, n := range c.names(fh) {
			removeTree(c, fh, n)
		}
	}
	if r := c.do(putfh(dir), remove(name)); r.status != nfs4.OK {
		c.Logf("clean up %q: %v", name, r.status)
	}
}

// expect sends each list of operations of a table, of which the last must end as it says.
type expect struct {
	name string
	ops  []op
	want []nfs4.Status
}

func (c *client) expect(table []expect) {
	c.Helper()
	for _, tt := range table {
		c.Run(tt.name, func(t *testing.T) {
			t.Helper()
			c.with(t).refused(tt.ops, tt.want...)
		})
	}
}

func is(s ...nfs4.Status) []nfs4.Status { return s }

// root3 is the root's handle for calls of version 3.
func (e *env) root3() nfs3.FH { return nfs3.FH(e.root) }
