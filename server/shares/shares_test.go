package shares

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
)

func owner(volume, client byte) Owner {
	return Owner{Volume: uint64(volume), Client: netip.AddrFrom4([4]byte{192, 0, 2, client})}
}

// fill takes slots for an owner until it has to wait, and tells how many it has.
func fill(s *Semaphore[Owner], o Owner) (n int) {
	for s.Enter(o, o) {
		n++
	}
	return n
}

// However many calls a volume or a client makes, there is something left for others.
func TestNobodyHasAll(t *testing.T) {
	for _, tt := range []struct {
		name  string
		takes []Owner
		want  []int
	}{
		{"a volume has half", []Owner{owner(1, 1)}, []int{32}},
		{"from however many clients", []Owner{owner(1, 1), owner(1, 2), owner(1, 3)}, []int{32, 0, 0}},
		{"a client has three quarters", []Owner{owner(1, 1), owner(2, 1), owner(3, 1)}, []int{32, 16, 0}},
		{"the next has half of the rest", []Owner{owner(1, 1), owner(2, 2), owner(3, 3)}, []int{32, 16, 8}},
	} {
		s := New[Owner](64)
		for i, o := range tt.takes {
			if got := fill(s, o); got != tt.want[i] {
				t.Errorf("%s: %v has %d slots, want %d", tt.name, o, got, tt.want[i])
			}
		}
		if !s.Enter(owner(9, 9), Owner{}) {
			t.Errorf("%s: nothing is left", tt.name)
		}
	}
	s := New[Owner](1)
	if !s.Enter(owner(1, 1), Owner{}) {
		t.Error("the only slot is nobody's")
	}
}

// An owner without a slot is next, however many calls of others wait, and each of those gets
// its slot too.
func TestWhoIsNext(t *testing.T) {
	const size = 8
	s := New[Owner](size)
	slow := []Owner{owner(1, 1), owner(2, 2), owner(3, 3), owner(4, 4)}
	var holders []Owner
	for _, o := range slow {
		for range 20 {
			if s.Enter(o, o) {
				holders = append(holders, o)
			}
		}
	}
	if s.free != 0 {
		t.Fatalf("%d slots are free", s.free)
	}
	victim, neighbour := owner(9, 9), owner(8, 1) // of a client that has others
	for _, o := range []Owner{victim, neighbour} {
		if s.Enter(o, o) {
			t.Fatal("there was a slot")
		}
	}
	s.Leave(holders[0])
	if got, ok := s.Next(); !ok || got != victim {
		t.Errorf("next is %v, %v, want the one that has nothing", got, ok)
	}
	if got, ok := s.Next(); ok {
		t.Errorf("%v has a slot that is not there", got)
	}
	s.Leave(holders[1])
	if got, ok := s.Next(); ok {
		t.Errorf("%v has a slot, though its client has all that it may", got)
	}
	s.Leave(holders[2])
	if got, ok := s.Next(); !ok || got != neighbour {
		t.Errorf("next is %v, %v, want the volume that has nothing", got, ok)
	}
	holders = append(holders[3:], victim, neighbour)
	served := len(holders)
	for len(holders) > 0 {
		s.Leave(holders[0])
		holders = holders[1:]
		for w, ok := s.Next(); ok; w, ok = s.Next() {
			holders = append(holders, w)
			served++
		}
	}
	if want := 20*len(slow) + 2 - 3; served != want || len(s.waiting) != 0 {
		t.Errorf("%d had a slot after the first three, want %d; %d queues are left", served, want, len(s.waiting))
	}
	if s.free != size || len(s.volumes) != 0 || len(s.clients) != 0 || len(s.queues) != 0 {
		t.Errorf("at the end: %+v", s)
	}
}

// Whatever comes and goes: no slot is lost or made, and none is free while somebody may
// have it.
func TestSlotsAreKept(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0))
		size := 1 + r.IntN(20)
		s := New[Owner](size)
		var holders []Owner
		waiting := 0
		for range 500 {
			if len(holders) == 0 || r.IntN(2) == 0 {
				o := owner(byte(r.IntN(5)), byte(r.IntN(4)))
				if s.Enter(o, o) {
					holders = append(holders, o)
				} else {
					waiting++
				}
			} else {
				i := r.IntN(len(holders))
				s.Leave(holders[i])
				holders = slices.Delete(holders, i, i+1)
			}
			for w, ok := s.Next(); ok; w, ok = s.Next() {
				holders = append(holders, w)
				waiting--
			}
			if len(holders)+s.free != size || s.free < 0 {
				t.Fatalf("seed %d: %d of %d slots are held and %d free", seed, len(holders), size, s.free)
			}
			if waiting > 0 && len(holders) == 0 {
				t.Fatalf("seed %d: %d wait for nobody", seed, waiting)
			}
		}
	}
}
