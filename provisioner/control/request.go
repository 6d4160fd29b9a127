package control

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

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

// restored returns the manifest of a kept volume that is adopted: its own, with what the request says of its PersistentVolume, as
// asked has it. It refuses all else that the request says, which would be ignored.
func (r *CreateRequest) restored(kept volume.Volume, asked json.RawMessage) (json.RawMessage, error) {
	no := func(format string, args ...any) (json.RawMessage, error) {
		return nil, &Error{Code: Invalid, Message: fmt.Sprintf("volume %s was deleted, and is restored as it was: ", kept.Name) + fmt.Sprintf(format, args...)}
	}
	if r.Path != "" && r.Path != kept.Path {
		return no("its directory is %s, not %s. Leave out the path, or adopt that directory with another name", kept.Path, r.Path)
	}
	if len(r.Parameters) > 0 {
		return no("leave out %s", strings.Join(slices.Sorted(maps.Keys(r.Parameters)), ", "))
	}
	if r.StorageClass == "" && len(r.AccessModes) == 0 && len(r.MountOptions) == 0 && r.ReclaimPolicy == "" {
		return kept.Manifest, nil
	}
	m, err := provisioner.ManifestOf(kept)
	if err != nil {
		return nil, err
	}
	said, err := provisioner.ManifestOf(volume.Volume{Name: kept.Name, Manifest: asked})
	if err != nil {
		return nil, err
	}
	m.StorageClassName = cmp.Or(said.StorageClassName, m.StorageClassName)
	if len(r.AccessModes) > 0 {
		m.AccessModes = said.AccessModes
	}
	if len(r.MountOptions) > 0 {
		m.MountOptions = said.MountOptions
	}
	m.ReclaimPolicy = cmp.Or(r.ReclaimPolicy, m.ReclaimPolicy)
	return m.Encode()
}
