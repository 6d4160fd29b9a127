package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"

	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/provisioner"
)

// expander expands volumes whose claims request more: first the limit on the disk,
// then the PersistentVolume's capacity, then the claim's status, which completes
// the expansion. Each step is idempotent, so it is repeated after a crash or if
// its result is unknown.
//
// Kubernetes' own expand controller can't expand an NFS volume. It says so in an
// event, ExternalExpanding, and leaves the claim to us.
type expander struct {
	client   kubernetes.Interface
	p        *provisioner.Provisioner
	classes  storagelisters.StorageClassLister
	volumes  corelisters.PersistentVolumeLister
	claims   cache.Indexer
	events   record.EventRecorder
	queue    workqueue.TypedRateLimitingInterface[string] // of keys of claims
	log      *slog.Logger
	problems provisioner.Problems // by claimKey
}

// watch queues claims whose request was raised above their capacity. It ignores
// other changes of such a claim, because the expander makes some itself, and would
// retry without backoff.
func (e *expander) watch(claims cache.SharedIndexInformer) error {
	e.claims = claims.GetIndexer()
	add := func(claim *v1.PersistentVolumeClaim) {
		if wantsMore(claim) {
			e.queue.Add(claimKey(claim))
		}
	}
	_, err := claims.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) {
			if claim, ok := object.(*v1.PersistentVolumeClaim); ok {
				add(claim)
			}
		},
		UpdateFunc: func(before, after any) {
			old, isOld := before.(*v1.PersistentVolumeClaim)
			claim, ok := after.(*v1.PersistentVolumeClaim)
			if ok && isOld && (!wantsMore(old) || !requestOf(old).Equal(requestOf(claim))) {
				add(claim)
			}
		},
	})
	return err
}

func requestOf(claim *v1.PersistentVolumeClaim) resource.Quantity {
	return claim.Spec.Resources.Requests[v1.ResourceStorage]
}

// wantsMore reports whether a claim requests more than it has.
func wantsMore(claim *v1.PersistentVolumeClaim) bool {
	request, have := requestOf(claim), claim.Status.Capacity[v1.ResourceStorage]
	return claim.Status.Phase == v1.ClaimBound && claim.DeletionTimestamp == nil && request.Cmp(have) > 0
}

// work expands volumes, one at a time, until the queue is shut down.
func (e *expander) work(ctx context.Context) {
	syncEach(ctx, e.queue, func(key string) error {
		err := e.sync(ctx, key)
		if e.problems.Update(key, err) == provisioner.ProblemNew && ctx.Err() == nil {
			e.log.Warn("volume: can't be expanded yet, will try again", "claim", key, "err", err)
		}
		return err
	})
}

// sync expands the volume of a claim, if it is ours and the claim requests more.
func (e *expander) sync(ctx context.Context, key string) error {
	object, exists, err := e.claims.GetByKey(key)
	if err != nil || !exists {
		return err
	}
	cached, ok := object.(*v1.PersistentVolumeClaim)
	if !ok || !wantsMore(cached) {
		return nil
	}
	pv, err := e.volumes.Get(cached.Spec.VolumeName)
	if err != nil || !e.ours(pv) {
		return err
	}
	// Read both from the API server: the cached ones may be older than the last
	// expansion.
	pv, err = e.client.CoreV1().PersistentVolumes().Get(ctx, cached.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		return ignoreNotFound(err)
	}
	claim, err := e.client.CoreV1().PersistentVolumeClaims(cached.Namespace).Get(ctx, cached.Name, metav1.GetOptions{})
	if err != nil {
		return ignoreNotFound(err)
	}
	if !wantsMore(claim) || !e.ours(pv) || pv.Spec.ClaimRef == nil || pv.Spec.ClaimRef.UID != claim.UID {
		return nil
	}
	return e.expand(ctx, claim, pv)
}

// ours reports whether a volume is on this disk and managed by this provisioner.
func (e *expander) ours(pv *v1.PersistentVolume) bool {
	return pv.Annotations[provisioner.ProvisionedBy] == e.p.Name && pv.Annotations[provisioner.InstanceAnnotation] == e.p.Store.Identity()
}

// expand takes the steps.
func (e *expander) expand(ctx context.Context, claim *v1.PersistentVolumeClaim, pv *v1.PersistentVolume) error {
	request, old := requestOf(claim), pv.Spec.Capacity[v1.ResourceStorage]
	if allocated := claim.Status.AllocatedResources[v1.ResourceStorage]; allocated.Cmp(request) != 0 {
		e.events.Eventf(claim, v1.EventTypeNormal, "Resizing", "Expanding volume %s from %s to %s", pv.Name, old.String(), request.String())
		if err := e.patchStatus(ctx, claim, started(request)); err != nil {
			return err
		}
	}
	v, err := e.raise(ctx, pv, request)
	if err != nil {
		if lost := e.p.SureOfDisk(ctx); lost != nil {
			return lost
		}
		e.events.Eventf(claim, v1.EventTypeWarning, "VolumeResizeFailed", "%v", err)
		return errors.Join(err, e.tellFailure(ctx, claim, err))
	}
	capacity := request
	if v.Size != request.Value() {
		capacity = *resource.NewQuantity(v.Size, resource.BinarySI)
	}
	if old.Cmp(capacity) < 0 {
		data, err := patchOf(pv.UID, map[string]any{"spec": map[string]any{"capacity": v1.ResourceList{v1.ResourceStorage: capacity}}})
		if err != nil {
			return err
		}
		if _, err := e.client.CoreV1().PersistentVolumes().Patch(ctx, pv.Name, types.StrategicMergePatchType, data, metav1.PatchOptions{}); err != nil {
			return fmt.Errorf("raise the capacity of PersistentVolume %s: %w", pv.Name, err)
		}
	}
	if err := e.patchStatus(ctx, claim, finished(capacity)); err != nil {
		return err
	}
	e.events.Eventf(claim, v1.EventTypeNormal, "VolumeResizeSuccessful", "Volume %s has been expanded to %s; pods see the new size at once", pv.Name, capacity.String())
	e.log.Info("volume: expanded", "volume", pv.Name, "size", capacity.String())
	return nil
}

