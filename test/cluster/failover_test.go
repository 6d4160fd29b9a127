//go:build cluster

package cluster_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/podnas/podnas/internal/doctor"
	"github.com/podnas/podnas/provisioner/active"
)

// deadNodes are two nodes of a cluster, of which one dies, and a StatefulSet podnas. Its pod's kubelet and the scheduler are this test.
type deadNodes struct {
	*tenant

	one, two string
}

// TestFailover: podnas failover as a person calls it, with the real controllers: they make the next pod only when the first is gone.
func TestFailover(t *testing.T) {
	d := newDeadNodes(t, func(*appsv1.StatefulSetSpec) {})
	first := d.pod("")
	d.runs(first, d.one)
	if out, code := d.failover(d.one, "--it-is-off"); code != 4 || !strings.Contains(out, "is Ready") {
		t.Errorf("of a node that is Ready: exit code %d\n%s", code, out)
	}
	d.setNode(d.one, "boot-1", corev1.ConditionUnknown)
	if out, code := d.failover(d.one); code != 2 || !strings.Contains(out, "--it-is-off") {
		t.Errorf("with nobody to ask: exit code %d\n%s", code, out)
	}
	if out, code := d.failover(d.two, "--it-is-off"); code != 4 || !strings.Contains(out, "podnas failover "+d.one) {
		t.Errorf("of the other node: exit code %d\n%s", code, out)
	}
	d.doctor("pod "+podnasName+"-0", doctor.Failed, d.one+" does not answer")
	if got := d.pod(""); got.UID != first.UID || d.outOfService(d.one) {
		t.Fatal("something was changed by what was refused")
	}

	eventually(t, time.Minute, "without another node it is said what podnas waits for", func() bool {
		out, code := d.failover(d.one, "--it-is-off", "--timeout=2s")
		if code != 1 {
			t.Errorf("exit code %d\n%s", code, out)
		}
		return strings.Contains(out, "waits for a node")
	})
	next := d.pod(first.UID)
	done := make(chan string, 1)
	go func() {
		out, code := d.failover(d.one, "--it-is-off")
		if code != 0 {
			out = "FAILED: " + out
		}
		done <- out
	}()
	d.runs(next, d.two)
	if out := <-done; strings.HasPrefix(out, "FAILED") || !strings.Contains(out, "was begun before") || !strings.Contains(out, "serves again, on "+d.two) {
		t.Errorf("called again: %s", out)
	}
	if out, code := d.failover(d.one, "--it-is-off"); code != 0 || !strings.Contains(out, "serves again, on "+d.two) {
		t.Errorf("once more: exit code %d\n%s", code, out)
	}

	// The next one dies, too, and has its pod for a while.
	d.setNode(d.two, "boot-2", corev1.ConditionUnknown)
	if out, code := d.failover(d.one, "--it-is-off"); code != 4 || !strings.Contains(out, "podnas failover "+d.two) {
		t.Errorf("with a second dead node: exit code %d\n%s", code, out)
	}
	d.setNode(d.two, "boot-2", corev1.ConditionTrue)

	d.setNode(d.one, "boot-1", corev1.ConditionTrue)
	if out, code := d.failover(d.one, "--over"); code != 4 || !strings.Contains(out, "not restarted") {
		t.Errorf("over, before the restart: exit code %d\n%s", code, out)
	}
	d.setNode(d.one, "boot-2", corev1.ConditionTrue)
	d.doctor("node "+d.one, doctor.Warning, "restarted after its failover")
	// kubectl takes the taint away, and somebody else sets it: our annotations are still there.
	ours := d.taints(d.one)
	d.kubectl("taint", "node", d.one, corev1.TaintNodeOutOfService+"-")
	d.kubectl("taint", "node", d.one, corev1.TaintNodeOutOfService+"=nodeshutdown:NoExecute")
	if out, code := d.failover(d.one, "--over"); code != 4 || !strings.Contains(out, "has not set the taint") {
		t.Errorf("over, with another's taint: exit code %d\n%s", code, out)
	}
	d.setTaints(d.one, ours)
	if out, code := d.failover(d.one, "--over"); code != 0 {
		t.Errorf("over: exit code %d\n%s", code, out)
	}
	if d.outOfService(d.one) {
		t.Error("the taint is still there")
	}
}

