package checkup

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/tools/pager"

	"github.com/podnas/podnas/internal/doctor"
	"github.com/podnas/podnas/provisioner/active"
	"github.com/podnas/podnas/provisioner/failover"
)

// nodesTimeout leaves time for what else is looked at.
const nodesTimeout = doctor.Timeout / 2

// lookAtNodes gets the nodes, if the caller may see them. The ClusterRole view does not grant that, so nothing is said without the right.
func (o *Outside) lookAtNodes(ctx context.Context) []doctor.Result {
	ctx, cancel := context.WithTimeout(ctx, nodesTimeout)
	defer cancel()
	nodes := map[string]*v1.Node{}
	err := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return o.Client.CoreV1().Nodes().List(ctx, options)
	}).EachListItem(ctx, metav1.ListOptions{}, func(item runtime.Object) error {
		if node, ok := item.(*v1.Node); ok {
			nodes[node.Name] = node
		}
		return nil
	})
	switch {
	case apierrors.IsForbidden(err):
		return nil
	case err != nil:
		return only(named("nodes", doctor.Warn("try again; 'kubectl get nodes' says whether they are Ready", "can't list nodes, so what they would show is missing here: %v", err)))
	}
	o.nodes = nodes
	return nil
}

// deadNode says what to do with a pod whose node does not answer.
func (o *Outside) deadNode(node string) string {
	return fmt.Sprintf("'kubectl get node %s' says whether it is Ready. If it is dead, and off: '%s'", node, o.failover(node))
}

func (o *Outside) failover(node string) string {
	return fmt.Sprintf("kubectl podnas failover %s -n %s --name %s", node, o.Namespace, o.Name)
}

// silent says how it is known that the node of a pod does not work; empty: it does, or nothing is known of it.
//
// What the node has said of its containers stays as it was when the node dies: podnas's is ready for ever.
func (o *Outside) silent(ctx context.Context, p *v1.Pod) string {
	node := o.nodes[p.Spec.NodeName]
	if node == nil { // not seen; or gone, and Kubernetes deletes its pods in a minute
		return saidByPod(p)
	}
	switch c := failover.Readiness(node); {
	case c == nil || c.Status == v1.ConditionTrue:
		return ""
	case c.Status == v1.ConditionFalse:
		return fmt.Sprintf("its node %s is not ready: %s", node.Name, words(c.Reason, strings.TrimSpace(c.Message)))
	default:
		heard := "has never been heard"
		if last, _ := failover.LastHeard(ctx, o.Client, node); !last.IsZero() { // an error costs the Lease alone
			heard = fmt.Sprintf("was heard last %s ago", duration.HumanDuration(max(0, time.Since(last))))
		}
		return fmt.Sprintf("its node %s does not answer, and %s: whether podnas runs there is not known", node.Name, heard)
	}
}

// saidByPod says the same by the pod alone: Kubernetes takes the readiness of a pod away when its node is silent, and gives no reason.
// A kubelet always gives one.
func saidByPod(p *v1.Pod) string {
	c := active.Condition(p, v1.PodReady)
	if c == nil || c.Status == v1.ConditionTrue || c.Reason != "" || p.DeletionTimestamp != nil || !runs(p) {
		return ""
	}
	return fmt.Sprintf("its node %s does not answer: Kubernetes does not count on the pod any more, which was ready when the node was heard last", p.Spec.NodeName)
}

// back tells of the nodes that were failed over and run again: their taint keeps pods away until somebody takes it off.
func (o *Outside) back() (results []doctor.Result) {
	for _, name := range slices.Sorted(maps.Keys(o.nodes)) {
		node := o.nodes[name]
		if c := failover.Readiness(node); !failover.Ours(node) || c == nil || c.Status != v1.ConditionTrue {
			continue
		}
		var refused *failover.RefusedError
		if err := failover.MayReturn(node); errors.As(err, &refused) {
			results = append(results, named("node "+name, doctor.Warn(refused.Fix, "it is back, and out of service: %s", refused.Says)))
			continue
		}
		results = append(results, named("node "+name, doctor.Warn("kubectl podnas failover "+name+" --over", "it was restarted after its failover, and no pod starts there: it is out of service yet")))
	}
	return results
}
