package server_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/nfs/xdr"
	"github.com/podnas/podnas/server"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/test/conformance/nfstest"
)

// looks is what a client sees of a file, and what lstat(2) says.
type looks struct {
	ino, size, used     uint64
	mode, nlink         uint32
	uid, gid            uint32
	atime, mtime, ctime int64
}

func onDisk(t *testing.T, path string) (looks, bool) {
	t.Helper()
	var st syscall.Stat_t
	err := syscall.Lstat(path, &st)
	if err == syscall.ENOENT {
		return looks{}, false
	}
	must(t, err)
	return looks{
		ino: st.Ino, size: uint64(st.Size), used: uint64(st.Blocks) * 512, mode: st.Mode & 0o7777, nlink: uint32(st.Nlink), uid: st.Uid, gid: st.Gid,
		atime: st.Atim.Nano(), mtime: st.Mtim.Nano(), ctime: st.Ctim.Nano(),
	}, true
}

// view is a way to look at files: a version of NFS, and one of the exports that they are in.
type view interface {
	// list returns what READDIR with attributes says of a directory's entries, and their handles.
	list(t *testing.T, dir []byte) (map[string]looks, map[string][]byte)
	// getattr is false for a file that is gone.
	getattr(t *testing.T, fh []byte) (looks, bool)
}

type view3 struct{ *nfstest.Client }

func looksOf3(a *nfs3.Fattr) looks {
	at := func(t nfs3.Time) int64 { return int64(t.Sec)*1e9 + int64(t.Nsec) }
	return looks{a.FileID, a.Size, a.Used, a.Mode, a.Nlink, a.UID, a.GID, at(a.Atime), at(a.Mtime), at(a.Ctime)}
}

func (v view3) list(t *testing.T, dir []byte) (map[string]looks, map[string][]byte) {
	t.Helper()
	all, handles := map[string]looks{}, map[string][]byte{}
	args := nfs3.ReaddirplusArgs{Dir: dir, DirCount: 1 << 16, MaxCount: 1 << 16}
	for {
		res, err := v.Readdirplus(t.Context(), args)
		must(t, err)
		if res.Status != nfs3.OK {
			t.Fatalf("READDIRPLUS: %v", res.Status)
		}
		for _, e := range res.Entries {
			args.Cookie = e.Cookie
			if name := string(e.Name); name != "." && name != ".." && e.Attr.Present {
				all[name], handles[name] = looksOf3(&e.Attr.Attr), e.Object
			}
		}
		if res.EOF {
			return all, handles
		}
	}
}

func (v view3) getattr(t *testing.T, fh []byte) (looks, bool) {
	t.Helper()
	res, err := v.Getattr(t.Context(), fh)
	must(t, err)
	if res.Status == nfs3.ErrStale {
		return looks{}, false
	}
	if res.Status != nfs3.OK {
		t.Fatalf("GETATTR: %v", res.Status)
	}
	return looksOf3(&res.Attr), true
}

// view4 is a client of version 4.1 with one session, which one goroutine at a time may use.
type view4 struct {
	client  *rpc.Client
	cred    rpc.Auth
	session nfs4.SessionID
	seq     uint32

	changes map[uint64]change4 // by the inode
}

// change4 is the last change attribute, and what it goes with.
type change4 struct {
	change uint64
	looks  looks
}

var wanted4 = nfs4.BitmapOf(nfs4.AttrChange, nfs4.AttrSize, nfs4.AttrFilehandle, nfs4.AttrFileID, nfs4.AttrMode, nfs4.AttrNumLinks,
	nfs4.AttrOwner, nfs4.AttrOwnerGroup, nfs4.AttrSpaceUsed, nfs4.AttrTimeAccess, nfs4.AttrTimeMetadata, nfs4.AttrTimeModify)

func (v *view4) call(t *testing.T, ops ...nfs4.Operation) nfs4.Status {
	t.Helper()
	b, err := v.client.Do(t.Context(), rpc.CallHeader{RPCVersion: rpc.Version, Prog: nfs4.Program, Vers: nfs4.Version, Proc: nfs4.ProcCompound, Cred: v.cred}, nfs4.Compound(ops))
	must(t, err)
	_, status, err := nfs4.Compound(ops).DecodeResults(b)
	must(t, err)
	return status
}

