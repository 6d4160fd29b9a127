package control

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// changes are the requests under way that change something. The zero changes is of none.
type changes struct {
	mu  sync.Mutex
	all []*change // the oldest first
}

type change struct {
	what  string
	began time.Time
}

// begin notes a change until end is called. Where there are too many it is an Error of
// code Busy.
func (c *changes) begin(what string) (end func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.all) >= changesMax {
		oldest := c.all[0]
		return nil, &Error{Code: Busy, Message: fmt.Sprintf(
			"podnas is already making %d changes, the oldest (%s) for %s: if its disk hangs, check the kernel's log (dmesg) of podnas's node",
			changesMax, oldest.what, time.Since(oldest.began).Round(time.Second))}
	}
	one := &change{what, time.Now()}
	c.all = append(c.all, one)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.all = slices.DeleteFunc(c.all, func(other *change) bool { return other == one })
	}, nil
}
