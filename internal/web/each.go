package web

import (
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Each generates an answer per request, for requests of too many kinds to be Cached. It
// handles at most that many at a time, and generates one at a time: a slow reader keeps
// a copy. When there are as many, a new request ends one whose answer is being read: the oldest of the client that
// reads most. If there is none, the new one gets "try again".
func Each(most int, h http.Handler) http.Handler {
	e := &each{most: most, handler: h, making: make(chan struct{}, 1)}
	return http.HandlerFunc(e.serve)
}

// each is the handler that Each returns.
type each struct {
	most    int
	handler http.Handler
	making  chan struct{} // has a value while an answer is generated

	mu sync.Mutex
	// +checklocks:mu
	open int // requests
	// +checklocks:mu
	readers []*eachReader // of these, the clients that read their answers, the oldest first
}

// eachReader is a client that reads its answer.
type eachReader struct {
	client  netip.Addr
	control *http.ResponseController
	cut     bool // another request counts in place of this one; guarded by each.mu
}

func (e *each) serve(w http.ResponseWriter, r *http.Request) {
	if !e.enter() {
		w.Header().Set("Retry-After", "1")
		http.Error(w, "too many requests at a time, try again", http.StatusServiceUnavailable)
		return
	}
	reader := &eachReader{control: http.NewResponseController(w)}
	if c, ok := r.Context().Value(connKey{}).(*conn); ok {
		reader.client = c.client
	}
	defer e.leave(reader)
	a, err := e.generate(r)
	if err != nil {
		http.Error(w, "this page can't be generated: "+err.Error(), http.StatusServiceUnavailable)
		return
	}
	e.mu.Lock()
	e.readers = append(e.readers, reader)
	e.mu.Unlock()
	a.send(w, r)
}

func (e *each) generate(r *http.Request) (*answer, error) {
	e.making <- struct{}{}
	defer func() { <-e.making }()
	return newAnswer(e.handler, r)
}

// enter counts a new request. It returns false if there are too many.
func (e *each) enter() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.open == e.most {
		if len(e.readers) == 0 {
			return false
		}
		slow := e.slowestLocked()
		e.leaveLocked(slow)
		slow.cut = true
		_ = slow.control.SetWriteDeadline(time.Now()) // it has not returned, and the server sets a deadline for each request
	}
	e.open++
	return true
}

// slowestLocked returns the oldest of the client that has the most. There are readers.
//
// +checklocks:e.mu
func (e *each) slowestLocked() *eachReader {
	reads := map[netip.Addr]int{}
	for _, r := range e.readers {
		reads[r.client]++
	}
	return slices.MaxFunc(e.readers, func(a, b *eachReader) int { return reads[a.client] - reads[b.client] })
}

// leave is called when the request is answered, or is not going to be.
func (e *each) leave(r *eachReader) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !r.cut {
		e.leaveLocked(r)
	}
}

// +checklocks:e.mu
func (e *each) leaveLocked(r *eachReader) {
	e.open--
	if at := slices.Index(e.readers, r); at >= 0 {
		e.readers = slices.Delete(e.readers, at, at+1)
	}
}