func (v *view4) try(t *testing.T, ops ...nfs4.Operation) nfs4.Status {
	t.Helper()
	v.seq++
	first := nfs4.Operation{Num: nfs4.OpSequence, Args: &nfs4.SequenceArgs{SessionID: v.session, SequenceID: v.seq}, Res: &nfs4.SequenceRes{}}
	return v.call(t, append([]nfs4.Operation{first}, ops...)...)
}

func (v *view4) do(t *testing.T, ops ...nfs4.Operation) {
	t.Helper()
	if status := v.try(t, ops...); status != nfs4.OK {
		t.Fatalf("%v: %v", ops[len(ops)-1].Num, status)
	}
}

func (v *view4) begin(t *testing.T, addr string) {
	t.Helper()
	var err error
	v.client, err = rpc.Dial(t.Context(), addr)
	must(t, err)
	t.Cleanup(func() { v.client.Close() })
	v.cred = (&rpc.SysCred{}).Auth()
	v.changes = map[uint64]change4{}
	var client nfs4.ExchangeIDRes
	v.call(t, nfs4.Operation{Num: nfs4.OpExchangeID, Args: &nfs4.ExchangeIDArgs{OwnerID: fmt.Appendf(nil, "%p", v), Flags: nfs4.ExchangeUseNonPNFS}, Res: &client})
	channel := nfs4.ChannelAttrs{MaxRequestSize: 1 << 20, MaxResponseSize: 1 << 20, MaxResponseSizeCached: 4096, MaxOperations: 16, MaxRequests: 1}
	var session nfs4.CreateSessionRes
	v.call(t, nfs4.Operation{Num: nfs4.OpCreateSession, Args: &nfs4.CreateSessionArgs{
		ClientID: client.ClientID, SequenceID: client.SequenceID, Fore: channel, Back: channel, SecParms: []nfs4.CallbackSec{{}},
	}, Res: &session})
	v.session = session.SessionID
	v.do(t, nfs4.Operation{Num: nfs4.OpReclaimComplete, Args: &nfs4.ReclaimCompleteArgs{}, Res: &nfs4.StatusRes{}})
}

func on4(fh []byte) nfs4.Operation {
	return nfs4.Operation{Num: nfs4.OpPutfh, Args: &nfs4.PutfhArgs{FH: fh}, Res: &nfs4.StatusRes{}}
}

func (v *view4) looksOf(t *testing.T, a *nfs4.Attrs) (looks, []byte) {
	t.Helper()
	at := func(t nfs4.Time) int64 { return t.Sec*1e9 + int64(t.Nsec) }
	id := func(b []byte) uint32 {
		n, err := strconv.ParseUint(string(b), 10, 32)
		must(t, err)
		return uint32(n)
	}
	l := looks{a.FileID, a.Size, a.SpaceUsed, a.Mode, a.NumLinks, id(a.Owner), id(a.OwnerGroup), at(a.TimeAccess), at(a.TimeModify), at(a.TimeMetadata)}
	was, same := v.changes[l.ino], l
	was.looks.atime, was.looks.used = 0, 0
	same.atime, same.used = 0, 0
	if was.looks != same && was.change >= a.Change {
		t.Errorf("inode %d: from %+v to %+v, but its change attribute from %d to %d", l.ino, was.looks, same, was.change, a.Change)
	}
	v.changes[l.ino] = change4{a.Change, l}
	return l, a.Filehandle
}

func (v *view4) list(t *testing.T, dir []byte) (map[string]looks, map[string][]byte) {
	t.Helper()
	all, handles := map[string]looks{}, map[string][]byte{}
	args := nfs4.ReaddirArgs{DirCount: 1 << 16, MaxCount: 1 << 16, Request: wanted4}
	for {
		var res nfs4.ReaddirRes
		v.do(t, on4(dir), nfs4.Operation{Num: nfs4.OpReaddir, Args: &args, Res: &res})
		for _, e := range res.Entries {
			a, err := e.Attr.Attrs()
			must(t, err)
			args.Cookie = e.Cookie
			all[string(e.Name)], handles[string(e.Name)] = v.looksOf(t, &a)
		}
		if res.EOF {
			return all, handles
		}
	}
}

