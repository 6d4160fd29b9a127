package snapshots

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/provisioner"
)

// syncSnapshot makes the snapshot and the content of a VolumeSnapshot that has none. Then it is syncContent's turn.
func (s *session) syncSnapshot(ctx context.Context, k key) error {
	vs := s.snapshot(k.namespace, k.name)
	if vs == nil || vs.UID != k.uid || vs.DeletionTimestamp != nil {
		return s.endUnwanted(ctx)
	}
	if vs.Status.BoundContent != "" {
		return s.claim(vs)
	}
	if vs.Spec.Source.Claim == "" || s.content(contentName(vs.UID)) != nil {
		return nil
	}
	if vs.Spec.Class == nil || *vs.Spec.Class == "" {
		return s.setDefaultClass(ctx, vs)
	}
	class := s.class(*vs.Spec.Class)
	if class == nil || class.Driver != s.Driver { // the snapshot-controller tells if it is not there
		return nil
	}
	name, err := s.volumeOf(vs)
	if err != nil {
		return s.tell(vs, err)
	}
	taken, err := s.take(ctx, name, vs.UID)
	if errors.As(err, new(waiting)) {
		return err
	}
	if err := s.makeContent(ctx, vs, class, name); err != nil {
		return err
	}
	if err != nil {
		return s.fail(ctx, contentName(vs.UID), vs, err) // the content is queued by its creation
	}
	return s.patchStatus(ctx, contentName(vs.UID), s.statusOf(taken))
}

// tell puts an event on a VolumeSnapshot, once for each problem.
func (s *session) tell(vs *volumeSnapshot, err error) error {
	if s.isNew(vs.key(), err) {
		s.event(Kind, &vs.ObjectMeta, "SnapshotFailed", err.Error())
	}
	return err
}

// setDefaultClass gives a VolumeSnapshot without a class the default class of this driver, if its volume is on this disk.
// The snapshot-controller does that for CSI volumes alone.
func (s *session) setDefaultClass(ctx context.Context, vs *volumeSnapshot) error {
	if _, err := s.volumeOf(vs); err != nil {
		if errors.Is(err, errNotBound) {
			return unrelated{err.Error()} // it may yet be bound to a volume of this disk
		}
		return nil
	}
	var found []string
	for _, o := range s.classes.GetStore().List() {
		if class := o.(*class); class.Driver == s.Driver && class.Annotations[isDefaultClass] == "true" {
			found = append(found, class.Name)
		}
	}
	if len(found) != 1 {
		return s.tell(vs, fmt.Errorf("it has no volumeSnapshotClassName, and %d VolumeSnapshotClasses of %s are the default, with the annotation %s: \"true\": set volumeSnapshotClassName, or have one default",
			len(found), s.Driver, isDefaultClass))
	}
	// A conflict if somebody else has set it.
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": vs.UID, "resourceVersion": vs.ResourceVersion},
		"spec":     map[string]any{"volumeSnapshotClassName": found[0]},
	})
	if err != nil {
		return err
	}
	_, err = s.Client.Resource(snapshotResource).Namespace(vs.Namespace).Patch(ctx, vs.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return ignoreNotFound(err)
}

// errNotBound means that a claim may yet have a volume.
var errNotBound = errors.New("it is not bound to a volume yet")

// volumeOf returns the name of the volume that a VolumeSnapshot is of.
func (s *session) volumeOf(vs *volumeSnapshot) (string, error) {
	name := vs.Spec.Source.Claim
	claim, err := s.Claims.PersistentVolumeClaims(vs.Namespace).Get(name)
	if apierrors.IsNotFound(err) {
		return "", fmt.Errorf("claim %s: %w: there is no such claim in namespace %s", name, errNotBound, vs.Namespace)
	}
	if err != nil {
		return "", err
	}
	switch {
	case claim.DeletionTimestamp != nil:
		return "", fmt.Errorf("claim %s is being deleted, so no snapshot of it is taken", name)
	case claim.Status.Phase != v1.ClaimBound:
		return "", fmt.Errorf("claim %s: %w", name, errNotBound)
	}
	pv, err := s.Volumes.Get(claim.Spec.VolumeName)
	if err != nil {
		return "", fmt.Errorf("claim %s: %w", name, err)
	}
	switch {
	case pv.Annotations[provisioner.InstanceAnnotation] != s.Store.Identity() || pv.Spec.ClaimRef == nil || pv.Spec.ClaimRef.UID != claim.UID:
		return "", fmt.Errorf("the volume %s of claim %s is not on the disk of this podnas: use a VolumeSnapshotClass of its own driver", pv.Name, name)
	case pv.DeletionTimestamp != nil:
		return "", fmt.Errorf("the volume %s of claim %s is being deleted, so no snapshot of it is taken", pv.Name, name)
	}
	return pv.Name, nil
}