// TestFailoverOfPair: of two podnas with one disk the standby has taken over. What is left is that the dead node's pod goes.
func TestFailoverOfPair(t *testing.T) {
	d := newDeadNodes(t, func(s *appsv1.StatefulSetSpec) {
		two := int32(2)
		s.Replicas, s.PodManagementPolicy = &two, appsv1.ParallelPodManagement
		s.Template.Labels = map[string]string{"app.kubernetes.io/name": "podnas", active.RoleLabel: active.RoleStandby}
	})
	first, second := d.pod(""), d.podOf(1, "")
	d.runs(first, d.one)
	d.runs(second, d.two)
	d.role(0, active.RoleActive)
	if out, code := d.failover(d.one, "--it-is-off"); code != 4 || !strings.Contains(out, "is Ready") {
		t.Errorf("of a node that is Ready: exit code %d\n%s", code, out)
	}
	d.setNode(d.one, "boot-1", corev1.ConditionUnknown)
	began := make(chan string, 1)
	go func() {
		out, code := d.failover(d.one, "--it-is-off")
		if code != 0 {
			out = "FAILED: " + out
		}
		began <- out
	}()
	d.pod(first.UID) // it is made although nobody has taken over
	d.role(1, active.RoleActive)
	out := <-began
	for _, want := range []string{"None has yet", "no standby has taken over yet", "serves again, on " + d.two, "podnas-0 will be the standby: the next pod waits for a node"} {
		if !strings.Contains(out, want) {
			t.Errorf("before a standby has taken over, without %q: %s", want, out)
		}
	}
	if strings.HasPrefix(out, "FAILED") || !d.outOfService(d.one) {
		t.Errorf("the taint is there: %t, %s", d.outOfService(d.one), out)
	}

	// The node is back, and podnas's standby with it.
	d.setNode(d.one, "boot-2", corev1.ConditionTrue)
	if out, code := d.failover(d.one, "--over"); code != 0 {
		t.Errorf("over: exit code %d\n%s", code, out)
	}
	d.runs(d.pod(first.UID), d.one) // perhaps yet another: Kubernetes deletes pods of a tainted node by their names

	// Now the other one dies, and the standby has taken over when somebody calls.
	d.role(1, active.RoleStandby)
	d.role(0, active.RoleActive)
	d.setNode(d.two, "boot-2", corev1.ConditionUnknown)
	out, code := d.failover(d.two, "--it-is-off")
	if code != 0 || !strings.Contains(out, "podnas serves on "+d.one+", and needs nobody for that") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	d.podOf(1, second.UID)
	found, err := exec.Command(cluster.podnas, "doctor", "pod", "--kubeconfig="+cluster.plane.Kubeconfig(), "-n", d.name).CombinedOutput()
	if err == nil {
		t.Errorf("doctor pod finds nothing")
	}
	for _, want := range []string{"podnas-0 on node " + d.one + " serves", "no pod is ready to take over", "podnas-1"} {
		if !strings.Contains(string(found), want) {
			t.Errorf("doctor pod does not say %q: %s", want, found)
		}
	}
}

// role gives a pod the label.
func (d *deadNodes) role(number int, role string) {
	d.t.Helper()
	d.kubectl("-n", d.name, "label", "--overwrite", "pod", fmt.Sprintf("%s-%d", podnasName, number), active.RoleLabel+"="+role)
}

func (d *deadNodes) kubectl(args ...string) {
	d.t.Helper()
	if _, err := kubectl(d.t.Context(), nil, args...); err != nil {
		d.t.Fatal(err)
	}
}

// doctor checks that podnas doctor pod has a finding.
func (d *deadNodes) doctor(check string, status doctor.Status, says string) {
	d.t.Helper()
	out, err := exec.Command(cluster.podnas, "doctor", "pod", "--kubeconfig="+cluster.plane.Kubeconfig(), "-n", d.name, "-o", "json").Output()
	var report struct{ Checks []doctor.Result }
	if jsonErr := json.Unmarshal(out, &report); jsonErr != nil {
		d.t.Fatalf("%v, %v: %s", err, jsonErr, out)
	}
	if !found(report.Checks, check, status, says) {
		d.t.Errorf("doctor pod says %+v, want %s of %s with %q", report.Checks, status, check, says)
	}
}

