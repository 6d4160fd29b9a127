package nfsv41_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/nfs/xdr"
	"github.com/podnas/podnas/test/leaks"
)

// largeFile is a file of 1 MiB, which clients on several connections read.
type largeFile struct {
	conn   net.Conn
	root   []byte
	handle []byte
}

func newLargeFile(t *testing.T) *largeFile {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	mustDo(t, os.WriteFile(path, make([]byte, 1<<20), 0o666))
	l := &largeFile{conn: serve(t, dir, false)}
	c := l.client(t, "first")
	l.root = c.lookup(operation{Num: nfs4.OpPutrootfh}, "volume")
	l.handle = c.lookup(putfh(l.root), "file")
	return l
}

// client is one on a connection of its own.
func (l *largeFile) client(t *testing.T, name string) *caller {
	t.Helper()
	conn, err := net.Dial("tcp", l.conn.RemoteAddr().String())
	mustDo(t, err)
	t.Cleanup(func() { conn.Close() })
	c := &caller{TB: t, conn: conn, cred: (&rpc.SysCred{}).Auth(), reply: make([]byte, 8<<10)}
	c.beginAs(name)
	return c
}

// ways are COMPOUNDs that have a READ of 1 MiB where nobody has foreseen it, and are legal.
func (l *largeFile) ways() map[string][]operation {
	size := nfs4.Fattr{Mask: nfs4.BitmapOf(nfs4.AttrSize), Vals: xdr.AppendUint64(nil, 1<<20)}
	current := nfs4.CurrentStateid()
	read := operation{Num: nfs4.OpRead, Args: &nfs4.ReadArgs{Count: 1 << 20}}
	return map[string][]operation{
		"TEST_STATEID": {putfh(l.handle), {Num: nfs4.OpTestStateid, Args: &nfs4.TestStateidArgs{}}, read},
		"VERIFY":       {putfh(l.handle), {Num: nfs4.OpVerify, Args: &nfs4.VerifyArgs{Attr: size}}, read},
		"OPEN": {
			putfh(l.root),
			{Num: nfs4.OpOpen, Args: &nfs4.OpenArgs{ShareAccess: nfs4.ShareAccessRead, Owner: nfs4.StateOwner{Owner: []byte("owner")}, Name: []byte("file")}},
			{Num: nfs4.OpRead, Args: &nfs4.ReadArgs{Stateid: current, Count: 1 << 20}},
		},
		"small READs": {
			putfh(l.handle),
			{Num: nfs4.OpTestStateid, Args: &nfs4.TestStateidArgs{}},
			{Num: nfs4.OpRead, Args: &nfs4.ReadArgs{Count: 1000}},
			{Num: nfs4.OpRead, Args: &nfs4.ReadArgs{Count: 10_000}},
			{Num: nfs4.OpRead, Args: &nfs4.ReadArgs{Count: 1_000_000}},
		},
	}
}

// A READ reads as much as it was asked for, whatever is before it in the COMPOUND.
func TestReadAfterAnything(t *testing.T) {
	l := newLargeFile(t)
	for name, ops := range l.ways() {
		c := l.client(t, name)
		c.reply = make([]byte, 2<<20)
		results := c.do(c.compound(name, false, ops...))
		if len(results) < 1_000_000 {
			t.Errorf("%s: the results have %d bytes", name, len(results))
		}
	}
}

// Replies that nobody reads take no more memory than an address may have, whatever a COMPOUND has before its READ. Who asks for more is
// told to ask again, and gets it when the others have gone.
func TestUnreadReplies(t *testing.T) {
	const conns, most = 250, 160 // MiB: the half of the budget that an address may have, and what the clients take
	for name := range (&largeFile{}).ways() {
		t.Run(name, func(t *testing.T) {
			l := newLargeFile(t)
			before := heap()
			delayed := 0
			var all []*caller
			for i := range conns {
				c := l.client(t, fmt.Sprint(i))
				mustDo(t, c.conn.(*net.TCPConn).SetReadBuffer(8<<10))
				status := c.begins(c.compound(name, false, l.ways()[name]...))
				switch {
				case status == nfs4.ErrDelay && i > 64:
					delayed++
				case status != nfs4.OK:
					t.Fatalf("READ %d: %v", i, status)
				}
				all = append(all, c)
			}
			if took := heap() - before; took > most {
				t.Errorf("%d replies of 1 MiB that nobody reads take %d MiB", conns, took)
			}
			if delayed == 0 {
				t.Error("nobody was told to ask again")
			}
			for _, c := range all {
				c.conn.Close()
			}
			c := l.client(t, "last")
			c.reply = make([]byte, 2<<20)
			for status := nfs4.ErrDelay; status != nfs4.OK; {
				if _, status = c.try(c.compound(name, false, l.ways()[name]...)); status != nfs4.OK && status != nfs4.ErrDelay {
					t.Fatal(status)
				}
			}
		})
	}
}