func (v *view4) getattr(t *testing.T, fh []byte) (looks, bool) {
	t.Helper()
	var res nfs4.GetattrRes
	switch status := v.try(t, on4(fh), nfs4.Operation{Num: nfs4.OpGetattr, Args: &nfs4.GetattrArgs{Request: wanted4}, Res: &res}); status {
	case nfs4.OK:
	case nfs4.ErrStale:
		return looks{}, false
	default:
		t.Fatalf("GETATTR: %v", status)
	}
	l, _ := v.looksOf(t, &res.Attr)
	return l, true
}

// served is a volume that is served twice, by both versions.
type served struct {
	dir    string
	server *server.Server
	v3     *nfstest.Client
	v4     *view4
	root   []byte // the volume's handle
	views  map[string]view
	roots  map[string][]byte // by view
}

func serveTwice(t *testing.T, attrs bool) *served {
	t.Helper()
	s := &served{dir: filepath.Join(t.TempDir(), "volume"), v4: &view4{}}
	must(t, os.Mkdir(s.dir, 0o777))
	if err := disk.ProbeHandles(s.dir); err != nil {
		t.Skipf("the native engine can't run here: %v", err)
	}
	cfg := config(t)
	cfg.Engine.Engine, cfg.NFS4, cfg.NoAttrCache = server.EngineNative, t.TempDir(), !attrs
	must(t, cfg.Exports.Export(exports.Exported{ID: 1, Path: "/volume", Dir: s.dir}))
	must(t, cfg.Exports.Export(exports.Exported{ID: 2, Path: "/again", Dir: s.dir}))
	var err error
	s.server, err = server.New(cfg)
	must(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.server.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		must(t, <-ended)
	})
	s.v3, err = nfstest.Dial(t.Context(), l.Addr().String(), l.Addr().String())
	must(t, err)
	t.Cleanup(s.v3.Close)
	s.v4.begin(t, l.Addr().String())
	s.views = map[string]view{"3": view3{s.v3}, "3, of the other export": view3{s.v3}, "4.1": s.v4}
	mount := func(path string) []byte {
		res, err := s.v3.Mount(t.Context(), path)
		must(t, err)
		return res.Handle
	}
	s.root = mount("/volume")
	s.roots = map[string][]byte{"3": s.root, "4.1": s.root, "3, of the other export": mount("/again")}
	return s
}

// find returns the handle of a path in a view.
func (s *served) find(t *testing.T, view string, names ...string) []byte {
	t.Helper()
	fh := s.roots[view]
	for _, name := range names {
		res, err := s.v3.Lookup(t.Context(), fh, name)
		must(t, err)
		if res.Status != nfs3.OK {
			t.Fatalf("LOOKUP %s: %v", name, res.Status)
		}
		fh = res.Object
	}
	return fh
}

// compare looks at a directory and at what is in it, in all ways.
func (s *served) compare(t *testing.T, when string, names ...string) {
	t.Helper()
	for name, v := range s.views {
		s.compareIn(t, when, name, v, s.find(t, name, names...), filepath.Join(append([]string{s.dir}, names...)...))
	}
}

func (s *served) compareIn(t *testing.T, when, by string, v view, dir []byte, path string) {
	t.Helper()
	listed, handles := v.list(t, dir)
	for name, got := range listed {
		at := filepath.Join(path, name)
		want, ok := onDisk(t, at)
		if !ok || got != want {
			t.Errorf("%s: version %s lists %s as\n%+v, but it is (%v)\n%+v", when, by, name, got, ok, want)
		}
		if got, ok := v.getattr(t, handles[name]); !ok || got != want {
			t.Errorf("%s: version %s gets for %s (%v)\n%+v, but it is\n%+v", when, by, name, ok, got, want)
		}
	}
	if found, err := os.ReadDir(path); err != nil || len(found) != len(listed) {
		t.Errorf("%s: version %s lists %d entries of %d", when, by, len(listed), len(found))
	}
	if got, ok := v.getattr(t, dir); ok {
		if want, _ := onDisk(t, path); got != want {
			t.Errorf("%s: version %s gets for the directory\n%+v, but it is\n%+v", when, by, got, want)
		}
	}
}

// aged is longer than what has just changed is not remembered.
const aged = 250 * time.Millisecond

