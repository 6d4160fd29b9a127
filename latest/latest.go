// Package latest has values that take a call to find out, where the call may hang: how
// full a disk is that is frozen, say. A call that hangs holds a thread, and the runtime
// ends a process that has too many, so nobody who asks may begin one of their own.
//
// Of a Value one call is under way at a time. Whoever asks meanwhile waits for it, but
// not for ever, and its result is shared while it is fresh.
package latest

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

// PendingError means that a call has not come back.
type PendingError struct{ Since time.Time }

func (e *PendingError) Error() string {
	return fmt.Sprintf("no answer for %s, since %s", time.Since(e.Since).Round(time.Second), e.Since.UTC().Format(time.RFC3339))
}

// Value is found out by a call, again and again.
type Value[T any] struct {
	find func(context.Context) (T, error)
	late time.Duration

	mu      sync.Mutex
	pending *call[T] // nil: none is under way
	last    *call[T] // nil: none has ended
}

// call is one call of find. What done guards is set when it is closed.
type call[T any] struct {
	began time.Time
	done  chan struct{}
	value T
	err   error
}

// New makes a Value that find tells. A call that takes longer than late is told by a
// PendingError; its context ends then, and it may still end when it likes.
func New[T any](late time.Duration, find func(context.Context) (T, error)) *Value[T] {
	return &Value[T]{find: find, late: late}
}

// Get returns what a call has found that began no longer than age ago. It waits for
// that call until it is late or ctx ends, and returns a *PendingError then, unless ctx
// was canceled.
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

// take returns the last call if it is fresh, else the one that is under way, which may
// be an older one, else a new one.
func (v *Value[T]) take(ctx context.Context, oldest time.Time) *call[T] {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.last != nil && !v.last.began.Before(oldest):
		return v.last
	case v.pending == nil:
		v.pending = &call[T]{began: time.Now(), done: make(chan struct{})}
		// Others may wait for it when this caller has gone.
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
	if errors.Is(ctx.Err(), context.Canceled) { // who asked has gone
		return ctx.Err()
	}
	return &PendingError{Since: c.began}
}
