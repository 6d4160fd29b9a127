//go:build cluster

package cluster_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/podnas/podnas/internal/doctor"
)

// podnas doctor pod, of the StatefulSet in deploy/base: what keeps it from running in a
// cluster that lacks one thing after the other, as the controllers and the API server
// tell it. What a kubelet tells is written here, for there is none.
func TestDoctorPod(t *testing.T) {
	n := newTenant(t)
	look := func(kubeconfig string) ([]doctor.Result, int) {
		t.Helper()
		cmd := exec.Command(cluster.podnas, "doctor", "pod", "--kubeconfig="+kubeconfig, "--namespace="+n.name, "-o", "json")
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		err := cmd.Run()
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		var report struct{ Checks []doctor.Result }
		if err := json.Unmarshal(out.Bytes(), &report); err != nil {
			t.Fatalf("%v in %q; %s", err, out.Bytes(), errs.Bytes())
		}
		return report.Checks, cmd.ProcessState.ExitCode()
	}
	wait := func(check string, status doctor.Status, says string, want int) {
		t.Helper()
		var results []doctor.Result
		var code int
		defer func() { t.Logf("%d: %+v", code, results) }()
		eventually(t, time.Minute, check+": "+says, func() bool {
			results, code = look(cluster.plane.Kubeconfig())
			return found(results, check, status, says) && code == want
		})
	}
	wait("statefulset", doctor.Failed, "there is no StatefulSet podnas in namespace "+n.name, 6)

	applySet(t, n.name)
	wait("statefulset", doctor.Failed, `serviceaccount "podnas" not found`, 6)

	setEnforced(t, n.name, "restricted")
	if _, err := kubectl(t.Context(), nil, "create", "serviceaccount", "-n", n.name, "podnas"); err != nil {
		t.Fatal(err)
	}
	makePriorityClass(t)
	touchSet(t, n.name)
	wait("statefulset", doctor.Failed, "violates PodSecurity", 6)

	setEnforced(t, n.name, "baseline")
	touchSet(t, n.name)
	wait("claim export-podnas-0", doctor.Failed, "the cluster has no default one", 6)
	wait("pod podnas-0", doctor.Warning, "waits for a node", 6)

	pods := cluster.client.CoreV1().Pods(n.name)
	err := pods.Bind(t.Context(), &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "podnas-0"}, Target: corev1.ObjectReference{Kind: "Node", Name: "node-a"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod, err := pods.Get(t.Context(), "podnas-0", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if p := pod.Spec.Containers[0].TerminationMessagePolicy; p != corev1.TerminationMessageFallbackToLogsOnError {
		t.Errorf("the pod's last words are lost: terminationMessagePolicy %s", p)
	}
	setPodStatus(t, pod, corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
		Name: "podnas", Image: pod.Spec.Containers[0].Image, RestartCount: 3,
		State:                corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Message: "podnas: the disk is broken"}},
	}}})
	wait("pod podnas-0", doctor.Failed, "podnas: the disk is broken", 6)

	// podnas's own ServiceAccount may not look at StatefulSets.
	results, code := look(cluster.kubeconfig)
	if code != 1 || !found(results, "statefulset", doctor.Failed, "you have no right to get statefulsets") {
		t.Errorf("without the right: %d, %+v", code, results)
	}
}

// applySet applies the StatefulSet of deploy/base to a namespace, and nothing else.
func applySet(t *testing.T, namespace string) {
	t.Helper()
	rendered, err := kubectl(t.Context(), nil, "kustomize", "../../deploy/base")
	if err != nil {
		t.Fatal(err)
	}
	for _, doc := range bytes.Split(rendered, []byte("\n---\n")) {
		if bytes.Contains(doc, []byte("\nkind: StatefulSet\n")) {
			text := strings.ReplaceAll(string(doc), "namespace: podnas\n", "namespace: "+namespace+"\n")
			if _, err := kubectl(t.Context(), []byte(text), "apply", "-f", "-"); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatal("no StatefulSet in deploy/base")
}

// touchSet has its controller look at it now, rather than after its back-off.
func touchSet(t *testing.T, namespace string) {
	t.Helper()
	patch := fmt.Sprintf(`{"metadata": {"annotations": {"touched": %q}}}`, time.Now())
	if _, err := cluster.client.AppsV1().StatefulSets(namespace).Patch(t.Context(), "podnas", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// setEnforced sets what Pod Security lets pods of a namespace do.
func setEnforced(t *testing.T, namespace, level string) {
	t.Helper()
	patch := fmt.Sprintf(`{"metadata": {"labels": {"pod-security.kubernetes.io/enforce": %q}}}`, level)
	if _, err := cluster.client.CoreV1().Namespaces().Patch(t.Context(), namespace, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}
