//go:build cluster

package cluster_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/provisioner"
)

// A volume that was made without a claim lives like any other once its
// PersistentVolume is applied.
func TestStaticVolume(t *testing.T) {
	n := newTenant(t)
	p := newPodnas(t, n.provisioner, local)
	class := n.class("", expandable)
	manifests := p.manifests(func(store *volume.Store) {
		remove := corev1.PersistentVolumeReclaimDelete
		spec, err := (&provisioner.Provisioner{}).StaticSpec(n.name, 1<<20, &storagev1.StorageClass{
			ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: n.provisioner, ReclaimPolicy: &remove,
			Parameters: map[string]string{"gid": "1001"},
		}, nil)
		if err == nil {
			_, err = store.Create(t.Context(), spec)
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	p.start()
	n.apply(manifests[0].volume, nil)
	n.claim("static", class, "1Mi", func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = n.name })
	v := n.bound("static")
	if v.Annotations["pv.beta.kubernetes.io/gid"] != "1001" {
		t.Errorf("annotations %v", v.Annotations)
	}
	n.grow("static", "2Mi")
	n.grown("static", "2Mi")
	n.deleteClaim("static")
	n.gone(v.Name)
	if got := p.volumes(); len(got) != 0 {
		t.Errorf("the disk still has %q", got)
	}
}

// The cluster is lost, the disk is not: what the disk knows brings claims, volumes
// and data back together, under the handles that clients hold.
func TestRebuiltCluster(t *testing.T) {
	n := newTenant(t)
	p := newPodnas(t, n.provisioner, local)
	p.start()
	class := n.class("", func(c *storagev1.StorageClass) {
		c.MountOptions = []string{"hard"}
		c.Parameters = map[string]string{"gid": "1001", "pathPattern": "${pvc.namespace}/${pvc.name}"}
	})
	before := map[string]*corev1.PersistentVolume{}
	for _, name := range []string{"a", "b"} {
		n.claim(name, class, "1Mi", func(c *corev1.PersistentVolumeClaim) {
			c.Labels = map[string]string{"app": name}
			c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany, corev1.ReadOnlyMany}
		})
		before[name] = n.bound(name)
	}
	file := createFile(t, p, before["a"], "file", "data")
	// The administrator has the volume kept. The disk learns it at the next start.
	n.update(before["b"].Name, func(v *corev1.PersistentVolume) {
		v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	})
	before["b"] = n.bound("b")
	p.stop()
	p.start()
	eventually(t, 10*time.Second, "the record says Retain", func() bool {
		return strings.Contains(string(p.record(before["b"].Name).Manifest), string(corev1.PersistentVolumeReclaimRetain))
	})
	p.stop()
	// As if they had never been: podnas does not see them go.
	n.forget()
	manifests := p.manifests(nil)
	if len(manifests) != 2 {
		t.Fatalf("the disk has %d volumes, want 2", len(manifests))
	}
	for _, m := range manifests {
		n.apply(m.volume, m.claim)
	}
	p.start()
	for name, old := range before {
		v := n.bound(name)
		claim := n.claimNow(name)
		if v.Name != old.Name || claim.Labels["app"] != name {
			t.Errorf("claim %s with labels %v has volume %s, want %s", name, claim.Labels, v.Name, old.Name)
		}
		old.Spec.ClaimRef, v.Spec.ClaimRef = nil, nil
		if !equalJSON(t, old.Spec, v.Spec) {
			t.Errorf("volume %s was %+v and is %+v", v.Name, old.Spec, v.Spec)
		}
		for _, key := range []string{"podnas.io/instance", "pv.kubernetes.io/provisioned-by", "pv.beta.kubernetes.io/gid"} {
			if v.Annotations[key] != old.Annotations[key] {
				t.Errorf("annotation %s was %s and is %s", key, old.Annotations[key], v.Annotations[key])
			}
		}
	}
	if read := readFile(t, p, file); read.Status != nfs3.OK || string(read.Data) != "data" {
		t.Errorf("the file answers %s with %q", read.Status, read.Data)
	}
	n.deleteClaim("a")
	n.gone(before["a"].Name)
	if got := p.list(n.name); !slices.Equal(got, []string{"b"}) {
		t.Errorf("the disk has %q, want b alone", got)
	}
}

// A PersistentVolume without a volume, and the other way round, are told and left
// alone.
func TestMismatchIsTold(t *testing.T) {
	n := newTenant(t)
	p := newPodnas(t, n.provisioner, local)
	p.env = []string{"POD_NAMESPACE=" + podnasNamespace, "POD_NAME=reconciled"}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "reconciled"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "podnas", Image: "podnas"}}, ServiceAccountName: podnasName},
	}
	if _, err := cluster.client.CoreV1().Pods(podnasNamespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	p.start()
	n.claim("lost", n.class("", nil), "1Mi", nil)
	v := n.bound("lost")
	p.stop()
	p.manifests(func(store *volume.Store) {
		if err := store.Delete(t.Context(), v.Name); err != nil {
			t.Fatal(err)
		}
		if _, err := store.Create(t.Context(), volume.Spec{Name: "nobodys", Size: 1 << 20, Claim: &volume.Claim{Namespace: n.name, Name: "gone", UID: "gone"}}); err != nil {
			t.Fatal(err)
		}
	})
	record := filepath.Join(p.root, ".podnas", "volumes", "nobodys.json")
	old := p.record("nobodys").Created.Format(time.RFC3339)
	p.edit(record, old, time.Now().UTC().Add(-time.Hour).Format(time.RFC3339))
	p.start()
	for _, where := range []struct{ namespace, name, reason, want string }{
		{n.name, "lost", "VolumeMissing", v.Name},
		{metav1.NamespaceDefault, v.Name, "VolumeMissing", "no volume on the disk"},
		{podnasNamespace, "reconciled", "VolumeWithoutPersistentVolume", "nobodys"},
	} {
		if message := n.event(where.namespace, where.name, where.reason); !strings.Contains(message, where.want) {
			t.Errorf("the event on %s is %q, want %q in it", where.name, message, where.want)
		}
	}
	if got := p.volumes(); !slices.Equal(got, []string{"nobodys"}) {
		t.Errorf("the disk has %q, want nobodys left alone", got)
	}
}

