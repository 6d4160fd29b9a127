// Package provisioner turns PersistentVolumeClaims into volumes and
// PersistentVolumes: Kubernetes on one side, the volume store on the other.
//
// A claim's way: the library's controller (controller.go), or a manifest in a
// folder (package standalone), calls Provisioner.Provision; that checks
// the claim and its StorageClass (claim.go), asks an Endpoint where clients
// reach the server (endpoint.go, service.go), has the volume.Store make the
// volume, and returns the PersistentVolume (pv.go).
package provisioner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v8/controller"

	"github.com/podnas/podnas/volume"
)

// DefaultName is what a StorageClass calls podnas in its field provisioner.
const DefaultName = "podnas.io/nfs"

// InstanceAnnotation is on every PersistentVolume and holds the identity of the
// disk that has the volume.
const InstanceAnnotation = "podnas.io/instance"

// Provisioner makes and deletes volumes for the library's controller. Its
// methods may be called concurrently.
type Provisioner struct {
	Store    *volume.Store
	Endpoint Endpoint
	Log      *slog.Logger
}

// Provision makes the volume of a claim and returns its PersistentVolume. It is
// idempotent by options.PVName. Its errors are shown to the user as events on
// the claim.
func (p *Provisioner) Provision(ctx context.Context, options controller.ProvisionOptions) (*v1.PersistentVolume, controller.ProvisioningState, error) {
	claim := options.PVC
	if err := checkClass(options.StorageClass); err != nil {
		return nil, controller.ProvisioningFinished, err
	}
	size, err := checkClaim(claim)
	if err != nil {
		return nil, controller.ProvisioningFinished, err
	}
	// Before anything is made: a PersistentVolume that nobody can mount helps
	// nobody, and its address can't be changed later.
	address, err := p.Endpoint.Address(ctx)
	if err != nil {
		return nil, controller.ProvisioningFinished, err
	}
	v, err := p.Store.Create(ctx, volume.Spec{
		Name:  options.PVName,
		Size:  size,
		Claim: &volume.Claim{Namespace: claim.Namespace, Name: claim.Name, UID: string(claim.UID)},
	})
	if err != nil {
		return nil, controller.ProvisioningFinished, err
	}
	return p.persistentVolume(options, v, address), controller.ProvisioningFinished, nil
}

// Delete deletes the volume of a PersistentVolume. One of another disk is left
// alone with a *controller.IgnoredError; one that is gone is no error.
func (p *Provisioner) Delete(ctx context.Context, pv *v1.PersistentVolume) error {
	if owner := pv.Annotations[InstanceAnnotation]; owner != p.Store.Identity() {
		return &controller.IgnoredError{
			Reason: fmt.Sprintf("volume %s is of podnas instance %q, this is %q", pv.Name, owner, p.Store.Identity()),
		}
	}
	err := p.Store.Delete(ctx, pv.Name)
	if errors.Is(err, volume.ErrNotFound) {
		p.Log.Info("volume: deleted already", "volume", pv.Name)
		return nil
	}
	return err
}
