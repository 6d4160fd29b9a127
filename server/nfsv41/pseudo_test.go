package nfsv41_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/nfs/xdr"
	"github.com/podnas/podnas/server/exports"
	server "github.com/podnas/podnas/server/nfsv41"
)

// servePseudo serves the volumes of a table, and returns a connection.
func servePseudo(t testing.TB, table *exports.Table) net.Conn {
	t.Helper()
	conn, _, _ := serveTable(t, table, server.Config{Tracking: t.TempDir()})
	return conn
}

// pseudoClient is a client at an address of the loopback interface that looks at the pseudo file system.
func pseudoClient(t testing.TB, conn net.Conn, from string) *caller {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	own, err := d.DialContext(context.Background(), "tcp", conn.RemoteAddr().String())
	mustDo(t, err)
	t.Cleanup(func() { own.Close() })
	c := &caller{TB: t, conn: own, cred: (&rpc.SysCred{}).Auth(), reply: make([]byte, 512<<10)}
	c.beginAs(from)
	return c
}

// list lists a directory, so many bytes at a time. between is called between two calls.
func (c *caller) list(fh []byte, most uint32, between func()) (all []nfs4.Entry) {
	c.Helper()
	args := nfs4.ReaddirArgs{DirCount: most, MaxCount: most, Request: nfs4.BitmapOf(nfs4.AttrFileID, nfs4.AttrType, nfs4.AttrFilehandle)}
	for {
		var res nfs4.ReaddirRes
		d := xdr.NewDecoder(c.do(c.compound("READDIR", false, putfh(fh), operation{Num: nfs4.OpReaddir, Args: &args}))[8+4:])
		res.Decode(&d)
		mustDo(c, d.Err())
		for _, e := range res.Entries {
			e.Name, e.Attr.Vals = bytes.Clone(e.Name), bytes.Clone(e.Attr.Vals)
			all = append(all, e)
		}
		if res.EOF {
			return all
		}
		args.Cookie = all[len(all)-1].Cookie
		between()
	}
}

// handleAt is the handle at the end of some names, from the root on.
func (c *caller) handleAt(names ...string) ([]byte, nfs4.Status) {
	ops := []operation{{Num: nfs4.OpPutrootfh}}
	for _, name := range names {
		ops = append(ops, operation{Num: nfs4.OpLookup, Args: &nfs4.LookupArgs{Name: []byte(name)}})
	}
	results, status := c.try(c.compound("LOOKUP", false, append(ops, operation{Num: nfs4.OpGetfh})...))
	if status != nfs4.OK {
		return nil, status
	}
	d := xdr.NewDecoder(results[8*len(ops)+4:])
	var res nfs4.GetfhRes
	res.Decode(&d)
	mustDo(c, d.Err())
	return bytes.Clone(res.FH), status
}

func (c *caller) changeOf(fh []byte) uint64 {
	c.Helper()
	var res nfs4.GetattrRes
	d := xdr.NewDecoder(c.do(c.compound("GETATTR", false, putfh(fh), operation{Num: nfs4.OpGetattr, Args: &nfs4.GetattrArgs{Request: nfs4.BitmapOf(nfs4.AttrChange)}}))[8+4:])
	res.Decode(&d)
	mustDo(c, d.Err())
	return res.Attr.Change
}

// namesOf are the names of entries, sorted.
func namesOf(entries []nfs4.Entry) (names []string) {
	for _, e := range entries {
		names = append(names, string(e.Name))
	}
	slices.Sort(names)
	return names
}

func nothing() {}

