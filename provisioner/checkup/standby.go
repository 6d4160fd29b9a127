package checkup

import (
	"context"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/podnas/podnas/internal/doctor"
	"github.com/podnas/podnas/provisioner/active"
)

// isShared reports whether the pods of a StatefulSet share a disk: one is active, and the others are standbys.
func isShared(set *appsv1.StatefulSet) bool {
	return set != nil && set.Spec.Template.Labels[active.RoleLabel] != ""
}

// numberOf is how many pods a podnas is to have. Where they don't share a disk each has its own, and the first is podnas.
func numberOf(set *appsv1.StatefulSet) int {
	if !isShared(set) || set.Spec.Replicas == nil {
		return 1
	}
	return max(1, int(*set.Spec.Replicas))
}

// roles checks which of the pods is active, and that the Service leads to it.
func (o *Outside) roles(ctx context.Context, set *appsv1.StatefulSet, pods []*v1.Pod) []doctor.Result {
	var actives []*v1.Pod
	standbys := 0
	for _, pod := range pods {
		switch {
		case pod == nil:
		case pod.Labels[active.RoleLabel] == active.RoleActive:
			actives = append(actives, pod)
		case active.IsReady(pod) && pod.DeletionTimestamp == nil:
			standbys++
		}
	}
	results := []doctor.Result{named("active", o.active(actives)), named("standby", o.standby(standbys))}
	service, err := o.Client.CoreV1().Services(o.Namespace).Get(ctx, set.Spec.ServiceName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		results = append(results, named("service", doctor.Fail("make it again, with the clusterIP that volumes have as their address: docs/install.md", "there is no Service %s", set.Spec.ServiceName)))
	case err != nil:
		results = append(results, o.denied("service", "get services", err, doctor.Warning))
	case service.Spec.Selector[active.RoleLabel] != active.RoleActive:
		results = append(results, named("service", doctor.Fail("apply deploy/components/ha, or add "+active.RoleLabel+": "+active.RoleActive+" to its selector",
			"Service %s leads to standbys, too, which answer nobody", set.Spec.ServiceName)))
	default:
		results = append(results, named("service", doctor.Good("Service %s leads to the active pod", set.Spec.ServiceName)))
	}
	return results
}

func (o *Outside) active(pods []*v1.Pod) doctor.Result {
	logs := fmt.Sprintf("kubectl -n %s logs -l %s --prefix", o.Namespace, active.RoleLabel)
	switch len(pods) {
	case 0:
		return doctor.Fail("a standby takes over some 15 seconds after a death. After that: "+logs+"; a podnas without the Role of deploy/components/ha serves, but can't set the label",
			"no pod has the label %s=%s, so the Service leads nowhere", active.RoleLabel, active.RoleActive)
	case 1:
	default:
		var names []string
		for _, pod := range pods {
			names = append(names, pod.Name)
		}
		return doctor.Warn("try again in 10 seconds: the active one takes it from the others. If they keep it: "+logs, "%s have the label %s=%s", strings.Join(names, " and "), active.RoleLabel, active.RoleActive)
	}
	if !active.IsReady(pods[0]) {
		return doctor.Fail("a standby takes over by itself if it has died, some 15 seconds after that. "+logs+" says what it waits for", "pod %s is active, and not ready", pods[0].Name)
	}
	return doctor.Good("pod %s on node %s serves", pods[0].Name, pods[0].Spec.NodeName)
}

func (o *Outside) standby(ready int) doctor.Result {
	if ready == 0 {
		return doctor.Warn("see the checks of the pods. If a node is dead, its pod goes by 'kubectl podnas failover NODE', and starts on another node", "no pod is ready to take over")
	}
	return doctor.Good("%d ready to take over", ready)
}
