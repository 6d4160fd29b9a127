package oncrpc

import (
	"runtime/debug"
	"sync/atomic"

	"github.com/podnas/podnas/nfs/rpc"
)

// A call is answered once: a handler has to return an Answer, and the one that is no
// reply yet comes with a Promise, of which the first answer is the reply. The memory of a
// Call is used for another when it is answered. They are told apart by number, so that
// whoever still has a Promise of the first can't answer the other.

// Answer is what a handler returns.
type Answer struct {
	stat  rpc.AcceptStat
	later bool // by a Promise
}

// Done is the answer of a call that ends: with the results in Reply if stat is Success,
// else with stat alone.
func Done(stat rpc.AcceptStat) Answer { return Answer{stat: stat} }

// Promise is a call that is answered after its handler has returned.
type Promise struct {
	call   *Call
	calls  *calls // of call
	number uint64
}

// calls are those that are one after the other in the memory of a Call.
type calls struct {
	answered atomic.Uint64 // and so the number of the one that is there
	server   *Server
}

// Later promises an answer. The handler returns the Answer that is there until then, and
// the goroutine that answers may use the Call until it does. To call it again makes the
// same Promise.
func (c *Call) Later() (Promise, Answer) {
	c.leave()
	c.later = true
	return c.promise(), Answer{later: true}
}

func (c *Call) promise() Promise { return Promise{c, c.calls, c.calls.answered.Load()} }

// Finish sends the reply, unless it is promised again or was sent before. The Call must
// not be used after it.
func (p Promise) Finish(a Answer) {
	if !a.later && p.calls.answered.CompareAndSwap(p.number, p.number+1) {
		p.call.finish(a.stat)
	}
}

// Recover is deferred where a call is answered: a panic ends the call and nothing else.
func (p Promise) Recover() {
	v := recover()
	if v == nil {
		return
	}
	if p.calls.answered.Load() != p.number {
		p.calls.server.log.Error("rpc: a panic after a call was answered", "panic", v, "stack", string(debug.Stack()))
		return
	}
	p.call.logPanic(v)
	p.Finish(Done(rpc.SystemErr))
}
