//go:build cluster

package cluster_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Two disks under one provisioner name, in two namespaces: the second says so and
// makes nothing. A restart of the first does not wait; its end lets the second in.
func TestOneNameTwice(t *testing.T) {
	n := newTenant(t)
	grantNamespace(t, n.name)
	first := newPodnas(t, n.provisioner, local)
	first.env = []string{"POD_NAMESPACE=" + podnasNamespace, "POD_NAME=podnas-0"}
	first.start()
	class := n.class("", nil)
	n.claim("before", class, "1Mi", nil)
	n.bound("before")

	second := newPodnas(t, n.provisioner, local)
	second.env = []string{"POD_NAMESPACE=" + n.name, "POD_NAME=second"}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "second"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "podnas", Image: "podnas"}}},
	}
	// The controllers make its ServiceAccount a moment after the namespace.
	eventually(t, time.Minute, "a pod can be made", func() bool {
		_, err := cluster.client.CoreV1().Pods(n.name).Create(t.Context(), pod, metav1.CreateOptions{})
		return err == nil
	})
	second.start() // it serves its disk
	message := n.event(n.name, "second", "StandsAside")
	t.Log(message)
	for _, want := range []string{n.provisioner, podnasNamespace, "--provisioner"} {
		if !strings.Contains(message, want) || !strings.Contains(second.logged(), want) {
			t.Errorf("the event %q, or the log, does not name %s", message, want)
		}
	}
	for i := range 5 {
		n.claim(fmt.Sprintf("after-%d", i), class, "1Mi", nil)
	}
	n.allBound(time.Minute, 6)
	if a, b := len(first.volumes()), len(second.volumes()); a != 6 || b != 0 {
		t.Fatalf("the first has %d volumes and the second %d, want 6 and 0", a, b)
	}

	// Also when nothing was given back.
	first.kill()
	first.start()
	begin := time.Now()
	n.claim("after-restart", class, "1Mi", nil)
	v := n.bound("after-restart")
	if waited := time.Since(begin); waited > 5*time.Second {
		t.Errorf("bound %s after the restart", waited)
	}
	if !slices.Contains(first.volumes(), v.Name) {
		t.Errorf("volume %s is not on the disk of the first", v.Name)
	}

	// The first is gone for good, as its Lease shows some time later.
	first.stop()
	leases := cluster.client.CoordinationV1().Leases(podnasNamespace)
	list, err := leases.List(t.Context(), metav1.ListOptions{LabelSelector: "podnas.io/instance=" + v.Annotations["podnas.io/instance"]})
	if err != nil || len(list.Items) != 1 {
		t.Fatalf("%d leases of the first (%v), want 1", len(list.Items), err)
	}
	lease := list.Items[0]
	lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Now().Add(-2 * time.Minute)}
	if _, err := leases.Update(t.Context(), &lease, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	n.claim("on-second", class, "1Mi", nil)
	if v = n.bound("on-second"); !slices.Contains(second.volumes(), v.Name) {
		t.Errorf("volume %s is not on the disk of the second", v.Name)
	}
	// Back again, it is the first that stands aside.
	first.start()
	eventually(t, 10*time.Second, "the first stands aside", func() bool { return strings.Contains(first.logged(), "stands aside") })
}

// Two instances with names of their own in one namespace, and two classes each.
func TestTwoNames(t *testing.T) {
	n := newTenant(t)
	other := &tenant{t: t, name: n.name, provisioner: n.provisioner + "-other"}
	var instances []*podnas
	for i, tenant := range []*tenant{n, other} {
		p := newPodnas(t, tenant.provisioner, local)
		p.env = []string{"POD_NAMESPACE=" + podnasNamespace}
		p.start()
		instances = append(instances, p)
		for _, class := range []string{"a", "b"} {
			name := fmt.Sprintf("%s-%d", class, i)
			n.claim(name, tenant.class("-"+name, nil), "1Mi", nil)
		}
	}
	n.allBound(time.Minute, 4)
	for i, p := range instances {
		if got := len(p.volumes()); got != 2 {
			t.Errorf("instance %d has %d volumes, want 2", i, got)
		}
		if strings.Contains(p.logged(), "stands aside") {
			t.Errorf("instance %d stands aside", i)
		}
	}
}

// grantNamespace gives podnas, in a namespace, the rights that it has in its own.
func grantNamespace(t *testing.T, namespace string) {
	t.Helper()
	role, err := cluster.client.RbacV1().Roles(podnasNamespace).Get(t.Context(), podnasName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	binding, err := cluster.client.RbacV1().RoleBindings(podnasNamespace).Get(t.Context(), podnasName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	role.ObjectMeta = metav1.ObjectMeta{Name: podnasName}
	binding.ObjectMeta = metav1.ObjectMeta{Name: podnasName}
	if _, err := cluster.client.RbacV1().Roles(namespace).Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := cluster.client.RbacV1().RoleBindings(namespace).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}
