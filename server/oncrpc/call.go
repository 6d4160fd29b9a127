package oncrpc

import (
	"context"
	"encoding/binary"
	"net/netip"
	"runtime/debug"
	"sync/atomic"

	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/nfs/xdr"
	"github.com/podnas/podnas/server/shares"
	"github.com/podnas/podnas/server/stats"
)

const (
	// replyHead is the size of a record mark and of the header of a success.
	replyHead = 4 + 6*4
	// smallRecord and smallReply are the largest sizes of a call without data and of its
	// reply, with the largest credentials and handles.
	smallRecord = 1 << 10
	smallReply  = 1 << 10
)

// Call is a call that is being answered.
type Call struct {
	Header rpc.CallHeader // aliases the record
	Cred   rpc.SysCred    // if Header.Cred.Flavor is AuthSys
	Client netip.AddrPort
	// Args aliases the record, which stays until the call is answered.
	Args xdr.Decoder
	// Reply is where the results are appended. At first it has room for what is in front
	// of the results.
	Reply []byte
	// State is the handler's. It stays with the Call, which is used again for later
	// calls, so a handler finds in it what it, or another handler, has left there.
	State any
	// Served is what the handler records of the call, for the statistics.
	Served stats.Call
	// Sure is set by the handler if a status that may be of a lost disk is not: its reply leaves as those of other statuses.
	Sure bool

	conn    *conn
	reader  *reader // that has read it
	proc    *Procedure
	small   []byte // memory for a small record, and behind it for a small reply
	record  []byte // the call, in small or from the free list
	memory  []byte // of Reply, from the free list; nil: small
	own     bool   // the memory is that of the connection's small call
	charged int64  // bytes taken from the budget besides that
	permit  permit // if it may block, see MayWait
	owner   shares.Owner
	last    bool         // no other call had arrived when it was read
	woken   atomic.Int32 // what conn.awake has of it
	counted bool         // in stats
	doubted bool         // the reply tells of an error that may be of a lost disk
	outcome Outcome
}

// Conn is a connection. It is comparable.
type Conn interface {
	// Address is the client's, for people.
	Address() string
	// Ask calls a procedure of the client, and returns the encoded results.
	Ask(ctx context.Context, h rpc.CallHeader, args rpc.Args) ([]byte, error)
}

// Conn returns the connection that the call came by.
func (c *Call) Conn() Conn { return c.conn }

// Address returns the client's address, for people.
func (c *conn) Address() string { return c.client.String() }

// Size returns the size of the call, in bytes.
func (c *Call) Size() int { return len(c.record) }

// Abandoned reports whether the client has gone and the call need not be executed. It is for
// a call that was not begun: to the client that is the same as one that was not received. The
// answer does not matter then.
func (c *Call) Abandoned() bool {
	if !c.conn.gone.Load() || c.outcome != nil && !c.outcome.Drop() {
		return false
	}
	c.outcome = nil
	return true
}

// Outcome is called with how a call ends.
type Outcome interface {
	// Ended is called when the call is answered, before the reply is sent. The results are
	// those of a success, and alias the reply.
	Ended(stat rpc.AcceptStat, results []byte)
	// Drop is called for a call that was not begun and whose client has gone. It returns
	// false if the call must be executed nevertheless. Otherwise Ended is not called.
	Drop() bool
}

// Tell sets the Outcome of the call. The handler calls it, before it waits.
func (c *Call) Tell(o Outcome) { c.outcome = o }

// Alone reports whether this is the only call of the connection that is not answered yet, as
// far as is known. Then blocking on the goroutine that reads, after MayWait, delays no other
// call, and is faster than another goroutine.
func (c *Call) Alone() bool { return c.last && len(c.conn.inFlight) == 1 }

// handle runs the handler. A panic ends only the call.
func (c *Call) handle() (stat rpc.AcceptStat) {
	defer func() {
		if v := recover(); v != nil {
			c.logPanic(v)
			stat = rpc.SystemErr
		}
	}()
	if c.proc.Repeated != nil {
		if stat, ok := c.proc.Repeated(c); ok {
			c.conn.server.stats.Replayed.Add(1)
			return stat
		}
	}
	c.counted = true
	c.conn.served.Begin(&c.Served, c.proc.number)
	return c.proc.Handle(c)
}

