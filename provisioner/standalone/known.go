package standalone

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"
	v1 "k8s.io/api/core/v1"

	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/provisioner"
)

// The records on the disk say which volume a claim has. If there is no record, but a
// PersistentVolume in provisioned/, then the disk is another one, or the record is
// damaged or gone, and a new, empty volume would be the worst answer.

// volumes returns the volumes of claims, from earlier scans or runs. If a claim has
// several, it is the oldest.
func (r *Runner) volumes() map[claimKey]volume.Volume {
	volumes := map[claimKey]volume.Volume{}
	for _, v := range r.Provisioner.Store.List() {
		if v.Claim == nil {
			continue
		}
		key := keyOf(v.Claim.Namespace, v.Claim.Name)
		if other, found := volumes[key]; !found || v.Created.Before(other.Created) {
			volumes[key] = v
		}
	}
	return volumes
}

// checkDoubles reports claims that have several volumes.
func (r *Runner) checkDoubles(volumes map[claimKey]volume.Volume) {
	doubles := map[string]bool{}
	for _, v := range r.Provisioner.Store.List() {
		if v.Claim == nil {
			continue
		}
		key := keyOf(v.Claim.Namespace, v.Claim.Name)
		if first := volumes[key].Name; first != "" && first != v.Name {
			about := "second volume " + v.Name
			doubles[about] = true
			r.problem(about, fmt.Errorf("claim %s has an older volume, %s, which is in use: check this one, and delete it with 'podnas volume delete --force %s'", key, first, v.Name))
		}
	}
	r.problems.Keep(func(about string) bool { return doubles[about] || !strings.HasPrefix(about, "second ") })
}

// giveBack gives a claim its volume, if the record has no claim: it was adopted by command, or
// podnas was killed when it had released it.
func (r *Runner) giveBack(ctx context.Context, claim *v1.PersistentVolumeClaim, pvs writtenPVs) (v volume.Volume, found bool, err error) {
	store := r.Provisioner.Store
	for _, name := range slices.Sorted(maps.Keys(pvs.byName)) {
		pv := pvs.byName[name]
		if claimOf(pv) != keyOf(claim.Namespace, claim.Name) || pv.Status.Phase == v1.VolumeReleased || pv.Annotations[provisioner.InstanceAnnotation] != store.Identity() {
			continue
		}
		if v, err := store.Get(name); err == nil && v.Claim == nil {
			v, err = store.Claim(ctx, name, newClaim(claim))
			return v, err == nil, err
		}
	}
	return volume.Volume{}, false, nil
}

// newClaim is a claim in the record of its volume.
func newClaim(claim *v1.PersistentVolumeClaim) *volume.Claim {
	return &volume.Claim{Namespace: claim.Namespace, Name: claim.Name, UID: uuid.NewString()}
}

// checkUnknown refuses a claim that has no volume on the disk, but must have one.
func (r *Runner) checkUnknown(key claimKey, pvs writtenPVs) error {
	store := r.Provisioner.Store
	damaged := store.Damaged()
	if r.seen == nil {
		r.seen = map[string]bool{}
	}
	for name := range pvs.byName {
		r.seen[name] = true
	}
	for name := range pvs.lost {
		r.seen[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(pvs.byName)) {
		pv := pvs.byName[name]
		if claimOf(pv) != key || pv.Status.Phase == v1.VolumeReleased {
			continue
		}
		if v, err := store.Get(name); err == nil && v.Claim != nil {
			return fmt.Errorf("its volume %s is the claim %s/%s's by its record on the disk, and this claim's by %s: remove that file to get a new, empty volume", name, v.Claim.Namespace, v.Claim.Name, r.pvFile(name))
		}
		anew := fmt.Sprintf("to start with a new, empty volume, remove %s", r.pvFile(name))
		owner := pv.Annotations[provisioner.InstanceAnnotation]
		switch {
		case owner != store.Identity() && r.NewDisk:
		case owner != store.Identity():
			return fmt.Errorf("its volume %s is on the disk %s, and the one at %s is %s: mount the right disk; %s, or use --new-disk for all claims", name, owner, r.Root, store.Identity(), anew)
		case slices.Contains(damaged, name):
			return fmt.Errorf("its volume %s is on the disk, but its record is damaged or contradicts another: restore .podnas/volumes/%s.json from a backup, or move it away and restore the volume with 'podnas volume adopt %s'; 'podnas doctor' says more; %s too", name, name, name, anew)
		default:
			return fmt.Errorf("its volume %s has no record on the disk%s: restore it with 'podnas volume adopt %s'; %s", name, r.keptState(name), name, anew)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(pvs.lost)) {
		return fmt.Errorf("the PersistentVolume in %s can't be read, and may be of this claim: restore the file, or remove it to get a new, empty volume", r.pvFile(name))
	}
	for _, name := range damaged {
		if pvs.byName[name] == nil { // otherwise it belongs to another claim
			return fmt.Errorf("the record .podnas/volumes/%s.json is damaged or contradicts another, and may belong to this claim: restore it from a backup, or move it away; 'podnas doctor' says more", name)
		}
	}
	for _, dir := range store.Lost() {
		if !r.seen[dir] { // otherwise a person has removed its PersistentVolume, to begin anew
			return fmt.Errorf("the directory %[1]s has the name of a volume, but no record, and may have the files of this claim: restore .podnas/volumes/%[1]s.json from a backup; or make it a volume with 'podnas volume adopt %[1]s --size=SIZE', and name it in volumeName of the right claim; or move it away", dir)
		}
	}
	return nil
}

func (r *Runner) keptState(name string) string {
	kept, _ := r.Provisioner.Store.Kept() // unreadable ones are ignored
	for _, k := range kept {
		if k.Name == name {
			return ", it was deleted and is " + k.State
		}
	}
	return ""
}

// CheckDisk refuses a disk that has none of the volumes in provisioned/, before
// anything is created there: for example the empty mount point of a disk that is
// not mounted.
func CheckDisk(claims, root string) error {
	identity, err := volume.IdentityOf(root)
	if err != nil {
		return err
	}
	r := Runner{Claims: claims}
	written, err := r.readPVs()
	if err != nil && identity == "" {
		return fmt.Errorf("podnas has never served %s, and whether it is the disk of these claims is unknown: read the PersistentVolumes in %s: %w", root, claims, err)
	}
	pvs := written.byName
	var others []string
	for _, name := range slices.Sorted(maps.Keys(pvs)) {
		if owner := pvs[name].Annotations[provisioner.InstanceAnnotation]; owner != identity && pvs[name].Status.Phase != v1.VolumeReleased {
			others = append(others, name+" (disk "+owner+")")
		}
	}
	if identity == "" && len(pvs) == 0 && len(written.lost) > 0 { // they were of some disk
		return fmt.Errorf("%s is empty: podnas has never served it, and what is in %s/%s is damaged, so claims may have volumes on another disk. Mount that. To start with new, empty volumes instead, remove %s/%s or use --new-disk",
			root, claims, provisionedDir, claims, provisionedDir)
	}
	if len(others) == 0 || len(others) < len(pvs) { // some are here: the claims of the others get an error
		return nil
	}
	is := "is the disk " + identity
	if identity == "" {
		is = "is empty: podnas has never served it"
	}
	return fmt.Errorf("%s is not the disk of these claims: %d PersistentVolumes in %s/%s are on another one, %s, and %s %s. Mount the right disk there. To start with new, empty volumes instead, remove %s/%s or use --new-disk",
		root, len(others), claims, provisionedDir, volume.FormatNames(others), root, is, claims, provisionedDir)
}
