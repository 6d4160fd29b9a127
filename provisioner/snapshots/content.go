package snapshots

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/podnas/podnas/internal/volume"
)

// syncContent has the status of a content say how its snapshot is, or lets it go when it is being deleted.
func (s *session) syncContent(ctx context.Context, name string) error {
	c := s.content(name)
	switch {
	case c == nil || c.Spec.Driver != s.Driver:
		return nil
	case c.DeletionTimestamp != nil:
		return s.letGo(ctx, c)
	case c.isReady():
		return nil
	}
	status, err := s.statusOf(c)
	if err != nil {
		if !c.says(err) {
			status = contentStatus{Error: &contentError{metav1.Time{Time: time.Now()}, err.Error()}}
			if patchErr := s.patchStatus(ctx, name, status); patchErr != nil {
				return patchErr
			}
		}
		return err
	}
	if !c.has(&status) {
		if err := s.patchStatus(ctx, name, status); err != nil {
			if apierrors.IsNotFound(err) {
				return nil
			}
			return fmt.Errorf("set the status: %w", err)
		}
	}
	if !*status.Ready {
		return waiting{"its files are not complete yet"}
	}
	return nil
}

// snapshotOf returns which snapshot a content stands for: that of its status or of its source, or the one that was taken for
// its VolumeSnapshot.
func (s *session) snapshotOf(c *content) (volume, snapshot string, err error) {
	handle := c.statusHandle()
	if handle == "" {
		handle = c.Spec.Source.SnapshotHandle
	}
	if handle != "" {
		parts, err := s.parseHandle(handle, 3)
		if err != nil {
			return "", "", err
		}
		return parts[0], parts[1], nil
	}
	parts, err := s.parseHandle(c.Spec.Source.VolumeHandle, 2)
	if err != nil {
		return "", "", err
	}
	return parts[0], snapshotName(c.Spec.Snapshot.UID), nil
}

// statusOf is what the status of a content should be. Its errors are for the user.
func (s *session) statusOf(c *content) (contentStatus, error) {
	v, name, err := s.snapshotOf(c)
	if err != nil {
		return contentStatus{}, err
	}
	snapshot, err := s.Store.GetSnapshot(v, name)
	ready := err == nil
	var taking *volume.TakingError
	switch {
	case errors.As(err, &taking):
		snapshot = taking.Snapshot
	case err != nil:
		return contentStatus{}, fmt.Errorf("snapshot %s of volume %s: %w", name, v, err)
	}
	// The size of the volume, and not that of the files: who restores it needs a claim of that size.
	handle, size := s.snapshotHandle(v, name), snapshot.Size
	status := contentStatus{SnapshotHandle: &handle, RestoreSize: &size, Ready: &ready}
	if !snapshot.Created.IsZero() {
		created := snapshot.Created.UnixNano()
		status.CreationTime = &created
	}
	return status, nil
}

// says reports whether the status has an error already.
func (c *content) says(err error) bool {
	return c.Status != nil && c.Status.Error != nil && c.Status.Error.Message == err.Error()
}

// has reports whether the status is as wanted.
func (c *content) has(want *contentStatus) bool {
	got := c.Status
	return got != nil && got.Error == nil && same(got.SnapshotHandle, want.SnapshotHandle) && same(got.RestoreSize, want.RestoreSize) &&
		same(got.Ready, want.Ready) && (want.CreationTime == nil || same(got.CreationTime, want.CreationTime))
}

func same[T comparable](a, b *T) bool { return a != nil && b != nil && *a == *b }

// letGo removes the finalizer of a content that is being deleted, once the snapshot-controller has said that its VolumeSnapshot
// is. The snapshot is deleted before, if the policy says so.
func (s *session) letGo(ctx context.Context, c *content) error {
	if _, may := c.Annotations[beingDeleted]; !may || !slices.Contains(c.Finalizers, contentFinalizer) {
		return nil
	}
	if c.Spec.DeletionPolicy == policyDelete {
		if err := s.deleteSnapshot(ctx, c); err != nil {
			return err
		}
	}
	patch, err := json.Marshal([]map[string]any{
		{"op": "test", "path": "/metadata/resourceVersion", "value": c.ResourceVersion},
		{"op": "replace", "path": "/metadata/finalizers", "value": slices.DeleteFunc(slices.Clone(c.Finalizers), func(f string) bool { return f == contentFinalizer })},
	})
	if err != nil {
		return err
	}
	_, err = s.Client.Resource(contentResource).Patch(ctx, c.Name, types.JSONPatchType, patch, metav1.PatchOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case apierrors.IsInvalid(err): // the test has failed
		return waiting{"it has changed meanwhile"}
	}
	return err
}

// deleteSnapshot deletes the snapshot of a content, of which the status says so.
func (s *session) deleteSnapshot(ctx context.Context, c *content) error {
	v, name, err := s.snapshotOf(c)
	if err != nil {
		return fmt.Errorf("delete its snapshot: %w", err)
	}
	switch err := s.Store.DeleteSnapshot(ctx, v, name); {
	case err == nil:
		s.Log.Info("snapshots: deleted", "volume", v, "snapshot", name, "content", c.Name)
	case !errors.Is(err, volume.ErrNoSnapshot) && !errors.Is(err, volume.ErrNotFound):
		return err
	}
	return nil
}
