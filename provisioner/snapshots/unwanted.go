package snapshots

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/podnas/podnas/internal/volume"
)

// A VolumeSnapshot may be deleted before it is bound to its content. Then nobody but podnas knows of its snapshot: the
// snapshot-controller deletes the content of a VolumeSnapshot only if it has bound the two. The snapshot's record says until then that
// it is unclaimed (volume.Store.StartUnclaimed), so this is known also when podnas was away meanwhile. Nothing else is ever
// collected.

// endUnwanted ends and deletes what there is for VolumeSnapshots that are gone, and were not bound.
func (s *session) endUnwanted(ctx context.Context) error {
	unclaimed := s.Store.Unclaimed()
	if len(unclaimed) == 0 {
		return nil
	}
	there, wanted := map[types.UID]bool{}, map[types.UID]bool{}
	for _, o := range s.snapshots.GetStore().List() {
		vs := o.(*volumeSnapshot)
		there[vs.UID], wanted[vs.UID] = true, vs.DeletionTimestamp == nil
	}
	var failed error
	for _, u := range unclaimed {
		uid := types.UID(u.Name)
		if wanted[uid] {
			continue
		}
		ct, err := s.getContent(ctx, contentName(uid)) // the cache may not have what this process has just made
		switch {
		case apierrors.IsNotFound(err):
			err = s.deleteUnclaimed(ctx, u)
		case err == nil && !there[uid] && ct.DeletionTimestamp == nil: // else the snapshot-controller does it
			err = s.deleteUnbound(ctx, ct, u)
		}
		failed = errors.Join(failed, err)
	}
	return failed
}

// deleteUnclaimed deletes a snapshot without a content.
func (s *session) deleteUnclaimed(ctx context.Context, u volume.UnclaimedSnapshot) error {
	err := s.Store.DeleteSnapshot(ctx, u.Volume, u.Name)
	if errors.Is(err, volume.ErrNoSnapshot) || errors.Is(err, volume.ErrNotFound) {
		return nil
	}
	if err == nil {
		s.Log.Info("snapshots: deleted a snapshot whose VolumeSnapshot was deleted before", "volume", u.Volume, "snapshot", u.Name)
	}
	return err
}

// deleteUnbound deletes a content whose VolumeSnapshot is gone. With the policy Retain both stay: they may have been bound since
// podnas has looked.
func (s *session) deleteUnbound(ctx context.Context, ct *content, u volume.UnclaimedSnapshot) error {
	if ct.Spec.DeletionPolicy != policyDelete {
		return s.Store.ClaimSnapshot(u.Volume, u.Name)
	}
	now, err := s.getSnapshot(ctx, ct.Spec.Snapshot.Namespace, ct.Spec.Snapshot.Name) // a list may be old
	if err == nil && now.UID == ct.Spec.Snapshot.UID {
		return nil
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if err := s.sure(ctx); err != nil {
		return err
	}
	s.Log.Info("snapshots: a VolumeSnapshot was deleted before it was bound", "namespace", ct.Spec.Snapshot.Namespace, "name", ct.Spec.Snapshot.Name)
	return s.deleteContent(ctx, ct.Name)
}

// claim says that a VolumeSnapshot is bound: the snapshot-controller looks after it and its content.
func (s *session) claim(vs *volumeSnapshot) error { return s.claimFor(vs.UID) }

// claimFor is claim by the UID of the VolumeSnapshot.
func (s *session) claimFor(uid types.UID) error {
	var failed error
	for _, u := range s.Store.Unclaimed() {
		if u.Name == snapshotName(uid) {
			failed = errors.Join(failed, s.Store.ClaimSnapshot(u.Volume, u.Name))
		}
	}
	return failed
}
