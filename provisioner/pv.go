package provisioner

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v8/controller"

	"github.com/podnas/podnas/volume"
)

func (p *Provisioner) persistentVolume(options controller.ProvisionOptions, v volume.Volume, address Address) *v1.PersistentVolume {
	claim, class := options.PVC, options.StorageClass
	reclaim := v1.PersistentVolumeReclaimDelete // the default of a StorageClass
	if class.ReclaimPolicy != nil {
		reclaim = *class.ReclaimPolicy
	}
	mode := v1.PersistentVolumeFilesystem
	return &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name:        v.Name,
			Annotations: map[string]string{InstanceAnnotation: p.Store.Identity()},
		},
		Spec: v1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: reclaim,
			AccessModes:                   claim.Spec.AccessModes,
			VolumeMode:                    &mode,
			Capacity: v1.ResourceList{
				v1.ResourceStorage: claim.Spec.Resources.Requests[v1.ResourceStorage],
			},
			MountOptions: mountOptions(address, class.MountOptions),
			PersistentVolumeSource: v1.PersistentVolumeSource{
				NFS: &v1.NFSVolumeSource{
					Server: address.IP.String(), // kubelet puts an IPv6 address in brackets
					Path:   "/" + v.Path,
				},
			},
		},
	}
}

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
