package snapshots

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/provisioner"
)

// syncContent follows a content: until its snapshot is complete, and when it is being deleted.
func (s *session) syncContent(ctx context.Context, name string) error {
	ct := s.content(name)
	switch {
	case ct == nil || ct.Spec.Driver != s.Driver:
		return nil
	case ct.DeletionTimestamp != nil:
		return s.syncDeleted(ctx, ct)
	case ct.isReady():
		return nil
	}
	found, err := s.find(ctx, ct)
	if errors.As(err, new(waiting)) {
		return err
	}
	if err != nil {
		return s.fail(ctx, name, s.snapshot(ct.Spec.Snapshot.Namespace, ct.Spec.Snapshot.Name), err)
	}
	if err := s.patchStatus(ctx, name, s.statusOf(found)); err != nil {
		return ignoreNotFound(err)
	}
	if !found.complete {
		return waiting{"the snapshot is not complete yet"}
	}
	return nil
}

// find returns the snapshot of a content.
func (s *session) find(ctx context.Context, ct *content) (snapshot, error) {
	if handle := ct.Spec.Source.SnapshotHandle; handle != "" { // somebody has made the content for a snapshot that is there
		of, err := s.parseHandle(handle, 3)
		if err != nil {
			return snapshot{}, err
		}
		found, err := s.look(of[0], types.UID(of[1]))
		if err == nil && found.Created.IsZero() {
			return found, waiting{"its moment has not come"}
		}
		return found, err
	}
	of, err := s.parseHandle(ct.Spec.Source.VolumeHandle, 2)
	if err != nil {
		return snapshot{}, err
	}
	uid := ct.Spec.Snapshot.UID
	if ct.Name != contentName(uid) {
		return snapshot{}, fmt.Errorf("it is not the content that podnas makes for a VolumeSnapshot: its name is not %s", contentName(uid))
	}
	if ct.statusHandle() != "" {
		return s.findTold(ct, of[0])
	}
	vs := s.snapshot(ct.Spec.Snapshot.Namespace, ct.Spec.Snapshot.Name)
	if vs == nil || vs.UID != uid {
		return snapshot{}, fmt.Errorf("its VolumeSnapshot %s/%s is gone", ct.Spec.Snapshot.Namespace, ct.Spec.Snapshot.Name)
	}
	return s.take(ctx, of[0], uid)
}

// momentLost begins the error of a content that told its moment, and has no snapshot of it.
const momentLost = "its moment was told, and there is no snapshot of it: delete the VolumeSnapshot, and make another one: "

// findTold returns the snapshot of a content that told its moment. A snapshot of another moment is none: the
// snapshot-controller does not change a creationTime, and whoever waited for it has gone on. The first reason stays in the
// status: the store forgets it after some minutes, and at the end of podnas.
func (s *session) findTold(ct *content, of string) (snapshot, error) {
	found, err := s.look(of, ct.Spec.Snapshot.UID)
	switch told := ct.Status.Error; {
	case err == nil, errors.Is(err, volume.ErrRecord): // the record may be mended
		return found, err
	case told != nil && strings.HasPrefix(told.Message, momentLost):
		return found, errors.New(told.Message)
	case errors.Is(err, volume.ErrNoSnapshot), errors.Is(err, volume.ErrNotFound):
		err = fmt.Errorf("podnas ended before it was complete, or somebody has deleted it: %w", err)
	}
	return found, fmt.Errorf(momentLost+"%w", err)
}

