package provisioner

import (
	"encoding/json"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/podnas/podnas/internal/volume"
)

// Manifest has the fields of a PersistentVolume that the disk does not need. It is
// kept in the volume's record, so that the PersistentVolume can be written again
// if its cluster is lost. A volume created without a claim has the zero Manifest.
type Manifest struct {
	Provisioner      string                           `json:"provisioner,omitempty"`
	StorageClassName string                           `json:"storageClassName,omitempty"`
	AccessModes      []v1.PersistentVolumeAccessMode  `json:"accessModes,omitempty"`   // ReadWriteMany if empty
	ReclaimPolicy    v1.PersistentVolumeReclaimPolicy `json:"reclaimPolicy,omitempty"` // Retain if empty
	MountOptions     []string                         `json:"mountOptions,omitempty"`  // the class's
	Annotations      map[string]string                `json:"annotations,omitempty"`
	// ClaimLabels are the labels of the volume's claim.
	ClaimLabels map[string]string `json:"claimLabels,omitempty"`
}

// manifestOf returns the Manifest of a class's volumes.
func manifestOf(class *storagev1.StorageClass, params parameters) Manifest {
	m := Manifest{
		Provisioner:      class.Provisioner,
		StorageClassName: class.Name,
		ReclaimPolicy:    v1.PersistentVolumeReclaimDelete, // the default of a StorageClass
		MountOptions:     params.mountOptions,
	}
	if class.ReclaimPolicy != nil {
		m.ReclaimPolicy = *class.ReclaimPolicy
	}
	if params.gid != 0 {
		m.Annotations = map[string]string{gidAnnotation: fmt.Sprint(params.gid)}
	}
	return m
}

// StaticSpec returns the Spec of a volume without a claim. The class determines
// its options and its PersistentVolume, but not its path.
func (p *Provisioner) StaticSpec(name string, size int64, class *storagev1.StorageClass, modes []v1.PersistentVolumeAccessMode) (volume.Spec, error) {
	params, err := p.parseClass(class)
	if err != nil {
		return volume.Spec{}, err
	}
	m := manifestOf(class, params)
	m.AccessModes = modes
	if params.options.ReadOnly {
		m.MountOptions = ReadOnlyMount(m.MountOptions)
	}
	if class.ReclaimPolicy == nil {
		m.ReclaimPolicy = "" // nothing allows to delete it with its claim
	}
	return params.spec(name, size, m)
}

// NoteMountOptions has the Manifest have the mount options of a PersistentVolume, which somebody may have replaced, but for those that say
// where the server is. It reports whether that has changed it. Without a version of NFS they say nothing that a Manifest could have, in
// which no version stands for 3.
func (m *Manifest) NoteMountOptions(pv *v1.PersistentVolume) bool {
	has := withoutServer(splitOptions(pv.Spec.MountOptions), m.MountOptions)
	ours := withoutServer(mountOptions(Address{}, m.MountOptions), m.MountOptions)
	if slices.Equal(has, m.MountOptions) || slices.Equal(slices.Sorted(slices.Values(has)), slices.Sorted(slices.Values(ours))) {
		return false
	}
	if version, _ := checkMountOptions(has); version == "" {
		return false
	}
	m.MountOptions = has
	return true
}

// encode returns the Manifest as it is stored in a volume's record.
func (m Manifest) Encode() (json.RawMessage, error) {
	data, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode the manifest: %w", err)
	}
	return data, nil
}

// ManifestOf decodes the Manifest in a volume's record.
func ManifestOf(v volume.Volume) (Manifest, error) {
	var m Manifest
	if len(v.Manifest) > 0 {
		if err := json.Unmarshal(v.Manifest, &m); err != nil {
			return Manifest{}, fmt.Errorf("read the manifest in the record of volume %s: %w", v.Name, err)
		}
	}
	if len(m.AccessModes) == 0 {
		m.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteMany}
	}
	if m.ReclaimPolicy == "" {
		m.ReclaimPolicy = v1.PersistentVolumeReclaimRetain
	}
	return m, nil
}

// Bind reserves a PersistentVolume for the claim of its volume, and returns that
// claim: applied together to a cluster that has neither, they bind to each other.
// It returns nil for a volume without a claim.
func Bind(pv *v1.PersistentVolume, v volume.Volume) (*v1.PersistentVolumeClaim, error) {
	if v.Claim == nil {
		return nil, nil
	}
	m, err := ManifestOf(v)
	if err != nil {
		return nil, err
	}
	claim := &v1.PersistentVolumeClaim{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"},
		ObjectMeta: metav1.ObjectMeta{Namespace: v.Claim.Namespace, Name: v.Claim.Name, Labels: m.ClaimLabels},
		Spec: v1.PersistentVolumeClaimSpec{
			AccessModes:      pv.Spec.AccessModes,
			StorageClassName: &pv.Spec.StorageClassName,
			VolumeName:       pv.Name,
			Resources:        v1.VolumeResourceRequirements{Requests: pv.Spec.Capacity.DeepCopy()},
		},
	}
	// Without the claim's UID: the cluster gives it a new one.
	pv.Spec.ClaimRef = &v1.ObjectReference{
		APIVersion: claim.APIVersion, Kind: claim.Kind, Namespace: claim.Namespace, Name: claim.Name,
	}
	return claim, nil
}