// taints returns a node's taints, and setTaints sets them.
func (d *deadNodes) taints(name string) []corev1.Taint {
	d.t.Helper()
	n, err := cluster.client.CoreV1().Nodes().Get(d.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		d.t.Fatal(err)
	}
	return n.Spec.Taints
}

func (d *deadNodes) setTaints(name string, taints []corev1.Taint) {
	d.t.Helper()
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"taints": taints}})
	if err != nil {
		d.t.Fatal(err)
	}
	if _, err := cluster.client.CoreV1().Nodes().Patch(d.t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		d.t.Fatal(err)
	}
}

func newDeadNodes(t *testing.T, change func(*appsv1.StatefulSetSpec)) *deadNodes {
	d := &deadNodes{tenant: newTenant(t)}
	d.one, d.two = d.name+"-one", d.name+"-two"
	ctx := t.Context()
	for i, name := range []string{d.one, d.two} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := cluster.client.CoreV1().Nodes().Create(ctx, n, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cluster.client.CoreV1().Nodes().Delete(context.Background(), name, metav1.DeleteOptions{}) })
		d.setNode(name, "boot-"+string(rune('1'+i)), corev1.ConditionTrue)
	}
	// Without it no pod can be made, and the controller tries that again less and less often.
	eventually(t, time.Minute, "the namespace has its ServiceAccount", func() bool {
		_, err := cluster.client.CoreV1().ServiceAccounts(d.name).Get(ctx, "default", metav1.GetOptions{})
		return err == nil
	})
	labels := map[string]string{"app.kubernetes.io/name": "podnas"}
	now := int64(0)
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: podnasName, Labels: labels}, Spec: appsv1.StatefulSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels}, ServiceName: podnasName,
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: &now, Containers: []corev1.Container{{Name: podnasName, Image: "podnas"}},
		}},
	}}
	change(&set.Spec)
	if _, err := cluster.client.AppsV1().StatefulSets(d.name).Create(ctx, set, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return d
}

// failover calls the command, and returns what it says and its exit code.
func (d *deadNodes) failover(args ...string) (string, int) {
	cmd := exec.Command(cluster.podnas, append([]string{"failover", "--kubeconfig=" + cluster.plane.Kubeconfig(), "-n", d.name}, args...)...)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return err.Error(), -1
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// outOfService reports whether a node has the taint.
func (d *deadNodes) outOfService(node string) bool {
	d.t.Helper()
	return slices.ContainsFunc(d.taints(node), func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
}

// setNode says what its kubelet does, or what Kubernetes says of one that is silent.
func (d *deadNodes) setNode(name, boot string, ready corev1.ConditionStatus) {
	d.t.Helper()
	now := metav1.Now()
	setNodeStatus(d.t, name, corev1.NodeStatus{
		NodeInfo:   corev1.NodeSystemInfo{BootID: boot},
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready, LastHeartbeatTime: now, LastTransitionTime: now}},
	})
}

// pod waits for the first pod that the controller makes after another.
func (d *deadNodes) pod(after types.UID) *corev1.Pod {
	d.t.Helper()
	return d.podOf(0, after)
}

// podOf does so for the pod of a number.
func (d *deadNodes) podOf(number int, after types.UID) (pod *corev1.Pod) {
	d.t.Helper()
	eventually(d.t, time.Minute, "the controller has made a pod", func() bool {
		var err error
		pod, err = cluster.client.CoreV1().Pods(d.name).Get(d.t.Context(), fmt.Sprintf("%s-%d", podnasName, number), metav1.GetOptions{})
		return err == nil && pod.UID != after
	})
	return pod
}

// runs gives a pod to a node, where it is ready at once.
func (d *deadNodes) runs(pod *corev1.Pod, node string) {
	d.t.Helper()
	pods := cluster.client.CoreV1().Pods(d.name)
	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, UID: pod.UID}, Target: corev1.ObjectReference{Kind: "Node", Name: node}}
	if err := pods.Bind(d.t.Context(), binding, metav1.CreateOptions{}); err != nil {
		d.t.Fatal(err)
	}
	setPodStatus(d.t, pod, corev1.PodStatus{
		Phase:      corev1.PodRunning,
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
	})
}
