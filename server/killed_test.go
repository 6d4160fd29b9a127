package server_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/server"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/test/conformance/nfstest"
)

var kills = flag.Int("kills", 20, "how often TestKilled kills the server; a thousand take two to five minutes")

const (
	killedDir     = "PODNAS_TEST_KILLED" // the variable that makes the test binary the server of TestKilled
	killedAddress = "PODNAS_TEST_KILLED_ADDRESS"
)

// TestKilledServer is the server of TestKilled, a process of its own.
func TestKilledServer(t *testing.T) {
	dir := os.Getenv(killedDir)
	if dir == "" {
		t.Skip("it runs as a child of TestKilled")
	}
	cfg := config(t)
	cfg.Engine.Engine = server.EngineNative
	cfg.NFS4, cfg.StateLog = filepath.Join(dir, "clients"), filepath.Join(dir, "log")
	cfg.Log = slog.New(slog.NewTextHandler(os.Stdout, nil))
	if err := cfg.Exports.Export(exports.Exported{ID: 1, Path: "/volume", Dir: filepath.Join(dir, "volume")}); err != nil {
		t.Fatal(err)
	}
	s, err := server.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", os.Getenv(killedAddress))
	if err != nil {
		t.Fatal(err)
	}
	t.Fatal(s.Serve(context.Background(), l))
}

// TestKilled kills the server at random moments while clients open, lock, unlock and close.
// Everything that a client was told is there afterwards, no byte is locked by two, and nobody has
// to reclaim anything.
func TestKilled(t *testing.T) {
	dir, err := os.MkdirTemp("", "killed")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	volume := filepath.Join(dir, "volume")
	if err := errors.Join(os.Mkdir(volume, 0o777), disk.ProbeHandles(volume)); err != nil {
		t.Skipf("the native engine can't run here: %v", err)
	}
	l, err := net.Listen("tcp", nfstest.OwnAddress())
	if err != nil {
		t.Fatal(err)
	}
	k := &killing{t: t, dir: dir, addr: l.Addr().String()}
	l.Close()
	k.start()
	defer func() { k.kill() }()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var clients []*mortal
	for i := range 4 {
		c := &mortal{k: k, name: fmt.Sprint("client", i), self: int64(i + 1), rand: rand.New(rand.NewPCG(rand.Uint64(), 1)), opens: map[int]*opened{}}
		c.begin(ctx)
		clients = append(clients, c)
	}
	var running sync.WaitGroup
	for _, c := range clients {
		running.Go(func() {
			for ctx.Err() == nil && !t.Failed() {
				k.pause.RLock()
				c.step(ctx)
				k.pause.RUnlock()
			}
		})
	}
	// The last thing to happen, however the test ends.
	defer running.Wait()
	defer cancel()
	for n := range *kills {
		time.Sleep(time.Duration(rand.IntN(200)) * time.Millisecond)
		k.kill()
		k.start()
		if t.Failed() {
			return
		}
		if n%5 == 4 {
			k.pause.Lock()
			for _, c := range clients {
				c.verify(ctx, clients)
			}
			k.pause.Unlock()
		}
	}
	t.Logf("%d kills, %d calls, of which %d were sent again, %d locks, %d OPENs with a seqid that the client had not expected", *kills, k.calls.Load(), k.again.Load(), k.locks.Load(), k.gaps.Load())
	if k.locks.Load() == 0 || *kills >= 20 && k.again.Load() == 0 {
		t.Error("there was nothing to be lost")
	}
}

// killing is a server that is killed again and again.
type killing struct {
	t         *testing.T
	dir, addr string
	process   *exec.Cmd
	pause     sync.RWMutex
	holder    [3][8]atomic.Int64 // who was told that it has a byte of a file
	// counts
	calls, again, locks, gaps atomic.Int64
	starts                    int
}

