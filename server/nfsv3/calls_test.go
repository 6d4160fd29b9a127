package nfsv3_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/quota"
	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/server/locate"
	server "github.com/podnas/podnas/server/nfsv3"
	"github.com/podnas/podnas/server/oncrpc"
	"github.com/podnas/podnas/server/space"
	"github.com/podnas/podnas/server/vfs"
	"github.com/podnas/podnas/test/testdisk"
)

// caller is a client whose side allocates nothing: its calls are bytes that were
// made before.
type caller struct {
	testing.TB

	conn  net.Conn
	reply []byte
	calls []call
	xid   uint32
}

type call struct {
	name   string
	record []byte
}

// newCaller serves a volume with one file, which belongs to root and is open to
// all, and prepares the calls that are made most on it, for a user. counted: the
// server counts what the volume uses.
func newCaller(t testing.TB, user uint32, counted bool) *caller {
	t.Helper()
	dir := t.TempDir()
	if err := disk.ProbeHandles(dir); err != nil {
		t.Skipf("the native engine can't run here: %v", err)
	}
	name := filepath.Join(dir, "file")
	mustDo(t, os.WriteFile(name, make([]byte, 64<<10), 0o600))
	mustDo(t, os.Chmod(name, 0o666))
	mustDo(t, os.Chmod(dir, 0o777))
	log := slog.New(slog.DiscardHandler)
	table := &exports.Table{ByIndex: testdisk.ByIndex()}
	exported := exports.Exported{ID: 1, Path: "/volume", Dir: dir}
	if counted {
		exported.Account = space.NewAccount(quota.Limit{Bytes: 1 << 40})
	}
	mustDo(t, table.Export(exported))
	opener := inode.NewOpener(table, locate.NewKey(make([]byte, 32)), log)
	server, err := oncrpc.NewServer(oncrpc.ServerConfig{
		Programs: []oncrpc.Program{server.NewProgram(vfs.New(vfs.Config{Opener: opener, Users: actas.NewUsers(nil), Log: log}))},
		Log:      log,
	})
	mustDo(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	mustDo(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
		opener.Close()
		table.Remove(1)
	})
	c := &caller{TB: t, reply: make([]byte, 8<<10)}
	c.conn, err = net.Dial("tcp", l.Addr().String())
	mustDo(t, err)
	t.Cleanup(func() { c.conn.Close() })

	volume, _ := table.ByID(1)
	root := opener.Root(volume)
	cred := rpc.SysCred{UID: user, GID: user}
	cred.SetGroups(1, 2, 3)
	add := func(name string, proc uint32, args rpc.Args) {
		b, at := rpc.BeginRecord(nil)
		h := rpc.CallHeader{XID: proc, RPCVersion: rpc.Version, Prog: nfs3.Program, Vers: nfs3.Version, Proc: proc, Cred: cred.Auth()}
		b = args.Append(h.Append(b))
		rpc.EndRecord(b, at)
		c.calls = append(c.calls, call{name, b})
	}
	add("LOOKUP", nfs3.ProcLookup, &nfs3.DirOpArgs{Dir: root, Name: []byte("file")})
	found := c.do(c.calls[0].record)
	file := bytes.Clone(found[4 : 4+binary.BigEndian.Uint32(found)])
	add("GETATTR", nfs3.ProcGetattr, &nfs3.HandleArgs{Object: file})
	add("ACCESS", nfs3.ProcAccess, &nfs3.AccessArgs{Object: file, Access: 0x3f})
	add("READ", nfs3.ProcRead, &nfs3.ReadArgs{File: file, Offset: 4096, Count: 4096})
	add("WRITE", nfs3.ProcWrite, &nfs3.WriteArgs{File: file, Offset: 8192, Count: 4096, Data: make([]byte, 4096)})
	return c
}

// do sends a call, as a new one, and returns its results after the status, which is OK.
func (c *caller) do(record []byte) []byte {
	c.xid++
	binary.BigEndian.PutUint32(record[4:], c.xid)
	return c.again(record)
}

// again is do of a call that was made before.
func (c *caller) again(record []byte) []byte {
	if _, err := c.conn.Write(record); err != nil {
		c.Fatal(err)
	}
	if _, err := io.ReadFull(c.conn, c.reply[:4]); err != nil {
		c.Fatal(err)
	}
	size := binary.BigEndian.Uint32(c.reply) &^ (1 << 31)
	if _, err := io.ReadFull(c.conn, c.reply[:size]); err != nil {
		c.Fatal(err)
	}
	const header = 6 * 4
	if status := binary.BigEndian.Uint32(c.reply[header:]); status != uint32(nfs3.OK) {
		c.Fatalf("status %d", status)
	}
	return c.reply[header+4 : size]
}

// TestWriteRepeated: a WRITE that the client sends again, since its reply is late, does not overwrite what was written since.
func TestWriteRepeated(t *testing.T) {
	c := newCaller(t, 0, false)
	var read, write []byte
	for _, call := range c.calls {
		switch call.name {
		case "READ":
			read = call.record
		case "WRITE":
			write = call.record
		}
	}
	offset := len(write) - 4096 - 4 - 4 - 4 - 8 // before its count, stable and the length of the data
	binary.BigEndian.PutUint64(write[offset:], 4096)
	first := c.do(write)
	first = bytes.Clone(first)
	newer := bytes.Clone(write)
	newer[len(newer)-1] = 1
	c.do(newer)
	if again := c.again(write); !bytes.Equal(again, first) {
		t.Error("the reply to the call that was repeated is another one")
	}
	if got := c.do(read); got[len(got)-1] != 1 {
		t.Error("what was written later is lost")
	}
}

func mustDo(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// BenchmarkCalls is one call at a time of 4 KiB and less, from socket to socket.
func BenchmarkCalls(b *testing.B) {
	for _, counts := range []struct {
		name    string
		counted bool
	}{{"kernel counts", false}, {"server counts", true}} {
		for _, user := range []struct {
			name string
			uid  uint32
		}{{"root", 0}, {"user", 1000}} {
			c := newCaller(b, user.uid, counts.counted)
			for _, call := range c.calls {
				b.Run(counts.name+"/"+user.name+"/"+call.name, func(b *testing.B) {
					for b.Loop() {
						c.do(call.record)
					}
				})
			}
		}
	}
}
