package provisioner

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/podnas/podnas/volume"
)

// Annotations that Kubernetes and the library read on a PersistentVolume.
const (
	provisionedBy = "pv.kubernetes.io/provisioned-by"
	gidAnnotation = "pv.beta.kubernetes.io/gid" // kubelet adds the group to pods
)

// PersistentVolume is the manifest of a volume, made from its record alone: for
// volumes that were made without a claim, and for those whose cluster is gone.
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
		provisionedBy:      cmp.Or(m.Provisioner, p.Name, DefaultName),
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

// MountCommand mounts a PersistentVolume by hand, as kubelet would.
func MountCommand(pv *v1.PersistentVolume) string {
	server := pv.Spec.NFS.Server
	if strings.Contains(server, ":") {
		server = "[" + server + "]"
	}
	return fmt.Sprintf("sudo mount -t nfs -o %s %s:%s /mnt", strings.Join(pv.Spec.MountOptions, ","), server, pv.Spec.NFS.Path)
}

// exportPath is what clients mount.
func exportPath(v volume.Volume) string { return "/" + v.Path }

// mountOptions makes an NFSv3 mount work with nothing but mount.nfs on the node
// (nfs(5)): no rpcbind is asked for a port, no statd is needed for locks. The
// class's own options follow; one of them that says the same thing takes the
// place of ours, for kubelet sorts the options, so that the order would not
// decide.
func mountOptions(address Address, class []string) []string {
	proto := "tcp"
	if address.IP.Is6() {
		proto = "tcp6"
	}
	ours := []string{
		"nfsvers=3",
		"proto=" + proto,
		fmt.Sprintf("port=%d", address.Port),
		fmt.Sprintf("mountport=%d", address.Port),
		"mountproto=" + proto,
		// Without it umount.nfs asks rpcbind, too, at an address where nothing answers
		// that port: each pod took ten seconds more to end.
		"mountvers=3",
		"nolock",
	}
	said := map[string]bool{}
	for _, option := range class {
		said[optionSubject(option)] = true
	}
	var options []string
	for _, option := range ours {
		if !said[optionSubject(option)] {
			options = append(options, option)
		}
	}
	return append(options, class...)
}

// optionSubject is what a mount option is about: two options with one subject
// contradict or repeat each other.
func optionSubject(option string) string {
	key, _, _ := strings.Cut(option, "=")
	switch key {
	case "vers", "nfsvers", "v3":
		return "nfsvers"
	case "proto", "tcp", "tcp6":
		return "proto"
	case "lock", "nolock":
		return "lock"
	}
	return key
}