// syncDeleted deletes the snapshot of a content that is being deleted, if its policy says so, and then lets it go.
func (s *session) syncDeleted(ctx context.Context, ct *content) error {
	unbound := ct.Spec.Source.SnapshotHandle != "" && ct.Spec.Snapshot.UID == ""
	_, announced := ct.Annotations[beingDeleted]
	if !slices.Contains(ct.Finalizers, contentFinalizer) || !unbound && !announced {
		return nil
	}
	if ct.Spec.DeletionPolicy == policyDelete {
		err := s.deleteSnapshot(ctx, ct)
		if err != nil {
			if lost := s.sure(ctx); lost != nil {
				return lost
			}
		}
		if err != nil && !errors.Is(err, volume.ErrNoSnapshot) && !errors.Is(err, volume.ErrNotFound) && !s.isOfLostDisk(ct, err) {
			return s.failDeletion(ctx, ct, err)
		}
		if ct.Status != nil {
			status := map[string]any{"snapshotHandle": nil, "readyToUse": nil, "creationTime": nil, "restoreSize": nil}
			if err := ignoreNotFound(s.patchStatus(ctx, ct.Name, status)); err != nil {
				return err
			}
		}
	} else if err := s.claimFor(ct.Spec.Snapshot.UID); err != nil { // else it would be taken for one that was never bound
		return err
	}
	left := slices.DeleteFunc(slices.Clone(ct.Finalizers), func(f string) bool { return f == contentFinalizer })
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": ct.UID, "finalizers": left}})
	if err != nil {
		return err
	}
	_, err = s.Client.Resource(contentResource).Patch(ctx, ct.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return ignoreNotFound(err)
}

// isOfLostDisk reports whether a content can't be deleted with its snapshot because that is on a disk that has been replaced: podnas was
// told so, or no PersistentVolume is on it any more. Without podnas's leave the content, its VolumeSnapshot and the namespace of that
// would stay for ever.
func (s *session) isOfLostDisk(ct *content, why error) bool {
	var other *otherDiskError
	if !errors.As(why, &other) {
		return false
	}
	if !s.NewDisk {
		volumes, err := s.Volumes.List(labels.Everything())
		isThere := func(pv *v1.PersistentVolume) bool {
			return pv.Annotations[provisioner.InstanceAnnotation] == other.theirs
		}
		if err != nil || slices.ContainsFunc(volumes, isThere) {
			return false
		}
	}
	s.Log.Info("snapshots: a VolumeSnapshotContent is deleted, and its snapshot stays on a disk that this podnas does not have",
		"content", ct.Name, "disk", other.theirs, "snapshot", ct.statusHandle())
	return true
}

// failDeletion says in a content why its snapshot can't be deleted, and on both objects. A claim that shows the snapshot is no
// failure: when it is gone, so is the snapshot.
func (s *session) failDeletion(ctx context.Context, ct *content, why error) error {
	if s.isNew(key{name: ct.Name}, why) {
		s.event(contentKind, &ct.ObjectMeta, "SnapshotDeleteFailed", why.Error())
		if vs := s.snapshot(ct.Spec.Snapshot.Namespace, ct.Spec.Snapshot.Name); vs != nil && vs.UID == ct.Spec.Snapshot.UID {
			s.event(Kind, &vs.ObjectMeta, "SnapshotDeleteFailed", why.Error())
		}
		err := s.patchStatus(ctx, ct.Name, &contentStatus{Error: &contentError{metav1.NewTime(time.Now()), why.Error()}})
		if ignoreNotFound(err) != nil {
			s.problems.Update(key{name: ct.Name}.String(), nil) // told the next time
			return errors.Join(why, err)
		}
	}
	if errors.As(why, new(*volume.ViewedError)) {
		return waiting{why.Error()}
	}
	return why
}

// deleteSnapshot deletes the snapshot of a content. The errors volume.ErrNoSnapshot and volume.ErrNotFound mean that it is gone.
func (s *session) deleteSnapshot(ctx context.Context, ct *content) error {
	handle := ct.statusHandle()
	if handle == "" {
		if ct.Spec.Source.SnapshotHandle != "" {
			return nil // nothing was found for it
		}
		handle = strings.Join([]string{ct.Spec.Source.VolumeHandle, snapshotName(ct.Spec.Snapshot.UID)}, "/")
	}
	of, err := s.parseHandle(handle, 3)
	if err != nil {
		return err
	}
	return s.Store.DeleteSnapshot(ctx, of[0], of[1])
}
