package standalone

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/provisioner"
)

// A volume is deleted when its claim was removed from the folder, but never by a
// possible mistake:
//
//   - Nothing is deleted unless every file of the folder was read whole and understood. A
//     file that is empty, a folder in its place, or no manifest at all is not understood.
//   - A claim must be missing for Runner.Grace, in which no file of the folder changes: a file
//     that is being written has its first documents only, and a claim that moves to another
//     file is in neither for a while. This is announced, and if the claim is put back, it
//     keeps its volume.
//   - If at the start no claim in the folder has a volume, although volumes have claims, it
//     may be the wrong folder: nothing is deleted until one of these claims is there.
//   - Only a volume whose PersistentVolume is in this folder's provisioned/ is deleted: another
//     folder, or an empty one mounted in its place, deletes nothing.
//   - Its files go to the archive, unless its class explicitly says otherwise.

// pausedKey is the key in Runner.problems for paused deletion.
const pausedKey = "paused"

// gone is a claim that is no longer in the folder.
type gone struct {
	since time.Time
	scans int
}

// keepByDefault sets the reclaim policy so that files go to the archive, if the class
// sets nothing. (In a cluster they are then deleted, which is Kubernetes' default.)
func keepByDefault(class *storagev1.StorageClass) *storagev1.StorageClass {
	if class.ReclaimPolicy != nil || class.Parameters[provisioner.OnDeleteParameter] != "" {
		return class
	}
	class = class.DeepCopy()
	if class.Parameters == nil {
		class.Parameters = map[string]string{}
	}
	class.Parameters[provisioner.OnDeleteParameter] = string(volume.ArchiveFiles)
	return class
}

// waitAnew makes claims that are missing wait for all of Runner.Grace again.
func (r *Runner) waitAnew() {
	for key := range r.gone {
		r.gone[key] = gone{since: time.Now()}
	}
}

// reclaimAll deletes the volumes whose claims were removed from the folder.
func (r *Runner) reclaimAll(ctx context.Context, m *manifests, volumes map[claimKey]volume.Volume, pvs writtenPVs) {
	var without []*v1.PersistentVolume
	for _, name := range slices.Sorted(maps.Keys(pvs.byName)) {
		pv := pvs.byName[name]
		if m.has(claimOf(pv)) || pv.Status.Phase == v1.VolumeReleased {
			r.problem("volume "+name, nil)
			continue
		}
		if v, err := r.Provisioner.Store.Get(name); err == nil && v.Claim != nil {
			if owner := keyOf(v.Claim.Namespace, v.Claim.Name); m.has(owner) { // the file was changed, and is written again
				continue
			} else if owner != claimOf(pv) {
				r.problem("volume "+name, fmt.Errorf("its claim is %s by its record on the disk, and %s by %s, so it is not deleted: correct that file, or delete the volume ('podnas volume delete --force %s')", owner, claimOf(pv), r.pvFile(name), name))
				continue
			}
		}
		without = append(without, pv)
	}
	err := r.recognize(m, volumes)
	if len(without) > 0 {
		err = cmp.Or(paused(m), err)
	}
	var why error
	if err != nil { // an error that is a nil *pauseError is not nil
		why = err
	}
	switch r.problems.Update(pausedKey, why) {
	case provisioner.ProblemUnchanged, provisioner.ProblemWaiting:
	case provisioner.ProblemNew:
		r.Log.Warn("standalone: deleting no volumes for now", "reason", err)
	case provisioner.ProblemSolved:
		r.Log.Info("standalone: deleting volumes again when their claims are removed")
	}
	if err != nil {
		clear(r.gone)
		return
	}
	for _, pv := range without {
		r.problem("volume "+pv.Name, r.reclaim(ctx, m, pv))
	}
}

// pauseError is why no volume is deleted now, and what to do about it.
type pauseError struct{ why, fix string }

func (e *pauseError) Error() string { return e.why + ": " + e.fix }

