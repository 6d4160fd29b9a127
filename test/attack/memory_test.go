//go:build attack

package attack_test

import (
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/nfs/xdr"
	"github.com/podnas/podnas/test/conformance/nfstest"
)

// Ways to have the server hold memory. That it holds no more than its bound is checked
// after every attack.

// memoryPatience is for a write to a server that reads no more.
const memoryPatience = 300 * time.Millisecond

// halfRecord announces a record of 1 MiB and has so many bytes of it.
func halfRecord(n int) []byte { return append(xdr.AppendUint32(nil, 1<<31|1<<20), pattern(2, n)...) }

// unreadCalls makes a file of 1 MiB, and returns 64 calls to read it.
func (a *assault) unreadCalls(c *nfstest.Client, root nfs3.FH) (calls []byte) {
	a.Helper()
	file := a.create(c, root, "read", nfs3.Sattr{})
	res, err := c.Write(a.ctx, file, 0, nfs3.Unstable, pattern(3, 1<<20))
	ok(a, "WRITE", res.Status, err)
	for i := range 64 {
		calls = appendCall(calls, uint32(i), caller(0, 0), nfs3.ProcRead, &nfs3.ReadArgs{File: file, Count: 1 << 20})
	}
	return calls
}

// unreadCompounds returns COMPOUNDs to read the file of unreadCalls, each in a slot of its own.
func (a *assault) unreadCompounds(n int) (calls [][]byte) {
	a.Helper()
	for i := 0; len(calls) < n; i++ {
		c := a.ready4(i, "unread")
		file := on("prey", "read")
		for slot := uint32(1); slot < c.slots && len(calls) < n; slot++ {
			before := []ops4{
				file.do(nfs4.OpTestStateid, &nfs4.TestStateidArgs{}),
				file.do(nfs4.OpVerify, &nfs4.VerifyArgs{Attr: nfs4.Fattr{Mask: nfs4.BitmapOf(nfs4.AttrSize), Vals: xdr.AppendUint64(nil, 1<<20)}}),
				file.do(nfs4.OpOpen, &nfs4.OpenArgs{ShareAccess: nfs4.ShareAccessRead, Owner: nfs4.StateOwner{Owner: []byte("x")}, Claim: nfs4.ClaimFH}),
			}[slot%3]
			ops := before.do(nfs4.OpRead, &nfs4.ReadArgs{Count: 1<<20 - 1024}) // what channel4 has room for
			begin := ops4{}.do(nfs4.OpSequence, &nfs4.SequenceArgs{SessionID: c.session, SequenceID: 1, SlotID: slot, HighestSlotID: slot})
			all := begin.and(ops)
			b, at := rpc.BeginRecord(nil)
			h := header4(c.cred)
			b = (&nfs4.CompoundArgs{MinorVersion: 1, NumOps: all.n}).Append(h.Append(b))
			b = append(b, all.bytes...)
			rpc.EndRecord(b, at)
			calls = append(calls, b)
		}
	}
	return calls
}

