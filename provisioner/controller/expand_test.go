package controller

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	library "sigs.k8s.io/sig-storage-lib-external-provisioner/v8/controller"

	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/provisioner"
	"github.com/podnas/podnas/provisioner/internal/fixture"
)

// expansion is an expander beside a fake API server, with one bound claim of 1Mi
// that asks for more.
type expansion struct {
	*expander
	t      *testing.T
	client *fake.Clientset
	events *record.FakeRecorder
}

func newExpansion(t *testing.T, p *provisioner.Provisioner, size string) *expansion {
	t.Helper()
	p.Name = provisioner.DefaultName
	class := class()
	class.AllowVolumeExpansion = new(true)
	c := fixture.Claim("1Mi")
	pv, _, err := p.Provision(t.Context(), library.ProvisionOptions{StorageClass: class, PVName: "pvc-1", PVC: c})
	if err != nil {
		t.Fatal(err)
	}
	pv.UID = "5678"
	pv.Spec.ClaimRef = &v1.ObjectReference{Namespace: c.Namespace, Name: c.Name, UID: c.UID}
	c.Spec.VolumeName = pv.Name
	c.Spec.Resources.Requests[v1.ResourceStorage] = resource.MustParse(size)
	c.Status = v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound, Capacity: pv.Spec.Capacity.DeepCopy()}

	client := fake.NewClientset(class, c, pv)
	factory := informers.NewSharedInformerFactory(client, 0)
	events := record.NewFakeRecorder(100)
	e := &expansion{t: t, client: client, events: events, expander: &expander{
		client: client, p: p, events: events, log: slog.New(slog.DiscardHandler),
		classes: factory.Storage().V1().StorageClasses().Lister(),
		volumes: factory.Core().V1().PersistentVolumes().Lister(),
		queue:   workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Millisecond, 10*time.Millisecond)),
	}}
	if err := e.watch(factory.Core().V1().PersistentVolumeClaims().Informer()); err != nil {
		t.Fatal(err)
	}
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	t.Cleanup(e.queue.ShutDown)
	return e
}

// sizes are those of the disk, the PersistentVolume, and the claim.
func (e *expansion) sizes() []string {
	e.t.Helper()
	v, err := e.p.Store.Get("pvc-1")
	if err != nil {
		e.t.Fatal(err)
	}
	pv, err := e.client.CoreV1().PersistentVolumes().Get(e.t.Context(), "pvc-1", metav1.GetOptions{})
	if err != nil {
		e.t.Fatal(err)
	}
	return []string{volume.FormatSize(v.Size), pv.Spec.Capacity.Storage().String(), e.claim().Status.Capacity.Storage().String()}
}

func (e *expansion) claim() *v1.PersistentVolumeClaim {
	e.t.Helper()
	c, err := e.client.CoreV1().PersistentVolumeClaims("ns").Get(e.t.Context(), "data", metav1.GetOptions{})
	if err != nil {
		e.t.Fatal(err)
	}
	return c
}

// seen returns the reasons of the events so far.
func (e *expansion) seen() []string {
	var reasons []string
	for {
		select {
		case event := <-e.events.Events:
			reasons = append(reasons, strings.Fields(event)[1])
		default:
			return reasons
		}
	}
}

// The API server fails, or answers a conflict, at one of the steps, before it has
// done what it was asked to, or after. The next try ends right.
func TestExpandStepsAgain(t *testing.T) {
	for _, step := range []struct {
		resource, subresource string
		nth                   int // of the calls
	}{
		{"persistentvolumeclaims", "status", 1},
		{"persistentvolumes", "", 1},
		{"persistentvolumeclaims", "status", 2},
	} {
		for _, failure := range []error{
			errors.New("connection reset by peer"),
			apierrors.NewConflict(schema.GroupResource{Resource: step.resource}, "x", errors.New("changed meanwhile")),
		} {
			for _, done := range []bool{false, true} {
				p := newProvisioner(t)
				e := newExpansion(t, p, "3Mi")
				calls := 0
				e.client.PrependReactor("patch", step.resource, func(action ktesting.Action) (bool, runtime.Object, error) {
					if action.GetSubresource() != step.subresource {
						return false, nil, nil
					}
					if calls++; calls != step.nth {
						return false, nil, nil
					}
					if done {
						_, _, err := ktesting.ObjectReaction(e.client.Tracker())(action)
						if err != nil {
							t.Error(err)
						}
					}
					return true, nil, failure
				})
				if err := e.sync(t.Context(), "ns/data"); err == nil && calls >= step.nth {
					t.Errorf("%+v: the failure is not told", step)
				}
				if err := e.sync(t.Context(), "ns/data"); err != nil {
					t.Errorf("%+v, again: %v", step, err)
				}
				if got := e.sizes(); !slices.Equal(got, []string{"3Mi", "3Mi", "3Mi"}) {
					t.Errorf("%+v, %v, done %v: disk, volume and claim have %v", step, failure, done, got)
				}
				if c := e.claim(); len(c.Status.Conditions) != 0 || len(c.Status.AllocatedResourceStatuses) != 0 {
					t.Errorf("%+v, %v, done %v: the claim still says %+v", step, failure, done, c.Status)
				}
			}
		}
	}
}