// paused returns why the files do not say for sure which claims there are.
func paused(m *manifests) *pauseError {
	switch {
	case len(m.broken) > 0:
		return &pauseError{"podnas does not understand all files", "correct or remove " + m.brokenNames()}
	case len(m.twice) > 0:
		return &pauseError{"some objects are in the folder more than once (" + strings.Join(slices.Sorted(maps.Keys(m.twice)), ", ") + ")", "remove all but one"}
	case len(m.names) == 0:
		return &pauseError{"the folder has no manifests", "put the files back, or at least the StorageClass"}
	}
	return nil
}

// recognize returns an error while the folder may be the wrong one: while none of the claims
// that had a volume at the start was in it.
func (r *Runner) recognize(m *manifests, volumes map[claimKey]volume.Volume) *pauseError {
	for key := range r.strange {
		if _, there := volumes[key]; !there {
			delete(r.strange, key) // its volume was deleted by command
		} else if m.has(key) {
			clear(r.strange)
		}
	}
	if len(r.strange) == 0 {
		return nil
	}
	var names []string
	for _, key := range slices.Sorted(maps.Keys(r.strange)) {
		names = append(names, string(key))
	}
	first := volumes[claimKey(names[0])].Name
	return &pauseError{
		fmt.Sprintf("since podnas has started, the folder %s had no claim of those that have volumes on this disk (%s), so it may be the wrong folder", r.Claims, volume.FormatNames(names)),
		fmt.Sprintf("start podnas with the right --claims, or put the files back; one of the claims is enough. If they were removed on purpose, delete their volumes ('podnas volume delete --force %s')", first),
	}
}

func claimOf(pv *v1.PersistentVolume) claimKey {
	return keyOf(pv.Spec.ClaimRef.Namespace, pv.Spec.ClaimRef.Name)
}

// reclaim deletes a volume whose claim was removed from the folder long enough ago.
func (r *Runner) reclaim(ctx context.Context, m *manifests, pv *v1.PersistentVolume) error {
	key := claimOf(pv)
	g, told := r.gone[key]
	if !told {
		g.since = time.Now()
		r.printf("\nclaim %s is gone from %s: in %s its volume %s is %s. Put the claim back to keep the volume\n",
			key, r.Claims, r.Grace, pv.Name, r.fate(pv))
	}
	g.scans++
	r.gone[key] = g
	if g.scans < 2 || m.read.Sub(g.since) < r.Grace { // twice: editors replace files; and it may be back since the folder was read
		return nil
	}
	fate := r.fate(pv)
	if pv.Spec.PersistentVolumeReclaimPolicy != v1.PersistentVolumeReclaimDelete {
		if err := r.Provisioner.Store.Release(ctx, pv.Name); err != nil && !errors.Is(err, volume.ErrNotFound) {
			return err
		}
		pv.Status.Phase = v1.VolumeReleased
		if err := r.writePV(pv); err != nil {
			return err
		}
	} else {
		if err := r.Provisioner.Delete(ctx, pv); err != nil {
			return err
		}
		if err := os.Remove(r.pvFile(pv.Name)); err != nil {
			return err
		}
	}
	r.printf("\nclaim %s is gone, and its volume %s is %s\n", key, pv.Name, fate)
	delete(r.served, key)
	delete(r.gone, key)
	return nil
}

// fate says what happens to a volume without its claim.
func (r *Runner) fate(pv *v1.PersistentVolume) string {
	if pv.Spec.PersistentVolumeReclaimPolicy != v1.PersistentVolumeReclaimDelete {
		return "released: its class keeps its files"
	}
	v, _ := r.Provisioner.Store.Get(pv.Name) // a missing volume has no files to lose
	return "deleted: " + v.FateOfFiles(r.Root)
}

// isBack records that a claim is in the folder again.
func (r *Runner) isBack(key claimKey) {
	if _, was := r.gone[key]; was {
		delete(r.gone, key)
		r.printf("\nclaim %s is back: podnas keeps its volume\n", key)
	}
}