// Reserve makes room for n bytes of results. The handler calls it before MayWait and
// before it appends anything, on the connection's goroutine, which waits while too much
// memory is in use. A call whose arguments are large does not wait: such calls could all wait for the memory
// of each other. Reserve returns false if that one gets none now, and if the connection ended meanwhile, when the
// answer does not matter.
func (c *Call) Reserve(n int) bool {
	need := replyHead + n
	if cap(c.Reply) >= need {
		return true
	}
	if c.charged > 0 {
		return c.TryReserve(n)
	}
	need = min(need, bufferSizes[len(bufferSizes)-1])
	if c.conn.charge(c, taken(need)) != nil {
		return false
	}
	c.conn.server.buffers.put(c.memory)
	c.memory = c.conn.server.buffers.get(need)
	c.Reply = c.memory[:replyHead]
	return true
}

// TryReserve makes room for n bytes of results more, or for as many as the largest reply has left. It returns false if the
// connection may not have so much memory now. It never waits, so it is for a handler that has begun: one that waited with
// what it holds could wait for ever. What is in Reply goes to other memory, so nothing may refer to it.
func (c *Call) TryReserve(n int) bool {
	need := min(len(c.Reply)+n, bufferSizes[len(bufferSizes)-1])
	if cap(c.Reply) >= need {
		return true
	}
	more := taken(need)
	if c.memory != nil {
		more -= taken(cap(c.memory))
	}
	server := c.conn.server
	if !server.budget.TryTake(c.conn.holding, more) {
		return false
	}
	c.charged += more
	had := c.memory
	c.memory = server.buffers.get(need)
	c.Reply = append(c.memory, c.Reply...)
	if had != nil {
		server.buffers.put(had)
	}
	return true
}

func (c *Call) logPanic(v any) {
	name := "?"
	if c.proc != nil {
		name = c.proc.Name
	}
	c.conn.server.log.Error("rpc: a call ended in a panic", "procedure", name, "client", c.Client, "xid", c.Header.XID, "panic", v, "stack", string(debug.Stack()))
}

// finish sends the reply: the results if stat is Success, otherwise only stat.
func (c *Call) finish(stat rpc.AcceptStat) {
	c.releasePermit() // a client that does not read its reply must not keep it
	c.grown()
	status := c.status(stat)
	c.doubted = c.conn.server.beats != nil && ofDisk(status) && !c.Sure
	if c.counted {
		c.conn.served.End(&c.Served, status, c.Header.XID)
	}
	if c.outcome != nil {
		var results []byte
		if stat == rpc.Success {
			results = c.Reply[replyHead:]
		}
		c.outcome.Ended(stat, results)
	}
	c.send(stat)
}

// grown charges for a reply that is larger than what was reserved for it.
func (c *Call) grown() {
	if more := cap(c.Reply) - max(smallReply, cap(c.memory)); more > 0 {
		c.conn.server.budget.force(c.conn.holding, int64(more))
		c.charged += int64(more)
	}
}

// status is how the call ends, as it is counted.
func (c *Call) status(stat rpc.AcceptStat) stats.Status {
	if stat != rpc.Success {
		return stats.RPCError + stats.Status(stat)
	}
	if results := c.Reply[replyHead:]; len(results) >= 4 && !c.proc.NoStatus {
		return stats.Status(binary.BigEndian.Uint32(results))
	}
	return 0
}

// ofDisk reports whether a status may be of a disk that fails. NFS's versions and MOUNT have the same numbers for these:
// NFS3ERR_IO, NXIO, ROFS, which ext4 and btrfs say after a commit that failed, STALE, which open_by_handle_at(2) makes of
// an error of the disk, and SERVERFAULT.
func ofDisk(status stats.Status) bool {
	switch status {
	case 5, 6, 30, 70, 10006:
		return true
	}
	return false
}

