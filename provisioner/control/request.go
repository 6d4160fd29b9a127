package control

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/provisioner"
)

// CreateRequest describes a new volume without a claim.
type CreateRequest struct {
	Name string `json:"name"`
	Size int64  `json:"size,omitempty"` // bytes
	// Path is the directory below the root of the disk, Name if empty.
	Path string `json:"path,omitempty"`
	// Source is the name of a volume to copy.
	Source string `json:"source,omitempty"`
	// SourceSnapshot, if set, is the snapshot of that volume to copy instead; if the only access mode is ReadOnlyMany, to show.
	SourceSnapshot string `json:"sourceSnapshot,omitempty"`
	// Parameters are StorageClass parameters.
	Parameters map[string]string `json:"parameters,omitempty"`

	// Fields of its PersistentVolume.
	StorageClass  string                           `json:"storageClass,omitempty"`
	AccessModes   []v1.PersistentVolumeAccessMode  `json:"accessModes,omitempty"`
	MountOptions  []string                         `json:"mountOptions,omitempty"`
	ReclaimPolicy v1.PersistentVolumeReclaimPolicy `json:"reclaimPolicy,omitempty"`
}

// spec returns the Spec of the volume.
func (r *CreateRequest) spec(p *provisioner.Provisioner) (volume.Spec, error) {
	invalid := func(format string, args ...any) (volume.Spec, error) {
		return volume.Spec{}, &Error{Code: Invalid, Message: fmt.Sprintf(format, args...)}
	}
	modes := []v1.PersistentVolumeAccessMode{v1.ReadWriteMany, v1.ReadOnlyMany, v1.ReadWriteOnce, v1.ReadWriteOncePod}
	for _, mode := range r.AccessModes {
		if !slices.Contains(modes, mode) {
			return invalid("unknown access mode %q: use %v", mode, modes)
		}
	}
	class := &storagev1.StorageClass{
		ObjectMeta:   metav1.ObjectMeta{Name: r.StorageClass},
		Parameters:   r.Parameters,
		MountOptions: r.MountOptions,
	}
	view := r.SourceSnapshot != "" && provisioner.IsReadOnly(r.AccessModes)
	if view {
		class.MountOptions = provisioner.ReadOnlyMount(r.MountOptions)
	}
	switch r.ReclaimPolicy {
	case "":
	case v1.PersistentVolumeReclaimRetain, v1.PersistentVolumeReclaimDelete:
		class.ReclaimPolicy = &r.ReclaimPolicy
	default:
		return invalid("unknown reclaim policy %q: use Retain or Delete", r.ReclaimPolicy)
	}
	spec, err := p.StaticSpec(r.Name, r.Size, class, r.AccessModes)
	if err != nil {
		return invalid("%v", err)
	}
	if r.Size != 0 { // 0: an archived or retained volume has its own
		if _, err := provisioner.NewSize(*resource.NewQuantity(r.Size, resource.BinarySI)); err != nil {
			return invalid("invalid size: %v", err)
		}
	}
	spec.Path, spec.Source, spec.SourceSnapshot, spec.View = r.Path, r.Source, r.SourceSnapshot, view
	return spec, nil
}

// saysNothing reports whether the request sets no field of the PersistentVolume.
func (r *CreateRequest) saysNothing() bool {
	return len(r.Parameters) == 0 && r.StorageClass == "" && len(r.AccessModes) == 0 && len(r.MountOptions) == 0 && r.ReclaimPolicy == ""
}
