package controller

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/provisioner"
)

const (
	// InUseLabel is a label of the Lease: "true" if volumes of the disk are bound, or
	// "false". The annotation of the same name lists them.
	InUseLabel = "podnas.io/volumes-in-use"

	inUsePause = time.Second      // to combine changes that come together
	inUseCheck = 10 * time.Minute // in case the Lease was removed
)

// inUse maintains a Lease in podnas's namespace that says which volumes of the disk
// are bound to claims. While there are any, deploy/components/guard makes the API
// server refuse to delete what they need. It is one Lease, because CEL can read only
// one object besides the deleted one. The Lease outlives the pod, so the protection
// holds while podnas does not run.
type inUse struct {
	client    kubernetes.Interface
	namespace string
	identity  string // of the disk
	volumes   corelisters.PersistentVolumeLister
	changed   bell
	log       *slog.Logger
}

func newInUse(client kubernetes.Interface, namespace, identity string, volumes corelisters.PersistentVolumeLister, log *slog.Logger) *inUse {
	return &inUse{client: client, namespace: namespace, identity: identity, volumes: volumes, changed: newBell(), log: log}
}

// watch wakes run after changes of PersistentVolumes.
func (u *inUse) watch(volumes cache.SharedIndexInformer) error {
	_, err := volumes.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { u.changed.ring() },
		UpdateFunc: func(any, any) { u.changed.ring() },
		DeleteFunc: func(any) { u.changed.ring() },
	})
	return err
}

// run updates the Lease until ctx ends.
func (u *inUse) run(ctx context.Context) {
	if u.namespace == "" {
		return // outside of a cluster nothing can be deleted there
	}
	said, check := "-", time.NewTicker(inUseCheck)
	defer check.Stop()
	for {
		text, err := u.describe()
		if err == nil && text != said {
			if err = u.write(ctx, text); err == nil {
				said = text
			}
		}
		var again <-chan time.Time
		switch {
		case apierrors.IsForbidden(err):
			u.log.Warn("guard: no permission to record which volumes are in use; apply the Role of this version", "err", err)
			again = time.After(inUseCheck)
		case err != nil && ctx.Err() == nil:
			u.log.Warn("guard: can't record which volumes are in use yet", "err", err)
			again = time.After(guardPeriod)
		}
		select {
		case <-ctx.Done():
			return
		case <-u.changed:
			if sleep(ctx, inUsePause) != nil {
				return
			}
		case <-check.C:
			said = "-"
		case <-again:
		}
	}
}

// describe names the claims bound to volumes of the disk, "" if there are none.
func (u *inUse) describe() (string, error) {
	all, err := u.volumes.List(labels.Everything())
	if err != nil {
		return "", err
	}
	var claims []string
	for _, pv := range all {
		if pv.Annotations[provisioner.InstanceAnnotation] == u.identity && pv.Status.Phase == v1.VolumeBound && pv.Spec.ClaimRef != nil {
			claims = append(claims, pv.Spec.ClaimRef.Namespace+"/"+pv.Spec.ClaimRef.Name)
		}
	}
	slices.Sort(claims)
	switch n := len(claims); n {
	case 0:
		return "", nil
	case 1:
		return "the claim " + claims[0], nil
	default:
		return fmt.Sprintf("%d claims (%s)", n, volume.FormatNames(claims)), nil
	}
}

// write writes the text into the Lease.
func (u *inUse) write(ctx context.Context, text string) error {
	leases := u.client.CoordinationV1().Leases(u.namespace)
	lease, err := leases.Get(ctx, u.leaseName(), metav1.GetOptions{})
	missing := apierrors.IsNotFound(err)
	if missing {
		lease, err = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: u.namespace, Name: u.leaseName()}}, nil
	}
	if err != nil {
		return err
	}
	holder := u.identity
	lease.Spec.HolderIdentity = &holder
	metav1.SetMetaDataLabel(&lease.ObjectMeta, InUseLabel, fmt.Sprint(text != ""))
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, InUseLabel, text)
	if missing {
		_, err = leases.Create(ctx, lease, metav1.CreateOptions{})
	} else {
		_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	}
	return err
}

func (u *inUse) leaseName() string { return "podnas-" + u.identity + "-volumes" }
