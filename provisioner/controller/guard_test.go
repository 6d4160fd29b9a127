package controller

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/podnas/podnas/provisioner"
)

// newGuard makes a guard that is quick.
func newGuard(client *fake.Clientset, namespace, name, identity string) *guard {
	return &guard{
		client: client, namespace: namespace, provisioner: name, identity: identity,
		pod: &pod{}, says: func(string) {}, log: slog.New(slog.DiscardHandler),
		period: 5 * time.Millisecond, pause: 20 * time.Millisecond, hold: 60 * time.Second,
	}
}

// lease is one that was acquired, and renewed, that long ago.
func lease(namespace, name, identity string, acquired, renewed time.Duration) *coordinationv1.Lease {
	at := func(ago time.Duration) *metav1.MicroTime { return &metav1.MicroTime{Time: time.Now().Add(-ago)} }
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "podnas-" + identity, ResourceVersion: "1",
			Labels:      map[string]string{provisioner.InstanceAnnotation: identity},
			Annotations: map[string]string{provisionerAnnotation: name},
		},
		Spec: coordinationv1.LeaseSpec{AcquireTime: at(acquired), RenewTime: at(renewed)},
	}
}

func TestGuardRenew(t *testing.T) {
	const name, hour = provisioner.DefaultName, time.Hour
	other := lease("elsewhere", name, "other", hour, time.Second)
	for _, tt := range []struct {
		about  string
		leases []runtime.Object
		aside  bool
	}{
		{"alone", nil, false},
		{"another works", []runtime.Object{other}, true},
		{"another in the same namespace", []runtime.Object{lease("ns", name, "other", hour, time.Second)}, true},
		{"another name", []runtime.Object{lease("elsewhere", "other/name", "other", hour, time.Second)}, false},
		{"another has gone", []runtime.Object{lease("elsewhere", name, "other", hour, 2*time.Minute)}, false},
		{"a restart", []runtime.Object{lease("ns", name, "mine", 2*hour, 30*time.Second), other}, false},
		{"a restart of the younger", []runtime.Object{lease("ns", name, "mine", time.Minute, 30*time.Second), other}, true},
		{"back too late", []runtime.Object{lease("ns", name, "mine", 2*hour, 2*time.Minute), other}, true},
		{"back late, and nobody there", []runtime.Object{lease("ns", name, "mine", 2*hour, 2*time.Minute)}, false},
		{"renamed", []runtime.Object{lease("ns", "old/name", "mine", 2*hour, time.Second), other}, true},
		{"a copy of this disk elsewhere", []runtime.Object{lease("elsewhere", name, "mine", hour, time.Second)}, true},
	} {
		client := fake.NewClientset(tt.leases...)
		g := newGuard(client, "ns", name, "mine")
		rival, _, err := g.renew(t.Context())
		if err != nil || (rival != nil) != tt.aside {
			t.Errorf("%s: stands aside for %v, %v", tt.about, rival, err)
		}
		l, err := client.CoordinationV1().Leases("ns").Get(t.Context(), "podnas-mine", metav1.GetOptions{})
		if !tt.aside && (err != nil || !g.inForce(l, metav1.NowMicro()) || l.Annotations[provisionerAnnotation] != name) {
			t.Errorf("%s: its lease is %+v, %v", tt.about, l, err)
		}
		if rival != nil && !strings.Contains(g.describe(rival), rival.Namespace) {
			t.Errorf("%s: %s", tt.about, g.describe(rival))
		}
	}
}

// Many that start at once: one works.
func TestGuardStart(t *testing.T) {
	client := fake.NewClientset()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	var mu sync.Mutex
	var works []string
	var starting sync.WaitGroup
	for _, identity := range []string{"a", "b", "c", "d"} {
		starting.Go(func() {
			if newGuard(client, "ns-"+identity, provisioner.DefaultName, identity).wait(ctx) == nil {
				mu.Lock()
				defer mu.Unlock()
				works = append(works, identity)
			}
		})
	}
	starting.Wait()
	if len(works) != 1 {
		t.Errorf("%v work, want one of them", works)
	}
}

func TestGuardKeep(t *testing.T) {
	client := fake.NewClientset()
	g := newGuard(client, "ns", provisioner.DefaultName, "mine")
	if err := g.wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := g.keep(ctx); err != nil {
		t.Errorf("alone: %v", err)
	}
	// One that has had the name for longer comes back into sight.
	l := lease("elsewhere", provisioner.DefaultName, "other", time.Hour, time.Second)
	if _, err := client.CoordinationV1().Leases("elsewhere").Create(t.Context(), l, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := g.keep(t.Context()); !errors.Is(err, ErrLostLease) || !strings.Contains(err.Error(), "elsewhere") {
		t.Errorf("beside an older one: %v, want ErrLostLease", err)
	}
}