func (k *killing) start() {
	k.t.Helper()
	k.process = exec.Command(os.Args[0], "-test.run=^TestKilledServer$", "-test.v")
	k.process.Env = append(os.Environ(), killedDir+"="+k.dir, killedAddress+"="+k.addr)
	out, err := k.process.StdoutPipe()
	if err == nil {
		err = k.process.Start()
	}
	if err != nil {
		k.t.Fatal(err)
	}
	ready, goesOn := false, k.starts == 0
	var said []string
	for lines := bufio.NewScanner(out); !ready && lines.Scan(); {
		said = append(said, lines.Text())
		goesOn = goesOn || strings.Contains(lines.Text(), "podnas had died, and clients go on")
		ready = strings.Contains(lines.Text(), "serving NFS")
	}
	k.starts++
	if !ready || !goesOn {
		k.t.Errorf("start %d: %s", k.starts, strings.Join(said, "\n"))
	}
	// That it dies soon again does not mean that it can't live with the log.
	tries, _ := filepath.Glob(filepath.Join(k.dir, "log", "*.tries"))
	for _, path := range tries {
		_ = os.Remove(path)
	}
}

func (k *killing) kill() {
	_ = k.process.Process.Kill()
	_ = k.process.Wait()
}

// mortal is a client. It sends one call at a time.
type mortal struct {
	k         *killing
	name      string
	self      int64
	rand      *rand.Rand
	conn      *rpc.Client
	id        uint64
	createSeq uint32
	session   nfs4.SessionID
	seq       uint32
	root      []byte
	opens     map[int]*opened // by file
}

// opened is what the client was told.
type opened struct {
	fh     []byte
	id     nfs4.Stateid
	lock   nfs4.Stateid
	locked map[int]bool
}

// send sends a call until there is a reply, over as many connections as it takes.
func (c *mortal) send(ctx context.Context, ops nfs4.Compound) nfs4.Status {
	c.k.calls.Add(1)
	cred := rpc.SysCred{MachineName: []byte("killed")}
	h := rpc.CallHeader{RPCVersion: rpc.Version, Prog: nfs4.Program, Vers: nfs4.Version, Proc: nfs4.ProcCompound, Cred: cred.Auth()}
	deadline := time.Now().Add(time.Minute)
	for first := true; ctx.Err() == nil; first = false {
		if time.Now().After(deadline) {
			c.k.t.Error("no reply for a minute")
			break
		}
		if c.conn == nil {
			conn, err := rpc.Dial(ctx, c.k.addr)
			if err != nil {
				time.Sleep(5 * time.Millisecond)
				continue
			}
			c.conn = conn
		}
		if !first {
			c.k.again.Add(1)
		}
		b, err := c.conn.Do(ctx, h, ops)
		if err == nil {
			_, status, err := ops.DecodeResults(b)
			if err == nil {
				return status
			}
			c.k.t.Error(err)
		}
		c.conn.Close()
		c.conn = nil
	}
	return nfs4.ErrServerFault
}

func (c *mortal) createSession(ctx context.Context) {
	channel := nfs4.ChannelAttrs{MaxRequestSize: 1 << 16, MaxResponseSize: 1 << 16, MaxResponseSizeCached: 1024, MaxOperations: 16, MaxRequests: 1}
	var res nfs4.CreateSessionRes
	args := &nfs4.CreateSessionArgs{ClientID: c.id, SequenceID: c.createSeq, Fore: channel, Back: channel, SecParms: []nfs4.CallbackSec{{}}}
	if s := c.send(ctx, nfs4.Compound{{Num: nfs4.OpCreateSession, Args: args, Res: &res}}); s != nfs4.OK && ctx.Err() == nil {
		c.k.t.Errorf("CREATE_SESSION: %v", s)
	}
	c.createSeq++
	c.session, c.seq = res.SessionID, 0
}

