//go:build cluster

package cluster_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/podnas/podnas/test/docs"
)

// podnas is removed before its claims: what is deleted then stays Terminating, and what
// docs/install.md says lets it go. In the order that it gives nothing stays.
func TestRemovedBeforeItsClaims(t *testing.T) {
	const page = "../../docs/install.md"
	blocks, err := docs.Blocks(page)
	if err != nil || len(blocks) != 1 {
		t.Fatalf("%s has %d blocks to run, %v, want 1", page, len(blocks), err)
	}
	n := newTenant(t)
	p := newPodnas(t, n.provisioner, local)
	p.start()
	class := n.class("", nil)
	n.claim("in-order", class, "1Mi", nil)
	n.claim("late", class, "1Mi", nil)
	inOrder, late := n.bound("in-order"), n.bound("late")
	if _, err := kubectl(t.Context(), nil, "-n", n.name, "delete", "pvc", "in-order"); err != nil {
		t.Fatal(err)
	}
	n.gone(inOrder.Name)
	p.stop()
	n.deleteClaim("late")
	n.released(late.Name)
	n.deleteVolume(late.Name)
	n.held(late.Name, true)
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", blocks[0].Script)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+cluster.plane.Kubeconfig(), "PATH="+cluster.bin+":"+os.Getenv("PATH"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	n.gone(late.Name)
	if got := p.volumes(); !slices.Equal(got, []string{late.Name}) {
		t.Errorf("the disk has %q, want %s left alone", got, late.Name)
	}
}

// A release with the guard is not uninstalled while volumes are bound, and nothing that
// they need goes. helm rollback makes a release of it again, which helm upgrade can't.
// Without volumes helm uninstall works.
func TestUninstall(t *testing.T) {
	watchLeases(t)
	n := newTenant(t)
	release := n.name + "-podnas"
	if _, err := helm("install", release, "../../deploy/helm/podnas", "--namespace", n.name, "--set", "guard.enabled=true",
		"--set", "provisioner="+n.provisioner, "--set", "storageClass.name="+n.name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, kind := range []string{"validatingadmissionpolicybinding", "validatingadmissionpolicy"} {
			if _, err := kubectl(context.Background(), nil, "delete", kind, release+"-volumes-in-use"); err != nil {
				t.Error(err)
			}
		}
	})
	leases := cluster.client.CoordinationV1().Leases(n.name)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Name: "in-use", Labels: map[string]string{inUseLabel: "true"}, Annotations: map[string]string{inUseLabel: "the claim demo/data"},
	}}
	if _, err := leases.Create(t.Context(), lease, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	sets := cluster.client.AppsV1().StatefulSets(n.name)
	eventually(t, time.Minute, "the guard is up", func() bool {
		return refused(sets.Delete(t.Context(), release, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}))
	})
	if out, err := helm("uninstall", release, "--namespace", n.name); err == nil {
		t.Errorf("uninstalled under its mounts: %s", out)
	}
	for _, what := range []string{
		"statefulset", "service", "serviceaccount", "role", "rolebinding", "clusterrole", "clusterrolebinding",
	} {
		if _, err := kubectl(t.Context(), nil, "-n", n.name, "get", what, release); err != nil {
			t.Error(err)
		}
	}
	if _, err := kubectl(t.Context(), nil, "get", "validatingadmissionpolicybinding", release+"-volumes-in-use"); err != nil {
		t.Error(err)
	}
	if _, err := helm("rollback", release, "1", "--namespace", n.name); err != nil {
		t.Error(err)
	}
	patch := fmt.Sprintf(`{"metadata": {"labels": {%q: "false"}}}`, inUseLabel)
	if _, err := leases.Patch(t.Context(), "in-use", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, "without volumes it is uninstalled", func() bool {
		_, err := helm("uninstall", release, "--namespace", n.name)
		return err == nil
	})
	if _, err := sets.Get(t.Context(), release, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the StatefulSet is there after helm uninstall: %v", err)
	}
}
