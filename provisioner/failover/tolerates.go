package failover

import (
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
)

// staysAway refuses a StatefulSet whose next pod may be put on the dead node again: it tolerates all taints that the node has, and that
// Run gives it. The scheduler likes a node without pods best, and nothing runs the pod there. A cordon is such a taint, too.
func (f *Failover) staysAway(set *appsv1.StatefulSet, node *v1.Node) error {
	tolerations := set.Spec.Template.Spec.Tolerations
	for _, taint := range append([]v1.Taint{*outOfService()}, node.Spec.Taints...) {
		if taint.Effect != v1.TaintEffectPreferNoSchedule && tolerating(tolerations, &taint) == nil {
			return nil
		}
	}
	return &RefusedError{
		fmt.Sprintf("StatefulSet %s tolerates the taint %s (%s), so its next pod may be put on %s again, where nothing runs it",
			f.Name, v1.TaintNodeOutOfService, describe(tolerating(tolerations, outOfService())), f.Node),
		fmt.Sprintf("kubectl -n %s edit statefulset/%s (in the chart: the value tolerations): name the keys of the taints that podnas is to tolerate instead. Then call this again", f.Namespace, f.Name),
	}
}

// tolerating returns the toleration of a taint, or nil. How long it tolerates it is nothing to the scheduler.
func tolerating(tolerations []v1.Toleration, taint *v1.Taint) *v1.Toleration {
	for i := range tolerations {
		t := &tolerations[i]
		equal := (t.Operator == "" || t.Operator == v1.TolerationOpEqual) && t.Value == taint.Value
		if (t.Effect == "" || t.Effect == taint.Effect) && (t.Key == "" || t.Key == taint.Key) && (equal || t.Operator == v1.TolerationOpExists) {
			return t
		}
	}
	return nil
}

// describe is a toleration as manifests have it.
func describe(t *v1.Toleration) string {
	var says []string
	for _, field := range [][2]string{{"key", t.Key}, {"operator", string(t.Operator)}, {"value", t.Value}, {"effect", string(t.Effect)}} {
		if field[1] != "" {
			says = append(says, field[0]+": "+field[1])
		}
	}
	return "{" + strings.Join(says, ", ") + "}"
}
