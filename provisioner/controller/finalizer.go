package controller

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/podnas/podnas/provisioner"
)

// The reclaim policy Delete holds in whatever order a claim and its PersistentVolume are
// deleted, because a finalizer keeps the PersistentVolume until its volume was deleted.
// (Without it, a PersistentVolume that is deleted first is gone as soon as its claim is,
// and the volume stays.)
//
// The library does most of it (AddFinalizer). It puts the finalizer on each
// PersistentVolume that it makes, and on those that exist and have the policy Delete; it
// takes it off when the policy becomes another (handleProtectionFinalizer), and when the
// volume was deleted (deleteVolumeOperation). Only with the finalizer it deletes the volume
// of a PersistentVolume that is being deleted (shouldDelete):
//
//	if !ctrl.checkFinalizer(volume, finalizerPV) && volume.ObjectMeta.DeletionTimestamp != nil {
//		// The finalizer was removed, i.e. the volume has been already deleted.
//		return false
//	}
//	...
//	if volume.Status.Phase != v1.VolumeReleased {
//		return false
//	}
//
// So a PersistentVolume that is being deleted and will never be Released would stay for
// ever: departures takes the finalizer off those. kube-controller-manager leaves it on the
// volumes of provisioners that are not its own (modifyDeletionFinalizers).

// finalizer is the library's, and that of all provisioners that use it.
const finalizer = "external-provisioner.volume.kubernetes.io/finalizer"

// Deleting lists the PersistentVolumes of the disk with that identity that stay until podnas
// has deleted their volumes: without podnas they would stay for ever.
func Deleting(ctx context.Context, client kubernetes.Interface, identity string) ([]string, error) {
	volumes, err := client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list PersistentVolumes: %w", err)
	}
	claims, err := client.CoreV1().PersistentVolumeClaims(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list claims: %w", err)
	}
	there := map[types.UID]bool{}
	for i := range claims.Items {
		there[claims.Items[i].UID] = true
	}
	var names []string
	for i := range volumes.Items {
		pv := &volumes.Items[i]
		// The phase becomes Released a moment after the claim is gone.
		released := pv.Spec.ClaimRef != nil && pv.Spec.ClaimRef.UID != "" && !there[pv.Spec.ClaimRef.UID]
		if pv.Annotations[provisioner.InstanceAnnotation] == identity && slices.Contains(pv.Finalizers, finalizer) &&
			(pv.DeletionTimestamp != nil || released) {
			names = append(names, pv.Name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// departures lets go the PersistentVolumes that are being deleted and whose volumes the
// library will never be asked to delete. The volumes stay.
type departures struct {
	client  kubernetes.Interface
	p       *provisioner.Provisioner
	claims  corelisters.PersistentVolumeClaimLister
	volumes corelisters.PersistentVolumeLister
	queue   workqueue.TypedRateLimitingInterface[string] // of names
	log     *slog.Logger
}

// watch queues PersistentVolumes that are being deleted, at each change: the phase, which
// kube-controller-manager sets, may decide.
func (d *departures) watch(volumes cache.SharedIndexInformer) error {
	add := func(object any) {
		if pv, ok := object.(*v1.PersistentVolume); ok && d.isHeld(pv) {
			d.queue.Add(pv.Name)
		}
	}
	_, err := volumes.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    add,
		UpdateFunc: func(_, after any) { add(after) },
	})
	return err
}

// isHeld reports whether the finalizer keeps a PersistentVolume of this provisioner, or of this
// disk, that is being deleted: it is from a time when the provisioner had another name.
func (d *departures) isHeld(pv *v1.PersistentVolume) bool {
	ours := pv.Annotations[provisioner.ProvisionedBy] == d.p.Name || pv.Annotations[provisioner.InstanceAnnotation] == d.p.Store.Identity()
	return pv.DeletionTimestamp != nil && ours && slices.Contains(pv.Finalizers, finalizer)
}

// work lets them go, one at a time, until the queue is shut down.
func (d *departures) work(ctx context.Context) {
	syncEach(ctx, d.queue, func(name string) error {
		err := d.sync(ctx, name)
		if err != nil && ctx.Err() == nil {
			d.log.Debug("volume: can't decide yet whether its PersistentVolume may go", "volume", name, "err", err)
		}
		return err
	})
}

func (d *departures) sync(ctx context.Context, name string) error {
	pv, err := d.volumes.Get(name)
	if err != nil {
		return ignoreNotFound(err)
	}
	if !d.isHeld(pv) {
		return nil
	}
	why, err := d.reason(ctx, pv)
	if why == "" || err != nil {
		return err
	}
	if _, err = setFinalizer(ctx, d.client.CoreV1().PersistentVolumes(), pv, false); err != nil {
		return ignoreNotFound(err)
	}
	d.log.Info("volume: its PersistentVolume is deleted, its files stay", "volume", name, "reason", why)
	return nil
}

// reason returns why a PersistentVolume may go without its volume, or "" if it may not, or
// not yet.
func (d *departures) reason(ctx context.Context, pv *v1.PersistentVolume) (string, error) {
	if pv.Status.Phase == v1.VolumeBound {
		return "", nil // it is Released when its claim is gone
	}
	if by := pv.Annotations[provisioner.ProvisionedBy]; by != d.p.Name {
		return fmt.Sprintf("the provisioner %q has made it, and this one is %s", by, d.p.Name), nil
	}
	if owner := pv.Annotations[provisioner.InstanceAnnotation]; owner != d.p.Store.Identity() {
		address, err := d.p.Endpoint.Address(ctx)
		if err != nil {
			return "", err
		}
		if !provisioner.LeadsTo(pv, address) {
			return "", nil // another podnas of this name has that disk, and its turn will come
		}
		return fmt.Sprintf("it is on the disk %s, which this podnas does not have", owner), nil
	}
	if pv.Status.Phase == v1.VolumeReleased {
		// The library's turn, unless podnas refuses.
		if v, err := d.p.Store.Get(pv.Name); err == nil {
			if err := provisioner.CheckLeadsTo(pv, v); err != nil {
				return err.Error(), nil
			}
		}
		return "", nil
	}
	return d.unclaimed(pv)
}

// unclaimed returns why a PersistentVolume that is neither Bound nor Released will be
// neither, or "".
func (d *departures) unclaimed(pv *v1.PersistentVolume) (string, error) {
	ref := pv.Spec.ClaimRef
	if ref == nil || ref.UID == "" {
		return "no claim was bound to it", nil
	}
	// Made for a claim, which is not bound to it yet. kube-controller-manager does not bind
	// what is being deleted.
	claim, err := d.claims.PersistentVolumeClaims(ref.Namespace).Get(ref.Name)
	switch {
	case apierrors.IsNotFound(err):
		return "", nil // it will be Released
	case err != nil:
		return "", err
	case claim.UID != ref.UID || claim.DeletionTimestamp != nil || claim.Spec.VolumeName != "":
		return "", nil // it will be Released, or is bound already
	}
	return fmt.Sprintf("claim %s/%s waits, and gets its volume by a new one", ref.Namespace, ref.Name), nil
}
