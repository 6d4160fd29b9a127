package provisioner

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"strings"

	"al.essio.dev/pkg/shellescape"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/podnas/podnas/internal/volume"
)

// Annotations that Kubernetes and the library read on a PersistentVolume.
const (
	ProvisionedBy = "pv.kubernetes.io/provisioned-by"
	gidAnnotation = "pv.beta.kubernetes.io/gid" // kubelet adds the group to pods
)

// PersistentVolume returns the PersistentVolume of a volume, made from its record
// alone: for volumes without a claim, and for those whose cluster is lost.
func (p *Provisioner) PersistentVolume(ctx context.Context, v volume.Volume) (*v1.PersistentVolume, error) {
	address, err := p.Endpoint.Address(ctx)
	if err != nil {
		return nil, err
	}
	return p.persistentVolume(v, address)
}

func (p *Provisioner) persistentVolume(v volume.Volume, address Address) (*v1.PersistentVolume, error) {
	m, err := ManifestOf(v)
	if err != nil {
		return nil, err
	}
	annotations := map[string]string{
		InstanceAnnotation: p.Store.Identity(),
		ProvisionedBy:      cmp.Or(m.Provisioner, p.Name, DefaultName),
	}
	mode, reason := p.Store.Quota(&v)
	annotations[QuotaAnnotation] = string(mode)
	if reason != "" {
		annotations[QuotaReasonAnnotation] = reason
	}
	maps.Copy(annotations, m.Annotations)
	filesystem := v1.PersistentVolumeFilesystem
	return &v1.PersistentVolume{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolume"},
		ObjectMeta: metav1.ObjectMeta{Name: v.Name, Annotations: annotations},
		Spec: v1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: m.ReclaimPolicy,
			StorageClassName:              m.StorageClassName,
			AccessModes:                   m.AccessModes,
			VolumeMode:                    &filesystem,
			Capacity:                      v1.ResourceList{v1.ResourceStorage: *resource.NewQuantity(v.Size, resource.BinarySI)},
			MountOptions:                  mountOptions(address, m.MountOptions),
			PersistentVolumeSource: v1.PersistentVolumeSource{
				NFS: &v1.NFSVolumeSource{
					Server:   address.IP.String(), // kubelet puts an IPv6 address in brackets
					Path:     exportPath(v),
					ReadOnly: v.Options.ReadOnly,
				},
			},
		},
	}, nil
}

// MountCommand returns the command that mounts a PersistentVolume like kubelet, for a shell: who makes claims may have chosen the path.
func MountCommand(pv *v1.PersistentVolume) string {
	server := pv.Spec.NFS.Server
	if strings.Contains(server, ":") {
		server = "[" + server + "]"
	}
	return fmt.Sprintf("sudo mount -t nfs -o %s %s:%s /mnt", shellescape.Quote(strings.Join(pv.Spec.MountOptions, ",")), server, shellescape.Quote(pv.Spec.NFS.Path))
}

// exportPath is the path that clients mount.
func exportPath(v volume.Volume) string { return "/" + v.Path }