// A client finds the volumes that it may mount, below directories made of their paths, and
// nothing of the others.
func TestPseudo(t *testing.T) {
	table := &exports.Table{}
	only := []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")}
	for id, v := range []struct {
		path    string
		clients []netip.Prefix
	}{
		{path: "/plain"},
		{path: "/ns/one"},
		{path: "/ns/two", clients: only},
		{path: "/secret/deep/three", clients: only},
	} {
		mustDo(t, table.Export(exports.Exported{ID: uint64(id) + 1, Path: v.path, Dir: t.TempDir(), Options: exports.Options{Clients: v.clients}}))
	}
	conn := servePseudo(t, table)
	friend, other := pseudoClient(t, conn, "127.0.0.2"), pseudoClient(t, conn, "127.0.0.1")
	for _, dir := range []struct {
		names             []string
		ofFriend, ofOther []string
	}{
		{nil, []string{"ns", "plain", "secret"}, []string{"ns", "plain"}},
		{[]string{"ns"}, []string{"one", "two"}, []string{"one"}},
		{[]string{"secret"}, []string{"deep"}, nil},
		{[]string{"secret", "deep"}, []string{"three"}, nil},
	} {
		fh, status := friend.handleAt(dir.names...)
		if status != nfs4.OK {
			t.Fatalf("%q: %v", dir.names, status)
		}
		entries := friend.list(fh, 4096, nothing)
		if names := namesOf(entries); !slices.Equal(names, dir.ofFriend) {
			t.Errorf("%q has %q, want %q", dir.names, names, dir.ofFriend)
		}
		for _, e := range entries {
			got, status := friend.handleAt(append(slices.Clone(dir.names), string(e.Name))...)
			attrs, err := e.Attr.Attrs()
			if err != nil || status != nfs4.OK || !bytes.Equal(got, attrs.Filehandle) || attrs.Type != nfs4.TypeDir {
				t.Errorf("%q in %q: %v, or it is not what the listing has", e.Name, dir.names, status)
			}
			up := friend.do(friend.compound("LOOKUPP", false, putfh(got), operation{Num: nfs4.OpLookupp}, operation{Num: nfs4.OpGetfh}))
			if !bytes.Contains(up, fh) {
				t.Errorf("above %q is not %q", e.Name, dir.names)
			}
		}
		if dir.ofOther == nil {
			if _, status := other.handleAt(dir.names...); status != nfs4.ErrNoEnt {
				t.Errorf("%q is there for who may mount nothing in it: %v", dir.names, status)
			}
			if _, status := other.try(other.compound("PUTFH", false, putfh(fh), operation{Num: nfs4.OpGetfh})); status != nfs4.ErrStale {
				t.Errorf("the handle of %q, of who may mount nothing in it: %v", dir.names, status)
			}
			continue
		}
		if names := namesOf(other.list(fh, 4096, nothing)); !slices.Equal(names, dir.ofOther) {
			t.Errorf("%q has %q for another client, want %q", dir.names, names, dir.ofOther)
		}
	}
	if _, status := other.handleAt("ns", "two"); status != nfs4.ErrNoEnt {
		t.Errorf("a volume that the client may not mount: %v", status)
	}
	if _, status := other.handleAt("ns", "nothing"); status != nfs4.ErrNoEnt {
		t.Errorf("a name that is not there: %v", status)
	}
}

// A volume hides the directory that leads to others, from those that may mount it.
func TestPseudoVolumeAboveOthers(t *testing.T) {
	table := &exports.Table{}
	only := []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")}
	mustDo(t, table.Export(exports.Exported{ID: 1, Path: "/above", Dir: t.TempDir(), Options: exports.Options{Clients: only}}))
	mustDo(t, table.Export(exports.Exported{ID: 2, Path: "/above/below", Dir: t.TempDir()}))
	mustDo(t, table.Export(exports.Exported{ID: 3, Path: "/above/beside", Dir: t.TempDir()}))
	conn := servePseudo(t, table)
	for from, want := range map[string][]string{"127.0.0.2": nil, "127.0.0.1": {"below", "beside"}} {
		c := pseudoClient(t, conn, from)
		root, _ := c.handleAt()
		if names := namesOf(c.list(root, 4096, nothing)); !slices.Equal(names, []string{"above"}) {
			t.Errorf("%s: the root has %q", from, names)
		}
		above, status := c.handleAt("above")
		if status != nfs4.OK {
			t.Fatal(status)
		}
		if names := namesOf(c.list(above, 4096, nothing)); !slices.Equal(names, want) {
			t.Errorf("%s: %q, want %q", from, names, want)
		}
	}
}

