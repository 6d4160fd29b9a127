package failover

import (
	"context"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/podnas/podnas/provisioner/active"
)

// clouds are the CSI drivers of clouds, whose disks are attached to one machine. They say in which zone a disk is, never in which node.
func clouds() map[string]string {
	return map[string]string{
		"ebs.csi.aws.com":           "AWS",
		"pd.csi.storage.gke.io":     "Google Cloud",
		"disk.csi.azure.com":        "Azure",
		"csi.vsphere.vmware.com":    "vSphere",
		"cinder.csi.openstack.org":  "OpenStack",
		"dobs.csi.digitalocean.com": "DigitalOcean",
		"csi.hetzner.cloud":         "Hetzner",
	}
}

// diskOf looks at what the pod's claims are made of, refuses what is where the node is, and says what keeps the old node from the rest.
func (f *Failover) diskOf(ctx context.Context, pod *v1.Pod) (string, error) {
	for i := range pod.Spec.Volumes {
		if volume := &pod.Spec.Volumes[i]; volume.HostPath != nil && isDisk(pod, volume.Name) {
			return "", f.inNode(fmt.Sprintf("the folder %s of its node", volume.HostPath.Path))
		}
	}
	pvs, err := f.disksOf(ctx, pod)
	var says []string // of each
	for _, pv := range pvs {
		fence, err := f.judge(ctx, pv)
		if err != nil {
			return "", err
		}
		if f.shared {
			fence = fmt.Sprintf("Its disk, PersistentVolume %s, is reserved for the podnas that serves: what still runs on the old node can't write to it.", pv.Name)
		}
		says = append(says, fence)
	}
	if len(says) == 0 {
		return "It is not known what keeps the old node from its disk: if it still runs, both write to it, and destroy it.", err
	}
	return strings.Join(says, "\n"), err
}

// disksOf returns what the pod's claims are made of.
func (f *Failover) disksOf(ctx context.Context, pod *v1.Pod) (pvs []*v1.PersistentVolume, err error) {
	for i := range pod.Spec.Volumes {
		source := pod.Spec.Volumes[i].PersistentVolumeClaim
		if source == nil {
			continue
		}
		claim, err := f.Client.CoreV1().PersistentVolumeClaims(f.Namespace).Get(ctx, source.ClaimName, metav1.GetOptions{})
		if err != nil {
			return nil, f.denied("look at claim "+source.ClaimName, "get persistentvolumeclaims", err)
		}
		if claim.Spec.VolumeName == "" {
			continue
		}
		pv, err := f.Client.CoreV1().PersistentVolumes().Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
		if err != nil {
			return nil, f.denied("look at PersistentVolume "+claim.Spec.VolumeName, "get persistentvolumes", err)
		}
		pvs = append(pvs, pv)
	}
	return pvs, nil
}

// holds reports whether a disk of the pod is attached to the node.
func (f *Failover) holds(ctx context.Context, node *v1.Node, pod *v1.Pod) (bool, error) {
	pvs, err := f.disksOf(ctx, pod)
	return slices.ContainsFunc(pvs, func(pv *v1.PersistentVolume) bool {
		return slices.ContainsFunc(node.Status.VolumesAttached, func(v v1.AttachedVolume) bool { return v.Name == attachedName(pv) })
	}), err
}

// attachedName is what Kubernetes calls a disk that is attached to a node, by GetVolumeName of the kind's plug-in of kubelet; empty: it
// is of a kind that is not attached, or not known.
func attachedName(pv *v1.PersistentVolume) v1.UniqueVolumeName {
	name := ""
	switch csi, iscsi, fc := pv.Spec.CSI, pv.Spec.ISCSI, pv.Spec.FC; {
	case csi != nil:
		name = "kubernetes.io/csi/" + csi.Driver + "^" + csi.VolumeHandle
	case iscsi != nil:
		name = fmt.Sprintf("kubernetes.io/iscsi/%s:%s:%d", iscsi.TargetPortal, iscsi.IQN, iscsi.Lun)
	case fc != nil && len(fc.TargetWWNs) > 0 && fc.Lun != nil: // a lun beside WWIDs is allowed, and not named
		name = fmt.Sprintf("kubernetes.io/fc/%v:%d", fc.TargetWWNs, *fc.Lun)
	case fc != nil:
		name = fmt.Sprintf("kubernetes.io/fc/%v", fc.WWIDs)
	}
	return v1.UniqueVolumeName(name)
}

// isDisk reports whether a volume of the pod is written to by podnas: others are folders of the node with programs.
func isDisk(pod *v1.Pod, volume string) bool {
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Name != active.Container {
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
		"repair the node. If its disk is lost, docs/restic.md and docs/backup.md say how to restore a backup. If the nodeAffinity of its PersistentVolume is for other nodes, too, which are gone: add one. For a disk that outlives a node, see docs/node-failure.md",
	}
}

