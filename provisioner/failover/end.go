package failover

import (
	"context"
	"fmt"

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
		case taintOf(node) == nil:
			f.Say("%s does not have the taint %s", f.Node, v1.TaintNodeOutOfService)
			return nil
		}
		if err := MayReturn(node); err != nil {
			return err
		}
		takeOff(node)
		if _, err := nodes.Update(ctx, node, metav1.UpdateOptions{}); err != nil {
			return f.denied("take the taint from "+f.Node, "get and update nodes", err)
		}
		if others := taintOf(node); others != nil {
			f.Say("%s has lost the taint of its failover, and keeps one that somebody else has set: kubectl taint node %[1]s %s:%s- takes it off", f.Node, others.Key, others.Effect)
		} else {
			f.Say("%s is a node like others again", f.Node)
		}
		return nil
	})
	return err
}

// MayReturn is nil if a node that was failed over runs anew, and else a *RefusedError.
func MayReturn(node *v1.Node) error {
	switch {
	case !Ours(node):
		return &RefusedError{fmt.Sprintf("podnas failover has not set the taint of %s", node.Name), "if the node was restarted since: " + byHand(node.Name)}
	case !nodeReady(node):
		return &RefusedError{fmt.Sprintf("node %s is not Ready yet", node.Name), "start it, and wait until 'kubectl get node " + node.Name + "' says Ready"}
	case node.Annotations[bootAnnotation] == node.Status.NodeInfo.BootID:
		return &RefusedError{
			fmt.Sprintf("node %s was not restarted since the failover: what ran there, podnas too, may still run, and write to the disk", node.Name),
			"restart it, then: " + over(node.Name),
		}
	}
	return nil
}

// over is the command that takes the taint off which Run has set.
func over(node string) string { return "kubectl podnas failover " + node + " --over" }

// byHand is the command that takes the taint off, whoever has set it.
func byHand(node string) string {
	return fmt.Sprintf("kubectl taint node %s %s-", node, v1.TaintNodeOutOfService)
}
