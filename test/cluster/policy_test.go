//go:build cluster

package cluster_test

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	typedcore "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/podnas/podnas/internal/doctor"
	"github.com/podnas/podnas/provisioner"
)

const provisionedBy = "pv.kubernetes.io/provisioned-by"

// as is the API server's PersistentVolumes as an account sees them.
func as(t *testing.T, namespace, account string) typedcore.PersistentVolumeInterface {
	t.Helper()
	return asClient(t, namespace, account).CoreV1().PersistentVolumes()
}

// asClient is the API server as an account sees it.
func asClient(t *testing.T, namespace, account string) *kubernetes.Clientset {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", cluster.plane.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + namespace + ":" + account,
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// persistentVolume is one by a provisioner, or by none.
func persistentVolume(name, by string, source corev1.PersistentVolumeSource) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")},
			AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			StorageClassName:       "nobodys",
			PersistentVolumeSource: source,
		},
	}
	if by != "" {
		v.Annotations[provisionedBy] = by
	}
	return v
}

var (
	nfsSource      = corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "192.0.2.1", Path: "/v"}}
	hostPathSource = corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}
)

// applyPolicy applies deploy/base/policy.yaml as it is, and waits until it is in force.
func applyPolicy(t *testing.T) {
	t.Helper()
	if _, err := kubectl(t.Context(), nil, "apply", "-f", "../../deploy/base/policy.yaml"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := applyRBAC(context.Background(), "../../deploy/base"); err != nil {
			t.Error(err)
		}
		// The next test's podnas would be refused. (The test's context has ended, so no eventually.)
		for range 600 {
			if tryCreate(as(t, podnasNamespace, podnasName), persistentVolume("trial", testProvisioners+"x", nfsSource)) == nil {
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
		t.Error("the tests' policy is not in force after a minute")
	})
	eventually(t, time.Minute, "the policy is in force", func() bool {
		podnas := as(t, podnasNamespace, podnasName)
		return refused(tryCreate(podnas, persistentVolume("trial", testProvisioners+"x", nfsSource))) &&
			tryCreate(podnas, persistentVolume("trial", provisioner.DefaultName, nfsSource)) == nil
	})
	eventually(t, time.Minute, "the API server has looked at the policy", func() bool {
		policy, err := cluster.client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(t.Context(), policyName, metav1.GetOptions{})
		if err != nil || policy.Status.TypeChecking == nil {
			return false
		}
		for _, w := range policy.Status.TypeChecking.ExpressionWarnings {
			t.Errorf("the policy's %s: %s", w.FieldRef, w.Warning)
		}
		return true
	})
}

// trial has the API server do all of a request but keep it.
var trial = []string{metav1.DryRunAll}

func tryCreate(api typedcore.PersistentVolumeInterface, v *corev1.PersistentVolume) error {
	_, err := api.Create(context.Background(), v, metav1.CreateOptions{DryRun: trial})
	return err
}

// grantCluster gives podnas's account in a namespace what it has in all, as kustomize's
// namespace does, and returns the namespace.
func grantCluster(t *testing.T, namespace string) string {
	t.Helper()
	bindings := cluster.client.RbacV1().ClusterRoleBindings()
	binding, err := bindings.Get(t.Context(), podnasName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	binding.ObjectMeta = metav1.ObjectMeta{Name: podnasName + "-" + namespace}
	binding.Subjects[0].Namespace = namespace
	if _, err := bindings.Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := bindings.Delete(context.Background(), binding.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	eventually(t, time.Minute, "the account has its rights", func() bool {
		return tryCreate(as(t, namespace, podnasName), persistentVolume("trial", provisioner.DefaultName, nfsSource)) == nil
	})
	return namespace
}

// Whoever has podnas's account makes, changes and deletes NFS volumes of its provisioner,
// and no others. Other accounts are not concerned.
func TestPolicy(t *testing.T) {
	applyPolicy(t)
	const ours = provisioner.DefaultName
	admin, podnas := cluster.client.CoreV1().PersistentVolumes(), as(t, podnasNamespace, podnasName)
	moved := as(t, grantCluster(t, "elsewhere"), podnasName)
	csi := corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "disk.example.com", VolumeHandle: "1"}}
	local := corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/"}}
	iscsi := corev1.PersistentVolumeSource{ISCSI: &corev1.ISCSIPersistentVolumeSource{TargetPortal: "192.0.2.1", IQN: "iqn.2000-01.com.example:x"}}
	onNode := func(v *corev1.PersistentVolume) *corev1.PersistentVolume {
		v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "kubernetes.io/hostname", Operator: corev1.NodeSelectorOpIn, Values: []string{"a"}}},
		}}}}
		return v
	}
	for _, tt := range []struct {
		name    string
		volume  *corev1.PersistentVolume
		allowed bool
	}{
		{"an NFS volume of its provisioner", persistentVolume("trial", ours, nfsSource), true},
		{"a hostPath", persistentVolume("trial", ours, hostPathSource), false},
		{"a hostPath of nobody", persistentVolume("trial", "", hostPathSource), false},
		{"a local volume", onNode(persistentVolume("trial", ours, local)), false},
		{"a CSI volume", persistentVolume("trial", ours, csi), false},
		{"an iSCSI volume", persistentVolume("trial", ours, iscsi), false},
		{"an NFS volume of nobody", persistentVolume("trial", "", nfsSource), false},
		{"an NFS volume of another", persistentVolume("trial", "podnas.io/nfs2", nfsSource), false},
	} {
		if err := tryCreate(admin, tt.volume); err != nil {
			t.Errorf("%s, made by the administrator: %v", tt.name, err)
		}
		for where, podnas := range map[string]typedcore.PersistentVolumeInterface{"podnas": podnas, "moved to another namespace": moved} {
			err := tryCreate(podnas, tt.volume)
			if tt.allowed != (err == nil) || !tt.allowed && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), policyName)) {
				t.Errorf("%s, made by podnas, %s: %v", tt.name, where, err)
			}
		}
		if err := tryCreate(as(t, "kube-system", "persistent-volume-binder"), tt.volume); err != nil {
			t.Errorf("%s, made by another account: %v", tt.name, err)
		}
	}

	for _, tt := range []struct {
		name    string
		volume  *corev1.PersistentVolume
		allowed bool
	}{
		{"own", persistentVolume("policy-own", ours, nfsSource), true},
		{"another's", persistentVolume("policy-another", "podnas.io/nfs2", nfsSource), false},
		{"nobody's", persistentVolume("policy-nobody", "", nfsSource), false},
		{"hostPath", persistentVolume("policy-hostpath", "", hostPathSource), false},
		{"hostPath with podnas's annotation", persistentVolume("policy-pretends", ours, hostPathSource), false},
	} {
		v, err := admin.Create(t.Context(), tt.volume, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := admin.Delete(context.Background(), v.Name, metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		})
		attempts := map[string]error{}
		change := func(what, patch string) {
			_, attempts[what] = podnas.Patch(t.Context(), v.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{DryRun: trial})
		}
		change("grow", `{"spec": {"capacity": {"storage": "2Mi"}}}`)
		change("mount options", `{"spec": {"mountOptions": ["soft"]}}`)
		change("a label", `{"metadata": {"labels": {"a": "b"}}}`)
		change("make it its own", `{"metadata": {"annotations": {"`+provisionedBy+`": "`+ours+`"}, "labels": {"a": "b"}}}`)
		change("a finalizer", `{"metadata": {"finalizers": ["example.com/finalizer"]}}`)
		if v.Name != "policy-pretends" { // it says that it is podnas's
			attempts["delete"] = podnas.Delete(t.Context(), v.Name, metav1.DeleteOptions{DryRun: trial})
		}
		for what, err := range attempts {
			if tt.allowed != (err == nil) || !tt.allowed && !apierrors.IsForbidden(err) {
				t.Errorf("%s, %s, by podnas: %v", tt.name, what, err)
			}
		}
		// What it was made of nobody changes, and podnas can't give its own away.
		for what, patch := range map[string]string{
			"another source": `{"spec": {"nfs": null, "hostPath": {"path": "/"}}}`,
			"another server": `{"spec": {"nfs": {"server": "192.0.2.2", "path": "/v"}}}`,
			"given away":     `{"metadata": {"annotations": {"` + provisionedBy + `": "example.com/other"}}}`,
		} {
			_, err := podnas.Patch(t.Context(), v.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{DryRun: trial})
			if !refused(err) {
				t.Errorf("%s, %s, by podnas: %v", tt.name, what, err)
			}
		}
	}
}

