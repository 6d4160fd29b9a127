//go:build attack

package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/test/conformance/nfstest"
	"github.com/podnas/podnas/test/testdisk"
)

const (
	// processMax is what the whole process takes at most, whatever its clients do, with
	// the memory limit of the manifest: docs/limits.md tells it.
	processMax = 600 * mebi
	// hostileAddresses is how many addresses an attack comes from.
	hostileAddresses = 8
	// hostileLeast and hostileMost are how long an attack takes: between them, until
	// nothing more is sent or answered.
	hostileLeast, hostileMost = 2 * time.Second, 10 * time.Second
	// victimMax is how long a small call takes at most, but for one in a hundred, or
	// victimTimes as long as without the attack.
	victimMax   = 5 * time.Second
	victimTimes = 100
)

// hostility is a way of a client to have the server hold memory, or connections.
type hostility struct {
	name      string
	conns     int
	addresses int // 0: hostileAddresses
	// attack is what one connection sends, given its number; it is sent until the
	// server reads no more.
	attack func(v *victimFiles, n int) []byte
	times  int  // how often it is sent; 0: once
	deaf   bool // the replies are not read
	load   bool // it is work too, which is not shared out here: the victim has to wait for its part
}

// victimFiles are the files of the volume that is attacked.
type victimFiles struct {
	root, file, dir, link nfs3.FH
}

func hostilities() []hostility {
	// Without the mark of a last fragment, so a record never ends.
	fragments := func(size, times int) func(*victimFiles, int) []byte {
		one := append(binary.BigEndian.AppendUint32(nil, uint32(size)), make([]byte, size)...)
		return func(*victimFiles, int) []byte { return bytes.Repeat(one, times) }
	}
	half := func(size int) func(*victimFiles, int) []byte {
		record := binary.BigEndian.AppendUint32(nil, 1<<31|uint32(size))
		record = append(record, make([]byte, size-1)...)
		return func(*victimFiles, int) []byte { return record }
	}
	// So that none is left, however little.
	halves := func(_ *victimFiles, n int) []byte {
		return half([...]int{1 << 20, 256 << 10, 64 << 10, 4 << 10, 900}[n%5])(nil, n)
	}
	call := func(proc uint32, args func(*victimFiles) rpc.Args) func(*victimFiles, int) []byte {
		return func(v *victimFiles, _ int) []byte { return callOf(proc, args(v)) }
	}
	getattr := func(v *victimFiles) rpc.Args { return &nfs3.GetattrArgs{Object: v.file} }
	return []hostility{
		{name: "tiny fragments", conns: 1000, attack: fragments(270, 3800)},
		{name: "small fragments, many connections", conns: 3200, attack: fragments(270, 300)},
		{name: "two large fragments", conns: 1000, attack: fragments(500_000, 2)},
		{name: "empty fragments", conns: 4000, load: true, attack: fragments(0, 4095)},
		{name: "half records", conns: 675, attack: half(1 << 20)},
		{name: "half records of all sizes", conns: 3000, attack: halves},
		{name: "half records, many connections", conns: 4000, attack: half(200 << 10)},
		{name: "half records of one address", conns: 1000, addresses: 1, attack: half(1 << 20)},
		{name: "half small records", conns: 4096, attack: half(900)},
		{name: "idle connections", conns: 6000, attack: func(*victimFiles, int) []byte { return nil }},
		{name: "a burst, then idle", conns: 4096, load: true, times: 20, attack: call(nfs3.ProcGetattr, getattr)},
		{name: "GETATTR, not read", conns: 400, deaf: true, load: true, times: 1100, attack: call(nfs3.ProcGetattr, getattr)},
		{name: "large credentials, not read", conns: 400, deaf: true, load: true, times: 1100, attack: func(v *victimFiles, _ int) []byte {
			cred := rpc.SysCred{MachineName: make([]byte, rpc.MaxMachineName), UID: 1000}
			cred.SetGroups(make([]uint32, rpc.MaxGroups)...)
			return callAs(1, cred, nfs3.ProcGetattr, getattr(v))
		}},
		{name: "READ, not read", conns: 600, deaf: true, load: true, times: 20, attack: call(nfs3.ProcRead, func(v *victimFiles) rpc.Args {
			return &nfs3.ReadArgs{File: v.file, Count: 1 << 20}
		})},
		{name: "READDIR, not read", conns: 400, deaf: true, load: true, times: 20, attack: call(nfs3.ProcReaddir, func(v *victimFiles) rpc.Args {
			return &nfs3.ReaddirArgs{Dir: v.dir, Count: 1 << 20}
		})},
		{name: "READDIRPLUS, not read", conns: 400, deaf: true, load: true, times: 20, attack: call(nfs3.ProcReaddirplus, func(v *victimFiles) rpc.Args {
			return &nfs3.ReaddirplusArgs{Dir: v.dir, DirCount: 1 << 20, MaxCount: 1 << 20}
		})},
		{name: "READLINK, not read", conns: 600, deaf: true, load: true, times: 300, attack: call(nfs3.ProcReadlink, func(v *victimFiles) rpc.Args {
			return &nfs3.ReadlinkArgs{Object: v.link}
		})},
		{name: "remembered replies", conns: 300, addresses: 300, load: true, attack: func(v *victimFiles, n int) []byte {
			var calls []byte
			for xid := range uint32(1024) {
				args := nfs3.DirOpArgs{Dir: v.root, Name: fmt.Appendf(nil, "none-%d", n)}
				calls = append(calls, callAs(xid, rpc.SysCred{}, nfs3.ProcRemove, &args)...)
			}
			return calls
		}},
	}
}

