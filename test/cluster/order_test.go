//go:build cluster

package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/podnas/podnas/internal/doctor"
	"github.com/podnas/podnas/provisioner"
	"github.com/podnas/podnas/provisioner/control"
)

// volumeFinalizer keeps a PersistentVolume until its volume was deleted.
const volumeFinalizer = "external-provisioner.volume.kubernetes.io/finalizer"

func retained(c *storagev1.StorageClass) {
	retain := corev1.PersistentVolumeReclaimRetain
	c.ReclaimPolicy = &retain
}

// deleteVolume deletes a PersistentVolume, as kubectl delete pv --wait=false does.
func (n *tenant) deleteVolume(name string) {
	n.t.Helper()
	if err := cluster.client.CoreV1().PersistentVolumes().Delete(n.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		n.t.Fatal(err)
	}
}

// held waits until a PersistentVolume has the finalizer, or has it no more.
func (n *tenant) held(name string, want bool) {
	n.t.Helper()
	eventually(n.t, 20*time.Second, fmt.Sprintf("volume %s has the finalizer: %t", name, want), func() bool {
		v, err := cluster.client.CoreV1().PersistentVolumes().Get(n.t.Context(), name, metav1.GetOptions{})
		return err == nil && slices.Contains(v.Finalizers, volumeFinalizer) == want
	})
}

// unhold takes all finalizers off a PersistentVolume.
func (n *tenant) unhold(name string) {
	n.t.Helper()
	_, err := cluster.client.CoreV1().PersistentVolumes().Patch(n.t.Context(), name, types.MergePatchType,
		[]byte(`{"metadata": {"finalizers": null}}`), metav1.PatchOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		n.t.Fatal(err)
	}
}

// The reclaim policy holds in whatever order a claim and its PersistentVolume are deleted,
// and whether podnas runs meanwhile or not.
func TestReclaimPolicyInWhateverOrder(t *testing.T) {
	n := newTenant(t)
	p := newPodnas(t, n.provisioner, local)
	p.start()
	remove, retain := n.class("", nil), n.class("-retain", retained)
	other := &tenant{t: t, name: n.name + "-namespace", provisioner: n.provisioner}
	if _, err := cluster.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: other.name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	keep := func(volume string) {
		n.update(volume, func(v *corev1.PersistentVolume) {
			v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
		})
	}
	tests := []struct {
		name   string
		n      *tenant
		class  string
		before func(volume string) // while podnas runs
		down   func(volume string) // while it does not
		after  func(volume string) // when it runs again
		stays  bool                // its files
	}{
		{name: "volume-first", n: n, class: remove, before: n.deleteVolume, after: func(string) { n.deleteClaim("volume-first") }},
		{name: "together", n: n, class: remove, after: func(volume string) { // as kubectl delete pv,pvc --all
			n.deleteVolume(volume)
			n.deleteClaim("together")
		}},
		{name: "claim-first", n: n, class: remove, after: func(volume string) {
			n.deleteClaim("claim-first")
			if err := cluster.client.CoreV1().PersistentVolumes().Delete(t.Context(), volume, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				t.Error(err)
			}
		}},
		{name: "namespace", n: other, class: remove, before: n.deleteVolume, after: func(string) {
			if err := cluster.client.CoreV1().Namespaces().Delete(t.Context(), other.name, metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		}},
		{name: "volume-while-down", n: n, class: remove, down: n.deleteVolume, after: func(string) { n.deleteClaim("volume-while-down") }},
		{name: "both-while-down", n: n, class: remove, down: func(volume string) {
			n.deleteVolume(volume)
			n.deleteClaim("both-while-down")
			n.released(volume)
		}},
		{name: "older", n: n, class: remove, down: n.unhold, after: func(volume string) { // of a podnas that did not use the finalizer
			n.held(volume, true)
			n.deleteVolume(volume)
			n.deleteClaim("older")
		}},
		{name: "retain", n: n, class: retain, after: func(volume string) {
			n.deleteVolume(volume)
			n.deleteClaim("retain")
		}, stays: true},
		{name: "retain-while-down", n: n, class: retain, before: n.deleteVolume, down: func(string) { n.deleteClaim("retain-while-down") }, stays: true},
		{name: "kept-later", n: n, class: remove, before: func(volume string) {
			keep(volume)
			n.held(volume, false)
		}, down: func(volume string) {
			n.deleteVolume(volume)
			n.deleteClaim("kept-later")
		}, stays: true},
		{name: "kept-when-deleted", n: n, class: remove, before: func(volume string) {
			n.deleteVolume(volume)
			keep(volume)
			n.held(volume, false)
		}, after: func(string) { n.deleteClaim("kept-when-deleted") }, stays: true},
	}
	volumes := map[string]string{}
	for _, tt := range tests {
		tt.n.claim(tt.name, tt.class, "1Mi", nil)
	}
	for _, tt := range tests {
		volumes[tt.name] = tt.n.bound(tt.name).Name
		writeFile(t, filepath.Join(p.root, volumes[tt.name], "file"), "data")
		n.held(volumes[tt.name], tt.class == remove)
	}
	for _, tt := range tests {
		if tt.before != nil {
			tt.before(volumes[tt.name])
		}
	}
	p.stop()
	for _, tt := range tests {
		if tt.down != nil {
			tt.down(volumes[tt.name])
		}
	}
	p.start()
	for _, tt := range tests {
		if tt.after != nil {
			tt.after(volumes[tt.name])
		}
	}
	defer func() {
		if failed := regexp.MustCompile(`(?m)^controller_persistentvolume_delete_failed_total.* [1-9].*$`).FindString(p.page("/metrics")); failed != "" {
			t.Errorf("deletions count as failed: %s", failed)
		}
	}()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			volume := volumes[tt.name]
			n := &tenant{t: t, name: n.name, provisioner: n.provisioner}
			n.gone(volume)
			data, err := os.ReadFile(filepath.Join(p.root, volume, "file"))
			if tt.stays && string(data) != "data" || !tt.stays && !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("its file has %q, %v; stays: %t", data, err, tt.stays)
			}
		})
	}
}

