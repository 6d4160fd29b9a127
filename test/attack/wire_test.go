//go:build attack

package attack_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/nfs/mount3"
	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/nfs/xdr"
	"github.com/podnas/podnas/test/conformance/nfstest"
)

// dialFrom connects from one of the box's addresses, and from a port that only root
// may have, as kubelet's mounts do. What is left at its close is no port that waits.
func dialFrom(ctx context.Context, from, to string) (net.Conn, error) {
	dialer := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		controlled := raw.Control(func(fd uintptr) { err = bindReserved(int(fd), from) })
		return errors.Join(controlled, err)
	}}
	conn, err := dialer.DialContext(ctx, "tcp", to)
	if err != nil {
		return nil, err
	}
	return conn, conn.(*net.TCPConn).SetLinger(0)
}

// bindReserved binds a socket to a free port below 1024, if there is one. Where it looks
// first is random, since most are taken when an attacker has many.
func bindReserved(fd int, from string) error {
	const lowest, n = 512, 512
	address := unix.SockaddrInet4{Addr: [4]byte(net.ParseIP(from).To4())}
	first := rand.IntN(n)
	for i := range n {
		address.Port = lowest + (first+i)%n
		if err := unix.Bind(fd, &address); !errors.Is(err, unix.EADDRINUSE) {
			return err
		}
	}
	return fmt.Errorf("no port below 1024 is left on %s", from)
}

// mountFrom connects and mounts.
func mountFrom(ctx context.Context, from, volume string) (*nfstest.Client, nfs3.FH, error) {
	var conns [2]*rpc.Client
	for i := range conns {
		conn, err := dialFrom(ctx, from, nfsAddress)
		if err != nil {
			if i > 0 {
				conns[0].Close()
			}
			return nil, nil, err
		}
		conns[i] = rpc.NewClient(conn)
	}
	c := nfstest.NewClient(conns[0], conns[1])
	res, err := c.Mount(ctx, "/"+volume)
	if err == nil && res.Status != mount3.OK {
		err = fmt.Errorf("MNT /%s: %v", volume, res.Status)
	}
	if err != nil {
		c.Close()
		return nil, nil, err
	}
	return c, nfs3.FH(res.Handle), nil
}

// caller is a credential.
func caller(uid, gid uint32, groups ...uint32) rpc.Auth {
	cred := rpc.SysCred{MachineName: []byte("mallory"), UID: uid, GID: gid}
	cred.SetGroups(groups...)
	return cred.Auth()
}

// call is one as it goes over the wire, in one fragment.
func call(xid uint32, cred rpc.Auth, proc uint32, args rpc.Args) []byte {
	return appendCall(nil, xid, cred, proc, args)
}

func appendCall(b []byte, xid uint32, cred rpc.Auth, proc uint32, args rpc.Args) []byte {
	b, at := rpc.BeginRecord(b)
	h := rpc.CallHeader{XID: xid, RPCVersion: rpc.Version, Prog: nfs3.Program, Vers: nfs3.Version, Proc: proc, Cred: cred}
	b = h.Append(b)
	if args != nil {
		b = args.Append(b)
	}
	rpc.EndRecord(b, at)
	return b
}

func where(dir nfs3.FH, name string) nfs3.DirOpArgs {
	return nfs3.DirOpArgs{Dir: dir, Name: []byte(name)}
}

func mode(m uint32) nfs3.Sattr { return nfs3.Sattr{Mode: nfs3.SetUint32{Set: true, Value: m}} }

func size(n uint64) nfs3.Sattr { return nfs3.Sattr{Size: nfs3.SetUint64{Set: true, Value: n}} }

// flood makes calls over one connection, with many under way at once, until next says
// that there are no more, and hands the status of each to answered. Its error is that of
// the connection, which an attacker may well lose.
func flood(conn net.Conn, inFlight int, next func(i int) (cred rpc.Auth, proc uint32, args rpc.Args, more bool), answered func(i int, status nfs3.Status)) error {
	free := newSemaphore(inFlight)
	base := rand.Uint32()
	var total atomic.Int64 // calls, once it is known; the last is a NULL, whose reply comes after that
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		out := bufio.NewWriterSize(conn, 64<<10)
		defer func() { _ = out.Flush() }() // what is wrong with the connection, its reader learns too
		var b []byte
		for i, more := 0, true; more; i++ {
			var cred rpc.Auth
			var proc uint32
			var args rpc.Args
			if cred, proc, args, more = next(i); !more {
				proc, args = nfs3.ProcNull, nil
				total.Store(int64(i) + 1)
			}
			if !free.try() && (out.Flush() != nil || !free.take(ended)) {
				return
			}
			b = appendCall(b[:0], base+uint32(i), cred, proc, args)
			if _, err := out.Write(b); err != nil {
				return
			}
		}
	}()
	in := bufio.NewReaderSize(conn, 64<<10)
	var rec []byte
	for done := int64(1); ; done++ {
		err := conn.SetReadDeadline(time.Now().Add(30 * time.Second))
		if err == nil {
			rec, err = rpc.ReadRecord(in, rec[:0], 4<<20)
		}
		if err != nil {
			return err
		}
		d := xdr.NewDecoder(rec)
		var h rpc.ReplyHeader
		h.Decode(&d)
		free.give()
		i := h.XID - base
		n := total.Load()
		if n == 0 || int64(i) != n-1 {
			status := noResults
			if h.Err() == nil {
				status = nfs3.Status(d.Uint32())
			}
			answered(int(i), status)
		}
		if done == n {
			return nil
		}
	}
}

// noResults stands for the status of a reply that has none: an error of RPC's.
const noResults nfs3.Status = 0xffff

// semaphore is a count that can be waited for.
type semaphore chan struct{}

func newSemaphore(n int) semaphore {
	s := make(semaphore, n)
	for range n {
		s <- struct{}{}
	}
	return s
}

func (s semaphore) try() bool {
	select {
	case <-s:
		return true
	default:
		return false
	}
}

// take waits until one is free, false if ended is closed before.
func (s semaphore) take(ended <-chan struct{}) bool {
	select {
	case <-s:
		return true
	case <-ended:
		return false
	}
}

func (s semaphore) give() { s <- struct{}{} }

// pattern is n bytes that differ by seed.
func pattern(seed, n int) []byte {
	b := make([]byte, n)
	x := uint32(seed)*2654435761 + 1
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return b
}

// setPriority has a process not be behind others, as the attacker is.
func setPriority(pid int) error { return syscall.Setpriority(syscall.PRIO_PROCESS, pid, 0) }

// ok ends the test unless a call succeeded.
func ok(t testing.TB, what string, status nfs3.Status, err error) {
	t.Helper()
	if err := said(status, err); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// readStatus reads a reply and tells the status that its results begin with.
func readStatus(t testing.TB, conn net.Conn) nfs3.Status {
	t.Helper()
	must(t, conn.SetReadDeadline(time.Now().Add(30*time.Second)))
	rec, err := rpc.ReadRecord(conn, nil, 4<<20)
	must(t, err)
	d := xdr.NewDecoder(rec)
	var h rpc.ReplyHeader
	h.Decode(&d)
	must(t, h.Err())
	return nfs3.Status(d.Uint32())
}
