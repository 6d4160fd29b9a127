package active

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"github.com/podnas/podnas/internal/doctor"
)

// aPod is one of a podnas, ready or not.
func aPod(name, role string, ready v1.ConditionStatus, change func(*v1.Pod)) *v1.Pod {
	p := &v1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "podnas", Name: name, UID: types.UID("uid-of-" + name), Labels: map[string]string{nameLabel: "podnas", RoleLabel: role}},
	}
	p.Spec.NodeName = "node-of-" + name
	p.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: ready}}
	if change != nil {
		change(p)
	}
	return p
}

func (a *api) roles(t *testing.T) map[string]string {
	t.Helper()
	list, err := (&Client{objects: a}).podsOf(t.Context(), "podnas", "")
	if err != nil {
		t.Fatal(err)
	}
	roles := map[string]string{}
	for _, p := range list {
		roles[p.Name] = p.Labels[RoleLabel]
	}
	return roles
}

func serving() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// TestLabels: the label is on the active podnas's pod alone, and what is known of the others is told.
func TestLabels(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("no"))
	longAgo := metav1.NewTime(time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC)) // a bubble of synctest begins a year later
	for name, tt := range map[string]struct {
		others []runtime.Object
		own    func(*v1.Pod)
		refuse string // the verb that is forbidden
		role   string // of this pod afterwards; empty: active
		says   string // in the findings a minute and a half later
		status doctor.Status
	}{
		"the other is a standby": {others: []runtime.Object{aPod("podnas-1", RoleStandby, v1.ConditionTrue, nil)}, says: "podnas-1 takes over", status: doctor.OK},
		"the other was active, and is dead": {
			others: []runtime.Object{aPod("podnas-1", RoleActive, v1.ConditionUnknown, nil)},
			says:   "podnas-1 on node node-of-podnas-1 is not ready", status: doctor.Warning,
		},
		"it is dead, and still said to be ready": {others: []runtime.Object{aPod("podnas-1", RoleActive, v1.ConditionTrue, nil)}, says: "podnas-1 takes over", status: doctor.OK},
		"it has no node": {
			others: []runtime.Object{aPod("podnas-1", RoleStandby, v1.ConditionFalse, func(p *v1.Pod) {
				p.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionFalse, Message: "0/1 nodes"}}
			})},
			says: "has no node: 0/1 nodes", status: doctor.Warning,
		},
		"it should have ended": {
			others: []runtime.Object{aPod("podnas-1", RoleStandby, v1.ConditionTrue, func(p *v1.Pod) { p.DeletionTimestamp, p.Finalizers = &longAgo, []string{"a/b"} })},
			says:   "does not report that it has", status: doctor.Warning,
		},
		"one of three is fit": {
			others: []runtime.Object{aPod("podnas-1", RoleStandby, v1.ConditionFalse, nil), aPod("podnas-2", RoleStandby, v1.ConditionTrue, nil)},
			says:   "podnas-2 takes over", status: doctor.OK,
		},
		"it is alone": {says: "there is no other pod", status: doctor.Warning},
		"another podnas is none of its": {
			others: []runtime.Object{aPod("team-podnas-0", RoleActive, v1.ConditionTrue, func(p *v1.Pod) { p.Labels[nameLabel] = "team-podnas" })},
			says:   "there is no other pod", status: doctor.Warning,
		},
		"a pod that only has its name": {
			others: []runtime.Object{aPod("copy", "", v1.ConditionTrue, func(p *v1.Pod) { delete(p.Labels, RoleLabel) })},
			says:   "there is no other pod", status: doctor.Warning,
		},
		"it may not see pods":   {refuse: "get", role: RoleStandby, says: "lacks a right that deploy/components/ha has", status: doctor.Failed},
		"it may not list them":  {refuse: "list", says: "lacks a right that deploy/components/ha has", status: doctor.Failed},
		"it may not label them": {refuse: "patch", role: RoleStandby, says: "label --overwrite pod podnas-0 podnas.io/role=active", status: doctor.Failed},
		"its pod is another one": {
			own: func(p *v1.Pod) { p.UID = "later" }, role: RoleStandby, says: "is another one by now", status: doctor.Failed,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				server := newAPI(append(tt.others, aPod("podnas-0", RoleStandby, v1.ConditionTrue, tt.own))...)
				server.PrependReactor(tt.refuse, "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
					return tt.refuse != "", nil, forbidden
				})
				a := NewActive(server.config("podnas-0"))
				go a.Run(ctx, serving())
				time.Sleep(90 * time.Second)
				cancel()
				synctest.Wait()
				found := a.Findings()
				if len(found) != 1 || found[0].Status != tt.status || !strings.Contains(found[0].Says+found[0].Fix, tt.says) {
					t.Errorf("found %+v, want %s, %q", found, tt.status, tt.says)
				}
				if has := tt.status == doctor.OK; a.HasStandby() != has {
					t.Errorf("a standby is there: %t", !has)
				}
				server.ReactionChain = server.ReactionChain[1:]
				want := tt.role
				if want == "" {
					want = RoleActive
				}
				for pod, role := range server.roles(t) {
					switch {
					case pod == "podnas-0" && role != want:
						t.Errorf("this pod is %s", role)
					case strings.HasPrefix(pod, "podnas-") && pod != "podnas-0" && role == RoleActive:
						t.Errorf("%s is active", pod)
					case pod == "team-podnas-0" && role != RoleActive:
						t.Errorf("another podnas's pod was changed to %q", role)
					}
				}
			})
		})
	}
}

