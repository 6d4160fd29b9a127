package oncrpc

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/podnas/podnas/server/shares"
)

// Permits are taken and released by many at once; none is lost, and none is taken that is
// not there.
func TestSlots(t *testing.T) {
	s := newSemaphore()
	var users sync.WaitGroup
	var taken atomic.Int32
	for n := range 3 * permitsMax {
		o := shares.Owner{Volume: uint64(n % 5), Client: netip.AddrFrom4([4]byte{192, 0, 2, byte(n % 7)})}
		users.Go(func() {
			for range 200 {
				at, later := s.acquire(o)
				if later != nil {
					at = <-later
				}
				if all := taken.Add(1); all > permitsMax {
					t.Errorf("%d permits are taken", all)
				}
				taken.Add(-1)
				s.release(at, o)
			}
		})
	}
	users.Wait()
	if n := s.taken.Load(); n != 0 {
		t.Errorf("%d permits for any call are taken at the end", n)
	}
	if n := s.waiting.Load(); n != 0 {
		t.Errorf("%d wait at the end", n)
	}
	for n := range sharedMax / 2 {
		if !s.shared.Enter(shares.Owner{Volume: 1}, nil) {
			t.Fatalf("only %d of the shared permits are free at the end", n)
		}
	}
}
