package snapshots

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/provisioner"
)

// syncSnapshot takes the snapshot of a VolumeSnapshot, and makes its content. syncContent fills in the content's status.
func (s *session) syncSnapshot(ctx context.Context, k key) error {
	vs := s.snapshot(k.namespace, k.name)
	if vs == nil || vs.DeletionTimestamp != nil || vs.Spec.Source.Claim == "" || vs.Status.BoundContent != "" || s.content(contentName(vs.UID)) != nil {
		return nil
	}
	class, err := s.classOf(ctx, vs)
	if err != nil || class == nil {
		return err
	}
	return s.take(ctx, vs, class)
}

// classOf returns the class of a VolumeSnapshot, if it is one of this driver. A VolumeSnapshot without a class, of a claim of
// ours, gets the default one of this driver: that of the snapshot-controller has the driver of a CSI volume.
func (s *session) classOf(ctx context.Context, vs *volumeSnapshot) (*class, error) {
	if vs.Spec.Class != nil {
		c := s.class(*vs.Spec.Class)
		if c == nil || c.Driver != s.Driver {
			return nil, nil
		}
		return c, nil
	}
	if _, err := s.volumeOf(vs); err != nil {
		return nil, nil //nolint:nilerr // it may be another driver's, whose error this would not be
	}
	var defaults []*class
	for _, o := range s.classes.GetStore().List() {
		if c, ok := o.(*class); ok && c.Driver == s.Driver && c.Annotations[isDefaultClass] == "true" {
			defaults = append(defaults, c)
		}
	}
	if len(defaults) != 1 {
		return nil, nil
	}
	// The snapshot goes on with the class when it comes back from the API server.
	return nil, s.setClass(ctx, vs, defaults[0].Name)
}

func (s *session) setClass(ctx context.Context, vs *volumeSnapshot, name string) error {
	patch, err := json.Marshal([]map[string]any{
		{"op": "test", "path": "/metadata/resourceVersion", "value": vs.ResourceVersion},
		{"op": "add", "path": "/spec/volumeSnapshotClassName", "value": name},
	})
	if err != nil {
		return err
	}
	_, err = s.Client.Resource(snapshotResource).Namespace(vs.Namespace).Patch(ctx, vs.Name, types.JSONPatchType, patch, metav1.PatchOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case apierrors.IsInvalid(err): // the test has failed
		return waiting{"it has changed meanwhile"}
	case err != nil:
		return fmt.Errorf("set the default class: %w", err)
	}
	return nil
}

// volumeOf returns the volume of the claim of a VolumeSnapshot. Its errors are shown to the user.
func (s *session) volumeOf(vs *volumeSnapshot) (volume.Volume, error) {
	name := vs.Spec.Source.Claim
	claim, err := s.Claims.PersistentVolumeClaims(vs.Namespace).Get(name)
	switch {
	case apierrors.IsNotFound(err):
		return volume.Volume{}, fmt.Errorf("claim %s does not exist in namespace %s", name, vs.Namespace)
	case err != nil:
		return volume.Volume{}, err
	case claim.DeletionTimestamp != nil:
		return volume.Volume{}, fmt.Errorf("claim %s is being deleted", name)
	case claim.Status.Phase != v1.ClaimBound:
		return volume.Volume{}, fmt.Errorf("claim %s is not bound to a volume yet", name)
	}
	pv, err := s.Volumes.Get(claim.Spec.VolumeName)
	if err != nil {
		return volume.Volume{}, fmt.Errorf("get the PersistentVolume of claim %s: %w", name, err)
	}
	if pv.Annotations[provisioner.InstanceAnnotation] != s.Store.Identity() || pv.Spec.ClaimRef == nil || pv.Spec.ClaimRef.UID != claim.UID {
		return volume.Volume{}, fmt.Errorf("volume %s of claim %s is not on the disk of this podnas", pv.Name, name)
	}
	if pv.DeletionTimestamp != nil {
		return volume.Volume{}, fmt.Errorf("volume %s of claim %s is being deleted", pv.Name, name)
	}
	return s.Store.Get(pv.Name)
}

// take takes the snapshot, and makes its content as soon as its moment has come. It may be called again.
func (s *session) take(ctx context.Context, vs *volumeSnapshot, c *class) error {
	v, err := s.volumeOf(vs)
	if err != nil {
		return err
	}
	name := snapshotName(vs.UID)
	snapshot, err := s.Store.GetSnapshot(v.Name, name)
	var taking *volume.TakingError
	switch {
	case errors.As(err, &taking):
		if snapshot = taking.Snapshot; snapshot.Created.IsZero() {
			return waiting{"its moment has not come yet"}
		}
	case errors.Is(err, volume.ErrNoSnapshot):
		return s.start(ctx, v, name)
	case err != nil:
		return err
	}
	// The cache may be behind. Nobody would delete a content whose VolumeSnapshot is gone by now.
	now, err := s.getSnapshot(ctx, vs.Namespace, vs.Name)
	if apierrors.IsNotFound(err) || err == nil && (now.UID != vs.UID || now.DeletionTimestamp != nil) {
		return nil // its snapshot is a finding
	}
	if err != nil {
		return err
	}
	err = s.createContent(ctx, &content{
		TypeMeta:   metav1.TypeMeta{APIVersion: groupVersion.String(), Kind: contentKind},
		ObjectMeta: metav1.ObjectMeta{Name: contentName(vs.UID), Finalizers: []string{contentFinalizer}},
		Spec: contentSpec{
			Driver: s.Driver, DeletionPolicy: c.DeletionPolicy, Class: &c.Name, SourceVolumeMode: string(v1.PersistentVolumeFilesystem),
			Source: contentSource{VolumeHandle: s.volumeHandle(v.Name)},
			Snapshot: v1.ObjectReference{
				APIVersion: groupVersion.String(), Kind: Kind, Namespace: vs.Namespace, Name: vs.Name, UID: vs.UID, ResourceVersion: now.ResourceVersion,
			},
		},
	})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// start begins to take a snapshot, unless another one of the volume is being taken.
func (s *session) start(ctx context.Context, v volume.Volume, name string) error {
	_, err := s.Store.StartSnapshot(ctx, v.Name, name)
	switch {
	case err == nil:
		s.Log.Info("snapshots: taking", "volume", v.Name, "snapshot", name)
		return waiting{"it has begun"}
	case errors.Is(err, volume.ErrExists):
		return waiting{"it has begun"}
	case !errors.Is(err, volume.ErrBusy):
		return err
	}
	for _, u := range s.Store.SnapshotsUnderWay() {
		if u.VolumeID == v.ID {
			return waiting{"another snapshot of the volume is being taken"}
		}
	}
	return err
}