// elsewhere reports whether another node may have a disk: the nodes that it is for are chosen by names or labels, as of a volume
// group of a node, a zone, or the two nodes between which DRBD replicates.
func (f *Failover) elsewhere(ctx context.Context, pv *v1.PersistentVolume) (bool, error) {
	if pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		return pv.Spec.HostPath == nil && pv.Spec.Local == nil, nil
	}
	selector, err := nodeaffinity.NewNodeSelector(pv.Spec.NodeAffinity.Required)
	if err != nil {
		return false, fmt.Errorf("PersistentVolume %s: %w", pv.Name, err)
	}
	nodes, err := f.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return false, f.denied("look which nodes may have PersistentVolume "+pv.Name, "list nodes", err)
	}
	return slices.ContainsFunc(nodes.Items, func(n v1.Node) bool { return n.Name != f.Node && selector.Match(&n) }), nil
}

// judge says what a failover means for a disk, and refuses it for one that no other node may have. In a cloud a machine that is
// replaced may bring the only node of a zone.
func (f *Failover) judge(ctx context.Context, pv *v1.PersistentVolume) (string, error) {
	if csi := pv.Spec.CSI; csi != nil {
		if cloud, ok := clouds()[csi.Driver]; ok {
			return fenced(pv, cloud+" attaches it to one machine, and takes it from the old one first"), nil
		}
	}
	switch ok, err := f.elsewhere(ctx, pv); {
	case err != nil:
		return "", err
	case !ok:
		return "", f.inNode(fmt.Sprintf("PersistentVolume %s, which is %s", pv.Name, whichIs(pv)))
	}
	return keeps(pv), nil
}

// whichIs says what a disk in a node is.
func whichIs(pv *v1.PersistentVolume) string {
	switch source := &pv.Spec.PersistentVolumeSource; {
	case source.Local != nil:
		return source.Local.Path + " there"
	case source.HostPath != nil:
		return "the folder " + source.HostPath.Path + " there"
	case source.CSI != nil:
		return "of the driver " + source.CSI.Driver
	default:
		return "for that node"
	}
}

// keeps says what keeps the old node from a disk that another one may have.
func keeps(pv *v1.PersistentVolume) string {
	switch source := &pv.Spec.PersistentVolumeSource; {
	case source.Local != nil || source.HostPath != nil:
		return unfenced(pv, "a device or folder of several nodes")
	case source.ISCSI != nil:
		return unfenced(pv, "a LUN that kubelet mounts by iSCSI")
	case source.FC != nil:
		return unfenced(pv, "a LUN that kubelet mounts by Fibre Channel")
	case source.CSI == nil:
		return unfenced(pv, "of a kind that podnas does not know")
	}
	switch driver := pv.Spec.CSI.Driver; {
	case driver == linstor:
		return fenced(pv, "DRBD lets the side with quorum write, if the StorageClass has auto-quorum")
	case driver == longhorn:
		return fenced(pv, "Longhorn lets the next node have it, but does NOT stop the old one: if that still runs, it goes on with a replica of its own, and what podnas acknowledges there to clients that it still reaches is lost")
	case driver == cephRBD, strings.HasSuffix(driver, "."+cephRBD):
		return ofCeph(pv)
	default:
		return unfenced(pv, "of the driver "+driver+", of which podnas does not know whether it fences")
	}
}

// CSI drivers whose storage says what becomes of the old node.
const (
	linstor = "linstor.csi.linbit.com"
	// Longhorn has no quorum: the engine of a node that is cut off goes on with the replicas that it reaches, also alone
	// (https://github.com/longhorn/longhorn/issues/11271).
	longhorn = "driver.longhorn.io"
	// Rook has its namespace before the driver of Ceph's block devices.
	cephRBD = "rbd.csi.ceph.com"
)

// ofCeph says what keeps the old node from a block device of Ceph. At the taint only Rook does something, and only where CSI-Addons is
// installed (handleNodeFailure of its operator). With exclusive-lock Ceph does later: the driver gives nobody an image that a client
// is connected to, and who takes the lock of a client that is not has Ceph block it.
func ofCeph(pv *v1.PersistentVolume) string {
	const (
		byLock  = "Ceph blocks the old node when the next one takes the image's exclusive-lock"
		byTaint = "if CSI-Addons is installed (kubectl get crd networkfences.csiaddons.openshift.io)"
	)
	lock := strings.Contains(pv.Spec.CSI.VolumeAttributes["imageFeatures"], "exclusive-lock")
	switch rook := pv.Spec.CSI.Driver != cephRBD; {
	case lock && rook:
		return fenced(pv, byLock+", and when the old one has the taint, "+byTaint)
	case lock:
		return fenced(pv, byLock)
	case rook:
		return fenced(pv, "Ceph blocks the old node when it has the taint "+byTaint+". Otherwise NOTHING keeps it from the image, which has no exclusive-lock: both write to one file system, and destroy it")
	}
	return unfenced(pv, "an image of Ceph without exclusive-lock, whose driver does not see the taint")
}

func fenced(pv *v1.PersistentVolume, how string) string {
	return fmt.Sprintf("Its disk, PersistentVolume %s, is of the driver %s: %s.", pv.Name, pv.Spec.CSI.Driver, how)
}

func unfenced(pv *v1.PersistentVolume, kind string) string {
	return fmt.Sprintf("Its disk, PersistentVolume %s, is %s: NOTHING keeps the old node from it. If that still runs, also without a network, both write to one file system, and destroy it.", pv.Name, kind)
}
