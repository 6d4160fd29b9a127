//go:build cluster

package cluster_test

import (
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestDrainsWait: one of two podnas can be evicted, and the other one only when the first is back: as long as it is well.
func TestDrainsWait(t *testing.T) {
	p := newTenant(t)
	ctx, pods, replicas := t.Context(), cluster.client.CoreV1().Pods(p.name), int32(2)
	labels := map[string]string{"app.kubernetes.io/name": "podnas"}
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "podnas"},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &replicas, PodManagementPolicy: appsv1.ParallelPodManagement, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "podnas", Image: "podnas"}}},
			},
		},
	}
	if _, err := cluster.client.AppsV1().StatefulSets(p.name).Create(ctx, set, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pair := &pair{tenant: p}
	pair.component("disruption.yaml")
	become := func(i int, ready corev1.ConditionStatus) {
		t.Helper()
		name := fmt.Sprintf("podnas-%d", i)
		eventually(t, time.Minute, name+" is there", func() bool {
			pod, err := pods.Get(ctx, name, metav1.GetOptions{})
			if err != nil || pod.DeletionTimestamp != nil {
				return false
			}
			setPodStatus(t, pod, corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}})
			return true
		})
	}
	allowed := func(want int32) {
		t.Helper()
		eventually(t, time.Minute, fmt.Sprintf("%d may be evicted", want), func() bool {
			budget, err := cluster.client.PolicyV1().PodDisruptionBudgets(p.name).Get(ctx, "podnas", metav1.GetOptions{})
			return err == nil && budget.Status.ExpectedPods == 2 && budget.Status.DisruptionsAllowed == want
		})
	}
	evict := func(i int) error {
		return pods.EvictV1(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("podnas-%d", i), Namespace: p.name}})
	}
	become(0, corev1.ConditionTrue)
	become(1, corev1.ConditionTrue)
	allowed(1)
	if err := evict(0); err != nil {
		t.Fatalf("the first: %v", err)
	}
	if err := evict(1); !apierrors.IsTooManyRequests(err) {
		t.Errorf("the second, while the first is away: %v", err)
	}
	become(0, corev1.ConditionTrue)
	allowed(1)
	if err := evict(1); err != nil {
		t.Errorf("the second, when the first is back: %v", err)
	}
	become(0, corev1.ConditionFalse)
	become(1, corev1.ConditionFalse)
	allowed(0)
	for i := range 2 {
		if err := evict(i); err != nil {
			t.Errorf("podnas-%d, when none is well: %v", i, err)
		}
	}
}
