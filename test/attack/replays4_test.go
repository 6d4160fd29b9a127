//go:build attack

package attack_test

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/nfs/xdr"
	"github.com/podnas/podnas/test/conformance/nfstest"
)

// Calls of version 4.1 that come again, RFC 8881 section 2.10.6.1: that they are not executed twice.

// changes are calls that are not idempotent. Where there is true they need a file of that name, and otherwise
// that there is none.
var changes = []struct {
	name  string
	there bool
	ops   func(name string) ops4
}{
	{"REMOVE", true, func(name string) ops4 { return on("prey").name(nfs4.OpRemove, name) }},
	{"RENAME", true, func(name string) ops4 {
		return on("prey").do(nfs4.OpSavefh, nil).do(nfs4.OpRename, &nfs4.RenameArgs{OldName: []byte(name), NewName: []byte(name + "-renamed")})
	}},
	{"CREATE", false, func(name string) ops4 { return on("prey").and(mkdir4(name)) }},
	{"LINK", false, func(name string) ops4 {
		return on("prey", "source").do(nfs4.OpSavefh, nil).and(on("prey")).name(nfs4.OpLink, name)
	}},
	{"SETATTR", true, func(name string) ops4 {
		return on("prey", name).do(nfs4.OpSetattr, &nfs4.SetattrArgs{Attr: nfs4.Sattr{Mask: nfs4.BitmapOf(nfs4.AttrSize)}})
	}},
	{"WRITE", true, func(name string) ops4 {
		return on("prey", name).do(nfs4.OpWrite, &nfs4.WriteArgs{Stable: nfs4.FileSync, Data: []byte("more than 5 bytes")})
	}},
	{"OPEN guarded", false, func(name string) ops4 { return on("prey").and(open4(name, nfs4.Guarded)) }},
	{"OPEN exclusive", false, func(name string) ops4 { return on("prey").and(open4(name, nfs4.ExclusiveAttrs)) }},
}

func mkdir4(name string) ops4 {
	return ops4{}.do(nfs4.OpCreate, &nfs4.CreateArgs{Type: nfs4.TypeDir, Name: []byte(name), Attr: mode4(0o777)})
}

func open4(name string, how nfs4.CreateMode) ops4 {
	return ops4{}.do(nfs4.OpOpen, &nfs4.OpenArgs{
		ShareAccess: nfs4.ShareAccessBoth, Owner: nfs4.StateOwner{Owner: []byte(name)},
		Create: true, Mode: how, Verf: nfs4.Verifier{1, 2, 3}, Attr: mode4(0o666), Claim: nfs4.ClaimNull, Name: []byte(name),
	})
}

func mode4(m uint32) nfs4.Sattr { return nfs4.Sattr{Mask: nfs4.BitmapOf(nfs4.AttrMode), Mode: m} }

