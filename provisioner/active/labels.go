package active

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/podnas/podnas/provisioner/controller"
)

const (
	// RoleLabel is on each pod of a StatefulSet that has a standby.
	RoleLabel = "podnas.io/role"
	// RoleActive is its value on the pod that serves. The Service selects it.
	RoleActive = "active"
	// RoleStandby is its value on all others, and in the template.
	RoleStandby = "standby"

	// nameLabel is on all pods of a podnas. Its value is the name of the installation.
	nameLabel = "app.kubernetes.io/name"
)

// look is what a look at the pods has found.
type look struct {
	standby string // the pod that could take over; empty: there is none, and waits says why
	waits   string
	unready string // why the Service does not lead to this podnas's own pod, whatever its label; empty: it does
}

// label takes the label from all other pods of this podnas, and puts it on this one.
func (a *Active) label(ctx context.Context) (found look, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	own, err := a.Client.pod(ctx, a.Namespace, a.Pod)
	if err != nil {
		return look{}, err
	}
	if string(own.UID) != a.UID {
		return look{}, fmt.Errorf("pod %s is another one by now, with the UID %s instead of %s", a.Pod, own.UID, a.UID)
	}
	pods, err := a.Client.podsOf(ctx, a.Namespace, nameLabel+"="+own.Labels[nameLabel])
	errs := []error{err}
	found = look{waits: "there is no other pod", unready: unfit(own)}
	for _, pod := range pods {
		if pod.UID == own.UID {
			continue
		}
		// First from the others: with none a new connection is refused, and tried again. On its way to a dead node it hangs.
		if pod.Labels[RoleLabel] == RoleActive {
			if err := a.Client.setRole(ctx, pod, RoleStandby); err != nil && !apierrors.IsNotFound(err) {
				errs = append(errs, err)
			}
		}
		if pod.Labels[RoleLabel] == "" || found.standby != "" {
			continue
		}
		if found.waits = unfit(pod); found.waits == "" {
			found.standby = pod.Name
		}
	}
	if own.Labels[RoleLabel] != RoleActive {
		errs = append(errs, a.Client.setRole(ctx, own, RoleActive))
	}
	return found, errors.Join(errs...)
}

// unfit says why a pod could not take over, or nothing. A standby is ready if it can read the disk.
func unfit(pod *v1.Pod) string {
	if pod.DeletionTimestamp != nil {
		if at := pod.DeletionTimestamp.Time; time.Since(at) > time.Minute { // when it should have ended
			return fmt.Sprintf("pod %s should have ended at %s, but its node %s does not report that it has", pod.Name, at.UTC().Format(time.RFC3339), pod.Spec.NodeName)
		}
		return fmt.Sprintf("pod %s is ending", pod.Name)
	}
	if c := Condition(pod, v1.PodScheduled); c != nil && c.Status == v1.ConditionFalse {
		return fmt.Sprintf("pod %s has no node: %s", pod.Name, c.Message)
	}
	if !IsReady(pod) {
		return fmt.Sprintf("pod %s on node %s is not ready", pod.Name, pod.Spec.NodeName)
	}
	return ""
}

// Rights are what this package does beyond the rights of every podnas. deploy/components/ha grants them.
func Rights() []controller.Right {
	return []controller.Right{
		{Resource: "pods", Verbs: []string{"get", "list", "patch"}, Own: true, Without: "the Service does not lead to the active podnas, and it is not known whether there is a standby"},
	}
}
