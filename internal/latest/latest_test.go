package latest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A call that hangs is one however many ask, each of them is told in time and at once
// from then on, and when it comes back all is as before.
func TestHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		hang := make(chan struct{})
		v := New(4*time.Second, func(context.Context) (int64, error) {
			<-hang
			return calls.Add(1), nil
		})
		ask := func(within time.Duration) {
			t.Helper()
			began := time.Now()
			var asking sync.WaitGroup
			for range 100 {
				asking.Go(func() {
					_, err := v.Get(t.Context(), time.Second)
					if pending := (*PendingError)(nil); !errors.As(err, &pending) {
						t.Errorf("%v, want a PendingError", err)
					}
				})
			}
			asking.Wait()
			if took := time.Since(began); took != within {
				t.Errorf("they were told after %s, want %s", took, within)
			}
		}
		ask(4 * time.Second)
		time.Sleep(time.Minute)
		ask(0)
		if _, err := v.Get(t.Context(), 0); !strings.HasPrefix(err.Error(), "no answer for 1m4s, since 2000-01-01T00:00:00Z") {
			t.Errorf("%v", err)
		}
		close(hang)
		synctest.Wait()
		for want := range int64(3) { // the one that hung is too old
			if n, err := v.Get(t.Context(), 0); n != want+2 || err != nil {
				t.Errorf("%d, %v, want %d", n, err, want+2)
			}
			time.Sleep(time.Nanosecond)
		}
	})
}

// A result is shared while it is fresh, an error too.
func TestFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls, broken := 0, errors.New("broken")
		v := New(time.Second, func(context.Context) (int, error) {
			calls++
			return calls, broken
		})
		for _, tt := range []struct {
			wait, age time.Duration
			want      int
		}{
			{0, time.Second, 1},
			{time.Second, time.Second, 1},
			{time.Nanosecond, time.Second, 2},
			{time.Nanosecond, 0, 3},
		} {
			time.Sleep(tt.wait)
			if n, err := v.Get(t.Context(), tt.age); n != tt.want || !errors.Is(err, broken) {
				t.Errorf("after %s more, at most %s old: %d, %v, want %d", tt.wait, tt.age, n, err, tt.want)
			}
		}
	})
}

// A caller that gives up does not end the call for others; the call's context ends when it is
// late.
func TestContexts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := New(4*time.Second, func(ctx context.Context) (string, error) {
			select {
			case <-ctx.Done():
				return "told to end", nil
			case <-time.After(2 * time.Second):
				return "well", nil
			}
		})
		gone, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := v.Get(gone, 0); err == nil {
			t.Error("it did not go")
		}
		if got, err := v.Get(t.Context(), time.Second); got != "well" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		slow := New(time.Second, func(ctx context.Context) (string, error) {
			<-ctx.Done()
			time.Sleep(time.Second)
			return "told to end", nil
		})
		if _, err := slow.Get(t.Context(), 0); err == nil {
			t.Error("it was not late")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if got, err := slow.Get(t.Context(), 2*time.Second); got != "told to end" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
	})
}

func TestPanics(t *testing.T) {
	v := New(time.Minute, func(context.Context) (int, error) { panic("at the disco") })
	if _, err := v.Get(t.Context(), 0); err == nil || !strings.Contains(err.Error(), "at the disco") || !strings.Contains(err.Error(), "latest_test.go") {
		t.Errorf("%v", err)
	}
}

// A call on the caller's goroutine is shared with who asks meanwhile, and with who asks later.
func TestHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		hang := make(chan struct{})
		v := New(4*time.Second, func(context.Context) (int64, error) {
			n := calls.Add(1)
			<-hang
			return n, nil
		})
		var first int64
		var asking sync.WaitGroup
		asking.Go(func() { first, _ = v.Here(t.Context()) })
		synctest.Wait()
		for _, get := range []func(context.Context) (int64, error){
			func(ctx context.Context) (int64, error) { return v.Get(ctx, time.Minute) }, v.Here,
		} {
			if _, err := get(t.Context()); !errors.As(err, new(*PendingError)) {
				t.Errorf("%v, want a PendingError", err)
			}
		}
		close(hang)
		asking.Wait()
		if n, err := v.Get(t.Context(), time.Minute); first != 1 || n != 1 || err != nil {
			t.Errorf("%d, and then %d and %v, want 1", first, n, err)
		}
		if n, err := v.Here(t.Context()); n != 2 || err != nil {
			t.Errorf("%d, %v, want 2", n, err)
		}
	})
}
