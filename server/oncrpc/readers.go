package oncrpc

import "sync"

const (
	// sparesMax is how many goroutines that may read a connection next are kept, and
	// readerCost about how many bytes one takes.
	sparesMax  = 64
	readerCost = 16 << 10
)

// readers are goroutines that read connections, one after the other. One whose call has handed on the
// reading is kept, when the call is answered, for the next that does so: its stack is
// as large as calls need, while that of a new goroutine grows, and is copied, with its first call:
// docs/internals/tried.md.
type readers struct {
	mu sync.Mutex
	// +checklocks:mu
	spare []chan *reader // of goroutines that wait in next
	// +checklocks:mu
	ended bool // none is kept any more
}

// begin has a goroutine read a connection.
func (s *readers) begin(r *reader) {
	s.mu.Lock()
	last := len(s.spare) - 1
	if last < 0 {
		s.mu.Unlock()
		go s.run(r)
		return
	}
	next := s.spare[last]
	s.spare = s.spare[:last]
	s.mu.Unlock()
	next <- r
}

// run is a goroutine.
func (s *readers) run(r *reader) {
	next := make(chan *reader, 1)
	for r != nil {
		r.conn.readOn(r)
		r = s.next(next)
	}
}

// next waits for the next connection to read. It is nil if the goroutine is to end.
func (s *readers) next(next chan *reader) *reader {
	s.mu.Lock()
	if s.ended || len(s.spare) == sparesMax {
		s.mu.Unlock()
		return nil
	}
	s.spare = append(s.spare, next)
	s.mu.Unlock()
	return <-next
}

// release ends the goroutines that read nothing, and returns how many. forGood is whether none will
// have to read.
func (s *readers) release(forGood bool) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, next := range s.spare {
		next <- nil
	}
	n = len(s.spare)
	s.spare, s.ended = nil, s.ended || forGood
	return n
}
