//go:build cluster

package cluster_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// present is where the chart and the manifests of this version are.
const present = "../../deploy"

// An earlier version's chart, or its manifests, are replaced by the present ones, and back. Nothing is
// refused because it can't be changed, and nothing that volumes need is made anew: the StatefulSet, the
// claim that holds its disk, the Service, whose address is in each volume, the class and the account.
// What pods see of an upgrade is test/e2e's to check.
func TestUpgrade(t *testing.T) {
	for _, from := range []struct{ name, commit string }{
		{"last", "HEAD^"},
		// The first with all of NFSv4.1, as in test/e2e/previous.sh.
		{"nfs4", "f86d78c1d53548a528803534009a17ce6b668ce9"},
	} {
		for way, newInstallation := range map[string]func(*tenant) installation{
			"chart": newRelease, "manifests": newManifests,
		} {
			t.Run(from.name+"-"+way, func(t *testing.T) {
				t.Parallel()
				testUpgrade(t, deployOf(t, from.commit), newInstallation)
			})
		}
	}
}

func testUpgrade(t *testing.T, previous string, newInstallation func(*tenant) installation) {
	n := newTenant(t)
	in := newInstallation(n)
	if err := in.install(previous); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "kubeconfig")
	if err := writeKubeconfig(t.Context(), config, n.name, in.name); err != nil {
		t.Fatal(err)
	}
	p := newPodnas(t, n.provisioner, local, "--kubeconfig="+config)
	p.env = []string{"POD_NAMESPACE=" + n.name}
	p.start()
	n.claim("before", in.name, "1Mi", nil)
	volume, before := n.bound("before"), in.state(t)
	if _, labelled := before.labels["app.kubernetes.io/name"]; !labelled {
		t.Errorf("the pod has the labels %v", before.labels)
	}

	check := func(when string, v *corev1.PersistentVolume) {
		t.Helper()
		if after := in.state(t); !equality.Semantic.DeepEqual(after.kept, before.kept) {
			t.Errorf("%s there is\n%+v\nand was\n%+v", when, after.kept, before.kept)
		}
		if v.UID != volume.UID || !equality.Semantic.DeepEqual(v.Spec, volume.Spec) {
			t.Errorf("%s the volume is\n%+v\nand was\n%+v", when, v.Spec, volume.Spec)
		}
	}
	p.stop()
	if err := in.install(present); err != nil {
		t.Fatalf("upgrade: %v", err)
	}
	p.start()
	check("after the upgrade", n.bound("before"))
	if after := in.state(t); after.labels["app.kubernetes.io/component"] == "" {
		t.Errorf("the pod has the labels %v: is this the present version?", after.labels)
	}
	n.claim("after", in.name, "1Mi", nil)
	n.bound("after")
	if err := in.install(previous); err != nil {
		t.Fatalf("downgrade: %v", err)
	}
	check("after the downgrade", n.bound("before"))
}

// installation is podnas in a tenant's namespace, with the tenant's provisioner.
type installation struct {
	tenant  *tenant
	name    string                    // of its objects, the class too
	install func(deploy string) error // or upgrade, from a folder like deploy/
}

// newRelease is made by the chart.
func newRelease(n *tenant) installation {
	name := n.name + "-podnas"
	return installation{n, name, func(deploy string) error {
		_, err := helm("upgrade", "--install", name, filepath.Join(deploy, "helm/podnas"), "--namespace", n.name,
			"--set", "provisioner="+n.provisioner, "--set", "storageClass.name="+name)
		return err
	}}
}

// newManifests is made by kubectl apply, as from a kustomization of one's own.
func newManifests(n *tenant) installation {
	name := "podnas-" + n.name
	return installation{n, name, func(deploy string) error {
		own := n.t.TempDir()
		if err := os.CopyFS(filepath.Join(own, "base"), os.DirFS(filepath.Join(deploy, "base"))); err != nil {
			return err
		}
		// The namespace is there, and the policy is for another account and provisioner.
		const kustomization = `resources: [base]
namespace: %[1]s
nameSuffix: -%[1]s
patches:
  - target: {kind: "Namespace|ValidatingAdmissionPolicy.*"}
    patch: '{"$patch": "delete", "kind": "K", "metadata": {"name": "n"}}'
  - target: {kind: StorageClass}
    patch: '[{"op": "replace", "path": "/provisioner", "value": "%[2]s"}]'
`
		if err := os.WriteFile(filepath.Join(own, "kustomization.yaml"), fmt.Appendf(nil, kustomization, n.name, n.provisioner), 0o600); err != nil {
			return err
		}
		_, err := kubectl(n.t.Context(), nil, "apply", "-k", own)
		return err
	}}
}

// installed is what there is of an installation.
type installed struct {
	kept   kept
	labels map[string]string // of the StatefulSet's pod
}

// kept is what an upgrade leaves as it is.
type kept struct {
	UIDs     map[string]types.UID
	Address  string // of the Service
	Disk     corev1.PersistentVolumeClaimSpec
	Selector map[string]string
}

func (in installation) state(t *testing.T) installed {
	t.Helper()
	ctx, namespace, get := t.Context(), in.tenant.name, metav1.GetOptions{}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	set, err := cluster.client.AppsV1().StatefulSets(namespace).Get(ctx, in.name, get)
	check(err)
	service, err := cluster.client.CoreV1().Services(namespace).Get(ctx, in.name, get)
	check(err)
	account, err := cluster.client.CoreV1().ServiceAccounts(namespace).Get(ctx, in.name, get)
	check(err)
	class, err := cluster.client.StorageV1().StorageClasses().Get(ctx, in.name, get)
	check(err)
	var disk *corev1.PersistentVolumeClaim
	eventually(t, time.Minute, "the StatefulSet has a claim for its disk", func() bool {
		disk, err = cluster.client.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, "export-"+in.name+"-0", get)
		return err == nil
	})
	return installed{
		kept: kept{
			UIDs: map[string]types.UID{
				"StatefulSet": set.UID, "Service": service.UID, "ServiceAccount": account.UID, "StorageClass": class.UID, "disk": disk.UID,
			},
			Address: service.Spec.ClusterIP, Disk: disk.Spec, Selector: set.Spec.Selector.MatchLabels,
		},
		labels: set.Spec.Template.Labels,
	}
}

// deployOf returns a folder with what deploy/ was in a commit.
func deployOf(t *testing.T, commit string) string {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command("bash", "-euo", "pipefail", "-c", `git -C ../.. archive "$1" deploy | tar -x -C "$2"`, "bash", commit, dir)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	if out, err := cmd.CombinedOutput(); err != nil {
		if strings.Contains(string(out), "not a git repository") || strings.Contains(string(out), "not a valid object name") {
			t.Skipf("there is no commit %s here to upgrade from: clone with history", commit)
		}
		t.Fatalf("take deploy/ of %s: %v\n%s", commit, err, out)
	}
	return filepath.Join(dir, "deploy")
}
