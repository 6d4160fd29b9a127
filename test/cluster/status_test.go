//go:build cluster

package cluster_test

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// setNodeStatus says what a node's kubelet would.
// Like setPodStatus it patches: an update is refused when a controller changes the object meanwhile.
func setNodeStatus(t testing.TB, name string, status corev1.NodeStatus) {
	t.Helper()
	_, err := cluster.client.CoreV1().Nodes().Patch(t.Context(), name, types.StrategicMergePatchType, statusPatch(t, status), metav1.PatchOptions{}, "status")
	if err != nil {
		t.Fatal(err)
	}
}

// setPodStatus says what the kubelet of the pod's node would.
func setPodStatus(t testing.TB, pod *corev1.Pod, status corev1.PodStatus) {
	t.Helper()
	pods := cluster.client.CoreV1().Pods(pod.Namespace)
	if _, err := pods.Patch(t.Context(), pod.Name, types.StrategicMergePatchType, statusPatch(t, status), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
}

func statusPatch(t testing.TB, status any) []byte {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		t.Fatal(err)
	}
	return patch
}
