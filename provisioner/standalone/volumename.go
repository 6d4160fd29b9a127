package standalone

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/provisioner"
)

// A claim's volumeName is the volume that it had in its cluster, or the one that a person
// has chosen. The claim gets that volume with its files, or none: a new, empty volume in
// its place would look as if the files were lost.

// take gives a claim without a volume the one that its volumeName names, if no other
// claim has it.
func (r *Runner) take(ctx context.Context, m *manifests, claim *v1.PersistentVolumeClaim, pvs writtenPVs) (volume.Volume, error) {
	name := claim.Spec.VolumeName
	class, err := m.class(claim, r.Provisioner.Name)
	if named, _ := className(claim); named != "" && errors.Is(err, errNotOurs) {
		return volume.Volume{}, err // the volume is another provisioner's
	}
	if err := provisioner.CheckFields(claim); err != nil {
		return volume.Volume{}, err
	}
	v, kept, err := r.free(name, pvs)
	if err != nil {
		return volume.Volume{}, err
	}
	size, err := requested(claim)
	if err != nil {
		return volume.Volume{}, err
	}
	if size > v.Size && (class == nil || class.AllowVolumeExpansion == nil || !*class.AllowVolumeExpansion) {
		return volume.Volume{}, fmt.Errorf("volume %s has %s, and %s is requested: request at most its size, or set allowVolumeExpansion to true in a StorageClass of the claim",
			name, volume.FormatSize(v.Size), claim.Spec.Resources.Requests.Storage())
	}
	spec := volume.Spec{Name: name, Claim: newClaim(claim)}
	if spec.Manifest, err = manifestFor(v, claim); err != nil {
		return volume.Volume{}, err
	}
	if kept {
		v, err = r.Provisioner.Store.Adopt(ctx, spec)
	} else if v, err = r.Provisioner.Store.SetManifest(ctx, name, spec.Manifest); err == nil {
		v, err = r.Provisioner.Store.Claim(ctx, name, spec.Claim)
	}
	if err != nil {
		return volume.Volume{}, fmt.Errorf("take the volume %s: %w", name, err)
	}
	r.printf("\nclaim %s/%s has taken the volume %s, which its volumeName names, with its files\n", claim.Namespace, claim.Name, name)
	return v, nil
}

// free returns a volume that no claim has, and whether it was deleted and kept.
func (r *Runner) free(name string, pvs writtenPVs) (v volume.Volume, kept bool, err error) {
	store := r.Provisioner.Store
	if v, err := store.Get(name); err == nil {
		if v.Claim != nil {
			return v, false, fmt.Errorf("its volumeName is %s, and that volume is the claim %s/%s's: change volumeName, or remove it to get a new, empty volume", name, v.Claim.Namespace, v.Claim.Name)
		}
		return v, false, nil
	}
	all, err := store.Kept()
	if err != nil {
		return volume.Volume{}, false, err
	}
	for _, k := range slices.Backward(all) { // of several, the one that Adopt takes
		if k.Name == name {
			return k.Volume, true, nil
		}
	}
	why := "there is no volume of that name"
	switch pv := pvs.byName[name]; {
	case slices.Contains(store.Damaged(), name):
		why = fmt.Sprintf("the record .podnas/volumes/%s.json is damaged (restore it from a backup)", name)
	case pv != nil && pv.Annotations[provisioner.InstanceAnnotation] != store.Identity():
		why = "that volume is on the disk " + pv.Annotations[provisioner.InstanceAnnotation]
	}
	return volume.Volume{}, false, fmt.Errorf("its volumeName is %s, and on the disk at %s %s: bring its files there and make a volume of them ('podnas volume adopt %s'), correct volumeName ('podnas volume list --all'), or remove it to get a new, empty volume",
		name, r.Root, why, name)
}

// manifestFor returns the manifest of a volume whose claim is now this one. What happens to
// the files when the claim is removed stays as it is.
func manifestFor(v volume.Volume, claim *v1.PersistentVolumeClaim) ([]byte, error) {
	m, err := provisioner.ManifestOf(v)
	if err != nil {
		return nil, err
	}
	if name, given := className(claim); given {
		m.StorageClassName = name // else a cluster does not bind them
	}
	m.AccessModes, m.ClaimLabels = claim.Spec.AccessModes, maps.Clone(claim.Labels)
	return m.Encode()
}