// Whatever a client does to have the server hold memory, the process stays within its
// bound; another client's small calls are answered meanwhile, its connections are not
// refused, and podnas stays ready.
func TestHostileClients(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, for the native engine")
	}
	if testing.Short() {
		t.Skip("takes two minutes")
	}
	for _, engine := range []string{"native", "go-nfs"} {
		t.Run(engine, func(t *testing.T) {
			if engine == "go-nfs" {
				testdisk.NotInShort(t, "records, connections and replies are kept outside the engine, and native has all attacks")
			}
			s := startProcess(t, engine)
			client, err := nfstest.Dial(t.Context(), s.nfs, s.nfs)
			mustDo(t, err)
			defer client.Close()
			v := s.makeVictim(client)
			for _, h := range hostilities() {
				if engine == "go-nfs" && !h.load {
					continue // no call is made: the engine has no part in it
				}
				t.Run(h.name, func(t *testing.T) { s.attack(t, &h, v) })
			}
			s.settles("in the end", 128*mebi)
		})
	}
}

// attack does what h says, with a victim beside it. A disk that others of this machine sync makes the victim wait, too: so what
// took too long is done a second time.
func (s *served) attack(t *testing.T, h *hostility, v *victimFiles) {
	slow := s.tryAttack(t, h, v)
	if slow != "" {
		t.Logf("%s: once more", slow)
		slow = s.tryAttack(t, h, v)
	}
	if slow != "" {
		t.Error(slow)
	}
}