// raise expands the volume on the disk, and returns it.
func (e *expander) raise(ctx context.Context, pv *v1.PersistentVolume, request resource.Quantity) (volume.Volume, error) {
	if err := e.checkAllowed(pv); err != nil {
		return volume.Volume{}, err
	}
	v, err := e.p.Store.Get(pv.Name)
	if err == nil {
		err = provisioner.CheckLeadsTo(pv, v)
	}
	if err != nil {
		return volume.Volume{}, err
	}
	// The volume may be larger, if the claim requested more before and then less.
	// Resize even if the size is right already: an earlier call may have written the
	// record but not the limit.
	if v, err = e.p.Store.Resize(ctx, v.Name, max(v.Size, request.Value()), 0); err != nil {
		return volume.Volume{}, fmt.Errorf("volume %s can't be expanded to %s: %w", pv.Name, request.String(), err)
	}
	return v, nil
}

// checkAllowed checks the class, as the API server did when the request was
// raised.
func (e *expander) checkAllowed(pv *v1.PersistentVolume) error {
	class, err := e.classes.Get(pv.Spec.StorageClassName)
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("its StorageClass %s, which would have to allow this, does not exist any more", pv.Spec.StorageClassName)
	}
	if err != nil {
		return fmt.Errorf("get StorageClass %s: %w", pv.Spec.StorageClassName, err)
	}
	if class.AllowVolumeExpansion == nil || !*class.AllowVolumeExpansion {
		return fmt.Errorf("StorageClass %s does not allow expansion: set its allowVolumeExpansion to true", class.Name)
	}
	return nil
}

// tellFailure reports an error in the claim's conditions. It is for failures
// before the last step, which removes the condition.
func (e *expander) tellFailure(ctx context.Context, claim *v1.PersistentVolumeClaim, reason error) error {
	for _, c := range claim.Status.Conditions {
		if c.Type == v1.PersistentVolumeClaimControllerResizeError && c.Message == reason.Error() {
			return nil
		}
	}
	return e.patchStatus(ctx, claim, map[string]any{
		"conditions": []v1.PersistentVolumeClaimCondition{{
			Type:               v1.PersistentVolumeClaimControllerResizeError,
			Status:             v1.ConditionTrue,
			LastTransitionTime: metav1.NewTime(time.Now()),
			Message:            reason.Error(),
		}},
	})
}

// started is the status of a claim whose volume is being expanded.
func started(size resource.Quantity) map[string]any {
	return map[string]any{
		"allocatedResources":        v1.ResourceList{v1.ResourceStorage: size},
		"allocatedResourceStatuses": map[v1.ResourceName]v1.ClaimResourceStatus{v1.ResourceStorage: v1.PersistentVolumeClaimControllerResizeInProgress},
		"conditions": []v1.PersistentVolumeClaimCondition{{
			Type:               v1.PersistentVolumeClaimResizing,
			Status:             v1.ConditionTrue,
			LastTransitionTime: metav1.NewTime(time.Now()),
		}},
	}
}

// finished is the status of a claim whose volume was expanded.
func finished(size resource.Quantity) map[string]any {
	remove := func(condition v1.PersistentVolumeClaimConditionType) map[string]any {
		return map[string]any{"$patch": "delete", "type": condition}
	}
	return map[string]any{
		"capacity":                  v1.ResourceList{v1.ResourceStorage: size},
		"allocatedResources":        v1.ResourceList{v1.ResourceStorage: size},
		"allocatedResourceStatuses": map[v1.ResourceName]any{v1.ResourceStorage: nil},
		"conditions":                []any{remove(v1.PersistentVolumeClaimResizing), remove(v1.PersistentVolumeClaimControllerResizeError)},
	}
}

func (e *expander) patchStatus(ctx context.Context, claim *v1.PersistentVolumeClaim, status map[string]any) error {
	data, err := patchOf(claim.UID, map[string]any{"status": status})
	if err != nil {
		return err
	}
	_, err = e.client.CoreV1().PersistentVolumeClaims(claim.Namespace).Patch(ctx, claim.Name,
		types.StrategicMergePatchType, data, metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("write the claim's status: %w", err)
	}
	return nil
}

// patchOf returns a patch that the API server refuses with a conflict if the name
// now belongs to another object. It changes no field that others write, so
// concurrent changes by others are kept.
func patchOf(uid types.UID, change map[string]any) ([]byte, error) {
	change["metadata"] = map[string]any{"uid": uid}
	return json.Marshal(change)
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
