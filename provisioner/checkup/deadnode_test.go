package checkup

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/podnas/podnas/internal/doctor"
)

// node adds a node, which was heard last five minutes ago.
func (d *deployed) node(name string, ready v1.ConditionStatus) *v1.Node {
	d.nodes = append(d.nodes, v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1.NodeStatus{Conditions: []v1.NodeCondition{{
		Type: v1.NodeReady, Status: ready, Message: "container runtime is down", LastHeartbeatTime: metav1.NewTime(time.Now().Add(-5 * time.Minute)),
	}}}})
	return &d.nodes[len(d.nodes)-1]
}

// A dead node's pod is said to run, as the node said last: that is not taken for its life, and 'podnas failover' is named.
func TestDeadNode(t *testing.T) {
	notReady := func(d *deployed) { d.pod.Status.Conditions[0].Status = v1.ConditionFalse } // Kubernetes does so, and leaves the containers
	const failover = "kubectl podnas failover node-a -n podnas --name podnas"
	for name, c := range map[string]struct {
		make   func(*deployed)
		hidden bool // the caller may not see nodes
		status doctor.Status
		says   string
		fix    string
	}{
		"it is silent": {
			make:   func(d *deployed) { d.node("node-a", v1.ConditionUnknown); notReady(d) },
			status: doctor.Failed, says: "node-a does not answer, and was heard last 5m", fix: failover,
		},
		"it is silent, and has renewed its Lease since it posted its status": {
			make: func(d *deployed) {
				d.node("node-a", v1.ConditionUnknown)
				at := metav1.NewMicroTime(time.Now().Add(-3 * time.Minute))
				d.lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-node-lease", Name: "node-a"}, Spec: coordinationv1.LeaseSpec{RenewTime: &at}}
			}, status: doctor.Failed, says: "was heard last 3m", fix: failover,
		},
		"it was never heard": {
			make: func(d *deployed) {
				n := d.node("node-a", v1.ConditionUnknown)
				n.CreationTimestamp = n.Status.Conditions[0].LastHeartbeatTime
			}, status: doctor.Failed, says: "has never been heard", fix: failover,
		},
		"it is silent, and the pod is said to be ready yet": {
			make: func(d *deployed) { d.node("node-a", v1.ConditionUnknown) }, status: doctor.Failed, says: "does not answer", fix: failover,
		},
		"its kubelet says so": {
			make: func(d *deployed) { d.node("node-a", v1.ConditionFalse) }, status: doctor.Failed, says: "node-a is not ready: container runtime is down", fix: failover,
		},
		"its pod is to end": {
			make: func(d *deployed) {
				d.node("node-a", v1.ConditionUnknown)
				soon := metav1.NewTime(time.Now().Add(20 * time.Second))
				d.pod.DeletionTimestamp, d.pod.Finalizers = &soon, []string{"x"}
			}, status: doctor.Failed, says: "does not answer", fix: failover,
		},
		"its pod was to start there": {
			make: func(d *deployed) { d.node("node-a", v1.ConditionUnknown); d.begins(time.Now()) }, status: doctor.Failed, says: "does not answer", fix: failover,
		},
		"the caller sees the pod alone": {make: notReady, hidden: true, status: doctor.Failed, says: "node-a does not answer", fix: failover},
		"the caller sees the pod alone, and it is as always": {
			make: func(d *deployed) { d.node("node-a", v1.ConditionUnknown) }, hidden: true, status: doctor.OK, says: "is ready",
		},
		"something else keeps the pod from being ready": {
			make: func(d *deployed) {
				notReady(d)
				d.pod.Status.Conditions[0].Reason = "ReadinessGatesNotReady"
			}, hidden: true, status: doctor.OK, says: "it runs on node node-a",
		},
		"a container that started before the others is not ready": {
			make: func(d *deployed) {
				notReady(d)
				d.pod.Status.Conditions[0].Reason = "ContainersNotReady"
				d.pod.Status.InitContainerStatuses = []v1.ContainerStatus{{Name: "mesh", State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}}
			}, hidden: true, status: doctor.OK, says: "it runs on node node-a",
		},
		"another container is not ready": {
			make: func(d *deployed) {
				notReady(d)
				d.pod.Status.Conditions[0].Reason = "ContainersNotReady"
				d.pod.Status.ContainerStatuses = append(d.pod.Status.ContainerStatuses, v1.ContainerStatus{Name: "mesh", State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "ErrImagePull"}}})
			}, hidden: true, status: doctor.Failed, says: "container mesh", fix: "registry",
		},
		"it is well":          {make: func(d *deployed) { d.node("node-a", v1.ConditionTrue) }, status: doctor.OK, says: "it runs on node node-a"},
		"another one is dead": {make: func(d *deployed) { d.node("node-a", v1.ConditionTrue); d.node("node-b", v1.ConditionUnknown) }, status: doctor.OK, says: "it runs on node node-a"},
		"it is well, and hangs": {
			make: func(d *deployed) {
				d.node("node-a", v1.ConditionTrue)
				past := longAgo()
				d.pod.DeletionTimestamp, d.pod.Finalizers = &past, []string{"x"}
			}, status: doctor.Failed, says: "should have ended", fix: "If the node is Ready",
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDeployed()
			c.make(d)
			o := d.outside()
			if c.hidden {
				o.Client.(*fake.Clientset).PrependReactor("*", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
					return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", errors.New("no"))
				})
			}
			results, _ := o.Look(t.Context())
			found := false
			for _, r := range results {
				if r.Check == "rights" || r.Check == "nodes" {
					t.Errorf("it tells of a right that most people lack: %+v", r)
				}
				found = found || r.Check == "pod podnas-0" && r.Status == c.status && strings.Contains(r.Says, c.says) && strings.Contains(r.Fix, c.fix)
			}
			if !found {
				t.Errorf("%+v\nwant %s with %q, and to do %q", results, c.status, c.says, c.fix)
			}
		})
	}
}

