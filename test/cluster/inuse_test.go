//go:build cluster

package cluster_test

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// inUseLabel is on the Leases that say whether volumes are bound.
const inUseLabel = "podnas.io/volumes-in-use"

// While a claim is bound nobody deletes what its volume needs, and is told why and
// what to do; before and after everybody can, so nothing is in the way of removing
// podnas. Taking the binding away is the way around.
func TestVolumesInUse(t *testing.T) {
	forgetInUse(t) // other tests' podnas have ended with volumes
	n := newTenant(t)
	p := newPodnas(t, n.provisioner, local)
	p.env = []string{"POD_NAMESPACE=" + podnasNamespace}
	p.start()
	applyGuard(t)
	deletions := makeDeployed(t)
	class := n.class("", nil)

	allowed := func(when string) {
		t.Helper()
		for what, remove := range deletions {
			eventually(t, time.Minute, when+" "+what+" can be deleted", func() bool { return remove(what) == nil })
		}
	}
	allowed("before")
	n.claim("data", class, "1Mi", nil)
	n.bound("data")
	for what, remove := range deletions {
		var err error
		eventually(t, time.Minute, "deleting "+what+" is refused", func() bool {
			err = remove(what)
			return refused(err)
		})
		for _, want := range []string{"the claim " + n.name + "/data", "podnas mounted", "kubectl delete validatingadmissionpolicybinding podnas-volumes-in-use"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("deleting %s: %v, want it to say %q", what, err, want)
			}
		}
		t.Log(err)
	}
	// What is not podnas's is nobody's business.
	other := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Spec: claimSpec(class)}
	claims := cluster.client.CoreV1().PersistentVolumeClaims(podnasNamespace)
	if _, err := claims.Create(t.Context(), other, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := claims.Delete(t.Context(), "other", metav1.DeleteOptions{}); err != nil {
		t.Errorf("another claim in the namespace: %v", err)
	}

	// The guard stands while podnas is away: its disk is as needed as before.
	p.kill()
	if err := deletions["namespace"]("namespace"); err == nil {
		t.Error("podnas is away, and its namespace can be deleted")
	}
	p.start()
	n.deleteClaim("data")
	allowed("after the claim's end")

	n.claim("again", class, "1Mi", nil)
	n.bound("again")
	eventually(t, time.Minute, "it is refused again", func() bool { return deletions["namespace"]("namespace") != nil })
	if _, err := kubectl(t.Context(), nil, "delete", "validatingadmissionpolicybinding", "podnas-volumes-in-use"); err != nil {
		t.Fatal(err)
	}
	allowed("without the binding")
	n.deleteClaims()
	eventually(t, time.Minute, "the volumes are gone", func() bool { return len(n.volumes()) == 0 })
}

