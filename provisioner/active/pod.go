package active

import (
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// Container is the name of podnas's container in its pods. Admission may add others.
const Container = "podnas"

// IsPodOf reports whether a pod is one of the StatefulSet of that name, as Kubernetes names them.
func IsPodOf(pod *v1.Pod, set string) bool {
	number, ok := strings.CutPrefix(pod.Name, set+"-")
	_, err := strconv.ParseUint(number, 10, 31)
	return ok && err == nil
}

// ContainerStatus returns the status of podnas's container, or nil.
func ContainerStatus(pod *v1.Pod) *v1.ContainerStatus {
	for i := range pod.Status.ContainerStatuses {
		if pod.Status.ContainerStatuses[i].Name == Container {
			return &pod.Status.ContainerStatuses[i]
		}
	}
	return nil
}

// Condition returns a condition of a pod, or nil.
func Condition(pod *v1.Pod, kind v1.PodConditionType) *v1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == kind {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// IsReady reports whether a pod has the condition Ready.
func IsReady(pod *v1.Pod) bool {
	c := Condition(pod, v1.PodReady)
	return c != nil && c.Status == v1.ConditionTrue
}