// A COMPOUND that has large arguments, too, waits for no memory of its reply: it would keep that of others meanwhile. It is told to ask
// again before anything is done.
func TestLargeBothWays(t *testing.T) {
	l := newLargeFile(t)
	var all []*caller
	for status := nfs4.OK; status == nfs4.OK; {
		c := l.client(t, fmt.Sprint(len(all)))
		mustDo(t, c.conn.(*net.TCPConn).SetReadBuffer(8<<10))
		if status = c.begins(c.compound("unread", false, l.ways()["TEST_STATEID"]...)); status != nfs4.OK && status != nfs4.ErrDelay {
			t.Fatal(status)
		}
		all = append(all, c)
	}
	c := l.client(t, "large")
	c.reply = make([]byte, 2<<20)
	mustDo(t, c.conn.SetDeadline(time.Now().Add(10*time.Second))) // before the others are closed
	both := c.compound("READ and WRITE", false, putfh(l.handle),
		operation{Num: nfs4.OpRead, Args: &nfs4.ReadArgs{Count: 1 << 20}},
		operation{Num: nfs4.OpWrite, Args: &nfs4.WriteArgs{Data: make([]byte, 2<<10)}})
	status := func() nfs4.Status { return nfs4.Status(binary.BigEndian.Uint32(c.send(both)[6*4:])) }
	if s := status(); s != nfs4.ErrDelay {
		t.Errorf("%v, want DELAY", s)
	}
	if done := binary.BigEndian.Uint32(c.reply[6*4+8:]); done != 1 {
		t.Errorf("%d operations were begun", done)
	}
	for _, c := range all {
		c.conn.Close()
	}
	for s := nfs4.ErrDelay; s != nfs4.OK; {
		c.seq-- // the sequence number was not used
		if s = status(); s != nfs4.OK && s != nfs4.ErrDelay {
			t.Fatal(s)
		}
	}
}

// heap is how much memory is in use, in MiB.
func heap() int { return leaks.LiveHeap() >> 20 }

// begins makes a call and reads no more of its reply than the status.
func (c *caller) begins(made call) nfs4.Status {
	c.seq++
	binary.BigEndian.PutUint32(made.record[made.seqAt:], c.seq)
	_, err := c.conn.Write(made.record)
	mustDo(c, err)
	var head [4 + 6*4 + 4]byte
	_, err = io.ReadFull(c.conn, head[:])
	mustDo(c, err)
	return nfs4.Status(binary.BigEndian.Uint32(head[len(head)-4:]))
}

// A result that finds no room in the largest reply is REP_TOO_BIG, of whatever operation.
func TestRepliesThatAreTooBig(t *testing.T) {
	l := newLargeFile(t)
	c := l.client(t, "owner")
	c.reply = make([]byte, 2<<20)
	read := func(n uint32) operation { return operation{Num: nfs4.OpRead, Args: &nfs4.ReadArgs{Count: n}} }
	for name, last := range map[string]operation{
		"READ":     read(1 << 20),
		"READDIR":  {Num: nfs4.OpReaddir, Args: &nfs4.ReaddirArgs{DirCount: 1 << 20, MaxCount: 1 << 20}},
		"READLINK": {Num: nfs4.OpReadlink},
	} {
		ops := []operation{putfh(l.handle), {Num: nfs4.OpTestStateid, Args: &nfs4.TestStateidArgs{}}, read(1<<20 - 2048)}
		if name == "READ" { // which reads less as long as there is some room
			ops = append(ops, last)
		}
		results, status := c.try(c.compound(name, false, append(ops, last)...))
		d := xdr.NewDecoder(results[len(results)-8:])
		want := map[string]nfs4.Status{"READ": nfs4.ErrRepTooBig, "READDIR": nfs4.ErrNotDir, "READLINK": nfs4.ErrWrongType}[name]
		if op, s := nfs4.OpNum(d.Uint32()), nfs4.Status(d.Uint32()); status != want || op != last.Num || s != status {
			t.Errorf("%s after 1 MiB: %v, the last result is %v of %v", name, status, s, op)
		}
	}
}