// All that podnas does passes the policy, as it is; and where the two don't fit, claims,
// the log and the doctor say so.
func TestWorkUnderPolicy(t *testing.T) {
	applyPolicy(t)
	n := newTenant(t)
	n.provisioner = provisioner.DefaultName
	p := newPodnas(t, n.provisioner, local)
	p.start()
	class := n.class("", expandable)
	n.claim("data", class, "1Mi", nil)
	v := n.bound("data")
	n.grow("data", "2Mi")
	n.grown("data", "2Mi")
	n.unhold(v.Name)
	n.held(v.Name, true)
	n.deleteVolume(v.Name)
	n.deleteClaim("data")
	n.gone(v.Name)
	if results, _ := p.doctor(); !found(results, "policy", doctor.OK, provisioner.DefaultName) {
		t.Errorf("the doctor says %+v", results)
	}

	// A provisioner that the policy does not know.
	other := newTenant(t)
	q := newPodnas(t, other.provisioner, local)
	q.start()
	other.claim("data", other.class("", nil), "1Mi", nil)
	message := other.failure("data")
	for _, want := range []string{other.provisioner, "--provisioner", policyName} {
		if !strings.Contains(message, want) || !strings.Contains(q.logged(), want) {
			t.Errorf("the event %q, or the log, does not say %q", message, want)
		}
	}
	if got := q.volumes(); len(got) != 0 {
		t.Errorf("the disk has %q, which no PersistentVolume leads to", got)
	}
	if results, _ := q.doctor(); !found(results, "policy", doctor.Failed, other.provisioner) {
		t.Errorf("the doctor says %+v", results)
	}

	// No policy.
	if _, err := kubectl(t.Context(), nil, "delete", "validatingadmissionpolicybinding", policyName); err != nil {
		t.Fatal(err)
	}
	other.bound("data")
	eventually(t, time.Minute, "the doctor misses the policy", func() bool {
		results, _ := q.doctor()
		return found(results, "policy", doctor.Warning, "hostPath")
	})
}

// A cluster that does not know policies takes all the rest of the manifest, and kubectl
// tells.
func TestManifestWithoutPolicies(t *testing.T) {
	manifest := `
apiVersion: admissionregistration.k8s.io/v0
kind: ValidatingAdmissionPolicy
metadata: {name: unknown}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: after-the-policy, namespace: default}
`
	_, err := kubectl(t.Context(), []byte(manifest), "apply", "-f", "-")
	if err == nil || !strings.Contains(err.Error(), "no matches for kind") {
		t.Errorf("an unknown kind: %v", err)
	}
	if _, err := kubectl(t.Context(), nil, "delete", "configmap", "after-the-policy"); err != nil {
		t.Errorf("what comes after it: %v", err)
	}
}
