//go:build !race

// The race detector takes several times as much memory, so make test runs this file in a run of its own.

package state_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/server/nfsv41/state"
	"github.com/podnas/podnas/test/testdisk"
)

// residentMax is the memory that all tables may take at their limits, replies included. It is less than half
// of what docs/limits.md says the process has at most.
const residentMax = 280 << 20

// loggedMax is what a log of them may have: the manifest's folder of 320 MiB has room for two, and for what is
// logged meanwhile. leftMax is nfs4's handoverMax.
const (
	loggedMax = 112 << 20
	leftMax   = 256 << 20
)

// All tables at their limits take as much memory as docs/limits.md says, by the kernel's account.
func TestResident(t *testing.T) {
	testdisk.OnlyCI(t)
	resident := func() int {
		debug.FreeOSMemory()
		b, err := os.ReadFile(filepath.Clean("/proc/self/status"))
		if err != nil {
			t.Skipf("this system has no /proc: %v", err)
		}
		_, after, _ := strings.Cut(string(b), "VmRSS:")
		kib, err := strconv.Atoi(strings.Fields(after)[0])
		if err != nil {
			t.Fatal(err)
		}
		return kib << 10
	}
	before := resident()
	m := &many{newWorld(t, served).unlogged(), t, map[int]*node{}}
	l := m.LimitsOf()
	// Sessions, with each slot's reply kept.
	var nodes []*node
	reply := make([]byte, l.CachedReply)
	keep := func(r state.CreateSessionResult) {
		for slot := range r.Fore.MaxSlots {
			got, e := m.Sequence(state.SequenceArgs{Session: r.ID, Slot: slot, Seq: 1, Ops: 1, Size: 100})
			m.want(e, nfs4.OK)
			got.Slot.Done(reply[:r.Fore.MaxResponseCached], true)
		}
	}
	for i := range l.Clients * 4 / 5 {
		address := fmt.Sprintf("10.%d.%d.%d:700", i>>16, i>>8&255, i&255)
		id, e := m.exchangeFrom(address, fmt.Sprint(strings.Repeat("o", 100), i), 1)
		m.want(e, nfs4.OK)
		for j := range uint32(l.Sessions) {
			r, e := m.CreateSession(state.CreateSessionArgs{
				ClientID: id.ClientID, Seq: id.Seq + j, Principal: root, Fore: linux.fore, Back: linux.back, BackChannel: true, Callback: "callback", Conn: newConn(address),
			})
			if e == nfs4.ErrNoSpc {
				break
			}
			m.want(e, nfs4.OK)
			keep(r)
		}
		c := m.Client(id.ClientID)
		m.want(m.ReclaimComplete(c, false), nfs4.OK)
		nodes = append(nodes, &node{w: m.world, c: c})
	}
	sessions := resident()
	// Opens of files of their own, and locks, by names as long as there is room for.
	owner := func(i int) []byte { return fmt.Appendf(nil, "%s%020d", strings.Repeat("x", 80), i) }
	for i := range l.AllOpens {
		n := nodes[i%len(nodes)]
		id, _, e := m.Open(n.c, state.OpenArgs{Owner: owner(i), File: m.key(i), Access: state.Both})
		if e == nfs4.ErrNoSpc {
			continue
		}
		m.want(e, nfs4.OK)
		for j := range 3 {
			_, _, e := m.Lock(n.c, state.LockArgs{Stateid: id, NewOwner: j == 0, Owner: owner(i), File: m.key(i), Write: true, Offset: uint64(2 * j), Length: 1})
			if e != nfs4.OK {
				break
			}
		}
	}
	counts := m.Counts()
	got := resident() - before
	t.Logf("%d clients, %d sessions, %d MiB of replies, %d opens, %d ranges of locks: %d MiB, of which sessions %d; Bytes estimates %d",
		counts.Clients, counts.Sessions, counts.ReplyBytes>>20, counts.Opens, counts.Locks, got>>20, (sessions-before)>>20, m.Bytes()>>20)
	if counts.Clients < 7500 || counts.Sessions < l.MoreSessions || counts.Opens < l.AllOpens*3/4 {
		t.Errorf("the tables are not full: %+v", counts)
	}
	if estimate := m.Bytes(); estimate < got*3/4 || estimate > got*5/4 {
		t.Errorf("Bytes estimates %d MiB", estimate>>20)
	}
	if got > residentMax {
		t.Errorf("the tables take %d MiB of memory", got>>20)
	}
	log := &longLog{}
	if err := m.StartLog(log); err != nil {
		t.Fatal(err)
	}
	left := &leftLog{bytes: make([]byte, 0, m.Bytes())}
	began := time.Now()
	if err := m.Leave(left, func(any) json.RawMessage { return json.RawMessage(`"callback"`) }, nil); err != nil {
		t.Fatal(err)
	}
	wrote := time.Since(began)
	t.Logf("a log of them has %d MiB, a handover %d MiB", log.copied>>20, len(left.bytes)>>20)
	if log.copied > loggedMax || len(left.bytes) > leftMax {
		t.Error("that is more than there is room for")
	}
	config := m.config()
	m.State, m = nil, nil
	before = resident()
	began = time.Now()
	p, err := replay(config, left.bytes)
	if err != nil {
		t.Fatal(err)
	}
	s, err := p.State(nil, func([]state.TrackedClient) error { return nil }, noFile)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("it takes %v to write, and %v to read", wrote, time.Since(began))
	if n := s.Counts(); n != counts {
		t.Errorf("there are %+v, and were %+v", n, counts)
	}
	if got := resident() - before; got > residentMax {
		t.Errorf("what is read takes %d MiB of memory", got>>20)
	}
}

// leftLog is a handover.
type leftLog struct {
	longLog
	bytes []byte
}

func (l *leftLog) Copy(frame []byte) error {
	l.bytes = append(l.bytes, frame...)
	return nil
}