// TestCutOff: an active podnas that Kubernetes leads nobody to is known to be cut off after a minute, if another could serve.
func TestCutOff(t *testing.T) {
	longAgo := metav1.NewTime(time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC)) // a bubble of synctest begins a year later
	ended := func(p *v1.Pod) { p.DeletionTimestamp, p.Finalizers = &longAgo, []string{"a/b"} }
	for name, tt := range map[string]struct {
		own     *v1.Pod
		standby v1.ConditionStatus
		away    bool   // the API server is, after half a minute
		says    string // of why it is cut off; empty: it is not
		finds   bool   // a failure
	}{
		"nothing is wrong":                   {own: aPod("podnas-0", RoleActive, v1.ConditionTrue, nil), standby: v1.ConditionTrue},
		"its kubelet is dead":                {own: aPod("podnas-0", RoleActive, v1.ConditionFalse, nil), standby: v1.ConditionTrue, says: "pod podnas-0 on node node-of-podnas-0 is not ready, so no new", finds: true},
		"its kubelet does not end it":        {own: aPod("podnas-0", RoleActive, v1.ConditionTrue, ended), standby: v1.ConditionTrue, says: "pod podnas-0 should have ended", finds: true},
		"its kubelet is dead, and the other": {own: aPod("podnas-0", RoleActive, v1.ConditionFalse, nil), standby: v1.ConditionFalse, finds: true},
		"the API server is away since":       {own: aPod("podnas-0", RoleActive, v1.ConditionFalse, nil), standby: v1.ConditionTrue, away: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				server := newAPI(tt.own, aPod("podnas-1", RoleStandby, tt.standby, nil))
				a := NewActive(server.config("podnas-0"))
				go a.Run(ctx, serving())
				for range 50 {
					time.Sleep(time.Second)
					if err := a.CutOff(); err != nil {
						t.Fatalf("too early: %v", err)
					}
				}
				server.away.Store(tt.away)
				time.Sleep(30 * time.Second)
				err := a.CutOff()
				if (err != nil) != (tt.says != "") || err != nil && !strings.Contains(err.Error(), tt.says) {
					t.Errorf("it is cut off: %v", err)
				}
				if found := a.Findings(); tt.finds != (found[0].Status == doctor.Failed) {
					t.Errorf("found %+v", found)
				}
				cancel()
				synctest.Wait()
			})
		})
	}
}

// TestLabelsLater: the pods are not touched before podnas serves, and labels that somebody changes are set again.
func TestLabelsLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		server := newAPI(aPod("podnas-0", RoleStandby, v1.ConditionTrue, nil), aPod("podnas-1", RoleActive, v1.ConditionTrue, nil))
		serves := never()
		a := NewActive(server.config("podnas-0"))
		go a.Run(ctx, serves)
		time.Sleep(30 * time.Second)
		if roles := server.roles(t); roles["podnas-1"] != RoleActive {
			t.Fatalf("before podnas serves: %v", roles)
		}
		server.away.Store(true)
		close(serves)
		time.Sleep(2 * time.Minute)
		if found := a.Findings(); found[0].Status != doctor.Warning || found[1].Status != doctor.Warning {
			t.Errorf("while the API server is away: %+v", found)
		}
		server.away.Store(false)
		time.Sleep(renewPeriod + time.Second)
		if roles := server.roles(t); roles["podnas-0"] != RoleActive || roles["podnas-1"] != RoleStandby {
			t.Fatalf("when it is back: %v", roles)
		}
		for pod, role := range map[string]string{"podnas-0": RoleStandby, "podnas-1": RoleActive} {
			if err := a.Client.setRole(ctx, &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "podnas", Name: pod, UID: types.UID("uid-of-" + pod)}}, role); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(labelPeriod + renewPeriod)
		if roles := server.roles(t); roles["podnas-0"] != RoleActive || roles["podnas-1"] != RoleStandby {
			t.Errorf("after somebody has changed them: %v", roles)
		}
	})
}