// leasesWatched is a binding that matches nothing.
const leasesWatched = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: leases-watched}
spec:
  paramKind: {apiVersion: coordination.k8s.io/v1, kind: Lease}
  matchConstraints:
    resourceRules: [{apiGroups: [nobodys], apiVersions: [v1], operations: [DELETE], resources: [nothings]}]
  validations: [{expression: "true"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: leases-watched}
spec:
  policyName: leases-watched
  validationActions: [Deny]
  paramRef: {namespace: default, name: none, parameterNotFoundAction: Allow}
`

// watchLeases keeps the API server watching Leases for its policies. It stops when the
// last binding that looks at one is deleted, and does not begin again (seen with 1.36):
// one test's guard would leave the next test's blind.
func watchLeases(t *testing.T) {
	t.Helper()
	if _, err := kubectl(t.Context(), []byte(leasesWatched), "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
}

// refused tells whether an error is a policy's.
func refused(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) }

// applyGuard applies what deploy/overlays/guard adds.
func applyGuard(t *testing.T) {
	t.Helper()
	watchLeases(t)
	rendered, err := kubectl(t.Context(), nil, "kustomize", "../../deploy/overlays/guard")
	if err != nil {
		t.Fatal(err)
	}
	var guard [][]byte
	for _, doc := range bytes.Split(rendered, []byte("\n---\n")) {
		if bytes.Contains(doc, []byte("\nkind: ValidatingAdmissionPolicy")) && bytes.Contains(doc, []byte("\n  name: podnas-volumes-in-use\n")) {
			guard = append(guard, doc)
		}
	}
	if len(guard) != 2 {
		t.Fatalf("%d objects of the guard in the overlay, want the policy and its binding", len(guard))
	}
	if _, err := kubectl(t.Context(), bytes.Join(guard, []byte("\n---\n")), "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, kind := range []string{"validatingadmissionpolicybinding", "validatingadmissionpolicy"} {
			if _, err := kubectl(context.Background(), nil, "delete", "--ignore-not-found", kind, "podnas-volumes-in-use"); err != nil {
				t.Error(err)
			}
		}
	})
	eventually(t, time.Minute, "the API server has looked at the policy", func() bool {
		policy, err := cluster.client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(t.Context(), "podnas-volumes-in-use", metav1.GetOptions{})
		if err != nil || policy.Status.TypeChecking == nil {
			return false
		}
		for _, w := range policy.Status.TypeChecking.ExpressionWarnings {
			t.Errorf("the policy's %s: %s", w.FieldRef, w.Warning)
		}
		return true
	})
}

// makeDeployed makes what deploy/base has, as far as the guard looks at it, and
// returns how each is deleted, as a trial that keeps it.
func makeDeployed(t *testing.T) map[string]func(string) error {
	t.Helper()
	ctx := context.Background()
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Labels: map[string]string{"app.kubernetes.io/name": "podnas"}}
	}
	core, apps, rbac := cluster.client.CoreV1(), cluster.client.AppsV1(), cluster.client.RbacV1()
	claims, services, sets := core.PersistentVolumeClaims(podnasNamespace), core.Services(podnasNamespace), apps.StatefulSets(podnasNamespace)
	nobody := "nobody"
	// As helm install --create-namespace makes it.
	if _, err := kubectl(ctx, nil, "label", "namespace", podnasNamespace, "app.kubernetes.io/name-"); err != nil {
		t.Fatal(err)
	}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/name": "podnas"}}
	_, err := claims.Create(ctx, &corev1.PersistentVolumeClaim{ObjectMeta: meta("export-podnas-0"), Spec: claimSpec(nobody)}, metav1.CreateOptions{})
	if err == nil {
		_, err = services.Create(ctx, &corev1.Service{ObjectMeta: meta("guarded"), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 2049}}}}, metav1.CreateOptions{})
	}
	if err == nil {
		_, err = sets.Create(ctx, &appsv1.StatefulSet{ObjectMeta: meta("guarded"), Spec: appsv1.StatefulSetSpec{
			Replicas: new(int32(0)), Selector: selector, ServiceName: "guarded",
			Template: corev1.PodTemplateSpec{ObjectMeta: meta(""), Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}},
		}}, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // after the guard's: that is gone
		if err := applyRBAC(ctx, "../../deploy/base"); err != nil {
			t.Error(err)
		}
		for what, err := range map[string]error{
			"claim":        claims.Delete(ctx, "export-podnas-0", metav1.DeleteOptions{}),
			"service":      services.Delete(ctx, "guarded", metav1.DeleteOptions{}),
			"stateful set": sets.Delete(ctx, "guarded", metav1.DeleteOptions{}),
		} {
			if err != nil && !apierrors.IsForbidden(err) {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
	trial := metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}
	return map[string]func(string) error{
		"namespace":    func(string) error { return core.Namespaces().Delete(ctx, podnasNamespace, trial) },
		"claim":        func(string) error { return claims.Delete(ctx, "export-podnas-0", trial) },
		"service":      func(string) error { return services.Delete(ctx, "guarded", trial) },
		"stateful set": func(string) error { return sets.Delete(ctx, "guarded", trial) },
		"account":      func(string) error { return core.ServiceAccounts(podnasNamespace).Delete(ctx, podnasName, trial) },
		"role":         func(string) error { return rbac.Roles(podnasNamespace).Delete(ctx, podnasName, trial) },
		"cluster role": func(string) error { return rbac.ClusterRoles().Delete(ctx, podnasName, trial) },
	}
}

func claimSpec(class string) corev1.PersistentVolumeClaimSpec {
	return corev1.PersistentVolumeClaimSpec{
		StorageClassName: &class,
		AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}},
	}
}

// forgetInUse removes what podnas of other tests have said.
func forgetInUse(t *testing.T) {
	t.Helper()
	err := cluster.client.CoordinationV1().Leases(podnasNamespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: inUseLabel})
	if err != nil {
		t.Fatal(err)
	}
}
