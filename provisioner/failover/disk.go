package failover

import (
	"context"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// disk is what podnas's disk means for a failover.
type disk struct {
	says   string
	inNode bool // it is where the node is
}

// fences are the CSI drivers whose storage takes the disk from the old node by itself, and how.
func fences() map[string]string {
	const attached = "attaches it to one machine, and takes it from the old one first"
	return map[string]string{
		"driver.longhorn.io":        "Longhorn attaches it to one node; the old one loses its replicas",
		"linstor.csi.linbit.com":    "DRBD lets the side with quorum write, if the StorageClass has auto-quorum",
		"rbd.csi.ceph.com":          "Ceph blocks the old node when it has the taint",
		"ebs.csi.aws.com":           "AWS " + attached,
		"pd.csi.storage.gke.io":     "Google Cloud " + attached,
		"disk.csi.azure.com":        "Azure " + attached,
		"csi.vsphere.vmware.com":    "vSphere " + attached,
		"cinder.csi.openstack.org":  "OpenStack " + attached,
		"dobs.csi.digitalocean.com": "DigitalOcean " + attached,
		"csi.hetzner.cloud":         "Hetzner " + attached,
	}
}

// diskOf looks at what the pod's claims are made of, and refuses what is where the node is.
func (f *Failover) diskOf(ctx context.Context, pod *v1.Pod) (disk, error) {
	d := disk{says: "It is not known what keeps the old node from its disk: if it still runs, both write to it, and destroy it."}
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i]
		switch {
		case volume.HostPath != nil && isDisk(pod, volume.Name):
			return d, f.inNode(fmt.Sprintf("the folder %s of its node", volume.HostPath.Path))
		case volume.PersistentVolumeClaim == nil:
			continue
		}
		claim, err := f.Client.CoreV1().PersistentVolumeClaims(f.Namespace).Get(ctx, volume.PersistentVolumeClaim.ClaimName, metav1.GetOptions{})
		if err != nil {
			return d, f.denied("look at claim "+volume.PersistentVolumeClaim.ClaimName, "get persistentvolumeclaims", err)
		}
		if claim.Spec.VolumeName == "" {
			continue
		}
		pv, err := f.Client.CoreV1().PersistentVolumes().Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
		if err != nil {
			return d, f.denied("look at PersistentVolume "+claim.Spec.VolumeName, "get persistentvolumes", err)
		}
		if d = judge(pv); d.inNode {
			return d, f.inNode(fmt.Sprintf("PersistentVolume %s, %s", pv.Name, d.says))
		}
		if f.shared {
			d.says = fmt.Sprintf("Its disk, PersistentVolume %s, is reserved for the podnas that serves: what still runs on the old node can't write to it.", pv.Name)
		}
	}
	return d, nil
}

// isDisk reports whether a volume of the pod is written to by podnas: others are folders of the node with programs.
func isDisk(pod *v1.Pod, volume string) bool {
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Name != "podnas" {
			continue
		}
		for _, m := range pod.Spec.Containers[i].VolumeMounts {
			if m.Name == volume && !m.ReadOnly {
				return true
			}
		}
	}
	return false
}

func (f *Failover) inNode(what string) error {
	return &RefusedError{
		fmt.Sprintf("podnas's disk is in node %s: %s. No other node has it, so podnas comes up again with that node alone", f.Node, what),
		"repair the node. If its disk is lost, docs/restic.md and docs/backup.md say how to restore a backup. For a disk that outlives a node, see docs/node-failure.md",
	}
}

// severalNodes reports whether a disk is said to be on more than one node, such as one that DRBD replicates between two.
func severalNodes(pv *v1.PersistentVolume) bool {
	if pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		return false
	}
	names := map[string]bool{}
	for _, term := range pv.Spec.NodeAffinity.Required.NodeSelectorTerms {
		named := false
		for _, e := range term.MatchExpressions {
			if e.Key == v1.LabelHostname && e.Operator == v1.NodeSelectorOpIn {
				named = true
				for _, name := range e.Values {
					names[name] = true
				}
			}
		}
		if !named {
			return true // nodes with a label, of which there may be more
		}
	}
	return len(names) > 1
}

// judge says what a failover means for a disk.
func judge(pv *v1.PersistentVolume) disk {
	source := &pv.Spec.PersistentVolumeSource
	unfenced := func(kind string) disk {
		return disk{says: fmt.Sprintf("Its disk, PersistentVolume %s, is %s: NOTHING keeps the old node from it. If that still runs, also without a network, both write to one file system, and destroy it.", pv.Name, kind)}
	}
	switch {
	case source.Local != nil && severalNodes(pv), source.HostPath != nil && severalNodes(pv):
		return unfenced("a device or folder of several nodes")
	case source.Local != nil:
		return disk{says: "which is " + source.Local.Path + " there", inNode: true}
	case source.HostPath != nil:
		return disk{says: "which is the folder " + source.HostPath.Path + " there", inNode: true}
	case source.ISCSI != nil:
		return unfenced("a LUN that kubelet mounts by iSCSI")
	case source.FC != nil:
		return unfenced("a LUN that kubelet mounts by Fibre Channel")
	case source.CSI == nil:
		return unfenced("of a kind that podnas does not know")
	}
	for driver, how := range fences() {
		if source.CSI.Driver == driver || strings.HasSuffix(source.CSI.Driver, "."+driver) { // Rook has its namespace before it
			return disk{says: fmt.Sprintf("Its disk, PersistentVolume %s, is of the driver %s: %s.", pv.Name, source.CSI.Driver, how)}
		}
	}
	return unfenced("of the driver " + source.CSI.Driver + ", of which podnas does not know whether it fences")
}
