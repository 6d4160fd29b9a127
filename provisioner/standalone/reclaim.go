package standalone

import (
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

	"github.com/podnas/podnas/provisioner"
	"github.com/podnas/podnas/provisioner/problem"
	"github.com/podnas/podnas/volume"
)

// A volume is deleted when its claim was removed from the folder, but never by a
// possible mistake:
//
//   - While any file is unreadable or empty, or contains something that may be meant as a
//     claim, or the folder has no manifest at all, nothing is deleted.
//   - A claim must be missing for Runner.Grace. This is announced, and if the claim is put
//     back, it keeps its volume.
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

// reclaimAll deletes the volumes whose claims were removed from the folder.
func (r *Runner) reclaimAll(ctx context.Context, m *manifests, pvs map[string]*v1.PersistentVolume) {
	var without []*v1.PersistentVolume
	for _, name := range slices.Sorted(maps.Keys(pvs)) {
		if pv := pvs[name]; m.claims[claimOf(pv)] == nil && pv.Status.Phase != v1.VolumeReleased {
			without = append(without, pv)
		}
	}
	err := r.paused(m, len(without))
	switch r.problems.Update(pausedKey, err) {
	case problem.Unchanged, problem.Waiting:
	case problem.New:
		r.Log.Warn("standalone: deleting no volumes for now", "reason", err)
	case problem.Solved:
		r.Log.Info("standalone: deleting volumes again when their claims are removed")
	}
	if err != nil {
		clear(r.gone)
		return
	}
	for _, pv := range without {
		r.problem("volume "+pv.Name, r.reclaim(ctx, pv))
	}
}

// paused returns why no volume is deleted now, although some have no claim.
func (r *Runner) paused(m *manifests, without int) error {
	switch {
	case without == 0:
		return nil
	case len(m.broken) > 0:
		return fmt.Errorf("podnas can't read all claims: correct or remove %s", strings.Join(slices.Sorted(maps.Keys(m.broken)), ", "))
	case len(m.names) == 0:
		return errors.New("the folder has no manifests: put the files back, or at least the StorageClass")
	}
	return nil
}

func claimOf(pv *v1.PersistentVolume) claimKey {
	return keyOf(pv.Spec.ClaimRef.Namespace, pv.Spec.ClaimRef.Name)
}

// reclaim deletes a volume whose claim was removed from the folder long enough ago.
func (r *Runner) reclaim(ctx context.Context, pv *v1.PersistentVolume) error {
	key := claimOf(pv)
	g, told := r.gone[key]
	if !told {
		g.since = time.Now()
		r.printf("\nclaim %s is gone from %s: in %s its volume %s is %s. Put the claim back to keep the volume\n",
			key, r.Claims, r.Grace, pv.Name, r.fate(pv))
	}
	g.scans++
	r.gone[key] = g
	if g.scans < 2 || time.Since(g.since) < r.Grace { // twice: editors replace files
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
