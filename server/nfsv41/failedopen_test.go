package nfsv41_test

import (
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/nfs/xdr"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/test/testdisk"
)

// An OPEN that makes a file and then can't be recorded leaves no file, so that it can be tried again.
func TestFailedOpenLeavesNothing(t *testing.T) {
	for _, user := range []uint32{0, 1000} {
		dir, tracking := t.TempDir(), filepath.Join(t.TempDir(), "clients")
		if err := disk.ProbeHandles(dir); err != nil {
			t.Skip(err)
		}
		mustDo(t, os.Chmod(dir, 0o777))
		cred := rpc.SysCred{UID: user, GID: user}
		c := &caller{TB: t, conn: serveWith(t, dir, tracking, false), cred: cred.Auth(), reply: make([]byte, 8<<10)}
		c.begin()
		root := c.lookup(operation{Num: nfs4.OpPutrootfh}, "volume")
		args := nfs4.OpenArgs{
			ShareAccess: nfs4.ShareAccessBoth, Owner: nfs4.StateOwner{Owner: []byte("owner")},
			Create: true, Mode: nfs4.Guarded, Name: []byte("file"),
		}
		open := c.compound("OPEN", true, putfh(root), operation{Num: nfs4.OpOpen, Args: &args})
		mustDo(t, os.RemoveAll(tracking))
		for range 2 {
			if _, status := c.try(open); status != nfs4.ErrServerFault {
				t.Errorf("user %d: %v", user, status)
			}
			if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
				t.Errorf("user %d: there is %v, %v", user, files, err)
			}
		}
	}
}

// An OPEN that can't set the size changes nothing of what is open, RFC 8881 section 18.16: neither the stateid that its owner has from
// before, what that may do, and its locks, nor what others have. Of an owner that had nothing open nothing stays.
func TestFailedTruncate(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	mustDo(t, os.WriteFile(path, make([]byte, 100), 0o666))
	mustDo(t, os.Chmod(path, 0o666))
	c := &caller{TB: t, conn: serve(t, dir, false), cred: (&rpc.SysCred{}).Auth(), reply: make([]byte, 8<<10)}
	c.begin()
	root := c.lookup(operation{Num: nfs4.OpPutrootfh}, "volume")
	file := c.lookup(putfh(root), "file")
	args := func(owner string, access, deny uint32) *nfs4.OpenArgs {
		return &nfs4.OpenArgs{ShareAccess: access, ShareDeny: deny, Owner: nfs4.StateOwner{Owner: []byte(owner)}, Name: []byte("file")}
	}
	open := func(args *nfs4.OpenArgs) (nfs4.Stateid, nfs4.Status) {
		results, status := c.try(c.compound("OPEN", true, putfh(root), operation{Num: nfs4.OpOpen, Args: args}))
		var res nfs4.OpenRes
		d := xdr.NewDecoder(results[8+4:])
		res.Decode(&d)
		return res.Stateid, status
	}
	does := func(op nfs4.OpNum, args rpc.Args) nfs4.Status {
		_, status := c.try(c.compound(op.String(), false, putfh(file), operation{Num: op, Args: args}))
		return status
	}
	var ids [2]nfs4.Stateid
	for i, a := range []*nfs4.OpenArgs{args("reads", nfs4.ShareAccessRead, 0), args("writes", nfs4.ShareAccessBoth, 0)} {
		var status nfs4.Status
		if ids[i], status = open(a); status != nfs4.OK {
			t.Fatal(status)
		}
	}
	lock := nfs4.LockArgs{Type: nfs4.LockRead, Length: 10, NewOwner: true, OpenStateid: ids[0], Owner: nfs4.StateOwner{Owner: []byte("locker")}}
	if status := does(nfs4.OpLock, &lock); status != nfs4.OK {
		t.Fatal(status)
	}

	mend := testdisk.Untruncatable(t, path)
	for _, owner := range []string{"reads", "writes", "new"} {
		for _, access := range []uint32{nfs4.ShareAccessRead, nfs4.ShareAccessWrite} {
			truncates := args(owner, access, 0)
			truncates.Create, truncates.Mode = true, nfs4.Unchecked
			truncates.Attr.Mask = nfs4.BitmapOf(nfs4.AttrSize)
			if _, status := open(truncates); status == nfs4.OK {
				t.Errorf("%s truncates a file that nobody can truncate", owner)
			}
		}
	}
	mend()
	mustDo(t, os.Chmod(path, 0o666))

	for i, want := range []nfs4.Status{nfs4.ErrOpenMode, nfs4.OK} {
		if status := does(nfs4.OpRead, &nfs4.ReadArgs{Stateid: ids[i], Count: 10}); status != nfs4.OK {
			t.Errorf("READ by the stateid from before: %v", status)
		}
		if status := does(nfs4.OpWrite, &nfs4.WriteArgs{Stateid: ids[i], Data: []byte("x")}); status != want {
			t.Errorf("WRITE by the stateid from before: %v, want %v", status, want)
		}
	}
	if status := does(nfs4.OpLockt, &nfs4.LocktArgs{Type: nfs4.LockWrite, Length: 1, Owner: nfs4.StateOwner{Owner: []byte("other")}}); status != nfs4.ErrDenied {
		t.Errorf("LOCKT of what was locked before: %v", status)
	}
	for i := range ids {
		if _, status := open(args("denies", nfs4.ShareAccessRead, nfs4.ShareDenyBoth)); status != nfs4.ErrShareDenied {
			t.Errorf("an OPEN that denies all, with %d opens there: %v", len(ids)-i, status)
		}
		if status := does(nfs4.OpClose, &nfs4.CloseArgs{Stateid: ids[i]}); status != nfs4.OK {
			t.Errorf("CLOSE: %v", status)
		}
	}
	if _, status := open(args("denies", nfs4.ShareAccessRead, nfs4.ShareDenyBoth)); status != nfs4.OK {
		t.Errorf("an OPEN that denies all, when all is closed: %v", status)
	}
}