// tryAttack attacks once, and returns for what the victim waited too long.
func (s *served) tryAttack(t *testing.T, h *hostility, v *victimFiles) (slow string) {
	t.Helper()
	alone := s.victim(t, v)
	time.Sleep(time.Second)
	alone.end()
	mustDo(t, os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", s.pid), []byte("5"), 0)) // VmHWM begins anew, proc_pid_clear_refs(5)
	victim := s.victim(t, v)
	ctx, cancel := context.WithTimeout(t.Context(), hostileMost)
	defer cancel()
	var attackers sync.WaitGroup
	var moved traffic
	for n := range h.conns {
		attackers.Go(func() { s.hostile(ctx, h, v, n, &moved) })
	}
	time.Sleep(hostileLeast)
	for before := int64(-1); before != moved.Load() && ctx.Err() == nil; time.Sleep(time.Second) {
		before = moved.Load()
	}
	cancel()
	attackers.Wait()
	most := s.status("VmHWM")
	victim.end()
	t.Logf("%d MiB at most; 99%% of the victim's %d small calls took %v at most, alone %v; the longest large one of %d %v; ready %d times",
		most/mebi, len(victim.small), victim.p99(), alone.p99(), len(victim.large), slices.Max(victim.large), victim.ready)
	if most > processMax {
		t.Errorf("the process had %d MiB, want %d at most", most/mebi, processMax/mebi)
	}
	if limit := max(victimMax, victimTimes*alone.p99()); !h.load && victim.p99() > limit {
		slow = fmt.Sprintf("99%% of the victim's calls took %v at most, want %v", victim.p99(), limit)
	}
	if !h.load && victim.ready == 0 {
		slow = "podnas was never ready"
	}
	return slow
}

// traffic is how much an attack has sent and read.
type traffic struct{ atomic.Int64 }

func (p *traffic) Write(b []byte) (int, error) {
	p.Add(int64(len(b)))
	return len(b), nil
}

// hostile is one connection of an attack. It lasts until ctx ends, and connects again
// if the server ends it.
func (s *served) hostile(ctx context.Context, h *hostility, v *victimFiles, n int, moved *traffic) {
	addresses := h.addresses
	if addresses == 0 {
		addresses = hostileAddresses
	}
	from := &net.TCPAddr{IP: net.IPv4(127, 66, byte(n%addresses/200), byte(1+n%addresses%200))}
	sent := h.attack(v, n)
	for ctx.Err() == nil {
		conn, err := (&net.Dialer{LocalAddr: from}).DialContext(ctx, "tcp", s.nfs)
		if err != nil {
			time.Sleep(50 * time.Millisecond)
			continue
		}
		// This machine's memory is not the aim.
		_ = conn.(*net.TCPConn).SetWriteBuffer(64 << 10)
		if h.deaf {
			_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
		}
		stop := context.AfterFunc(ctx, func() { conn.Close() })
		ended := make(chan struct{})
		go func(moved *traffic) {
			defer close(ended)
			if h.deaf {
				<-ctx.Done()
				return
			}
			_, _ = io.Copy(moved, conn) // until the server ends it
		}(moved)
		moved.Add(1)
		for range max(1, h.times) {
			if _, err = io.Copy(io.MultiWriter(conn, moved), bytes.NewReader(sent)); err != nil {
				break
			}
		}
		moved = new(traffic) // the first connection counts
		if err == nil {
			<-ended
		}
		stop()
		conn.Close()
		time.Sleep(50 * time.Millisecond)
	}
}

// makeVictim makes what is attacked: a file, a symbolic link and a directory.
func (s *served) makeVictim(client *nfstest.Client) *victimFiles {
	s.t.Helper()
	ctx := s.t.Context()
	v := &victimFiles{file: s.makeFile(client), root: s.mount(client)}
	link, err := client.Symlink(ctx, v.root, "link", strings.Repeat("target/", 4000/7))
	mustDo(s.t, err)
	v.link = slices.Clone(link.Object)
	dir, err := client.Mkdir(ctx, v.root, "dir", nfs3.Sattr{})
	mustDo(s.t, err)
	v.dir = slices.Clone(dir.Object)
	for n := range 500 {
		res, err := client.Create(ctx, nfs3.CreateArgs{Where: nfs3.DirOpArgs{Dir: v.dir, Name: fmt.Appendf(nil, "%0100d", n)}})
		if err != nil || res.Status != nfs3.OK {
			s.t.Fatalf("CREATE: %v, %v", res.Status, err)
		}
	}
	return v
}

// victim is who wants to work beside an attack.
type victim struct {
	stop         context.CancelFunc
	running      sync.WaitGroup
	small, large []time.Duration // what its calls took; sorted in the end
	ready        int             // how often podnas was
}

// victim works until its end: small calls on a connection that is there before the
// attack and on new ones, large ones on another, and kubelet's question.
func (s *served) victim(t *testing.T, v *victimFiles) *victim {
	ctx, stop := context.WithCancel(t.Context())
	w := &victim{stop: stop}
	kept, large := s.connectAs(t, ctx, 1), s.connectAs(t, ctx, 2)
	getattr := callOf(nfs3.ProcGetattr, &nfs3.GetattrArgs{Object: v.file})
	read := callOf(nfs3.ProcRead, &nfs3.ReadArgs{File: v.file, Count: burstData})
	write := callOf(nfs3.ProcWrite, &nfs3.WriteArgs{File: v.file, Count: burstData, Data: make([]byte, burstData)})
	every := func(period time.Duration, what string, do func() error) {
		w.running.Go(func() {
			for ctx.Err() == nil {
				if err := do(); err != nil {
					t.Errorf("the victim, %s: %v", what, err)
					return
				}
				time.Sleep(period)
			}
		})
	}
	var mu sync.Mutex
	timed := func(list *[]time.Duration, do func() error) error {
		began := time.Now()
		err := do()
		mu.Lock()
		defer mu.Unlock()
		*list = append(*list, time.Since(began))
		return err
	}
	every(2*time.Millisecond, "a small call", func() error {
		return timed(&w.small, func() error { return exchange(kept, getattr) })
	})
	every(20*time.Millisecond, "a new connection", func() error {
		return timed(&w.small, func() error {
			conn := s.connectAs(t, ctx, 3)
			defer conn.Close()
			return exchange(conn, getattr)
		})
	})
	every(100*time.Millisecond, "READ and WRITE of 1 MiB", func() error {
		return errors.Join(
			timed(&w.large, func() error { return exchange(large, read) }),
			timed(&w.large, func() error { return exchange(large, write) }))
	})
	every(200*time.Millisecond, "readiness", func() error {
		if s.ready() {
			w.ready++
		}
		return nil
	})
	return w
}

// connectAs connects from one of the victim's addresses.
func (s *served) connectAs(t *testing.T, ctx context.Context, n byte) net.Conn {
	conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 99, 0, n)}}).DialContext(context.WithoutCancel(ctx), "tcp", s.nfs)
	if err != nil {
		t.Error(err)
		return nil
	}
	_ = conn.SetDeadline(time.Now().Add(time.Minute)) // a call fails then
	t.Cleanup(func() { conn.Close() })
	return conn
}

func (w *victim) end() {
	w.stop()
	w.running.Wait()
	slices.Sort(w.small)
	slices.Sort(w.large)
}

func (w *victim) p99() time.Duration { return w.small[len(w.small)*99/100] }