// send sends the reply.
func (c *Call) send(stat rpc.AcceptStat) {
	if stat != rpc.Success {
		c.reject(&rpc.ReplyHeader{Accept: stat})
		return
	}
	head := rpc.ReplyHeader{XID: c.Header.XID}
	head.Append(c.Reply[:4:replyHead]) // writes in place: it has just this room
	rpc.EndRecord(c.Reply, 0)
	if c.doubted {
		go c.sendDoubted()
		return
	}
	c.conn.send(c)
}

// sendDoubted sends the reply when the disk is known to have been ours after the call. The others of the connection don't wait for it.
func (c *Call) sendDoubted() {
	conn := c.conn
	if n := c.woken.Swap(0); n > 0 { // nobody waits for this goroutine to write
		conn.awake.Add(-n)
		conn.writeSoon()
	}
	if err := conn.server.beats.WaitBeat(conn.closed); err != nil {
		conn.gone.Store(true)
		_ = conn.Close() // the reply is not sent
	}
	conn.send(c)
	conn.writeSoon()
}

// reject sends a reply without results.
func (c *Call) reject(h *rpc.ReplyHeader) {
	c.conn.served.Reject()
	h.XID = c.Header.XID
	b, at := rpc.BeginRecord(c.Reply[:0])
	c.Reply = h.Append(b)
	rpc.EndRecord(c.Reply, at)
	c.conn.send(c)
}

// newCall returns a Call for the next record. It waits while there is no memory for one.
func (c *conn) newCall(r *reader) (*Call, error) {
	own, ok := c.server.budget.tryTakeCall(c.holding)
	if !ok {
		err := c.waitForMemory(func() (err error) {
			own, err = c.server.budget.takeCall(c.holding, c.closed)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	call, ok := c.server.calls.take()
	if !ok {
		call = &Call{small: make([]byte, smallRecord+smallReply)}
	}
	call.conn, call.reader, call.Client, call.own = c, r, c.client, own
	call.record = call.small[:0:smallRecord]
	call.Reply = call.small[smallRecord:][:replyHead]
	return call, nil
}

// charge reserves n bytes of the budget for a call. It waits while there are none, on the
// goroutine that reads the connection.
func (c *conn) charge(call *Call, n int64) error {
	if !c.server.budget.TryTake(c.holding, n) {
		err := c.waitForMemory(func() error {
			return c.server.budget.Take(c.holding, n, c.closed)
		})
		if err != nil {
			return err
		}
	}
	call.charged += n
	return nil
}

// waitForMemory waits on the goroutine that reads the connection.
func (c *conn) waitForMemory(take func() error) error {
	c.server.stats.MemoryWaits.Add(1)
	c.flush() // the replies that only this goroutine writes
	c.reads.begin(waitMemory)
	defer c.reads.end()
	return take()
}

// Grow makes room in a call's record. The size of a record of several fragments is not
// known. If it is not small it gets the largest buffer at once, because calls that hold some
// memory and wait for more could deadlock.
func (c *Call) Grow(record []byte, size int, more bool) ([]byte, error) {
	need := len(record) + size
	if need <= cap(record) {
		return record, nil
	}
	if more || len(record) > 0 {
		need = recordMax + replyHead
	}
	if err := c.conn.charge(c, taken(need)); err != nil {
		return record, err
	}
	return append(c.conn.server.buffers.get(need), record...), nil
}

// release gives back the memory of a call, after its reply is written. The Call keeps none
// of it, because the budget would not know.
func (c *conn) release(call *Call) {
	if cap(call.record) > smallRecord {
		c.server.buffers.put(call.record)
	}
	if call.memory != nil {
		c.server.buffers.put(call.memory)
	}
	own, charged := call.own, call.charged
	*call = Call{State: call.State, small: call.small}
	c.server.calls.put(call, keptBytes/callBytes)
	if charged > 0 {
		c.server.budget.Give(c.holding, charged)
	}
	c.server.budget.giveCall(c.holding, own)
	<-c.inFlight
}