// manifest is what podnas makes of a volume's record.
type manifest struct {
	volume *corev1.PersistentVolume
	claim  *corev1.PersistentVolumeClaim
}

// manifests opens the disk of an instance that does not run, changes it, and
// returns what leads to its volumes.
func (p *podnas) manifests(change func(*volume.Store)) []manifest {
	p.t.Helper()
	store, err := volume.Open(volume.Config{Root: p.root, Exports: noExports{}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		p.t.Fatal(err)
	}
	defer store.Close()
	if change != nil {
		change(store)
	}
	maker := &provisioner.Provisioner{
		Store: store, Log: slog.New(slog.DiscardHandler),
		Endpoint: provisioner.StaticEndpoint{IP: netip.MustParseAddr("127.0.0.1"), Port: uint16(p.port)},
	}
	var all []manifest
	for _, v := range store.List() {
		pv, err := maker.PersistentVolume(p.t.Context(), v)
		if err != nil {
			p.t.Fatal(err)
		}
		claim, err := provisioner.Bind(pv, v)
		if err != nil {
			p.t.Fatal(err)
		}
		all = append(all, manifest{pv, claim})
	}
	return all
}

type noExports struct{}

func (noExports) Check(volume.Options) error { return nil }
func (noExports) Export(volume.Volume) error { return nil }
func (noExports) Unexport(volume.Volume)     {}

// edit replaces a text in a file of the disk, and removes the checksum of a record.
func (p *podnas) edit(file, from, to string) {
	p.t.Helper()
	data, err := os.ReadFile(file)
	if err == nil {
		data = checksum.ReplaceAll(bytes.ReplaceAll(data, []byte(from), []byte(to)), nil)
		err = os.WriteFile(file, data, 0o600)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// checksum is the line of a record that a person who edits it removes.
var checksum = regexp.MustCompile(`(?m)^ *"checksum": ".*",\n`)

// equalJSON compares what the API server would see.
func equalJSON(t *testing.T, a, b any) bool {
	t.Helper()
	left, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	right, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Equal(left, right)
}