// do does operations in the session.
func (c *mortal) do(ctx context.Context, ops ...nfs4.Operation) nfs4.Status {
	for {
		c.seq++
		var res nfs4.SequenceRes
		sequence := nfs4.Operation{Num: nfs4.OpSequence, Args: &nfs4.SequenceArgs{SessionID: c.session, SequenceID: c.seq}, Res: &res}
		status := c.send(ctx, append(nfs4.Compound{sequence}, ops...))
		switch {
		case ctx.Err() != nil:
			return status
		case status == nfs4.ErrBadSession:
			c.createSession(ctx)
		case status == nfs4.ErrDelay:
			time.Sleep(time.Millisecond)
		case res.Status != nfs4.OK:
			c.k.t.Errorf("SEQUENCE: %v", res.Status)
			return status
		case status == nfs4.ErrGrace, status == nfs4.ErrStaleClientID:
			c.k.t.Errorf("clients have to reclaim: %v", status)
			return status
		default:
			return status
		}
	}
}

func (c *mortal) begin(ctx context.Context) {
	var res nfs4.ExchangeIDRes
	c.send(ctx, nfs4.Compound{{Num: nfs4.OpExchangeID, Args: &nfs4.ExchangeIDArgs{OwnerID: []byte(c.name), Flags: nfs4.ExchangeUseNonPNFS}, Res: &res}})
	c.id, c.createSeq = res.ClientID, res.SequenceID
	c.createSession(ctx)
	var fh nfs4.GetfhRes
	c.must(ctx, "look up", nfs4.Operation{Num: nfs4.OpReclaimComplete, Args: &nfs4.ReclaimCompleteArgs{}, Res: &nfs4.StatusRes{}},
		nfs4.Operation{Num: nfs4.OpPutrootfh, Res: &nfs4.StatusRes{}},
		nfs4.Operation{Num: nfs4.OpLookup, Args: &nfs4.LookupArgs{Name: []byte("volume")}, Res: &nfs4.StatusRes{}},
		nfs4.Operation{Num: nfs4.OpGetfh, Res: &fh})
	c.root = bytes.Clone(fh.FH)
}

func (c *mortal) must(ctx context.Context, what string, ops ...nfs4.Operation) bool {
	if s := c.do(ctx, ops...); s != nfs4.OK {
		if ctx.Err() == nil {
			c.k.t.Errorf("%s of %s: %v", what, c.name, s)
		}
		return false
	}
	return true
}

func putFH(fh []byte) nfs4.Operation {
	return nfs4.Operation{Num: nfs4.OpPutfh, Args: &nfs4.PutfhArgs{FH: fh}, Res: &nfs4.StatusRes{}}
}

// step opens or closes, or locks or unlocks a byte.
func (c *mortal) step(ctx context.Context) {
	f, at := c.rand.IntN(3), c.rand.IntN(8)
	o := c.opens[f]
	switch n := c.rand.IntN(10); {
	case o == nil:
		c.open(ctx, f)
	case n < 2 && len(o.locked) == 0:
		var res nfs4.StateidRes
		delete(c.opens, f)
		s := c.do(ctx, putFH(o.fh), nfs4.Operation{Num: nfs4.OpClose, Args: &nfs4.CloseArgs{Stateid: o.id}, Res: &res})
		if s != nfs4.OK && s != nfs4.ErrBadStateid && ctx.Err() == nil { // which is one that was done before
			c.k.t.Errorf("CLOSE: %v", s)
		}
	case n < 3:
		c.open(ctx, f)
	case o.locked[at]:
		var res nfs4.StateidRes
		delete(o.locked, at)
		c.k.holder[f][at].Store(0)
		args := &nfs4.LockuArgs{Type: nfs4.LockWrite, Stateid: o.lock, Offset: uint64(at), Length: 1}
		if c.must(ctx, "LOCKU", putFH(o.fh), nfs4.Operation{Num: nfs4.OpLocku, Args: args, Res: &res}) {
			o.lock = res.Stateid
		}
	default:
		c.lock(ctx, f, at, o)
	}
}

