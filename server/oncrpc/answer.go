package oncrpc

import (
	"runtime/debug"
	"sync/atomic"

	"github.com/podnas/podnas/nfs/rpc"
)

// A call is answered once: a handler has to return an Answer, and the one that is no
// reply yet comes with a Promise, of which the first answer is the reply. A Call is used
// again when it is answered. Its life, a number, is another one then, so that whoever
// still has a Promise of the old call can't answer the new one.

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
	life   *atomic.Uint64 // the call's, which has the number now
	number uint64
}

// Later promises an answer. The handler returns the Answer that is there until then, and
// the goroutine that answers may use the Call until it does. To call it again makes the
// same Promise.
func (c *Call) Later() (Promise, Answer) {
	c.leave()
	c.later = true
	return c.promise(), Answer{later: true}
}

func (c *Call) promise() Promise { return Promise{c, c.life, c.life.Load()} }

// Finish sends the reply, unless it is promised again or was sent before. The Call must
// not be used after it.
func (p Promise) Finish(a Answer) {
	if !a.later && p.life.CompareAndSwap(p.number, p.number+1) {
		p.call.finish(a.stat)
	}
}

// Recover is deferred where a call is answered: a panic ends the call and nothing else.
func (p Promise) Recover() {
	v := recover()
	if v == nil {
		return
	}
	if p.life.Load() != p.number { // the Call is another one
		p.call.server.log.Error("rpc: a panic after a call was answered", "panic", v, "stack", string(debug.Stack()))
		return
	}
	p.call.logPanic(v)
	p.Finish(Done(rpc.SystemErr))
}
