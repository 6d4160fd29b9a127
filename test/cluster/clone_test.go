//go:build cluster

package cluster_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// copyOf makes a claim a copy of another.
func copyOf(name string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) {
		c.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: name}
	}
}

func TestClone(t *testing.T) {
	n := newTenant(t)
	p := newPodnas(t, n.provisioner, local)
	p.start()
	class := n.class("", nil)
	n.claim("source", class, "2Mi", nil)
	source := n.bound("source")
	for i := range 50 {
		writeFile(t, filepath.Join(p.root, source.Name, fmt.Sprint(i/10), fmt.Sprint(i)), fmt.Sprint("data ", i))
	}
	n.claim("copy", class, "3Mi", copyOf("source"))
	v := n.bound("copy")
	if got := p.record(v.Name).Source; got != source.Name {
		t.Errorf("the copy's record says it is one of %q, want %s", got, source.Name)
	}
	for i := range 50 {
		name := filepath.Join(p.root, v.Name, fmt.Sprint(i/10), fmt.Sprint(i))
		if got := p.find(filepath.Base(name), fmt.Sprint("data ", i)); len(got) != 2 {
			t.Fatalf("file %d is at %q, want the source and the copy", i, got)
		}
	}
	// The copy is its own.
	writeFile(t, filepath.Join(p.root, v.Name, "0", "0"), "changed")
	if got := p.find("0", "data 0"); len(got) != 1 {
		t.Errorf("after a change of the copy the source's file is at %q", got)
	}

	n.claim("too-small", class, "1Mi", copyOf("source"))
	if message := n.failure("too-small"); !strings.Contains(message, "2Mi") || !strings.Contains(message, "1Mi") {
		t.Errorf("the event is %q, want both sizes", message)
	}
	// A claim of a volume that is not podnas's.
	foreign := &corev1.PersistentVolume{}
	foreign.Name = n.name + "-foreign"
	foreign.Spec = corev1.PersistentVolumeSpec{
		AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
		Capacity:         corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")},
		StorageClassName: n.name + "-foreign",
		PersistentVolumeSource: corev1.PersistentVolumeSource{
			NFS: &corev1.NFSVolumeSource{Server: "192.0.2.1", Path: "/" + source.Name},
		},
	}
	n.apply(foreign, nil)
	n.claim("foreign", foreign.Spec.StorageClassName, "1Mi", func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = foreign.Name })
	n.bound("foreign")
	n.claim("copy-of-foreign", class, "1Mi", copyOf("foreign"))
	if message := n.failure("copy-of-foreign"); !strings.Contains(message, "not on the disk of this podnas") {
		t.Errorf("the event is %q", message)
	}
}