// The OPENs of one owner that succeed and those that fail beside them know nothing of each other.
func TestFailedTruncateBesideOpens(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	mustDo(t, os.WriteFile(path, make([]byte, 100), 0o666))
	conn := serve(t, dir, false)
	newSession := func() *caller {
		own, err := net.Dial("tcp", conn.RemoteAddr().String())
		mustDo(t, err)
		t.Cleanup(func() { own.Close() })
		c := &caller{TB: t, conn: own, cred: (&rpc.SysCred{}).Auth(), reply: make([]byte, 8<<10)}
		c.begin()
		return c
	}
	c, other := newSession(), newSession()
	root := c.lookup(operation{Num: nfs4.OpPutrootfh}, "volume")
	args := func(owner string, access uint32) nfs4.OpenArgs {
		return nfs4.OpenArgs{ShareAccess: access, Owner: nfs4.StateOwner{Owner: []byte(owner)}, Name: []byte("file")}
	}
	writes := args("writes", nfs4.ShareAccessBoth) // so that the file is open for writing
	c.do(c.compound("OPEN", true, putfh(root), operation{Num: nfs4.OpOpen, Args: &writes}))
	testdisk.Untruncatable(t, path)

	var beside sync.WaitGroup
	beside.Go(func() {
		truncates := args("owner", nfs4.ShareAccessWrite)
		truncates.Create, truncates.Mode = true, nfs4.Unchecked
		truncates.Attr.Mask = nfs4.BitmapOf(nfs4.AttrSize)
		open := other.compound("OPEN", true, putfh(root), operation{Num: nfs4.OpOpen, Args: &truncates})
		for range 300 {
			if _, status := other.try(open); status == nfs4.OK {
				t.Error("a file is truncated that nobody can truncate")
			}
		}
	})
	reads := args("owner", nfs4.ShareAccessRead)
	open := c.compound("OPEN", true, putfh(root), operation{Num: nfs4.OpOpen, Args: &reads})
	var first nfs4.OpenRes
	for n := range uint32(300) {
		var res nfs4.OpenRes
		d := xdr.NewDecoder(c.do(open)[8+4:])
		res.Decode(&d)
		if n == 0 {
			first = res
		}
		if d.Err() != nil || res.Stateid.Other != first.Stateid.Other || res.Stateid.Seqid != n+1 {
			t.Fatalf("OPEN %d returns the stateid %v, %v", n+1, res.Stateid, d.Err())
		}
	}
	beside.Wait()
}

// An OPEN that is refused for what others deny truncates nothing, though it opens the file for reading alone.
func TestRefusedOpenTruncatesNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	mustDo(t, os.WriteFile(path, make([]byte, 100), 0o666))
	c := &caller{TB: t, conn: serve(t, dir, false), cred: (&rpc.SysCred{}).Auth(), reply: make([]byte, 8<<10)}
	c.begin()
	root := c.lookup(operation{Num: nfs4.OpPutrootfh}, "volume")
	args := nfs4.OpenArgs{ShareAccess: nfs4.ShareAccessRead, ShareDeny: nfs4.ShareDenyWrite, Owner: nfs4.StateOwner{Owner: []byte("denies")}, Name: []byte("file")}
	open := func(args nfs4.OpenArgs) nfs4.Status {
		_, status := c.try(c.compound("OPEN", true, putfh(root), operation{Num: nfs4.OpOpen, Args: &args}))
		return status
	}
	if status := open(args); status != nfs4.OK {
		t.Fatal(status)
	}
	args.ShareDeny, args.Owner.Owner, args.Create, args.Mode = 0, []byte("truncates"), true, nfs4.Unchecked
	args.Attr.Mask = nfs4.BitmapOf(nfs4.AttrSize)
	for _, access := range []uint32{nfs4.ShareAccessRead, nfs4.ShareAccessBoth} {
		args.ShareAccess = access
		if status := open(args); status != nfs4.ErrShareDenied {
			t.Errorf("access %d: %v", access, status)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Size() != 100 {
		t.Errorf("the file has %d bytes, %v", info.Size(), err)
	}
}