// take takes the snapshot of a VolumeSnapshot, and returns it when its moment is there: it may not be complete yet. It may
// be called again.
func (s *session) take(ctx context.Context, name string, uid types.UID) (taken snapshot, err error) {
	switch taken, err = s.look(name, uid); {
	case errors.Is(err, volume.ErrNoSnapshot):
	case err == nil && !taken.complete && taken.Created.IsZero():
		return taken, waiting{"its moment has not come"}
	case err != nil:
		s.Store.ForgetFailure(name, snapshotName(uid)) // it is told in the objects, and the next try takes it again
		return taken, err
	default:
		return taken, nil
	}
	begun, err := s.Store.StartUnclaimed(ctx, name, snapshotName(uid))
	switch {
	case errors.Is(err, volume.ErrBusy) && s.takesAnother(name):
		return taken, waiting{err.Error()}
	case err != nil:
		return taken, err
	case begun.Created.IsZero():
		return taken, waiting{"its moment has not come"}
	}
	return snapshot{Snapshot: begun.Snapshot}, nil
}

// takesAnother reports whether another snapshot of a volume is being taken.
func (s *session) takesAnother(name string) bool {
	for _, u := range s.Store.SnapshotsUnderWay() {
		if u.Volume == name {
			return true
		}
	}
	return false
}

// snapshot is a snapshot that may not be complete yet. Created is zero until its moment.
type snapshot struct {
	volume.Snapshot
	complete bool
}

// look returns the snapshot of a VolumeSnapshot, or of a volume and a name.
func (c *Controller) look(name string, uid types.UID) (snapshot, error) {
	found, err := c.Store.GetSnapshot(name, snapshotName(uid))
	var taking *volume.TakingError
	if errors.As(err, &taking) {
		return snapshot{Snapshot: taking.Snapshot}, nil
	}
	return snapshot{found, true}, err
}

// statusOf is the status of the content of a snapshot whose moment is there.
func (c *Controller) statusOf(of snapshot) *contentStatus {
	handle, created, size := c.snapshotHandle(of.Volume, of.Name), of.Created.UnixNano(), of.Size
	return &contentStatus{SnapshotHandle: &handle, CreationTime: &created, RestoreSize: &size, Ready: &of.complete}
}

// makeContent makes the content of a VolumeSnapshot, unless it is there.
func (s *session) makeContent(ctx context.Context, vs *volumeSnapshot, class *class, volume string) error {
	made := &content{
		TypeMeta:   metav1.TypeMeta{APIVersion: groupVersion.String(), Kind: contentKind},
		ObjectMeta: metav1.ObjectMeta{Name: contentName(vs.UID), Finalizers: []string{contentFinalizer}},
		Spec: contentSpec{
			Driver: s.Driver, DeletionPolicy: class.DeletionPolicy, Class: &class.Name, SourceVolumeMode: string(v1.PersistentVolumeFilesystem),
			Source: contentSource{VolumeHandle: s.volumeHandle(volume)},
			Snapshot: v1.ObjectReference{
				APIVersion: groupVersion.String(), Kind: Kind, Namespace: vs.Namespace, Name: vs.Name, UID: vs.UID, ResourceVersion: vs.ResourceVersion,
			},
		},
	}
	if err := s.createContent(ctx, made); err != nil {
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return fmt.Errorf("make VolumeSnapshotContent %s: %w", made.Name, err)
	}
	// The snapshot-controller never deletes the content of a VolumeSnapshot that is gone, because it can't know why. Here
	// it is known: it went while its content was made.
	now, err := s.getSnapshot(ctx, vs.Namespace, vs.Name)
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return nil // the snapshot-controller has the content by now
	case err == nil && now.UID == vs.UID:
		return nil
	}
	if class.DeletionPolicy != policyDelete { // as deleteUnbound
		return s.claim(vs)
	}
	s.Log.Info("snapshots: a VolumeSnapshot was deleted while its snapshot was taken", "namespace", vs.Namespace, "name", vs.Name)
	return s.deleteContent(ctx, made.Name)
}

// deleteContent deletes a content as the snapshot-controller does it.
func (s *session) deleteContent(ctx context.Context, name string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{beingDeleted: "yes"}}})
	if err != nil {
		return err
	}
	api := s.Client.Resource(contentResource)
	if _, err := api.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return ignoreNotFound(err)
	}
	return ignoreNotFound(api.Delete(ctx, name, metav1.DeleteOptions{}))
}

// fail says in a content why it has no snapshot, and on the VolumeSnapshot. It returns the error.
func (s *session) fail(ctx context.Context, name string, vs *volumeSnapshot, why error) error {
	if err := s.sure(ctx); err != nil {
		return err
	}
	k := key{name: name}
	if !s.isNew(k, why) {
		return why
	}
	if vs != nil {
		s.event(Kind, &vs.ObjectMeta, "SnapshotFailed", why.Error())
	}
	no := false
	err := s.patchStatus(ctx, name, &contentStatus{Ready: &no, Error: &contentError{metav1.NewTime(time.Now()), why.Error()}})
	if ignoreNotFound(err) != nil {
		s.problems.Update(k.String(), nil) // told the next time
		return errors.Join(why, err)
	}
	return why
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