// A listing has what is there all the time once, whatever comes and goes between its calls: RFC 8881 section 18.23.
func TestPseudoWhileItChanges(t *testing.T) {
	table, dir := &exports.Table{}, t.TempDir()
	add := func(id int, path string) {
		mustDo(t, table.Export(exports.Exported{ID: uint64(id), Path: path, Dir: dir}))
	}
	var want []string
	for i := range 60 {
		name := fmt.Sprintf("stays-%02d", i)
		want = append(want, name)
		if i%2 == 0 {
			name += "/volume"
		}
		add(1+i, "/"+name)
		add(101+i, fmt.Sprintf("/goes-%02d/volume", i))
	}
	conn := servePseudo(t, table)
	c := pseudoClient(t, conn, "127.0.0.1")
	root, _ := c.handleAt()
	before, calls := c.changeOf(root), 0
	entries := c.list(root, 600, func() {
		table.Remove(uint64(101 + calls))
		add(201+calls, fmt.Sprintf("/comes-%02d/volume", calls))
		calls++
	})
	var got []string
	cookies := map[uint64]bool{0: true, 1: true, 2: true}
	for _, e := range entries {
		if bytes.HasPrefix(e.Name, []byte("stays")) {
			got = append(got, string(e.Name))
		}
		if cookies[e.Cookie] || e.Cookie>>63 != 0 {
			t.Errorf("%s has the cookie %d", e.Name, e.Cookie)
		}
		cookies[e.Cookie] = true
	}
	if slices.Sort(got); !slices.Equal(got, want) || calls < 10 {
		t.Errorf("%d calls list %q, want %q", calls, got, want)
	}
	if c.changeOf(root) == before {
		t.Error("the change attribute is what it was before")
	}
	ns, _ := c.handleAt("stays-00")
	before = c.changeOf(ns)
	add(1000, "/stays-00/another")
	if c.changeOf(ns) == before {
		t.Error("the change attribute of a directory is what it was before a volume came")
	}
	before = c.changeOf(ns)
	add(1001, "/stays-02/another")
	if c.changeOf(ns) != before {
		t.Error("the change attribute of a directory moves with what is in another")
	}
}

// What a call has to do for a pseudo directory does not grow with how many there are, but for what it lists.
func TestManyPseudoDirectories(t *testing.T) {
	const few, many = 100, 1600
	work := func(n int) (root, find, list float64) {
		table, dir := &exports.Table{}, t.TempDir()
		for i := range n {
			mustDo(t, table.Export(exports.Exported{ID: uint64(i) + 1, Path: fmt.Sprintf("/namespace-%d/volume", i), Dir: dir}))
		}
		c := pseudoClient(t, servePseudo(t, table), "127.0.0.1")
		fh, _ := c.handleAt("namespace-7")
		top, _ := c.handleAt()
		if got := len(c.list(top, 256<<10, nothing)); got != n {
			t.Fatalf("%d of %d directories are listed", got, n)
		}
		for what, made := range map[*float64]call{
			&root: c.compound("PUTROOTFH", false, operation{Num: nfs4.OpPutrootfh}),
			&find: c.compound("PUTFH", false, putfh(fh)),
			&list: c.compound("READDIR", false, putfh(top), operation{Num: nfs4.OpReaddir, Args: &nfs4.ReaddirArgs{DirCount: 256 << 10, MaxCount: 256 << 10, Request: nfs4.BitmapOf(nfs4.AttrFileID)}}),
		} {
			*what = testing.AllocsPerRun(3, func() { c.do(made) })
		}
		return root, find, list / float64(n)
	}
	root, find, list := work(few)
	root2, find2, list2 := work(many)
	if root2 > 2*root+10 || find2 > 2*find+10 || list2 > 2*list+1 {
		t.Errorf("of %d directories PUTROOTFH takes %v allocations, PUTFH %v, READDIR %v for each; of %d %v, %v, %v", few, root, find, list, many, root2, find2, list2)
	}
}
