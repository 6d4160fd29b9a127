package failover_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/podnas/podnas/provisioner/failover"
)

// Somebody has deleted the dead node's pod by force: the next one waits for the disk, which the taint has Kubernetes detach.
func TestDeletedByForce(t *testing.T) {
	lun := int32(3)
	for name, c := range map[string]struct {
		source   v1.PersistentVolumeSource
		attached v1.UniqueVolumeName
		asks     string
	}{
		"of a driver": {
			v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: "driver.longhorn.io", VolumeHandle: "pvc-1"}},
			"kubernetes.io/csi/driver.longhorn.io^pvc-1", "does NOT stop the old one",
		},
		"by iSCSI": {
			v1.PersistentVolumeSource{ISCSI: &v1.ISCSIPersistentVolumeSource{TargetPortal: "192.0.2.1:3260", IQN: "iqn.2026-01.example:a", Lun: 1}},
			"kubernetes.io/iscsi/192.0.2.1:3260:iqn.2026-01.example:a:1", "NOTHING keeps the old node",
		},
		"by Fibre Channel": {
			v1.PersistentVolumeSource{FC: &v1.FCVolumeSource{TargetWWNs: []string{"50060e801049cfd1", "50060e801049cfd2"}, Lun: &lun}},
			"kubernetes.io/fc/[50060e801049cfd1 50060e801049cfd2]:3", "NOTHING keeps the old node",
		},
		"by Fibre Channel, by its name": {
			v1.PersistentVolumeSource{FC: &v1.FCVolumeSource{WWIDs: []string{"3600508b400105e21"}}},
			"kubernetes.io/fc/[3600508b400105e21]", "NOTHING keeps the old node",
		},
		"by Fibre Channel, by its name, and with a number": {
			v1.PersistentVolumeSource{FC: &v1.FCVolumeSource{WWIDs: []string{"3600508b400105e21"}, Lun: &lun}},
			"kubernetes.io/fc/[3600508b400105e21]", "NOTHING keeps the old node",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.pod, w.pv.Spec.PersistentVolumeSource = pod("alive", false), c.source
			w.dead.Status.VolumesAttached = []v1.AttachedVolume{{Name: "kubernetes.io/csi/example.com^other"}, {Name: c.attached}}
			client := w.client()
			f := of(t, client)
			f.Ask = func(question string) error {
				contains(t, question, "has no pod any more, but its disk, on dead, which was heard last 12m ago", c.asks, "Is dead off? [y/N] ")
				go nextPod(t.Context(), client)
				return nil
			}
			var said strings.Builder
			f.Say = func(format string, args ...any) { fmt.Fprintf(&said, format+"\n", args...) }
			if err := f.Run(soon(t)); err != nil {
				t.Fatalf("%v\n%s", err, &said)
			}
			contains(t, said.String(), "has the taint", "serves again, on alive", "failover dead --over")
			n, err := client.CoreV1().Nodes().Get(t.Context(), "dead", metav1.GetOptions{})
			if err != nil || !failover.Ours(n) {
				t.Errorf("the node has %v, %v", n.Spec.Taints, err)
			}
			deletes(t, client, 0)
		})
	}
}

// A dead node that does not have the disk is none of podnas's, nor is one that is Ready, or has it while podnas serves.
func TestNotAttached(t *testing.T) {
	const name = "kubernetes.io/csi/driver.longhorn.io^"
	for what, change := range map[string]func(w *world){
		"another disk": func(w *world) { w.dead.Status.VolumesAttached[0].Name = name + "other" },
		"Ready":        func(w *world) { w.dead.Status.Conditions[0].Status = v1.ConditionTrue },
		"it serves":    func(w *world) { w.pod = pod("alive", true) },
		"no pod":       func(w *world) { w.pod = nil },
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld()
			w.pod = pod("alive", false)
			w.dead.Status.VolumesAttached = []v1.AttachedVolume{{Name: name}}
			change(w)
			client := w.client()
			f := of(t, client)
			f.IsOff = true
			var refused *failover.RefusedError
			if err := f.Run(soon(t)); !errors.As(err, &refused) || !strings.Contains(err.Error(), "does not run on dead") {
				t.Errorf("it ends with %v", err)
			}
			unchanged(t, client)
		})
	}
}