func TestExpandWhenThereIsRoom(t *testing.T) {
	root := t.TempDir()
	store, err := volume.Open(volume.Config{Root: root, Exports: fixture.NoExports{}, Overcommit: 1, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	space, err := store.Space()
	if err != nil {
		t.Fatal(err)
	}
	capacity, free := space.Size, space.Free
	// What is promised decides, not what is free.
	raised := resource.NewQuantity(free/2, resource.BinarySI).String()
	for left, i := capacity-free/4, 0; left > 0; i++ {
		size := min(left, free/2)
		if _, err := store.Create(t.Context(), volume.Spec{Name: "other-" + string(rune('a'+i)), Size: size}); err != nil {
			t.Fatal(err)
		}
		left -= size
	}
	p := &provisioner.Provisioner{Store: store, Endpoint: provisioner.StaticEndpoint{Port: 2049}, Log: slog.New(slog.DiscardHandler)}
	e := newExpansion(t, p, raised)
	go e.work(t.Context())
	failed := func() bool { return slices.Contains(e.seen(), "VolumeResizeFailed") }
	until(t, failed)
	for _, c := range e.claim().Status.Conditions {
		if c.Type == v1.PersistentVolumeClaimControllerResizeError && !strings.Contains(c.Message, "promised") {
			t.Errorf("the condition says %q", c.Message)
		}
	}
	for _, v := range store.List() {
		if v.Name != "pvc-1" {
			if err := store.Delete(t.Context(), v.Name); err != nil {
				t.Fatal(err)
			}
		}
	}
	until(t, func() bool { return e.sizes()[2] == raised })
	if c := e.claim(); len(c.Status.Conditions) != 0 {
		t.Errorf("the claim still says %+v", c.Status.Conditions)
	}
}

func TestExpandNothing(t *testing.T) {
	for name, change := range map[string]func(*v1.PersistentVolume, *v1.PersistentVolumeClaim){
		"another disk": func(pv *v1.PersistentVolume, _ *v1.PersistentVolumeClaim) {
			pv.Annotations[provisioner.InstanceAnnotation] = "x"
		},
		"another provisioner": func(pv *v1.PersistentVolume, _ *v1.PersistentVolumeClaim) {
			pv.Annotations[provisioner.ProvisionedBy] = "x/y"
		},
		"another claim": func(pv *v1.PersistentVolume, _ *v1.PersistentVolumeClaim) { pv.Spec.ClaimRef.UID = "x" },
		"unbound":       func(_ *v1.PersistentVolume, c *v1.PersistentVolumeClaim) { c.Status.Phase = v1.ClaimLost },
	} {
		p := newProvisioner(t)
		e := newExpansion(t, p, "3Mi")
		pv, err := e.client.CoreV1().PersistentVolumes().Get(t.Context(), "pvc-1", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		c := e.claim()
		change(pv, c)
		_, err = e.client.CoreV1().PersistentVolumes().Update(t.Context(), pv, metav1.UpdateOptions{})
		_, err2 := e.client.CoreV1().PersistentVolumeClaims("ns").Update(t.Context(), c, metav1.UpdateOptions{})
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		if err := e.sync(t.Context(), "ns/data"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := e.sizes(); !slices.Equal(got, []string{"1Mi", "1Mi", "1Mi"}) || len(e.seen()) != 0 {
			t.Errorf("%s: disk, volume and claim have %v", name, got)
		}
	}
	// A PersistentVolume that leads elsewhere, and one without a volume.
	p := newProvisioner(t)
	e := newExpansion(t, p, "3Mi")
	if err := p.Store.Delete(t.Context(), "pvc-1"); err != nil {
		t.Fatal(err)
	}
	if err := e.sync(t.Context(), "ns/data"); !errors.Is(err, volume.ErrNotFound) || !slices.Contains(e.seen(), "VolumeResizeFailed") {
		t.Errorf("without a volume: %v", err)
	}
	if _, err := p.Store.Create(t.Context(), volume.Spec{Name: "pvc-1", Path: "elsewhere", Size: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	if err := e.sync(t.Context(), "ns/data"); err == nil || !strings.Contains(err.Error(), "/elsewhere") {
		t.Errorf("of another path: %v", err)
	}
}

// until polls until what is true.
func until(t *testing.T, isTrue func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !isTrue(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("not within 20 s")
		}
	}
}