// What is remembered of files is never wrong after a change that the server made, whoever looks,
// and in whatever way: each change is made when all is remembered, and looked at at once.
func TestAttributesAfterEachChange(t *testing.T) {
	s := serveTwice(t, true)
	ctx := t.Context()
	status3 := func(status nfs3.Status, err error) {
		t.Helper()
		must(t, err)
		if status != nfs3.OK {
			t.Fatal(status)
		}
	}
	number := func(n uint32) nfs3.SetUint32 { return nfs3.SetUint32{Set: true, Value: n} }
	set3 := func(fh []byte, a nfs3.Sattr) {
		t.Helper()
		res, err := s.v3.Setattr(ctx, nfs3.SetattrArgs{Object: fh, Attr: a})
		status3(res.Status, err)
	}
	op := func(num nfs4.OpNum, args rpc.Args, res interface{ Decode(*xdr.Decoder) }) nfs4.Operation {
		return nfs4.Operation{Num: num, Args: args, Res: res}
	}
	status := &nfs4.StatusRes{}
	save := op(nfs4.OpSavefh, nil, status)
	set4 := func(fh []byte, a nfs4.Sattr) {
		t.Helper()
		s.v4.do(t, on4(fh), op(nfs4.OpSetattr, &nfs4.SetattrArgs{Attr: a}, &nfs4.SetattrRes{}))
	}
	soon := nfs3.SetTime{How: nfs3.SetToClientTime, Time: nfs3.Time{Sec: 1_700_000_000}}
	// Each directory has the files f and h, which are one file, g, a symbolic link s, and a directory
	// d with a file x.
	const byHand = "a name made on the disk itself"
	changes := []struct {
		name string
		do   func(dir []byte, fh func(names ...string) []byte)
	}{
		{"WRITE", func(_ []byte, fh func(...string) []byte) {
			res, err := s.v3.Write(ctx, fh("f"), 1<<14, nfs3.FileSync, make([]byte, 4096))
			status3(res.Status, err)
		}},
		{"SETATTR of the mode", func(_ []byte, fh func(...string) []byte) { set3(fh("f"), nfs3.Sattr{Mode: number(0o600)}) }},
		{"SETATTR of the owner", func(_ []byte, fh func(...string) []byte) { set3(fh("f"), nfs3.Sattr{UID: number(7), GID: number(8)}) }},
		{"SETATTR of a link's owner", func(_ []byte, fh func(...string) []byte) { set3(fh("s"), nfs3.Sattr{UID: number(7)}) }},
		{"SETATTR of the size", func(_ []byte, fh func(...string) []byte) {
			set3(fh("f"), nfs3.Sattr{Size: nfs3.SetUint64{Set: true, Value: 10}})
		}},
		{"SETATTR of times", func(_ []byte, fh func(...string) []byte) { set3(fh("g"), nfs3.Sattr{Atime: soon, Mtime: soon}) }},
		{"SETATTR of a directory", func(_ []byte, fh func(...string) []byte) { set3(fh("d"), nfs3.Sattr{Mode: number(0o700)}) }},
		{"REMOVE of one of two names", func(dir []byte, _ func(...string) []byte) {
			res, err := s.v3.Remove(ctx, dir, "h")
			status3(res.Status, err)
		}},
		{"REMOVE of the last name", func(dir []byte, fh func(...string) []byte) {
			g := fh("g")
			res, err := s.v3.Remove(ctx, dir, "g")
			status3(res.Status, err)
			if l, ok := (view3{s.v3}).getattr(t, g); ok {
				t.Errorf("GETATTR of what was removed: %+v", l)
			}
		}},
		{"LINK", func(_ []byte, fh func(...string) []byte) {
			res, err := s.v3.Link(ctx, fh("g"), fh("d"), "g")
			status3(res.Status, err)
		}},
		{"RENAME", func(dir []byte, _ func(...string) []byte) {
			res, err := s.v3.Rename(ctx, dir, "f", dir, "n")
			status3(res.Status, err)
		}},
		{"RENAME to another directory", func(dir []byte, fh func(...string) []byte) {
			res, err := s.v3.Rename(ctx, dir, "g", fh("d"), "n")
			status3(res.Status, err)
		}},
		{"RENAME over one of two names", func(dir []byte, _ func(...string) []byte) {
			res, err := s.v3.Rename(ctx, dir, "g", dir, "f")
			status3(res.Status, err)
		}},
		{"CREATE in a directory", func(_ []byte, fh func(...string) []byte) {
			res, err := s.v3.Create(ctx, nfs3.CreateArgs{Where: nfs3.DirOpArgs{Dir: fh("d"), Name: []byte("n")}, Mode: nfs3.Guarded})
			status3(res.Status, err)
		}},
		{"CREATE of what is there", func(dir []byte, _ func(...string) []byte) {
			res, err := s.v3.Create(ctx, nfs3.CreateArgs{Where: nfs3.DirOpArgs{Dir: dir, Name: []byte("f")}, Attr: nfs3.Sattr{Size: nfs3.SetUint64{Set: true}}})
			status3(res.Status, err)
		}},
		{"MKDIR in a directory", func(_ []byte, fh func(...string) []byte) {
			res, err := s.v3.Mkdir(ctx, fh("d"), "n", nfs3.Sattr{})
			status3(res.Status, err)
		}},
		{"READ", func(_ []byte, fh func(...string) []byte) {
			res, err := s.v3.Read(ctx, fh("f"), 0, 100)
			status3(res.Status, err)
		}},
		{"READ by who does not own it", func(_ []byte, fh func(...string) []byte) {
			res, err := s.v3.As(1234, 1234).Read(ctx, fh("f"), 0, 100)
			status3(res.Status, err)
		}},
		{"READLINK", func(_ []byte, fh func(...string) []byte) {
			res, err := s.v3.Readlink(ctx, fh("s"))
			status3(res.Status, err)
		}},
		{"READDIR", func(_ []byte, fh func(...string) []byte) {
			res, err := s.v3.Readdir(ctx, nfs3.ReaddirArgs{Dir: fh("d"), Count: 4096})
			status3(res.Status, err)
		}},
		{"WRITE, 4.1", func(_ []byte, fh func(...string) []byte) {
			s.v4.do(t, on4(fh("f")), op(nfs4.OpWrite, &nfs4.WriteArgs{Offset: 1 << 14, Stable: nfs4.FileSync, Data: make([]byte, 4096)}, &nfs4.WriteRes{}))
		}},
		{"SETATTR of the mode, 4.1", func(_ []byte, fh func(...string) []byte) {
			set4(fh("f"), nfs4.Sattr{Mask: nfs4.BitmapOf(nfs4.AttrMode), Mode: 0o600})
		}},
		{"SETATTR of the size, 4.1", func(_ []byte, fh func(...string) []byte) {
			set4(fh("f"), nfs4.Sattr{Mask: nfs4.BitmapOf(nfs4.AttrSize), Size: 10})
		}},
		{"REMOVE, 4.1", func(dir []byte, _ func(...string) []byte) {
			s.v4.do(t, on4(dir), op(nfs4.OpRemove, &nfs4.RemoveArgs{Name: []byte("h")}, &nfs4.RemoveRes{}))
		}},
		{"RENAME, 4.1", func(dir []byte, fh func(...string) []byte) {
			s.v4.do(t, on4(dir), save, on4(fh("d")), op(nfs4.OpRename, &nfs4.RenameArgs{OldName: []byte("f"), NewName: []byte("n")}, &nfs4.RenameRes{}))
		}},
		{"LINK, 4.1", func(_ []byte, fh func(...string) []byte) {
			s.v4.do(t, on4(fh("g")), save, on4(fh("d")), op(nfs4.OpLink, &nfs4.LinkArgs{Name: []byte("n")}, &nfs4.LinkRes{}))
		}},
		{byHand, func([]byte, func(...string) []byte) { // a listing sees that the directory has changed
			must(t, os.Link(filepath.Join(s.dir, byHand, "g"), filepath.Join(s.dir, byHand, "n")))
		}},
	}
	before := time.Unix(1_600_000_000, 0) // relatime changes the atime at the first read
	for _, c := range changes {
		dir := filepath.Join(s.dir, c.name)
		must(t, os.Mkdir(dir, 0o755))
		must(t, os.Mkdir(filepath.Join(dir, "d"), 0o755))
		for _, name := range []string{"f", "g", "d/x"} {
			writeSynced(t, filepath.Join(dir, name))
			must(t, os.Chtimes(filepath.Join(dir, name), before, before))
		}
		must(t, os.Link(filepath.Join(dir, "f"), filepath.Join(dir, "h")))
		must(t, os.Symlink("f", filepath.Join(dir, "s")))
	}
	time.Sleep(aged)
	for _, c := range changes {
		t.Run(c.name, func(t *testing.T) {
			fh := func(names ...string) []byte { return s.find(t, "3", append([]string{c.name}, names...)...) }
			dir := fh()
			s.compare(t, "at first", c.name) // handles are remembered
			s.compare(t, "then", c.name)     // attributes are remembered
			began := s.remembered(t)
			s.compare(t, "again", c.name)
			if n := s.remembered(t) - began; n < 3*2*5 { // versions, ways and files
				t.Errorf("%d attributes were remembered", n)
			}
			c.do(dir, fh)
			s.compare(t, "after it", c.name)
			s.compare(t, "after it", c.name, "d")
		})
	}
}

