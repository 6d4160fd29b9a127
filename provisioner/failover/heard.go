package failover

import (
	"context"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/kubernetes"
)

// LastHeard returns when a node's kubelet was heard last, by the node's own clock; zero: never. Kubelet renews the Lease of its node each
// 10 seconds, and posts the node's status when that changes, or each 5 minutes. Who may not see the Lease gets the status's time, and so
// does, with the error, who can't.
func LastHeard(ctx context.Context, client kubernetes.Interface, node *v1.Node) (last time.Time, err error) {
	// Kubernetes gives a node whose kubelet has posted nothing the time of its creation.
	if c := Readiness(node); c != nil && !c.LastHeartbeatTime.Equal(&node.CreationTimestamp) {
		last = c.LastHeartbeatTime.Time
	}
	lease, err := client.CoordinationV1().Leases(v1.NamespaceNodeLease).Get(ctx, node.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsForbidden(err):
		return last, nil
	case err != nil:
		return last, fmt.Errorf("look at the Lease of node %s: %w", node.Name, err)
	}
	if renewed := lease.Spec.RenewTime; renewed != nil && renewed.After(last) {
		last = renewed.Time
	}
	return last, nil
}

// dead says what is known of the node's life, or refuses: one that is Ready is not dead.
func (f *Failover) dead(s *state, pod *v1.Pod) (string, error) {
	ago := duration.HumanDuration(max(0, time.Since(s.last)))
	switch c := Readiness(s.node); {
	case c != nil && c.Status == v1.ConditionTrue:
		return "", &RefusedError{
			fmt.Sprintf("node %s is Ready: it was heard %s ago", f.Node, ago),
			fmt.Sprintf("if it has just died, wait until 'kubectl get node %s' says NotReady, which takes about a minute. To move podnas off a node that runs: kubectl cordon %[1]s && kubectl -n %s delete pod %s", f.Node, f.Namespace, pod.Name),
		}
	case c != nil && c.Status == v1.ConditionFalse: // a minute after its kubelet's last Lease it is Unknown
		return fmt.Sprintf("which is ON, or was so within the last minute: its kubelet says that it is not ready (%s)", strings.TrimSpace(c.Message)), nil
	case s.last.IsZero():
		return "which has never been heard", nil
	default:
		return fmt.Sprintf("which was heard last %s ago", ago), nil
	}
}

// listenFor is longer than the 10 seconds after which kubelet renews a Lease.
const listenFor = 15 * time.Second

// listen has a node whose kubelet was alive within the last minute show that it still is: an answer that comes at once, as --it-is-off,
// leaves it no time for that. Where the Lease is not seen there is nothing to listen to.
func (f *Failover) listen(ctx context.Context, s *state, looked time.Time) error {
	if s.node == nil {
		return nil
	}
	if c := Readiness(s.node); c == nil || c.Status != v1.ConditionFalse || !s.last.After(c.LastHeartbeatTime.Time) {
		return nil
	}
	f.Say("The kubelet of %s was alive within the last minute: for %s this listens whether it still is", f.Node, listenFor)
	for time.Since(looked) < listenFor {
		select {
		case <-ctx.Done():
			return fmt.Errorf("nothing was changed: %w", context.Cause(ctx))
		case <-time.After(period):
		}
		if err := f.stillDead(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// cameBack says how a node shows that it has run since it was looked at; empty: it does not.
func (f *Failover) cameBack(ctx context.Context, s *state, now *v1.Node) (how string, err error) {
	was := s.node
	switch {
	case was == nil:
		return "is a node of the cluster again", nil
	case nodeReady(now):
		return "is Ready again", nil
	case now.UID != was.UID || now.Status.NodeInfo.BootID != was.Status.NodeInfo.BootID:
		return "was started again", nil
	}
	// Kubernetes itself changes the condition's status when the node is silent, and never these times.
	last, err := LastHeard(ctx, f.Client, now)
	if err == nil && !last.Equal(s.last) {
		how = "was heard"
	}
	return how, err
}

// Readiness returns the node's condition Ready, or nil.
func Readiness(node *v1.Node) *v1.NodeCondition {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == v1.NodeReady {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}

func nodeReady(node *v1.Node) bool {
	c := Readiness(node)
	return c != nil && c.Status == v1.ConditionTrue
}
