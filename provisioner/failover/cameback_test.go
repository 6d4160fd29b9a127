package failover_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	"github.com/podnas/podnas/provisioner/failover"
)

// A node that comes back while a person thinks about the answer is not given up: podnas may run there by then.
func TestCameBack(t *testing.T) {
	for name, c := range map[string]struct {
		before func(*world)
		now    func(n *v1.Node) // changes what there is of the node
		says   string
	}{
		"its network was away": {now: func(n *v1.Node) { n.Status.Conditions[0].Status = v1.ConditionTrue }, says: "is Ready again"},
		"it was reset": {now: func(n *v1.Node) {
			n.Status.NodeInfo.BootID, n.Status.Conditions[0].Status = "boot-2", v1.ConditionTrue
		}, says: "is Ready again"},
		"it was reset, and is not Ready yet":       {now: func(n *v1.Node) { n.Status.NodeInfo.BootID = "boot-2" }, says: "was started again"},
		"it was removed, and has joined once more": {now: func(n *v1.Node) { n.UID = "another" }, says: "was started again"},
		"its kubelet has spoken": {now: func(n *v1.Node) {
			n.Status.Conditions[0].Status, n.Status.Conditions[0].LastHeartbeatTime = v1.ConditionFalse, metav1.Now()
		}, says: "was heard"},
		"it was no node any more": {before: func(w *world) { w.dead = nil }, now: func(*v1.Node) {}, says: "is a node of the cluster again"},
		"it had the taint already": {
			before: func(w *world) { tainted(w.dead) },
			now:    func(n *v1.Node) { n.Status.NodeInfo.BootID = "boot-2" }, says: "was started again",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			if c.before != nil {
				c.before(w)
			}
			client := w.client()
			f := of(t, client)
			f.Ask = func(string) error {
				n := node("dead", v1.ConditionUnknown, "boot-1")
				nodes := client.CoreV1().Nodes()
				if w.dead == nil {
					if _, err := nodes.Create(t.Context(), n, metav1.CreateOptions{}); err != nil {
						t.Fatal(err)
					}
				} else {
					n = w.dead.DeepCopy()
				}
				c.now(n)
				if _, err := nodes.Update(t.Context(), n, metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
				client.ClearActions()
				return nil
			}
			var refused *failover.RefusedError
			if err := f.Run(soon(t)); !errors.As(err, &refused) {
				t.Errorf("it ends with %v, want a refusal", err)
			} else {
				contains(t, err.Error(), "node dead has come back", c.says, "kubectl get node dead")
			}
			unchanged(t, client)
		})
	}
}

// A kubelet that says nothing new renews the Lease of its node all the same: then the node is not given up.
func TestCameBackByLease(t *testing.T) {
	at := time.Now().Add(-time.Minute)
	for name, c := range map[string]struct {
		before, now *coordinationv1.Lease
		answer      error  // of the API server, about Leases
		says        string // empty: it goes on
	}{
		"renewed":                    {before: lease(at), now: lease(at.Add(10 * time.Second)), says: "has come back since this looked at it: it was heard"},
		"made":                       {now: lease(at), says: "has come back since this looked at it: it was heard"},
		"the same":                   {before: lease(at), now: lease(at)},
		"none":                       {},
		"the caller may not see it":  {before: lease(at), now: lease(at.Add(10 * time.Second)), answer: apierrors.NewForbidden(schema.GroupResource{Resource: "leases"}, "dead", errors.New("no"))},
		"the API server has trouble": {before: lease(at), now: lease(at), answer: errors.New("trouble"), says: "look at the Lease of node dead: trouble"},
	} {
		inBubble(t, name, func(t *testing.T) {
			w := newWorld()
			w.dead = node("dead", v1.ConditionFalse, "boot-1")
			if c.before != nil {
				w.others = append(w.others, c.before)
			}
			client := w.client()
			if c.answer != nil {
				client.PrependReactor("get", "leases", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, c.answer })
			}
			f := of(t, client)
			f.Ask = func(string) error {
				leases := client.CoordinationV1().Leases("kube-node-lease")
				var err error
				switch {
				case c.now == nil:
				case c.before == nil:
					_, err = leases.Create(t.Context(), c.now, metav1.CreateOptions{})
				default:
					_, err = leases.Update(t.Context(), c.now, metav1.UpdateOptions{})
				}
				client.ClearActions()
				return err
			}
			if c.says == "" {
				go nextPod(t.Context(), client)
			}
			err := f.Run(soon(t))
			switch {
			case c.says == "" && err != nil:
				t.Error(err)
			case c.says != "" && err == nil:
				t.Fatal("it ends well")
			}
			if c.says == "" {
				return
			}
			contains(t, err.Error(), c.says)
			unchanged(t, client)
		})
	}
}

