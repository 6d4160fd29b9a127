package controller

import (
	"context"
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/podnas/podnas/internal/idle"
)

// every calls look once each period, until ctx ends.
func every(ctx context.Context, period time.Duration, look func()) {
	for {
		look()
		if sleep(ctx, idle.UntilTick(time.Now(), period)) != nil {
			return
		}
	}
}

// syncEach calls sync for each key in a queue, until the queue is shut down. A key whose sync fails comes again later.
func syncEach(ctx context.Context, queue workqueue.TypedRateLimitingInterface[string], sync func(key string) error) {
	for {
		key, down := queue.Get()
		if down {
			return
		}
		if err := sync(key); err != nil && ctx.Err() == nil {
			queue.AddRateLimited(key)
		} else {
			queue.Forget(key)
		}
		queue.Done(key)
	}
}

// bell wakes the goroutine that receives from it. Rings while that is busy count as one.
type bell chan struct{}

func newBell() bell { return make(bell, 1) }

func (b bell) ring() {
	select {
	case b <- struct{}{}:
	default: // it has rung already
	}
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