func (c *mortal) open(ctx context.Context, f int) {
	var res nfs4.OpenRes
	var fh nfs4.GetfhRes
	args := &nfs4.OpenArgs{
		ShareAccess: nfs4.ShareAccessBoth, Owner: nfs4.StateOwner{Owner: []byte("owner")}, Create: true, Name: fmt.Appendf(nil, "file%d", f),
	}
	if !c.must(ctx, "OPEN", putFH(c.root), nfs4.Operation{Num: nfs4.OpOpen, Args: args, Res: &res}, nfs4.Operation{Num: nfs4.OpGetfh, Res: &fh}) {
		return
	}
	o := c.opens[f]
	want := nfs4.Stateid{Seqid: 1, Other: res.Stateid.Other}
	if o == nil {
		o = &opened{fh: bytes.Clone(fh.FH), locked: map[int]bool{}}
		c.opens[f] = o
	} else if want = o.id; true {
		want.Seqid++
	}
	switch {
	case res.Stateid.Other != want.Other:
		c.k.t.Errorf("OPEN: %v, want %v", res.Stateid, want)
	case res.Stateid != want:
		c.k.gaps.Add(1)
	}
	o.id = res.Stateid
}

func (c *mortal) lock(ctx context.Context, f, at int, o *opened) {
	var res nfs4.LockRes
	args := &nfs4.LockArgs{Type: nfs4.LockWrite, Offset: uint64(at), Length: 1, LockStateid: o.lock}
	if o.lock == (nfs4.Stateid{}) {
		args.NewOwner, args.OpenStateid, args.Owner = true, o.id, nfs4.StateOwner{Owner: []byte("locker")}
	}
	switch s := c.do(ctx, putFH(o.fh), nfs4.Operation{Num: nfs4.OpLock, Args: args, Res: &res}); s {
	case nfs4.OK:
		if !c.k.holder[f][at].CompareAndSwap(0, c.self) {
			c.k.t.Errorf("byte %d of file %d is locked by %s and by client %d", at, f, c.name, c.k.holder[f][at].Load()-1)
		}
		c.k.locks.Add(1)
		o.lock, o.locked[at] = res.Stateid, true
	case nfs4.ErrDenied:
	default:
		if ctx.Err() == nil {
			c.k.t.Errorf("LOCK: %v", s)
		}
	}
}

// verify checks that what it was told is there, in the eyes of the others, too.
func (c *mortal) verify(ctx context.Context, all []*mortal) {
	for f, o := range c.opens {
		ids := []nfs4.Stateid{o.id}
		if o.lock != (nfs4.Stateid{}) {
			ids = append(ids, o.lock)
		}
		var res nfs4.TestStateidRes
		if !c.must(ctx, "TEST_STATEID", nfs4.Operation{Num: nfs4.OpTestStateid, Args: &nfs4.TestStateidArgs{Stateids: ids}, Res: &res}) {
			return
		}
		for i, s := range res.Statuses {
			if s != nfs4.OK {
				c.k.t.Errorf("%s: %v of file %d: %v", c.name, ids[i], f, s)
			}
		}
		for at := range 8 {
			var res nfs4.LocktRes
			args := &nfs4.LocktArgs{Type: nfs4.LockWrite, Offset: uint64(at), Length: 1, Owner: nfs4.StateOwner{Owner: []byte("watcher")}}
			s := c.do(ctx, putFH(o.fh), nfs4.Operation{Num: nfs4.OpLockt, Args: args, Res: &res})
			holder := c.k.holder[f][at].Load()
			switch {
			case s == nfs4.OK && holder != 0:
				c.k.t.Errorf("byte %d of file %d is free, and client %d was told that it has it", at, f, holder-1)
			case s == nfs4.ErrDenied && (holder == 0 || res.Denied.Owner.ClientID != all[holder-1].id):
				c.k.t.Errorf("byte %d of file %d is locked by %x, not by client %d", at, f, res.Denied.Owner.ClientID, holder-1)
			}
		}
	}
}