// A kubelet that says that it is not ready is alive, and shows it within seconds: who says at once that the node is off is not believed.
func TestListens(t *testing.T) {
	for name, c := range map[string]struct {
		renews, unseen bool
		takes          time.Duration // at least, and 5 seconds more at most
		refused        bool
	}{
		"it lives":                           {renews: true, takes: 10 * time.Second, refused: true},
		"it has died within the last minute": {takes: 15 * time.Second},
		"its Lease is not seen":              {renews: true, unseen: true},
	} {
		inBubble(t, name, func(t *testing.T) {
			w := newWorld()
			w.dead = node("dead", v1.ConditionFalse, "boot-1")
			w.others = append(w.others, lease(time.Now()))
			client := w.client()
			if c.unseen {
				client.PrependReactor("get", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
					return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "leases"}, "dead", errors.New("no"))
				})
			}
			if c.renews {
				time.AfterFunc(10*time.Second, func() {
					_ = client.Tracker().Update(coordinationv1.SchemeGroupVersion.WithResource("leases"), lease(time.Now()), "kube-node-lease")
				})
			}
			if !c.refused {
				go nextPod(t.Context(), client)
			}
			f := of(t, client)
			f.IsOff = true
			began := time.Now()
			err := f.Run(soon(t))
			var refused *failover.RefusedError
			if errors.As(err, &refused) != c.refused || !c.refused && err != nil {
				t.Errorf("it ends with %v, want a refusal: %t", err, c.refused)
			}
			if took := time.Since(began); took < c.takes || took > c.takes+5*time.Second {
				t.Errorf("it took %s, want %s", took, c.takes)
			}
			if c.refused {
				contains(t, err.Error(), "has come back since this looked at it: it was heard")
				unchanged(t, client)
			}
		})
	}
}

// inBubble runs a test of a name in which time passes as soon as nobody works.
func inBubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

// What Kubernetes itself says of a node that is silent is not the node's return.
func TestSilentAllTheWhile(t *testing.T) {
	for name, was := range map[string]*v1.NodeCondition{
		"it was not ready":    &node("dead", v1.ConditionFalse, "boot-1").Status.Conditions[0],
		"it has never posted": nil,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.dead.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Hour))
			w.dead.Status.Conditions = nil
			is := v1.NodeCondition{Type: v1.NodeReady, LastHeartbeatTime: w.dead.CreationTimestamp}
			if was != nil {
				w.dead.Status.Conditions, is = append(w.dead.Status.Conditions, *was), *was
			}
			is.Status, is.LastTransitionTime = v1.ConditionUnknown, metav1.Now()
			client := w.client()
			f := of(t, client)
			f.Ask = func(string) error {
				n := w.dead.DeepCopy()
				n.Status.Conditions = []v1.NodeCondition{is}
				_, err := client.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{})
				return err
			}
			go nextPod(t.Context(), client)
			if err := f.Run(soon(t)); err != nil {
				t.Error(err)
			}
		})
	}
}

