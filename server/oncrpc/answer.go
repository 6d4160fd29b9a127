package oncrpc

import (
	"runtime/debug"
	"sync/atomic"

	"github.com/podnas/podnas/nfs/rpc"
)

// A call is answered once. A handler returns an Answer; if that is not a reply yet, there is
// a Promise, whose first answer is the reply. After that, the memory of the Call is used for
// another call. Calls have numbers, so that a Promise of the first can't answer the other.

// Answer is what a handler returns.
type Answer struct {
	stat  rpc.AcceptStat
	later bool // by a Promise
}

// Done is the answer of a call that ends: with the results in Reply if stat is Success,
// otherwise only with stat.
func Done(stat rpc.AcceptStat) Answer { return Answer{stat: stat} }

// Promise is a call that is answered after its handler has returned.
type Promise struct {
	call   *Call
	calls  *calls // of call
	number uint64
}

// calls are all that use the memory of a Call, one after the other.
type calls struct {
	answered atomic.Uint64 // the number of those that were, and so that of the current one
	server   *Server
}

// Later promises an answer. The handler returns the Answer that comes with the Promise. The
// goroutine that answers may use the Call until then. Another call of Later returns the same
// Promise.
func (c *Call) Later() (Promise, Answer) {
	c.releaseSlot()
	c.later = true
	return c.promise(), Answer{later: true}
}

func (c *Call) promise() Promise { return Promise{c, c.calls, c.calls.answered.Load()} }

// Finish sends the reply, unless a is promised, or a reply was sent before. The Call must not
// be used afterwards.
func (p Promise) Finish(a Answer) {
	if !a.later && p.calls.answered.CompareAndSwap(p.number, p.number+1) {
		p.call.finish(a.stat)
	}
}

// Recover is deferred where a call is answered, so that a panic ends only the call.
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
