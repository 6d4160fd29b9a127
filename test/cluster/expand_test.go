//go:build cluster

package cluster_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/nfs/nfs3"
)

// expandable lets the claims of a class grow.
func expandable(c *storagev1.StorageClass) { c.AllowVolumeExpansion = new(true) }

// A claim grows while a client has its volume open, beside Kubernetes' own
// expand controller.
func TestExpand(t *testing.T) {
	n := newTenant(t)
	p := newPodnas(t, n.provisioner, local)
	p.start()
	n.claim("growing", n.class("", expandable), "1Mi", nil)
	v := n.bound("growing")
	file := createFile(t, p, v, "file", "data")

	for _, size := range []string{"3Mi", "4G"} {
		n.grow("growing", size)
		n.grown("growing", size)
		if read := readFile(t, p, file); read.Status != nfs3.OK || string(read.Data) != "data" {
			t.Errorf("with %s the file answers %s with %q", size, read.Status, read.Data)
		}
	}
	if got := p.record(v.Name).Size; got != 4_000_000_000 {
		t.Errorf("the disk limits the volume to %d bytes, want 4G", got)
	}
	for _, reason := range []string{"ExternalExpanding", "Resizing", "VolumeResizeSuccessful"} {
		t.Log(n.event(n.name, "growing", reason))
	}
	if failed := n.events(n.name, "growing", "VolumeResizeFailed"); len(failed) > 0 {
		t.Errorf("events of failures: %q", failed)
	}
	if err := n.tryGrow("growing", "1Mi"); err == nil {
		t.Error("the API server lets the claim shrink")
	}
	n.deleteClaim("growing")
	n.gone(v.Name)
}

// What does not fit is told, and does not stand in the way of less.
func TestExpandTooMuch(t *testing.T) {
	n := newTenant(t)
	p := newPodnas(t, n.provisioner, local)
	p.start()
	n.claim("greedy", n.class("", expandable), "1Mi", nil)
	v := n.bound("greedy")
	n.grow("greedy", "1Pi")
	message := n.event(n.name, "greedy", "VolumeResizeFailed")
	t.Log(message)
	if sizes := regexp.MustCompile(`\b[0-9.]+[KMGTP]i\b`).FindAllString(message, -1); len(sizes) < 2 || !strings.Contains(message, "1Pi") {
		t.Errorf("the event names the sizes %q, want 1Pi and what is free", sizes)
	}
	eventually(t, 10*time.Second, "the claim's conditions tell it", func() bool {
		conditions := map[corev1.PersistentVolumeClaimConditionType]string{}
		for _, c := range n.claimNow("greedy").Status.Conditions {
			conditions[c.Type] = c.Message
		}
		_, resizing := conditions[corev1.PersistentVolumeClaimResizing]
		return resizing && strings.Contains(conditions[corev1.PersistentVolumeClaimControllerResizeError], "1Pi")
	})
	// It is tried again, but not all the time, whatever else happens to the claim.
	before := strings.Count(p.logged(), "can't be expanded yet")
	for range 10 {
		_, err := cluster.client.CoreV1().PersistentVolumeClaims(n.name).Patch(t.Context(), "greedy", "application/merge-patch+json",
			[]byte(`{"metadata": {"annotations": {"touched": "`+time.Now().String()+`"}}}`), metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
	}
	if tries := strings.Count(p.logged(), "can't be expanded yet") - before; tries > 3 {
		t.Errorf("tried %d times in a second", tries)
	}
	n.grow("greedy", "2Mi")
	n.grown("greedy", "2Mi")
	if got := p.record(v.Name).Size; got != 2<<20 {
		t.Errorf("the disk limits the volume to %d bytes, want 2Mi", got)
	}
}

// A class that has come to forbid it, and a volume of another disk.
func TestExpandNotOurs(t *testing.T) {
	n := newTenant(t)
	p := newPodnas(t, n.provisioner, local)
	p.start()
	class := n.class("", expandable)
	n.claim("forbidden", class, "1Mi", nil)
	n.claim("foreign", class, "1Mi", nil)
	n.bound("forbidden")
	foreign := n.bound("foreign")
	n.update(foreign.Name, func(v *corev1.PersistentVolume) { v.Annotations["podnas.io/instance"] = "somebody-else" })
	p.stop()
	n.grow("forbidden", "2Mi")
	n.grow("foreign", "2Mi")
	if err := cluster.client.StorageV1().StorageClasses().Delete(t.Context(), class, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	p.start()
	if message := n.event(n.name, "forbidden", "VolumeResizeFailed"); !strings.Contains(message, class) {
		t.Errorf("the event %q does not name the class", message)
	}
	n.class("", expandable)
	n.grown("forbidden", "2Mi")
	if claim := n.claimNow("foreign"); claim.Status.Capacity.Storage().String() != "1Mi" || len(claim.Status.Conditions) != 0 {
		t.Errorf("the claim of another disk's volume has %+v", claim.Status)
	}
}

// podnas dies at any step, objects are changed by others all the time, and the
// API server goes away.
func TestExpandThroughTrouble(t *testing.T) {
	n := newTenant(t)
	p := newPodnas(t, n.provisioner, local)
	p.start()
	n.claim("tough", n.class("", expandable), "1Mi", nil)
	v := n.bound("tough")
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() { // somebody else writes the same objects
		defer close(stopped)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
			touch, _ := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{"touched": time.Now().String()}}})
			_, _ = cluster.client.CoreV1().PersistentVolumeClaims(n.name).Patch(t.Context(), "tough", "application/merge-patch+json", touch, metav1.PatchOptions{})
			_, _ = cluster.client.CoreV1().PersistentVolumes().Patch(t.Context(), v.Name, "application/merge-patch+json", touch, metav1.PatchOptions{})
		}
	}()
	defer func() {
		close(stop)
		<-stopped
	}()
	sizes := []string{"2Mi", "3Mi", "4Mi", "5Mi", "6Mi", "7Mi"}
	for i, size := range sizes {
		n.grow("tough", size)
		time.Sleep(time.Duration(i) * 7 * time.Millisecond)
		p.kill()
		p.start()
		n.grown("tough", size)
	}
	n.grow("tough", "9Mi")
	if err := cluster.plane.RestartAPIServer(t.Context(), time.Second); err != nil {
		t.Fatal(err)
	}
	n.grown("tough", "9Mi")
	if got := p.record(v.Name).Size; got != 9<<20 {
		t.Errorf("the disk limits the volume to %d bytes, want 9Mi", got)
	}
}

// record reads the record of a volume.
func (p *podnas) record(name string) volume.Volume {
	p.t.Helper()
	data, err := os.ReadFile(filepath.Join(p.root, ".podnas", "volumes", name+".json"))
	if err != nil {
		p.t.Fatal(err)
	}
	var v volume.Volume
	if err := json.Unmarshal(data, &v); err != nil {
		p.t.Fatal(err)
	}
	return v
}

// logged is what the process has said so far.
func (p *podnas) logged() string {
	p.t.Helper()
	text, err := os.ReadFile(p.log)
	if err != nil {
		p.t.Fatal(err)
	}
	return string(text)
}
