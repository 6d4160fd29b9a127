package state_test

import (
	"fmt"
	"testing"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/server/nfsv41/state"
	"github.com/podnas/podnas/test/leaks"
)

// linux are the channels that a Linux node asks for.
var linux = struct{ fore, back state.Channel }{
	state.Channel{MaxRequest: 1049620, MaxResponse: 1049480, MaxResponseCached: 3428, MaxOps: 8, MaxSlots: 64},
	state.Channel{MaxRequest: 4096, MaxResponse: 4096, MaxOps: 2, MaxSlots: 16},
}

// served are the limits of server/nfsv41, where the process may have as many descriptors as it wants.
var served = state.Limits{ReplyBytes: 64 << 20, CachedReply: 2 << 10, LeastReply: 1 << 10}

// An honest cluster gets in, whether its nodes have addresses of their own or come from one behind a NAT:
// each has its sessions, opens and locks, and goes on with them after it has started again.
func TestHonestCluster(t *testing.T) {
	for _, tt := range []struct{ nodes, sessions, opens int }{
		{1000, 10, 10}, {1000, 1, 50}, {5000, 1, 4},
	} {
		for _, nat := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d nodes, %d sessions, nat %t", tt.nodes, tt.sessions, nat), func(t *testing.T) {
				before := leaks.LiveHeap()
				w := newWorld(t, served).unlogged()
				slots := map[uint32]int{}
				least := linux.fore.MaxSlots
				come := func(i int, v uint64) {
					address := "10.0.0.1:700"
					if !nat {
						address = fmt.Sprintf("10.1.%d.%d:700", i/256, i%256)
					}
					id, e := w.exchangeFrom(address, fmt.Sprint("Linux NFSv4.1 node", i), v)
					w.want(e, nfs4.OK)
					for j := range tt.sessions {
						r, e := w.CreateSession(state.CreateSessionArgs{
							ClientID: id.ClientID, Seq: id.Seq + uint32(j), Principal: root, Fore: linux.fore, Back: linux.back, BackChannel: true,
							Callback: "callback", Conn: newConn(address),
						})
						w.want(e, nfs4.OK)
						if r.Fore.MaxResponseCached < 1024 {
							t.Fatalf("replies of %d bytes are kept", r.Fore.MaxResponseCached)
						}
						slots[r.Fore.MaxSlots]++
						least = min(least, r.Fore.MaxSlots)
					}
					c := w.Client(id.ClientID)
					w.want(w.ReclaimComplete(c, false), nfs4.OK)
					for j := range tt.opens {
						k := file1(1)
						k.ID[1], k.ID[2], k.ID[3], k.ID[4] = byte(i), byte(i>>8), byte(j), byte(j>>8)
						id, _, e := w.Open(c, state.OpenArgs{Owner: fmt.Appendf(nil, "open id:%020d", i), File: k, Access: state.Both})
						w.want(e, nfs4.OK)
						if j%10 == 0 {
							_, _, e := w.Lock(c, state.LockArgs{Stateid: id, NewOwner: true, Owner: fmt.Appendf(nil, "lock id:%012d", i), File: k, Write: true, Length: 1})
							w.want(e, nfs4.OK)
						}
					}
				}
				for i := range tt.nodes {
					come(i, 1)
				}
				t.Logf("%d sessions have 64 slots, the last ones %d; %.1f MiB, and up to %.1f MiB for replies", slots[64], least,
					float64(leaks.LiveHeap()-before)/(1<<20), float64(w.Counts().ReplyBytes)/(1<<20))
				for i := 0; i < tt.nodes; i += 50 {
					come(i, 2) // it has started again
				}
				if err := w.Verify(); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}