var replay4Attacks = []attack{
	{
		name:  "calls of 4.1 that come again",
		does:  "makes calls that are not idempotent, has another client undo each, and sends it again by two connections, and others in its place",
		holds: "none is done again: a retry gets the same reply or, unless it was to be kept, that it was not; other operations, and other sequences, are refused",
		on:    isNative,
		also:  kinds{race},
		run: func(a *assault) {
			r := newReplays(a)
			calls := 0
			for until := time.Now().Add(a.window); calls < 2*len(changes) || time.Now().Before(until); calls++ {
				tt, kept := changes[calls%len(changes)], calls/len(changes)%2 == 1
				name := fmt.Sprintf("%s %d", tt.name, calls)
				r.reset(name, tt.there)
				r.seq++
				first, err := r.send(r.conns[0], r.seq, kept, tt.ops(name))
				if must(a, err); status4(first) != nfs4.OK {
					a.Fatalf("%s: %v", name, status4(first))
				}
				r.reset(name, tt.there)
				before := r.names()
				for i := range 4 {
					again, err := r.send(r.conns[i%2], r.seq, kept, tt.ops(name))
					must(a, err)
					if !bytes.Equal(again, first) && (kept || status4(again) != nfs4.ErrRetryUncachedRep) {
						a.Errorf("%s again, kept %v: %v, %x, and at first %x", name, kept, status4(again), again, first)
					}
				}
				for _, other := range []struct {
					what string
					ops  ops4
					seq  uint32
					want nfs4.Status
				}{
					{"other operations", on("prey").and(mkdir4(name + " other")), r.seq, nfs4.ErrSeqFalseRetry},
					{"fewer operations", on("prey"), r.seq, nfs4.ErrSeqFalseRetry},
					{"an earlier sequence", tt.ops(name), r.seq - 1, nfs4.ErrSeqMisordered},
					{"a later sequence", tt.ops(name), r.seq + 2, nfs4.ErrSeqMisordered},
				} {
					got, err := r.send(r.conns[calls%2], other.seq, kept, other.ops)
					if must(a, err); status4(got) != other.want {
						a.Errorf("%s, %s: %v, want %v", name, other.what, status4(got), other.want)
					}
				}
				if after := r.names(); after != before {
					a.Errorf("%s was done again:\n%sand before\n%s", name, after, before)
				}
			}
			a.note("%d calls", calls)
		},
	},
	{
		name:  "calls of 4.1 that come again meanwhile",
		does:  "sends a call that is not idempotent 12 times at once by three connections of two addresses, or again after its connection was cut",
		holds: "it is done once: others get DELAY, the same reply, or that it was not kept",
		on:    isNative,
		also:  kinds{race},
		run: func(a *assault) {
			r := newReplays(a)
			calls, meanwhile := 0, 0
			for until := time.Now().Add(2 * a.window); calls < 4*len(changes) || time.Now().Before(until); calls++ {
				tt, kept := changes[calls%len(changes)], calls/len(changes)%2 == 1
				name := fmt.Sprintf("%s %d", tt.name, calls)
				r.reset(name, tt.there)
				before := r.names()
				r.seq++
				ops := tt.ops(name)
				replies := make([][]byte, 12)
				if calls/len(changes)%4 >= 2 {
					replies = nil
					r.cut(kept, ops)
				}
				var wg sync.WaitGroup
				for i := range replies {
					wg.Go(func() {
						var err error
						if replies[i], err = r.send(r.conns[i%3], r.seq, kept, ops); err != nil {
							a.Errorf("%s: %v", name, err)
						}
					})
				}
				wg.Wait()
				var first, last []byte
				eventually(a, 20*time.Second, name+" is not answered", func() bool {
					var err error
					last, err = r.send(r.conns[0], r.seq, kept, ops)
					must(a, err)
					return status4(last) != nfs4.ErrDelay
				})
				for _, reply := range slices.Concat(replies, [][]byte{last}) {
					switch status := status4(reply); {
					case status == nfs4.ErrDelay:
						meanwhile++
					case status == nfs4.ErrRetryUncachedRep && !kept:
					case status != nfs4.OK || first != nil && !bytes.Equal(reply, first):
						a.Errorf("%s, kept %v: %v, %x, and another reply is %x", name, kept, status, reply, first)
					default:
						first = reply
					}
				}
				if r.names() == before {
					a.Errorf("%s was not done", name)
				}
			}
			a.note("%d calls, %d times under way", calls, meanwhile)
			if meanwhile == 0 {
				a.Error("no call came while the first was under way")
			}
		},
	},
}

// replays is a client that sends its calls again.
type replays struct {
	*client4
	conns []*rpc.Client
	seq   uint32 // of slot 0
	other *nfstest.Client
	root  nfs3.FH
}

func newReplays(a *assault) *replays {
	a.volume("prey", "64Mi")
	r := &replays{client4: a.ready4(0, "again")}
	r.conns = []*rpc.Client{r.conn, a.client4(0).conn, a.client4(1).conn} // the last two are bound by SEQUENCE
	r.seq = r.slot
	r.other, r.root = a.client("prey")
	a.create(r.other, r.root, "source", size(5))
	return r
}

func (r *replays) send(conn *rpc.Client, seq uint32, kept bool, ops ops4) ([]byte, error) {
	args := nfs4.SequenceArgs{SessionID: r.session, SequenceID: seq, CacheThis: kept}
	all := ops4{}.do(nfs4.OpSequence, &args).and(ops)
	return r.client4.send(conn, all.n, all.bytes)
}

// cut sends a call by a connection that ends before there is a reply.
func (r *replays) cut(kept bool, ops ops4) {
	conn := r.a.client4(2).conn
	var sent sync.WaitGroup
	sent.Go(func() { _, _ = r.send(conn, r.seq, kept, ops) })
	time.Sleep(time.Duration(r.a.rng.IntN(2000)) * time.Microsecond)
	conn.Close()
	sent.Wait()
}

// reset has another client remove what has a name, or make it anew.
func (r *replays) reset(name string, there bool) {
	_, _ = r.other.Remove(r.a.ctx, r.root, name) // one of these fails, or both
	_, _ = r.other.Rmdir(r.a.ctx, r.root, name)
	if there {
		r.a.create(r.other, r.root, name, size(5))
	}
}

// names tells what is in the volume, on the disk.
func (r *replays) names() string {
	entries, err := os.ReadDir(r.a.path("prey"))
	must(r.a, err)
	var b strings.Builder
	for _, e := range entries {
		info, err := e.Info()
		must(r.a, err)
		st := info.Sys().(*syscall.Stat_t)
		fmt.Fprintf(&b, "%q: inode %d, %d bytes, %d links\n", e.Name(), st.Ino, info.Size(), st.Nlink)
	}
	return b.String()
}

// status4 is what a reply to a COMPOUND begins with.
func status4(reply []byte) nfs4.Status {
	d := xdr.NewDecoder(reply)
	return nfs4.Status(d.Uint32())
}