var memoryAttacks = []attack{
	{
		name:  "records in small fragments",
		does:  "hundreds of connections send a record in fragments of 270 bytes, and never the last one",
		holds: "memory stays within its bound, others are served",
		also:  kinds{gonfs},
		run: func(a *assault) {
			a.beside(func() {
				raw := slices.Repeat(append(xdr.AppendUint32(nil, 270), pattern(1, 270)...), 3800)
				a.hold(a.many(300, 3200), 64, func(int) []byte { return raw })
			})
		},
	},
	{
		name:  "half records",
		does:  "675 connections announce a record of 1 MiB and send half of it; 64 for each address",
		holds: "memory stays within its bound, others are served",
		also:  kinds{gonfs},
		run: func(a *assault) {
			a.beside(func() {
				raw := halfRecord(512 << 10)
				a.hold(a.many(675, 2000), 64, func(int) []byte { return raw })
			})
		},
	},
	{
		name:  "half records of one address",
		does:  "the same from one address, of some bytes each, which cost the attacker nothing",
		holds: "others are served",
		run: func(a *assault) {
			a.beside(func() {
				raw := halfRecord(100)
				a.hold(500, 500, func(int) []byte { return raw })
			})
		},
	},
	{
		name:  "replies that nobody reads",
		does:  "300 connections, or 4,000, ask for 1 MiB, 64 times each, and read nothing",
		holds: "memory stays within its bound, others are served",
		run: func(a *assault) {
			a.volume("prey", "64Mi")
			c, root := a.client("prey")
			raw := a.unreadCalls(c, root)
			a.beside(func() { a.hold(a.many(300, 4000), 250, func(int) []byte { return raw }) })
		},
	},
	{
		name:  "replies of 4.1 that nobody reads",
		does:  "1,200 connections, or 4,000, ask for 1 MiB in a COMPOUND in which nobody expects a READ, and read nothing",
		holds: "no more of them are read at once than replies may take memory, others are served",
		on:    isNative,
		run: func(a *assault) {
			a.volume("prey", "64Mi")
			c, root := a.client("prey")
			a.unreadCalls(c, root)
			raw := a.unreadCompounds(a.many(1200, 4000))
			a.beside(func() { a.unread(raw) })
		},
	},
	{
		name:  "replies to be remembered",
		does:  "hundreds of addresses make 1,024 calls each that the server remembers the replies to",
		holds: "memory stays within its bound, others are served",
		on:    func(s setup) bool { return s.engine == "native" },
		run: func(a *assault) {
			a.volume("prey", "64Mi")
			_, root := a.client("prey")
			addresses := a.many(128, 1100)
			var answered atomic.Int64
			a.beside(func() {
				var wg sync.WaitGroup
				next := newSemaphore(16)
				for i := range addresses {
					<-next
					wg.Go(func() {
						defer next.give()
						conn, err := dialFrom(a.ctx, mallory(1000+i), nfsAddress)
						if err != nil {
							return
						}
						defer conn.Close()
						args := &nfs3.RenameArgs{From: where(root, "not there"), To: where(root, "nor there")}
						_ = flood(conn, 128, func(i int) (rpc.Auth, uint32, rpc.Args, bool) {
							return caller(0, 0), nfs3.ProcRename, args, i < 1024
						}, func(int, nfs3.Status) { answered.Add(1) })
					})
				}
				wg.Wait()
			})
			a.note("%d replies", answered.Load())
		},
	},
	{
		name:  "a burst on every connection",
		does:  "thousands of connections have 64 calls in flight once, and then stay",
		holds: "memory stays within its bound, others are served",
		run: func(a *assault) {
			a.volume("prey", "64Mi")
			_, root := a.client("prey")
			var raw []byte
			for i := range 64 {
				raw = appendCall(raw, uint32(i), caller(0, 0), nfs3.ProcGetattr, &nfs3.GetattrArgs{Object: root})
			}
			a.beside(func() { a.hold(a.many(1500, 4000), 250, func(int) []byte { return raw }) })
		},
	},
	{
		name:  "large calls on every connection",
		does:  "hundreds of connections send 16 stable WRITEs of 1 MiB each at once",
		holds: "memory stays within its bound, others are served",
		run: func(a *assault) {
			a.volume("prey", "64Mi")
			c, root := a.client("prey")
			file := a.create(c, root, "written", nfs3.Sattr{})
			args := &nfs3.WriteArgs{File: file, Data: pattern(5, 1<<20), Count: 1 << 20, Stable: nfs3.FileSync}
			var raw []byte
			for i := range 16 {
				raw = appendCall(raw, uint32(i), caller(0, 0), nfs3.ProcWrite, args)
			}
			a.beside(func() { a.hold(a.many(300, 4000), 250, func(int) []byte { return raw }) })
		},
	},
	{
		name:  "idle connections",
		does:  "as many connections as there may be, from 9 addresses, that send nothing",
		holds: "a new client can mount, and probes are answered",
		also:  kinds{gonfs},
		run: func(a *assault) {
			a.beside(func() { a.hold(4200, 500, nil) })
		},
	},
	{
		name:  "connections that come and go",
		does:  "connects, sends a few bytes or none, and closes or resets, as fast as it goes",
		holds: "others are served, nothing is left",
		also:  kinds{gonfs, race},
		run: func(a *assault) {
			a.beside(func() {
				until := time.Now().Add(a.window)
				var wg sync.WaitGroup
				var n atomic.Int64
				for i := range 8 {
					rng := rand.New(rand.NewPCG(a.rng.Uint64(), 0))
					wg.Go(func() {
						for time.Now().Before(until) {
							conn, err := dialFrom(a.ctx, mallory(i), nfsAddress)
							if err != nil {
								continue
							}
							n.Add(1)
							if k := rng.IntN(60); k > 10 {
								_, _ = conn.Write(pattern(k, k)) // the server may have closed it
							}
							conn.Close()
						}
					})
				}
				wg.Wait()
				a.note("%d connections", n.Load())
			})
		},
	},
}

// many is how many there are in a short run, or a long one.
func (a *assault) many(short, long int) int {
	if a.full {
		return long
	}
	return short
}

// hold makes connections, sends on each what raw says and then keeps them for a while.
// .
func (a *assault) hold(n, perAddress int, raw func(i int) []byte) {
	a.Helper()
	conns := a.conns(n, perAddress)
	if raw != nil {
		sendAll(conns, memoryPatience, raw)
	}
	time.Sleep(a.window)
	open := 0
	for _, conn := range conns {
		if !ended(conn) {
			open++
		}
	}
	a.note("%d connections, %d left", len(conns), open)
	for _, conn := range conns {
		conn.Close()
	}
}

// unread sends each call by a connection of its own, and reads no more of its reply than the status of the COMPOUND.
func (a *assault) unread(calls [][]byte) {
	a.Helper()
	const most = 300 // of 1 MiB: budgetTotal of package oncrpc, and what sockets take at most
	conns := a.conns(len(calls), 250)
	sendAll(conns, memoryPatience, func(i int) []byte { return calls[i] })
	statuses := map[nfs4.Status]int{}
	for _, conn := range conns {
		var head [4 + 6*4 + 4]byte // the record mark, the header of a success
		_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second))
		if _, err := io.ReadFull(conn, head[:]); err == nil {
			statuses[nfs4.Status(binary.BigEndian.Uint32(head[len(head)-4:]))]++
		}
	}
	for _, conn := range conns {
		conn.Close()
	}
	a.note("%d connections: %v", len(conns), statuses)
	if statuses[nfs4.OK] > most || statuses[nfs4.OK] < 32 || statuses[nfs4.OK]+statuses[nfs4.ErrDelay] < len(conns)*9/10 {
		a.Errorf("of %d replies that nobody reads: %v", len(conns), statuses)
	}
}

// ended tells whether the server has closed a connection, without reading what it has
// sent: nobody reads it, which is the point of some attacks.
func ended(conn net.Conn) bool {
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		return true
	}
	const established = 1 // TCP_ESTABLISHED
	state := uint8(0)
	err = raw.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			state = info.State
		}
	})
	return err != nil || state != established
}
