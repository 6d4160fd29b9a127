package nfs4

import "sync/atomic"

// counter counts users.
type counter struct{ n atomic.Int32 }

func (c *counter) add() { c.n.Add(1) }

// done reports whether it was the last.
func (c *counter) done() bool { return c.n.Add(-1) == 0 }