// The nodes are asked for in pages.
func TestNodesInPages(t *testing.T) {
	d := newDeployed()
	d.node("node-a", v1.ConditionUnknown)
	o := d.outside()
	o.Client.(*fake.Clientset).PrependReactor("list", "nodes", func(a clienttesting.Action) (bool, runtime.Object, error) {
		options := a.(clienttesting.ListActionImpl).ListOptions
		if options.Limit == 0 {
			t.Error("all nodes are asked for at once")
		}
		if options.Continue == "" {
			return true, &v1.NodeList{ListMeta: metav1.ListMeta{Continue: "more"}, Items: []v1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "other"}}}}, nil
		}
		return true, &v1.NodeList{Items: d.nodes}, nil
	})
	results, _ := o.Look(t.Context())
	if !slices.ContainsFunc(results, func(r doctor.Result) bool {
		return r.Check == "pod podnas-0" && strings.Contains(r.Says, "node-a does not answer")
	}) {
		t.Errorf("the node of the second page is not seen: %+v", results)
	}
}

// A list of nodes that does not come is a warning: the rest is told without it.
func TestNodesDoNotCome(t *testing.T) {
	o := newDeployed().outside()
	o.Client.(*fake.Clientset).PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, context.DeadlineExceeded
	})
	results, _ := o.Look(t.Context())
	found := false
	for _, r := range results {
		found = found || r.Check == "nodes" && r.Status == doctor.Warning && strings.Contains(r.Says, "can't list nodes")
		if r.Status == doctor.Failed {
			t.Errorf("it fails: %+v", r)
		}
	}
	if !found {
		t.Errorf("it does not say that the nodes are missing: %+v", results)
	}
}

// When the taint of a node that was failed over can go is told, and only then.
func TestNodeIsBack(t *testing.T) {
	for name, c := range map[string]struct {
		ready   v1.ConditionStatus
		boot    string // of the node now
		foreign bool   // somebody else has set the taint
		says    string // empty: nothing
		fix     string
	}{
		"restarted":       {ready: v1.ConditionTrue, boot: "boot-2", says: "was restarted after its failover", fix: "kubectl podnas failover node-b --over"},
		"not restarted":   {ready: v1.ConditionTrue, boot: "boot-1", says: "was not restarted since the failover", fix: "restart it, then: kubectl podnas failover node-b --over"},
		"not back":        {ready: v1.ConditionUnknown, boot: "boot-1"},
		"somebody else's": {ready: v1.ConditionTrue, boot: "boot-2", foreign: true},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDeployed()
			d.node("node-a", v1.ConditionTrue)
			n := d.node("node-b", c.ready)
			at := metav1.NewTime(time.Now().Add(-time.Hour).Truncate(time.Second))
			n.Status.NodeInfo.BootID = c.boot
			n.Spec.Taints = []v1.Taint{{Key: v1.TaintNodeOutOfService, Effect: v1.TaintEffectNoExecute, TimeAdded: &at}}
			n.Annotations = map[string]string{"podnas.io/failed-over-boot": "boot-1", "podnas.io/failed-over-at": at.UTC().Format(time.RFC3339)}
			if c.foreign {
				n.Spec.Taints[0].TimeAdded = nil
			}
			results, _ := d.outside().Look(t.Context())
			told := ""
			for _, r := range results {
				if r.Check == "node node-b" && r.Status == doctor.Warning && strings.Contains(r.Fix, c.fix) {
					told += r.Says
				}
			}
			if (told == "") != (c.says == "") || !strings.Contains(told, c.says) {
				t.Errorf("%+v\nwant %q, and to do %q", results, c.says, c.fix)
			}
		})
	}
}