// remembered is how many attributes were found.
func (s *served) remembered(t *testing.T) uint64 {
	t.Helper()
	return s.server.CacheCounts().Handles.Attrs
}

// writeSynced writes a file whose blocks do not change afterwards.
func writeSynced(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	must(t, err)
	defer f.Close()
	_, err = f.Write(make([]byte, 4096))
	must(t, err)
	must(t, f.Sync())
}

// What is changed on the disk itself is seen within a second.
func TestAttributesChangedOnDisk(t *testing.T) {
	for _, attrs := range []bool{true, false} {
		t.Run(fmt.Sprint("remembered: ", attrs), func(t *testing.T) {
			s := serveTwice(t, attrs)
			must(t, os.WriteFile(filepath.Join(s.dir, "f"), nil, 0o644))
			time.Sleep(aged)
			for range 3 {
				s.compare(t, "before")
			}
			if n := s.remembered(t); attrs == (n == 0) {
				t.Errorf("%d attributes were remembered", n)
			}
			must(t, os.Chmod(filepath.Join(s.dir, "f"), 0o600))
			if attrs {
				time.Sleep(time.Second)
			}
			s.compare(t, "a second later")
		})
	}
}

// A caller that may not search a directory sees no attributes in it, though others have just seen
// them.
func TestAttributesAreNoRight(t *testing.T) {
	s := serveTwice(t, true)
	const uid = 1234
	must(t, os.Mkdir(filepath.Join(s.dir, "d"), 0o744))
	must(t, os.WriteFile(filepath.Join(s.dir, "d", "f"), nil, 0o644))
	time.Sleep(aged)
	dir := s.find(t, "3", "d")
	for range 3 {
		s.compare(t, "as root", "d")
	}
	args := nfs3.ReaddirplusArgs{Dir: dir, DirCount: 4096, MaxCount: 4096}
	for _, may := range []bool{false, true, false} {
		must(t, os.Chmod(filepath.Join(s.dir, "d"), map[bool]os.FileMode{false: 0o744, true: 0o755}[may]))
		res, err := s.v3.As(uid, uid).Readdirplus(t.Context(), args)
		must(t, err)
		i := slices.IndexFunc(res.Entries, func(e nfs3.EntryPlus) bool { return string(e.Name) == "f" })
		if e := res.Entries[i]; e.Attr.Present != may || (e.Object != nil) != may {
			t.Errorf("may search: %v, but has attributes: %v", may, e.Attr.Present)
		}
		var list nfs4.ReaddirRes
		as := *s.v4
		as.cred = (&rpc.SysCred{UID: uid, GID: uid}).Auth()
		status := as.try(t, on4(dir), nfs4.Operation{Num: nfs4.OpReaddir, Args: &nfs4.ReaddirArgs{MaxCount: 4096, Request: wanted4}, Res: &list})
		s.v4.seq = as.seq
		if (status == nfs4.OK) != may {
			t.Errorf("may search: %v, but 4.1 says %v", may, status)
		}
	}
}

// All at once: clients of both versions and somebody on the disk change files and directories, each
// its own, while others look at all of them. A client sees what it has changed at once, by both