// A PersistentVolume that is deleted and never had a claim goes, and so does one of a disk
// that podnas has no more; their files stay. One of a disk that another podnas has waits for
// that one, and gets no finalizer from this one.
func TestFinalizerWithoutClaim(t *testing.T) {
	n := newTenant(t)
	p := newPodnas(t, n.provisioner, local)
	class := n.class("", nil)
	p.start()
	n.claim("data", class, "1Mi", nil)
	ours := n.bound("data")
	p.stop()
	n.forget()
	manifests := p.manifests(nil)
	n.apply(manifests[0].volume, nil)
	p.start()
	n.held(ours.Name, true)
	n.deleteVolume(ours.Name)
	n.gone(ours.Name)
	if got := p.volumes(); !slices.Equal(got, []string{ours.Name}) {
		t.Errorf("the disk has %q, want %s left alone", got, ours.Name)
	}

	for name, port := range map[string]int{"lost": p.port, "other": p.port + 1, "theirs": p.port + 1} {
		v := persistentVolume(n.name+"-"+name, n.provisioner, corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "127.0.0.1", Path: "/x"}})
		v.Annotations[provisioner.InstanceAnnotation] = "another"
		if name != "theirs" {
			v.Finalizers = []string{volumeFinalizer}
		}
		v.Spec.StorageClassName = class
		v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
		v.Spec.MountOptions = []string{fmt.Sprintf("port=%d", port)}
		n.apply(v, nil)
		if name != "theirs" {
			n.deleteVolume(v.Name)
		}
	}
	n.gone(n.name + "-lost")
	n.held(n.name+"-other", true)
	n.unhold(n.name + "-other")
	n.held(n.name+"-theirs", false)
	n.deleteVolume(n.name + "-theirs")
}

