package failover

import (
	"context"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
)

// End takes the taint from the node, if that is back and was restarted since. Before, what ran there may still run.
func (f *Failover) End(ctx context.Context) error {
	nodes := f.Client.CoreV1().Nodes()
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		node, err := nodes.Get(ctx, f.Node, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return &RefusedError{fmt.Sprintf("there is no node %s", f.Node), "nothing: it has no taint then"}
		case err != nil:
			return f.denied("look at node "+f.Node, "get and update nodes", err)
		case !tainted(node):
			f.Say("%s does not have the taint %s", f.Node, v1.TaintNodeOutOfService)
			return nil
		}
		if err := f.mayReturn(node); err != nil {
			return err
		}
		node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t v1.Taint) bool { return t.Key == v1.TaintNodeOutOfService })
		delete(node.Annotations, bootAnnotation)
		if _, err := nodes.Update(ctx, node, metav1.UpdateOptions{}); err != nil {
			return f.denied("take the taint from "+f.Node, "get and update nodes", err)
		}
		f.Say("%s is a node like others again", f.Node)
		return nil
	})
	return err
}

// mayReturn is nil if the node runs anew.
func (f *Failover) mayReturn(node *v1.Node) error {
	byHand := fmt.Sprintf("kubectl taint node %s %s-", f.Node, v1.TaintNodeOutOfService)
	boot, ours := node.Annotations[bootAnnotation]
	switch {
	case !ours:
		return &RefusedError{fmt.Sprintf("podnas failover has not set the taint of %s", f.Node), "if the node was restarted since: " + byHand}
	case !nodeReady(node):
		return &RefusedError{fmt.Sprintf("node %s is not Ready yet", f.Node), "start it, and wait until 'kubectl get node " + f.Node + "' says Ready"}
	case boot == node.Status.NodeInfo.BootID:
		return &RefusedError{
			fmt.Sprintf("node %s was not restarted since the failover: what ran there, podnas too, may still run, and write to the disk", f.Node),
			"restart it, then call this again",
		}
	}
	return nil
}
