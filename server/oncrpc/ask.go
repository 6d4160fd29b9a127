package oncrpc

import (
	"context"
	"net"
	"slices"

	"github.com/podnas/podnas/nfs/rpc"
)

// answerMax is the largest reply of a client, in bytes.
const answerMax = 4 << 10

// Ask calls a procedure of the client, over the connection that the client has made, as RFC
// 8881 section 2.10.3.1 has it. It sets the header's XID, and returns the encoded results.
func (c *conn) Ask(ctx context.Context, h rpc.CallHeader, args rpc.Args) ([]byte, error) {
	reply, err := c.asked.Begin(&h)
	if err != nil {
		return nil, err
	}
	rec, at := rpc.BeginRecord(nil)
	rec = args.Append(h.Append(rec))
	rpc.EndRecord(rec, at)
	c.mu.Lock()
	c.asks = append(c.asks, rec)
	c.mu.Unlock()
	c.writeSoon()
	return c.asked.Wait(ctx, h.XID, reply)
}

// answered takes a reply of the client. One that nobody waits for, or that is larger than any
// should be, is dropped.
func (c *conn) answered(record []byte) {
	if len(record) <= answerMax {
		c.asked.Deliver(slices.Clone(record))
	}
}

// endAsking has the server's own calls fail, when nothing more is read.
func (c *conn) endAsking() {
	c.asked.Fail(net.ErrClosed)
	c.asked.End()
}