// A retained volume whose claim and PersistentVolume are deleted by hand: its files stay and
// count, podnas volume list says what to do, and that brings it back.
func TestRetainedComesBack(t *testing.T) {
	n := newTenant(t)
	p := newPodnas(t, n.provisioner, local)
	p.start()
	class := n.class("", retained)
	n.claim("precious", class, "3Mi", nil)
	v := n.bound("precious")
	file := createFile(t, p, v, "file", "data")
	n.deleteClaim("precious")
	n.released(v.Name)
	n.deleteVolume(v.Name)
	n.gone(v.Name)

	want := "podnas volume manifests " + v.Name
	eventually(t, 20*time.Second, "the list has the way back", func() bool {
		out, _, _ := p.run("volume", "list")
		return strings.Contains(out, "ready") && strings.Contains(out, "to do: ") && strings.Contains(out, want)
	})
	if out, _, _ := p.run("volume", "show", v.Name); !strings.Contains(out, want) {
		t.Errorf("podnas volume show does not say %q: %s", want, out)
	}
	if results, _ := p.doctor(); !found(results, "volume "+n.name+"/precious", doctor.Warning, "it has no PersistentVolume, though claim "+n.name+"/precious had it") {
		t.Errorf("the doctor says %+v", results)
	}
	if promised := p.report().Disk.Promised; promised != 3<<20 {
		t.Errorf("%d bytes are promised, want the volume's 3Mi", promised)
	}

	out, errs, code := p.run("volume", "manifests", v.Name)
	if code != 0 {
		t.Fatal(errs)
	}
	if _, err := kubectl(t.Context(), []byte(out), "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	n.claim("precious", class, "3Mi", nil)
	back := n.bound("precious")
	if back.Name != v.Name || back.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain {
		t.Errorf("the new claim has volume %s with policy %s, want %s and Retain", back.Name, back.Spec.PersistentVolumeReclaimPolicy, v.Name)
	}
	if read := readFile(t, p, file); string(read.Data) != "data" {
		t.Errorf("its file answers %s with %q", read.Status, read.Data)
	}
	p.stop()
	p.start()
	eventually(t, 10*time.Second, "the list says nothing more", func() bool {
		out, _, _ := p.run("volume", "list")
		return !strings.Contains(out, "to do: ")
	})
}

// podnas is killed after it has made the volume of a claim and before its PersistentVolume is
// made, and the claim is deleted: podnas doctor names the volume and how to end it.
func TestKilledBeforePersistentVolume(t *testing.T) {
	n := newTenant(t)
	reached := make(chan struct{})
	address := refusing(t, reached)
	p := newPodnas(t, n.provisioner, local)
	direct := p.flags
	p.flags = append(slices.Clone(direct), "--master="+address)
	p.start()
	n.claim("data", n.class("", nil), "1Mi", nil)
	select {
	case <-reached:
	case <-time.After(time.Minute):
		t.Fatal("no PersistentVolume is made within a minute")
	}
	p.kill()
	volume := "pvc-" + string(n.claimNow("data").UID)
	if got := p.volumes(); !slices.Equal(got, []string{volume}) || len(n.volumes()) != 0 {
		t.Fatalf("the disk has %q, want the claim's volume, and the cluster %d PersistentVolumes", got, len(n.volumes()))
	}
	n.deleteClaim("data")
	p.flags = direct
	p.start()
	eventually(t, 20*time.Second, "the doctor names the volume", func() bool {
		results, _ := p.doctor()
		return found(results, "volume "+n.name+"/data", doctor.Warning, "it has no PersistentVolume")
	})
	if out, _, _ := p.run("volume", "list"); !strings.Contains(out, "podnas volume delete --force "+volume) {
		t.Errorf("podnas volume list does not say how to end it: %s", out)
	}
	if _, errs, code := p.run("volume", "delete", "--force", "--yes", volume); code != 0 {
		t.Fatal(errs)
	}
	if got := p.volumes(); len(got) != 0 {
		t.Errorf("the disk still has %q", got)
	}
}

// report is what podnas doctor prints.
func (p *podnas) report() control.Report {
	p.t.Helper()
	report, err := control.NewClient(p.root).Doctor(context.Background())
	if err != nil {
		p.t.Fatal(err)
	}
	return report
}
