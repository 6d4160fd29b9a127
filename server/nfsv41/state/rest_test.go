package state

import (
	"testing"
	"time"
)

// Expire is called each second only while something is due in seconds, and who brings such a thing
// says so.
func TestRest(t *testing.T) {
	s := New(Config{Lease: time.Hour, Boot: 1})
	due := func() bool {
		select {
		case <-s.Due():
			return true
		default:
			return false
		}
	}
	if !s.Expire() || due() {
		t.Fatal("without clients something is due")
	}
	c := &Client{owner: "client", seen: time.Now()}
	s.mu.Lock()
	s.sessions.addClient(c, s.sessions.addressOf(""))
	s.mu.Unlock()
	if !due() {
		t.Error("nobody is told of a client that is not confirmed")
	}
	if s.Expire() {
		t.Error("a client that is not confirmed stays unseen")
	}
	if c.confirmed = true; !s.Expire() {
		t.Error("a client that is silent for less than a lease needs nothing")
	}
	if c.settles = time.Now().Add(time.Hour); s.Expire() {
		t.Error("what a client may send again is unseen")
	}
	if c.settles = (time.Time{}); !s.Expire() || due() {
		t.Error("something is due again")
	}
	s.mu.Lock()
	s.log.out = &memoryLog{replay: NewReplay(Config{}, nil, nil)}
	s.log.noteLater(s.log.gen, (&record{Answered: 1}).append)
	s.unlock()
	if !due() {
		t.Error("nobody is told of what is to be logged")
	}
}
