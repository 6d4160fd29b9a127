// Package latest caches values from calls that may hang, such as the usage of a disk
// that is frozen. A call that hangs blocks a thread, and the runtime ends a process
// with too many threads, so concurrent callers must share a call.
//
// A Value has one call running at a time. Callers wait for it, but not forever, and
// share its result while it is fresh.
package latest

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

// PendingError means that a call has not returned.
type PendingError struct{ Since time.Time }

func (e *PendingError) Error() string {
	return fmt.Sprintf("no answer for %s, since %s", time.Since(e.Since).Round(time.Second), e.Since.UTC().Format(time.RFC3339))
}

// Value is a value that is computed by a call, and cached.
type Value[T any] struct {
	find func(context.Context) (T, error)
	late time.Duration

	mu sync.Mutex
	// +checklocks:mu
	pending *call[T] // nil: none is running
	// +checklocks:mu
	last *call[T] // nil: none has ended
}

// call is one call of find. Its results are set when done is closed.
type call[T any] struct {
	began time.Time
	done  chan struct{}
	value T
	err   error
}

// New returns a Value that find computes. If a call takes longer than late, Get
// returns a PendingError, and the call's context ends; the call may still return
// later.
func New[T any](late time.Duration, find func(context.Context) (T, error)) *Value[T] {
	return &Value[T]{find: find, late: late}
}

// Get returns the result of a call that started at most age ago. It waits for that
// call until it is late or ctx ends, and then returns a *PendingError, unless ctx was
// canceled.
func (v *Value[T]) Get(ctx context.Context, age time.Duration) (T, error) {
	oldest := time.Now().Add(-age)
	for {
		c := v.take(ctx, oldest)
		if err := c.wait(ctx, v.late); err != nil {
			var none T
			return none, err
		}
		if !c.began.Before(oldest) {
			return c.value, c.err
		}
	}
}

// Here is Get of a new call, which runs on this goroutine unless one is running: it returns when that does, which may be
// late.
func (v *Value[T]) Here(ctx context.Context) (T, error) {
	v.mu.Lock()
	if v.pending != nil {
		v.mu.Unlock()
		return v.Get(ctx, 0)
	}
	c := &call[T]{began: time.Now(), done: make(chan struct{})}
	v.pending = c
	v.mu.Unlock()
	v.run(context.WithoutCancel(ctx), c)
	return c.value, c.err
}

// take returns the last call if it is fresh, or else the running one, which may be
// older, or else a new one.
func (v *Value[T]) take(ctx context.Context, oldest time.Time) *call[T] {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.last != nil && !v.last.began.Before(oldest):
		return v.last
	case v.pending == nil:
		v.pending = &call[T]{began: time.Now(), done: make(chan struct{})}
		// Others may still wait for it after this caller is gone.
		go v.run(context.WithoutCancel(ctx), v.pending)
	}
	return v.pending
}

func (v *Value[T]) run(ctx context.Context, c *call[T]) {
	ctx, cancel := context.WithTimeout(ctx, v.late)
	defer cancel()
	defer func() {
		if p := recover(); p != nil { // as net/http recovers a handler
			c.err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
		v.mu.Lock()
		defer v.mu.Unlock()
		v.pending, v.last = nil, c
		close(c.done)
	}()
	c.value, c.err = v.find(ctx)
}

func (c *call[T]) wait(ctx context.Context, late time.Duration) error {
	timer := time.NewTimer(time.Until(c.began.Add(late)))
	defer timer.Stop()
	select {
	case <-c.done:
		return nil
	case <-timer.C:
	case <-ctx.Done():
	}
	select {
	case <-c.done: // just now
		return nil
	default:
	}
	if errors.Is(ctx.Err(), context.Canceled) { // the caller is gone
		return ctx.Err()
	}
	return &PendingError{Since: c.began}
}
