package state

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"

	"github.com/podnas/podnas/server/testdisk"
)

// linux are the channels that a Linux node asks for.
var linux = struct{ fore, back Channel }{
	Channel{MaxRequest: 1049620, MaxResponse: 1049480, MaxResponseCached: 3428, MaxOps: 8, MaxSlots: 64},
	Channel{MaxRequest: 4096, MaxResponse: 4096, MaxOps: 2, MaxSlots: 16},
}

// served are the limits of server/nfs4, where the process may have as many descriptors as it wants.
var served = Limits{ReplyBytes: 64 << 20, CachedReply: 2 << 10, LeastReply: 1 << 10}

// An honest cluster gets in, whether its nodes have addresses of their own or come from one behind a NAT:
// each has its sessions, opens and locks, and goes on with them after it has started again.
func TestHonestCluster(t *testing.T) {
	for _, tt := range []struct{ nodes, sessions, opens int }{
		{1000, 10, 10}, {1000, 1, 50}, {5000, 1, 4},
	} {
		for _, nat := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d nodes, %d sessions, nat %t", tt.nodes, tt.sessions, nat), func(t *testing.T) {
				before := heapBytes()
				w := newWorld(t, served).unlogged()
				slots := map[uint32]int{}
				least := linux.fore.MaxSlots
				come := func(i int, v uint64) {
					address := "10.0.0.1:700"
					if !nat {
						address = fmt.Sprintf("10.1.%d.%d:700", i/256, i%256)
					}
					id, e := w.exchangeFrom(address, fmt.Sprint("Linux NFSv4.1 node", i), v)
					w.want(e, OK)
					for j := range tt.sessions {
						r, e := w.CreateSession(CreateSessionArgs{
							ClientID: id.ClientID, Seq: id.Seq + uint32(j), Principal: root, Fore: linux.fore, Back: linux.back, BackChannel: true,
							Callback: "callback", Conn: newConn(address),
						})
						w.want(e, OK)
						if r.Fore.MaxResponseCached < 1024 {
							t.Fatalf("replies of %d bytes are kept", r.Fore.MaxResponseCached)
						}
						slots[r.Fore.MaxSlots]++
						least = min(least, r.Fore.MaxSlots)
					}
					c := w.clients[id.ClientID]
					w.want(w.ReclaimComplete(c, false), OK)
					for j := range tt.opens {
						k := file1(1)
						k.ID[1], k.ID[2], k.ID[3], k.ID[4] = byte(i), byte(i>>8), byte(j), byte(j>>8)
						id, _, e := w.Open(c, OpenArgs{Owner: fmt.Appendf(nil, "open id:%020d", i), File: k, Access: Both})
						w.want(e, OK)
						if j%10 == 0 {
							_, _, e := w.Lock(c, LockArgs{Stateid: id, NewOwner: true, Owner: fmt.Appendf(nil, "lock id:%012d", i), File: k, Write: true, Length: 1})
							w.want(e, OK)
						}
					}
				}
				for i := range tt.nodes {
					come(i, 1)
				}
				t.Logf("%d sessions have 64 slots, the last ones %d; %.1f MiB, and up to %.1f MiB for replies", slots[64], least,
					float64(heapBytes()-before)/(1<<20), float64(w.Counts().ReplyBytes)/(1<<20))
				for i := 0; i < tt.nodes; i += 50 {
					come(i, 2) // it has started again
				}
				if err := w.check(); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

// residentMax is the memory that all tables may take at their limits, replies included. It is less than half
// of what docs/nfs.md says the process has at most.
const residentMax = 280 << 20

// All tables at their limits take as much memory as docs/nfs.md says, by the kernel's account.
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
	m := &many{newWorld(t, served).unlogged(), t}
	m.cfg.LockFree, m.cfg.Event = nil, nil
	l := m.cfg.Limits
	// Sessions, with each slot's reply kept.
	var nodes []*node
	reply := make([]byte, l.CachedReply)
	keep := func(r CreateSessionResult) {
		for slot := range r.Fore.MaxSlots {
			got, e := m.Sequence(SequenceArgs{Session: r.ID, Slot: slot, Seq: 1, Ops: 1, Size: 100})
			m.want(e, OK)
			got.Slot.Done(reply[:r.Fore.MaxResponseCached], true)
		}
	}
	for i := range l.Clients * 4 / 5 {
		address := fmt.Sprintf("10.%d.%d.%d:700", i>>16, i>>8&255, i&255)
		id, e := m.exchangeFrom(address, fmt.Sprint(strings.Repeat("o", 100), i), 1)
		m.want(e, OK)
		for j := range uint32(l.Sessions) {
			r, e := m.CreateSession(CreateSessionArgs{
				ClientID: id.ClientID, Seq: id.Seq + j, Principal: root, Fore: linux.fore, Back: linux.back, BackChannel: true, Callback: "callback", Conn: newConn(address),
			})
			if e == ErrNoSpc {
				break
			}
			m.want(e, OK)
			keep(r)
		}
		c := m.clients[id.ClientID]
		m.want(m.ReclaimComplete(c, false), OK)
		nodes = append(nodes, &node{w: m.world, c: c})
	}
	sessions := resident()
	// Opens of files of their own, and locks, by names as long as there is room for.
	owner := func(i int) []byte { return fmt.Appendf(nil, "%s%020d", strings.Repeat("x", 80), i) }
	for i := range l.AllOpens {
		n := nodes[i%len(nodes)]
		id, _, e := m.Open(n.c, OpenArgs{Owner: owner(i), File: m.key(i), Access: Both})
		if e == ErrNoSpc {
			continue
		}
		m.want(e, OK)
		for j := range 3 {
			_, _, e := m.Lock(n.c, LockArgs{Stateid: id, NewOwner: j == 0, Owner: owner(i), File: m.key(i), Write: true, Offset: uint64(2 * j), Length: 1})
			if e != OK {
				break
			}
		}
	}
	counts := m.Counts()
	got := resident() - before
	t.Logf("%d clients, %d sessions, %d MiB of replies, %d opens, %d locks, %d MiB of names: %d MiB, of which sessions %d",
		counts.Clients, counts.Sessions, counts.ReplyBytes>>20, counts.Opens, m.all.locks, m.all.ownerBytes>>20, got>>20, (sessions-before)>>20)
	if counts.Clients < 7500 || counts.Sessions < l.MoreSessions || counts.Opens < l.AllOpens*3/4 {
		t.Errorf("the tables are not full: %+v", counts)
	}
	if got > residentMax {
		t.Errorf("the tables take %d MiB of memory", got>>20)
	}
}
