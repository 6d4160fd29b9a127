package volume

import (
	"context"
	"strings"
	"sync"
)

// nameLocks has a lock per name.
type nameLocks struct {
	mu sync.Mutex
	// +checklocks:mu
	held map[string]chan struct{} // closed when the name is unlocked
}

// lock locks the name and returns a function that unlocks it.
func (l *nameLocks) lock(ctx context.Context, name string) (func(), error) {
	for {
		l.mu.Lock()
		if l.held == nil {
			l.held = map[string]chan struct{}{}
		}
		busy, ok := l.held[name]
		if !ok {
			done := make(chan struct{})
			l.held[strings.Clone(name)] = done
			l.mu.Unlock()
			return func() {
				l.mu.Lock()
				delete(l.held, name)
				l.mu.Unlock()
				close(done)
			}, nil
		}
		l.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
