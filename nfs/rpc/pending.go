package rpc

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/podnas/podnas/nfs/xdr"
)

// Pending are the calls of a connection that wait for their replies. Many goroutines may use
// it.
type Pending struct {
	mu sync.Mutex
	// +checklocks:mu
	xid uint32 // of the last call
	// +checklocks:mu
	calls map[uint32]chan []byte // whole replies by xid
	// +checklocks:mu
	err error // why no more calls can be made
}

// NewPending returns an empty Pending, whose first XID follows xid.
func NewPending(xid uint32) *Pending {
	return &Pending{xid: xid, calls: make(map[uint32]chan []byte)}
}

// Begin gives the call a new XID, before it is sent. The caller calls Wait or Forget.
func (p *Pending) Begin(h *CallHeader) (reply <-chan []byte, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return nil, p.err
	}
	p.xid++
	for p.calls[p.xid] != nil {
		p.xid++
	}
	h.XID = p.xid
	c := make(chan []byte, 1)
	p.calls[h.XID] = c
	return c, nil
}

// Wait returns the encoded results of a call, which the caller owns. If the reply has none,
// the error is an *RPCError.
func (p *Pending) Wait(ctx context.Context, xid uint32, reply <-chan []byte) ([]byte, error) {
	select {
	case rec, ok := <-reply:
		if !ok {
			return nil, p.Err()
		}
		return results(rec)
	case <-ctx.Done():
		p.Forget(xid)
		return nil, ctx.Err()
	}
}

// results checks that a reply's header is that of a success, and returns the
// results.
func results(rec []byte) ([]byte, error) {
	d := xdr.NewDecoder(rec)
	var h ReplyHeader
	h.Decode(&d)
	if err := d.Err(); err != nil {
		return nil, fmt.Errorf("decode the reply's header: %w", err)
	}
	if err := h.Err(); err != nil {
		return nil, err
	}
	return d.Rest(), nil
}

// Forget is for a call that nobody waits for any more.
func (p *Pending) Forget(xid uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.calls, xid)
}

// Deliver passes a reply of at least four bytes, which it keeps, to who waits for it, and drops
// any other.
func (p *Pending) Deliver(rec []byte) {
	xid := binary.BigEndian.Uint32(rec)
	p.mu.Lock()
	defer p.mu.Unlock()
	if reply, ok := p.calls[xid]; ok {
		delete(p.calls, xid)
		reply <- rec
	}
}

// Fail has all further calls fail, with the first reason that it is called with.
func (p *Pending) Fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = err
	}
}

// Err is the reason of Fail.
func (p *Pending) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// End wakes all who wait, after Fail, when no reply will come.
func (p *Pending) End() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for xid, reply := range p.calls {
		delete(p.calls, xid)
		close(reply)
	}
}