// TestTwoActive: two that believe to be active take turns, and the labels are those of the one that stays.
func TestTwoActive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		server := newAPI(aPod("podnas-0", RoleStandby, v1.ConditionTrue, nil), aPod("podnas-1", RoleStandby, v1.ConditionTrue, nil))
		ends, end := context.WithCancel(ctx)
		go NewActive(server.config("podnas-0")).Run(ends, serving())
		time.Sleep(5 * time.Second)
		go NewActive(server.config("podnas-1")).Run(ctx, serving())
		time.Sleep(5 * time.Second)
		end()
		time.Sleep(labelPeriod + renewPeriod) // in a cluster at once, by the conflict at the Lease
		if roles := server.roles(t); roles["podnas-0"] != RoleStandby || roles["podnas-1"] != RoleActive {
			t.Errorf("%v", roles)
		}
		lease, err := (&Client{objects: server}).lease(ctx, "podnas", "podnas-active")
		if err != nil || *lease.Spec.HolderIdentity != "podnas-1_uid-of-podnas-1" {
			t.Errorf("the Lease is %+v (%v)", lease, err)
		}
	})
}

// TestLostUnknowingly: one whose disk does not answer leaves the Lease and the labels to the one that has it, and keeps its own as long as
// nobody else says that it serves.
func TestLostUnknowingly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		server := newAPI(aPod("podnas-0", RoleStandby, v1.ConditionTrue, nil), aPod("podnas-1", RoleStandby, v1.ConditionTrue, nil))
		cfg := server.config("podnas-0")
		var fresh atomic.Bool
		fresh.Store(true)
		cfg.Fresh = fresh.Load
		go NewActive(cfg).Run(ctx, serving())
		time.Sleep(5 * time.Second)
		fresh.Store(false)
		time.Sleep(time.Minute)
		holder := func() string {
			lease, err := (&Client{objects: server}).lease(ctx, "podnas", "podnas-active")
			if err != nil || time.Since(lease.Spec.RenewTime.Time) > 2*renewPeriod {
				t.Errorf("%+v (%v)", lease, err)
			}
			return *lease.Spec.HolderIdentity
		}
		if got := holder(); !strings.HasPrefix(got, "podnas-0_") {
			t.Errorf("while nobody else serves the Lease is %s's", got)
		}
		go NewActive(server.config("podnas-1")).Run(ctx, serving())
		for range 60 {
			time.Sleep(time.Second)
			if roles := server.roles(t); roles["podnas-0"] != RoleStandby || roles["podnas-1"] != RoleActive || !strings.HasPrefix(holder(), "podnas-1_") {
				t.Fatalf("%v, and the Lease is %s's", roles, holder())
			}
		}
	})
}

// TestLeaseOfOthers: whatever the Lease is, it becomes this podnas's.
func TestLeaseOfOthers(t *testing.T) {
	other, n := "podnas-1_x", int32(6)
	for name, spec := range map[string]coordinationv1.LeaseSpec{
		"empty":     {},
		"another's": {HolderIdentity: &other, LeaseTransitions: &n},
	} {
		t.Run(name, func(t *testing.T) {
			server := newAPI(&coordinationv1.Lease{
				TypeMeta:   metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
				ObjectMeta: metav1.ObjectMeta{Namespace: "podnas", Name: "podnas-active", ResourceVersion: "5"}, Spec: spec,
			})
			conflicts := 1
			server.PrependReactor("update", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
				conflicts--
				return conflicts >= 0, nil, apierrors.NewConflict(schema.GroupResource{Resource: "leases"}, "podnas-active", errors.New("written by another"))
			})
			a := NewActive(server.config("podnas-0"))
			if taken, err := a.renew(t.Context()); !taken || err != nil {
				t.Fatalf("taken: %t, %v", taken, err)
			}
			if taken, err := a.renew(t.Context()); taken || err != nil {
				t.Fatalf("taken once more: %t, %v", taken, err)
			}
			lease, err := a.Client.lease(t.Context(), "podnas", "podnas-active")
			if err != nil || *lease.Spec.HolderIdentity != "podnas-0_uid-of-podnas-0" || *lease.Spec.LeaseTransitions != 1+deref(spec.LeaseTransitions) {
				t.Errorf("it is %+v (%v)", lease, err)
			}
		})
	}
}

func deref(n *int32) int32 {
	if n == nil {
		return 0
	}
	return *n
}
