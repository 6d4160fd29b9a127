package oncrpc

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/nfs/xdr"
)

// Many connections take and wait and give back at once: never is more taken than there
// is, nobody waits for ever, and in the end all is there again.
func TestBudget(t *testing.T) {
	const total = 4 * largest
	b := newBudget(total, largest)
	peers := []*Peer{{network: &network{}}, {network: &network{}}, {network: &network{}}}
	var users sync.WaitGroup
	for n := range 60 {
		h := NewHolding(peers[n%len(peers)])
		random := rand.New(rand.NewPCG(1, uint64(n)))
		users.Go(func() {
			for range 100 {
				own, ok := b.tryTakeCall(h)
				if !ok {
					var err error
					if own, err = b.takeCall(h, nil); err != nil {
						t.Error(err)
						return
					}
				}
				size := taken(1 + random.IntN(recordMax))
				if !b.TryTake(h, size) {
					if err := b.Take(h, size, nil); err != nil {
						t.Error(err)
						return
					}
				}
				b.mu.Lock()
				if b.free < 0 {
					t.Errorf("%d bytes are free", b.free)
				}
				b.mu.Unlock()
				b.Give(h, size)
				b.giveCall(h, own)
			}
		})
	}
	users.Wait()
	if b.free != total || b.waiters.Load() != 0 || b.waiting.Len() != 0 {
		t.Errorf("%d of %d bytes are free in the end, %d wait", b.free, total, b.waiters.Load())
	}
	for _, p := range peers {
		if p.bytes != 0 {
			t.Errorf("an address holds %d bytes in the end", p.bytes)
		}
	}
}

// Whatever others hold, a connection has a small call; and an address that holds nothing
// a large one, unless there are more addresses than the reserve has large calls.
func TestBudgetReserves(t *testing.T) {
	b := NewBudget()
	var held int64
	for n := range 40 { // addresses
		peer := &Peer{network: &network{}}
		for range 50 { // connections
			h := NewHolding(peer)
			for own, ok := b.tryTakeCall(h); ok; own, ok = b.tryTakeCall(h) {
				if !own {
					held += callCost
				}
				if b.TryTake(h, largest-callCost) {
					held += largest - callCost
				}
			}
		}
		if n == 0 && held > budgetTotal/peerShare+largest {
			t.Errorf("one address holds %d bytes", held)
		}
	}
	if held+b.free != budgetTotal {
		t.Fatalf("%d bytes held and %d free", held, b.free)
	}
	h := NewHolding(&Peer{network: &network{}})
	if own, ok := b.tryTakeCall(h); !own || !ok {
		t.Error("there is no small call")
	}
	if !b.TryTake(h, largest-callCost) {
		t.Errorf("there is no large call for another address, with %d bytes free", b.free)
	}
}

// A waiting connection is woken by its own small call, and by its end.
func TestBudgetWait(t *testing.T) {
	b := newBudget(0, largest)
	h := NewHolding(&Peer{network: &network{}})
	own, _ := b.tryTakeCall(h)
	taken := make(chan bool)
	go func() {
		own, err := b.takeCall(h, nil)
		taken <- own && err == nil
	}()
	for b.waiters.Load() != 1 {
		time.Sleep(time.Millisecond)
	}
	b.giveCall(h, own)
	if !<-taken {
		t.Error("the connection's own call is not given to who waits for it")
	}
	gone := make(chan struct{})
	close(gone)
	if err := b.Take(h, 1, gone); !errors.Is(err, errNoMemory) {
		t.Errorf("of an ended connection: %v", err)
	}
	if b.waiters.Load() != 0 || h.waiting.Load() != 0 {
		t.Error("somebody waits in the end")
	}
}

// What a record has allocated is charged, in whatever fragments it comes.
func TestRecordsAreCharged(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	server := newServer(ServerConfig{}, defaultLimits())
	for range 300 {
		var stream []byte
		size := 0
		for more := true; more; {
			n := random.IntN(1 << random.IntN(19))
			n = min(n, recordMax-size)
			size += n
			more = random.IntN(1+random.IntN(200)) != 0
			mark := uint32(n)
			if !more {
				mark |= 1 << 31
			}
			stream = append(xdr.AppendUint32(stream, mark), make([]byte, n)...)
		}
		c := &conn{server: server, holding: NewHolding(&Peer{network: &network{}}), closed: make(chan struct{})}
		call, err := c.newCall(nil)
		if err != nil {
			t.Fatal(err)
		}
		r := bytes.NewReader(stream[4:])
		call.record, err = rpc.JoinRecord(r, xdrMark(stream), call.record, recordMax, call)
		if err != nil || len(call.record) != size || r.Len() != 0 {
			t.Fatalf("a record of %d bytes, want %d: %v", len(call.record), size, err)
		}
		if cap(call.record) > smallRecord && int64(cap(call.record)) > call.charged {
			t.Fatalf("%d bytes are allocated for %d, and %d charged", cap(call.record), size, call.charged)
		}
		if c.holding.bytes != call.charged {
			t.Fatalf("the connection holds %d bytes and its call %d", c.holding.bytes, call.charged)
		}
		server.budget.Give(c.holding, call.charged)
	}
}

func xdrMark(stream []byte) uint32 {
	d := xdr.NewDecoder(stream)
	return d.Uint32()
}

// A reply that outgrows what was reserved for it is charged all the same.
func TestOutgrownRepliesAreCharged(t *testing.T) {
	server := newServer(ServerConfig{}, defaultLimits())
	c := &conn{server: server, holding: NewHolding(&Peer{network: &network{}}), closed: make(chan struct{})}
	call, err := c.newCall(nil)
	if err != nil {
		t.Fatal(err)
	}
	call.Reply = append(call.Reply, make([]byte, 100<<10)...)
	call.grown()
	if call.charged < 99<<10 {
		t.Errorf("%d bytes are charged for 100 KiB", call.charged)
	}
}
