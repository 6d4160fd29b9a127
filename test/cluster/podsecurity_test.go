//go:build cluster

package cluster_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Each overlay's pod is let in by the API server in a namespace that enforces the level which the
// overlay gives its own, and not by the next stricter one: no more is asked for than is needed.
func TestPodSecurity(t *testing.T) {
	levels := map[string]string{
		"handles":    "privileged",
		"restricted": "restricted",
		"hostpath":   "privileged",
		"xfs-quota":  "privileged",
		"disk-image": "privileged",
		"ha":         "privileged",
	}
	makePriorityClass(t)
	for _, path := range kustomizations(t, "../../deploy") {
		if strings.HasSuffix(path, "/monitoring") || strings.Contains(path, "/examples/") { // they have no pod of podnas
			continue
		}
		level := cmp.Or(levels[filepath.Base(path)], "baseline")
		t.Run(filepath.Base(path), func(t *testing.T) {
			n := newTenant(t)
			accounts := cluster.client.CoreV1().ServiceAccounts(n.name)
			if _, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "podnas"}}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			pod, enforced := podOf(t, path)
			if enforced != level {
				t.Errorf("its namespace enforces %q, want %q", enforced, level)
			}
			try := func(pod *corev1.Pod) string {
				if _, err := cluster.client.CoreV1().Pods(n.name).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
					return err.Error()
				}
				return "let in"
			}
			// The API server may see a namespace's label some time after it is set.
			says := func(pod *corev1.Pod, level, want string) {
				t.Helper()
				setEnforced(t, n.name, level)
				eventually(t, 10*time.Second, level+": "+want, func() bool { return strings.Contains(try(pod), want) })
			}
			switch level {
			case "privileged":
				says(pod, "baseline", "violates PodSecurity")
			case "baseline":
				says(pod, "restricted", "violates PodSecurity")
			default:
				worse := pod.DeepCopy()
				worse.Spec.HostNetwork = true
				says(worse, "restricted", "violates PodSecurity")
			}
			says(pod, level, "let in")
		})
	}
}

// makePriorityClass makes the class of the pod, without which no pod of the StatefulSet is let in.
func makePriorityClass(t *testing.T) {
	t.Helper()
	if _, err := kubectl(t.Context(), nil, "apply", "-f", "../../deploy/base/priorityclass.yaml"); err != nil {
		t.Fatal(err)
	}
}

// podOf returns the pod of a kustomization's StatefulSet, and what its Namespace enforces.
func podOf(t *testing.T, path string) (pod *corev1.Pod, level string) {
	t.Helper()
	rendered, err := kubectl(t.Context(), nil, "create", "--dry-run=client", "-o", "json", "-k", path)
	if err != nil {
		t.Fatal(err)
	}
	for d := json.NewDecoder(bytes.NewReader(rendered)); d.More(); {
		var object json.RawMessage
		var kind metav1.TypeMeta
		if err := d.Decode(&object); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(object, &kind); err != nil {
			t.Fatal(err)
		}
		switch kind.Kind {
		case "Namespace":
			var n corev1.Namespace
			if err := json.Unmarshal(object, &n); err != nil {
				t.Fatal(err)
			}
			level = n.Labels["pod-security.kubernetes.io/enforce"]
		case "StatefulSet":
			var set appsv1.StatefulSet
			if err := json.Unmarshal(object, &set); err != nil {
				t.Fatal(err)
			}
			pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "podnas-0", Labels: set.Spec.Template.Labels}, Spec: set.Spec.Template.Spec}
			for _, claim := range set.Spec.VolumeClaimTemplates { // as the controller does
				source := corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name + "-podnas-0"}}
				pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: claim.Name, VolumeSource: source})
			}
		}
	}
	if pod == nil {
		t.Fatalf("no StatefulSet in %s", path)
	}
	return pod, level
}
