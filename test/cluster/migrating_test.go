//go:build cluster

package cluster_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/podnas/podnas/internal/doctor"
	"github.com/podnas/podnas/test/docs"
)

// docs/migrating.md moves a claim from another server to podnas. What it says is run
// as it is written, but for the copying, for which there are no nodes here.
func TestMigrating(t *testing.T) {
	const page = "../../docs/migrating.md"
	blocks, err := docs.Blocks(page)
	if err != nil {
		t.Fatal(err)
	}
	if len(blocks) != 5 {
		t.Fatalf("%s has %d blocks to run, want 5: the test is to be looked at too", page, len(blocks))
	}
	n := newTenant(t)
	p := newPodnas(t, n.provisioner, local)
	p.start()
	remove := corev1.PersistentVolumeReclaimDelete
	class, err := cluster.client.StorageV1().StorageClasses().Create(t.Context(), &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "podnas"}, Provisioner: n.provisioner, ReclaimPolicy: &remove,
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // others have a class of this name too
		if err := cluster.client.StorageV1().StorageClasses().Delete(context.Background(), class.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	old := oldClaim(t)
	// What the page has adopted.
	if err := os.MkdirAll(filepath.Join(p.root, "exports/documents"), 0o755); err != nil {
		t.Fatal(err)
	}

	script := "kubectl() { " + kubectlFor(t, p) + " \"$@\"; }\n"
	for _, b := range blocks {
		script += b.Script
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", script)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+cluster.plane.Kubeconfig())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	claim, err := cluster.client.CoreV1().PersistentVolumeClaims("default").Get(t.Context(), "data", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if claim.Spec.VolumeName != "default-data" || claim.Status.Phase != corev1.ClaimBound || *claim.Spec.StorageClassName != class.Name {
		t.Errorf("the claim has volume %s of class %s and is %s", claim.Spec.VolumeName, *claim.Spec.StorageClassName, claim.Status.Phase)
	}
	kept, err := cluster.client.CoreV1().PersistentVolumes().Get(t.Context(), old, metav1.GetOptions{})
	if err != nil || kept.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain {
		t.Errorf("the old volume is to be kept: %v, %v", kept, err)
	}
	adopted, err := cluster.client.CoreV1().PersistentVolumes().Get(t.Context(), "documents", metav1.GetOptions{})
	if err != nil || adopted.Spec.NFS == nil || adopted.Spec.NFS.Path != "/exports/documents" {
		t.Errorf("the adopted volume is %v, %v", adopted, err)
	}
	results, _ := p.doctor()
	for _, r := range results {
		if r.Status != doctor.OK {
			t.Errorf("the doctor says, after all: %+v", r)
		}
	}

	// And the claim is one like any other: its volume goes with it.
	if err := cluster.client.CoreV1().PersistentVolumeClaims("default").Delete(t.Context(), "data", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := kubectl(t.Context(), nil, "wait", "--for=delete", "pv/default-data", "--timeout=60s"); err != nil {
		t.Error(err)
	}
	if got := strings.Join(p.volumes(), " "); got != "exports" {
		t.Errorf("the disk has %q, want what was adopted alone", got)
	}
}

// oldClaim makes a claim "data" of another server, and returns its volume.
func oldClaim(t *testing.T) string {
	t.Helper()
	const name = "old-data"
	class := ""
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Gi")}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	_, err := cluster.client.CoreV1().PersistentVolumes().Create(t.Context(), &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: size, AccessModes: modes, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			PersistentVolumeSource: corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "192.0.2.1", Path: "/data"}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = cluster.client.CoreV1().PersistentVolumeClaims("default").Create(t.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "data"},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, VolumeName: name, AccessModes: modes,
			Resources: corev1.VolumeResourceRequirements{Requests: size},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kubectl(t.Context(), nil, "wait", "--for=jsonpath={.status.phase}=Bound", "pvc/data", "--timeout=60s"); err != nil {
		t.Fatal(err)
	}
	return name
}

// kubectlFor makes a kubectl that finds podnas's commands in this process and not in a
// pod, of which there are none here.
func kubectlFor(t *testing.T, p *podnas) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubectl")
	script := fmt.Sprintf(`#!/bin/sh
case "$*" in
"-n podnas exec podnas-0 -- podnas "*) shift 6; exec '%s' "$@" --root='%s' ;;
esac
exec '%s' "$@"
`, cluster.podnas, p.root, filepath.Join(cluster.bin, "kubectl"))
	if err := os.WriteFile(file, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return file
}
