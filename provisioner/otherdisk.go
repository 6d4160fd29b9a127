package provisioner

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/podnas/podnas/internal/volume"
)

// If the disk is not the one whose volumes clients have mounted, because that one is not
// mounted or lost, podnas creates no volumes: volumes on the wrong disk would disappear
// when the right one is back.

// CheckDisk refuses new volumes while PersistentVolumes with this server's address
// are of another disk.
func (p *Provisioner) CheckDisk(address Address) error {
	if p.Volumes == nil || p.NewDisk {
		return nil
	}
	pvs, err := p.Volumes.List(labels.Everything())
	if err != nil {
		return err
	}
	var others []string
	disk := ""
	for _, pv := range pvs {
		if owner := pv.Annotations[InstanceAnnotation]; owner != "" && owner != p.Store.Identity() && mayBeMounted(pv) && LeadsTo(pv, address) {
			others, disk = append(others, pv.Name), owner
		}
	}
	if len(others) == 0 {
		return nil
	}
	slices.Sort(others)
	return fmt.Errorf("%d PersistentVolumes lead to this podnas and are on another disk (%s): %s. The disk mounted here is %s, with %d volumes. Mount the right disk. If it is lost, delete these PersistentVolumes and their claims, or start podnas with --new-disk",
		len(others), disk, volume.FormatNames(others), p.Store.Identity(), len(p.Store.List()))
}

// mayBeMounted reports whether a PersistentVolume is, or may yet be, mounted.
func mayBeMounted(pv *v1.PersistentVolume) bool {
	return pv.DeletionTimestamp == nil && pv.Status.Phase != v1.VolumeReleased
}

// LeadsTo reports whether clients mount a PersistentVolume from an address.
func LeadsTo(pv *v1.PersistentVolume, address Address) bool {
	return pv.Spec.NFS != nil && pv.Spec.NFS.Server == address.IP.String() &&
		slices.Contains(pv.Spec.MountOptions, fmt.Sprintf("port=%d", address.Port))
}
