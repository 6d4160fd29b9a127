package active

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
)

// api is an API server, as an active podnas and a standby see it.
type api struct {
	*fake.FakeDynamicClient

	away    atomic.Bool // no call is answered
	noWrite atomic.Bool // none that changes something is
}

func newAPI(objects ...runtime.Object) *api {
	a := &api{FakeDynamicClient: fake.NewSimpleDynamicClient(scheme.Scheme, objects...)}
	a.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		switch verb := action.GetVerb(); {
		case a.away.Load():
			return true, nil, context.DeadlineExceeded
		case a.noWrite.Load() && verb != "get" && verb != "list":
			return true, nil, apierrors.NewInternalError(context.DeadlineExceeded)
		}
		return false, nil, nil
	})
	return a
}

func (a *api) config(pod string) Config {
	return Config{Client: &Client{objects: a}, Namespace: "podnas", Service: "podnas", Pod: pod, UID: "uid-of-" + pod, Log: slog.New(slog.DiscardHandler)}
}

// never is a server that does not serve yet.
func never() chan struct{} { return make(chan struct{}) }

// TestSilent: a standby says that the active one is silent when that is so, and in no other case.
func TestSilent(t *testing.T) {
	const enough = 7 * time.Second // what a standby acts on
	for name, tt := range map[string]struct {
		do     func(a *api, stop context.CancelFunc)
		silent bool // within 15 seconds
	}{
		"the active one lives": {do: func(*api, context.CancelFunc) {}},
		"it dies":              {do: func(_ *api, stop context.CancelFunc) { stop() }, silent: true},
		"the API server is away": {do: func(a *api, _ context.CancelFunc) {
			a.away.Store(true)
		}},
		"it was away, and comes back": {do: func(a *api, _ context.CancelFunc) {
			a.away.Store(true)
			time.Sleep(30 * time.Second)
			a.away.Store(false)
		}},
		"it comes and goes": {do: func(a *api, _ context.CancelFunc) {
			for range 5 {
				a.away.Store(true)
				time.Sleep(5 * time.Second)
				a.away.Store(false)
				time.Sleep(3 * time.Second)
			}
		}},
		"it can be read, and not be written to": {do: func(a *api, _ context.CancelFunc) { a.noWrite.Store(true) }},
		"it is away when the active one dies": {do: func(a *api, stop context.CancelFunc) {
			a.away.Store(true)
			stop()
		}},
		"somebody deletes the Lease, and the active one is dead": {do: func(a *api, stop context.CancelFunc) {
			stop()
			time.Sleep(time.Second)
			_ = a.Resource(coordinationv1.SchemeGroupVersion.WithResource("leases")).Namespace("podnas").Delete(context.Background(), "podnas-active", metav1.DeleteOptions{})
		}},
		"somebody labels the Lease, and the active one is dead": {do: func(a *api, stop context.CancelFunc) {
			stop()
			time.Sleep(3 * time.Second)
			_, _ = a.Resource(coordinationv1.SchemeGroupVersion.WithResource("leases")).Namespace("podnas").
				Patch(context.Background(), "podnas-active", "application/merge-patch+json", []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
		}, silent: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				a := newAPI()
				lives, stop := context.WithCancel(ctx)
				go NewActive(a.config("podnas-0")).Run(lives, never())
				s := NewStandby(a.config("podnas-1"))
				go s.Run(ctx)
				time.Sleep(20 * time.Second)
				if got := s.Silent(); got > renewPeriod {
					t.Fatalf("%v while the active one renews the Lease", got)
				}
				began, most := time.Now(), time.Duration(0)
				go tt.do(a, stop)
				for time.Since(began) < 15*time.Second {
					time.Sleep(100 * time.Millisecond)
					got := s.Silent()
					if most = max(most, got); got > time.Since(began)+renewPeriod {
						t.Fatalf("%v is said %v after the last renewal", got, time.Since(began))
					}
					if most >= enough {
						break
					}
				}
				if silent := most >= enough; silent != tt.silent {
					t.Errorf("%v at most, %v after it", most, time.Since(began))
				}
				if !tt.silent { // nor later
					time.Sleep(time.Minute)
					if got := s.Silent(); got >= enough {
						t.Errorf("%v after a minute", got)
					}
				}
			})
		})
	}
}

// TestStopped: a standby that was stopped, or whose clock is set, does not know what the API server did meanwhile. It has to hear the
// active podnas first, as one does that has begun just now.
func TestStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI()
		other, s := NewActive(a.config("podnas-0")), NewStandby(a.config("podnas-1"))
		renew := func() {
			time.Sleep(time.Millisecond)
			if _, err := other.renew(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		look := func(after time.Duration) time.Duration {
			time.Sleep(after)
			s.look(t.Context())
			return s.Silent()
		}
		silent := func(says string, want bool) {
			t.Helper()
			for range 5 {
				look(renewPeriod)
			}
			if got := s.Silent(); (got >= 7*time.Second) != want || !want && got != 0 {
				t.Errorf("%s: silent for %v, 10 seconds later", says, got)
			}
		}
		renew()
		silent("it was never heard", false)
		renew()
		silent("it was heard", true)
		if got := look(longestGap + time.Millisecond); got != 0 {
			t.Errorf("%v after a pause", got)
		}
		silent("it was not heard since the pause", false)
		renew()
		look(longestGap + time.Millisecond)
		silent("what it did in a pause is no news", false)
		renew()
		silent("it was heard again", true)
		s.looked = s.looked.Round(0).Add(-time.Hour) // the clock is set
		if got := look(renewPeriod); got != 0 {
			t.Errorf("%v after the clock was set", got)
		}
		silent("it was not heard since the clock was set", false)
	})
}