// The node comes back while the taint is set: the update is a conflict, and with the node that is there then it is refused.
func TestCameBackInConflict(t *testing.T) {
	w := newWorld()
	client := w.client()
	first := true
	client.PrependReactor("update", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		if !first {
			return false, nil, nil
		}
		first = false
		if err := client.Tracker().Update(v1.SchemeGroupVersion.WithResource("nodes"), node("dead", v1.ConditionTrue, "boot-2"), ""); err != nil {
			t.Error(err)
		}
		return true, nil, apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, "dead", errors.New("changed"))
	})
	f := of(t, client)
	f.IsOff = true
	var refused *failover.RefusedError
	if err := f.Run(soon(t)); !errors.As(err, &refused) {
		t.Errorf("it ends with %v, want a refusal", err)
	}
	n, err := client.CoreV1().Nodes().Get(t.Context(), "dead", metav1.GetOptions{})
	if err != nil || len(n.Spec.Taints) != 0 {
		t.Errorf("the node has %v, %v", n.Spec.Taints, err)
	}
	deletes(t, client, 0)
}

// The node comes back when it has the taint, with which Kubernetes detaches the disk of a node that runs, too, before that has unmounted
// it: what this call has set is taken off again, and of what was there before it is said what to do. The pod is left to its kubelet.
func TestCameBackWithTaint(t *testing.T) {
	const byHand = "kubectl taint node dead node.kubernetes.io/out-of-service-"
	for name, c := range map[string]struct {
		before  func(*v1.Node)
		back    func(*v1.Node) // beside its being Ready again; nil: nothing
		denied  bool           // from then on nobody may change it
		refused bool
		taints  int // that it has in the end
		says    []string
	}{
		"this call's": {refused: true, says: []string{"is taken off again", "call this again"}},
		"this call's, and nobody may change the node any more": {denied: true, taints: 1, says: []string{"can't take it off", "at once", byHand}},
		"this call's, which somebody has taken off": {
			back: func(n *v1.Node) { n.Spec.Taints = nil }, denied: true, refused: true, says: []string{"call this again"},
		},
		"this call's, after which somebody has set theirs": {
			back: func(n *v1.Node) { foreign(n) }, denied: true, refused: true, taints: 1, says: []string{"which this call has not set", "cut the node's power", byHand},
		},
		"an earlier call's": {
			before: func(n *v1.Node) { tainted(n) }, refused: true, taints: 1, says: []string{"detach the disk of podnas at once", "cut the node's power", byHand},
		},
		"somebody else's": {
			before: func(n *v1.Node) { foreign(n) }, refused: true, taints: 1, says: []string{"detach the disk of podnas at once", "cut the node's power", byHand},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			if c.before != nil {
				c.before(w.dead)
			}
			client := w.client()
			f := of(t, client)
			f.IsOff = true
			f.Say = func(format string, args ...any) {
				if said := fmt.Sprintf(format, args...); !strings.Contains(said, "has the taint") {
					t.Errorf("it says %q", said)
				}
				n, err := client.CoreV1().Nodes().Get(t.Context(), "dead", metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				n.Status.Conditions[0].Status, n.Status.Conditions[0].LastHeartbeatTime = v1.ConditionTrue, metav1.Now()
				if c.back != nil {
					c.back(n)
				}
				if _, err := client.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
				if c.denied {
					client.PrependReactor("update", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
						return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "dead", errors.New("no"))
					})
				}
			}
			err := f.Run(soon(t))
			var refused *failover.RefusedError
			if err == nil || errors.As(err, &refused) != c.refused {
				t.Fatalf("it ends with %v, want a refusal: %t", err, c.refused)
			}
			contains(t, err.Error(), append(c.says, "node dead has come back", "is Ready again", "to do: ")...)
			n, err := client.CoreV1().Nodes().Get(t.Context(), "dead", metav1.GetOptions{})
			if err != nil || len(n.Spec.Taints) != c.taints || name == "this call's" && len(n.Annotations) != 0 {
				t.Errorf("the node has %v and %v, %v", n.Spec.Taints, n.Annotations, err)
			}
			deletes(t, client, 0)
		})
	}
}

// soon is when a test has waited long enough for a pod that does not come.
func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// deletes checks how often the pod was deleted.
func deletes(t *testing.T, client interface{ Actions() []clienttesting.Action }, want int) {
	t.Helper()
	got := 0
	for _, a := range client.Actions() {
		if a.GetVerb() == "delete" {
			got++
		}
	}
	if got != want {
		t.Errorf("the pod was deleted %d times, want %d", got, want)
	}
}
