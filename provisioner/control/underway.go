package control

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// underWay are the current requests of one kind. They are limited, because each may
// block a thread while the disk hangs.
type underWay struct {
	max  int
	kind string // in the plural

	mu sync.Mutex
	// +checklocks:mu
	all []*request // the oldest first
}

type request struct {
	what  string
	began time.Time
}

// begin adds a request until end is called. If there are too many, it returns an Error
// with code Busy.
func (u *underWay) begin(what string) (end func(), err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.all) >= u.max {
		oldest := u.all[0]
		return nil, &Error{Code: Busy, Message: fmt.Sprintf(
			"podnas is already at work on %d %s, the oldest (%s) for %s: try again; if its disk hangs, check the kernel's log (dmesg) of podnas's node",
			u.max, u.kind, oldest.what, time.Since(oldest.began).Round(time.Second))}
	}
	one := &request{what, time.Now()}
	u.all = append(u.all, one)
	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.all = slices.DeleteFunc(u.all, func(other *request) bool { return other == one })
	}, nil
}
