//go:build cluster

package cluster_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/podnas/podnas/internal/doctor"
	"github.com/podnas/podnas/provisioner"
)

// tells waits until podnas doctor, the page and the metrics tell of something.
func (p *podnas) tells(source, check, says string) {
	p.t.Helper()
	var last []doctor.Result
	code := 0
	defer func() {
		if p.t.Failed() {
			p.t.Logf("podnas doctor: %d, %+v", code, last)
		}
	}()
	eventually(p.t, 2*time.Minute, "podnas doctor tells of "+check, func() bool {
		last, code = p.doctor()
		return code == 1 && found(last, check, doctor.Failed, says)
	})
	eventually(p.t, time.Minute, "the page tells of "+check, func() bool {
		page := p.page("/")
		return strings.Contains(page, "Something is wrong.") && strings.Contains(page, "<strong>"+check+"</strong>: ")
	})
	failed := regexp.MustCompile(fmt.Sprintf(`podnas_findings\{severity="failed",source=%q\} [1-9]`, source))
	eventually(p.t, time.Minute, "the metrics tell of "+check, func() bool { return failed.MatchString(p.page("/metrics")) })
}

// tellsNothing waits until neither of them tells of it, nor of anything else of its source.
func (p *podnas) tellsNothing(source, check string) {
	p.t.Helper()
	eventually(p.t, 2*time.Minute, "podnas doctor tells no more of "+check, func() bool {
		results, _ := p.doctor()
		for _, r := range results {
			if r.Source == source && r.Status == doctor.Failed {
				return false
			}
		}
		return true
	})
	eventually(p.t, time.Minute, "the page tells no more of "+check, func() bool {
		return !strings.Contains(p.page("/"), "<strong>"+check+"</strong>: ")
	})
	eventually(p.t, time.Minute, "the metrics tell no more of "+check, func() bool {
		return strings.Contains(p.page("/metrics"), fmt.Sprintf(`podnas_findings{severity="failed",source=%q} 0`, source))
	})
}

// What podnas can't do for claims is told while it can't, and no longer than the claims
// are there.
func TestFindings(t *testing.T) {
	n := newTenant(t)
	p := newPodnas(t, n.provisioner, local)
	// While it is started a PersistentVolume of another disk leads to it.
	lost := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: n.name + "-lost", Annotations: map[string]string{provisioner.InstanceAnnotation: "another"}},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}, StorageClassName: n.name + "-lost",
			MountOptions:           []string{fmt.Sprintf("port=%d", p.port)},
			PersistentVolumeSource: corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "127.0.0.1", Path: "/lost"}},
		},
	}
	volumes, claims := cluster.client.CoreV1().PersistentVolumes(), cluster.client.CoreV1().PersistentVolumeClaims(n.name)
	if _, err := volumes.Create(t.Context(), lost, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	p.start()
	p.tells("cluster", "cluster", "on another disk (another)")
	if err := volumes.Delete(t.Context(), lost.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	p.tellsNothing("cluster", "cluster")

	class := n.class("", func(c *storagev1.StorageClass) { c.AllowVolumeExpansion = new(true) })
	other := n.class("-other", func(c *storagev1.StorageClass) { c.Provisioner = "example.com/other" })
	n.claim("theirs", other, "1Pi", nil)
	n.claim("nobodys", n.name+"-none", "1Pi", nil)

	n.claim("too-large", class, "1Pi", nil)
	// The page that shows the event says that something is wrong.
	var page string
	eventually(t, time.Minute, "the page has the claim's event", func() bool {
		page = p.page("/")
		return strings.Contains(page, "claim: can&#39;t get a volume yet")
	})
	if !strings.Contains(page, "Something is wrong.") || !strings.Contains(page, "<strong>claim "+n.name+"/too-large</strong>: ") {
		t.Error("the page shows the claim's event, and its health does not know of it")
	}
	p.tells("claims", "claim "+n.name+"/too-large", "is free on the disk")
	n.deleteClaim("too-large")
	p.tellsNothing("claims", "claim "+n.name+"/too-large")

	n.claim("data", class, "1Mi", nil)
	n.bound("data")
	raise := func(size string) {
		t.Helper()
		data := fmt.Sprintf(`{"spec": {"resources": {"requests": {"storage": %q}}}}`, size)
		if _, err := claims.Patch(t.Context(), "data", types.MergePatchType, []byte(data), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	raise("1Pi")
	p.tells("claims", "claim "+n.name+"/data", "can't be expanded")
	raise("2Mi")
	p.tellsNothing("claims", "claim "+n.name+"/data")

	n.claim("orphan", class, "1Pi", nil)
	p.tells("claims", "claim "+n.name+"/orphan", "is free on the disk")
	if err := cluster.client.StorageV1().StorageClasses().Delete(t.Context(), class, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	p.tells("claims", "claim "+n.name+"/orphan", "its StorageClass "+class+" is not there")
	n.deleteClaim("orphan")
	p.tellsNothing("claims", "claim "+n.name+"/orphan")
}
