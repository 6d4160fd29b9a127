// Package provisioner turns PersistentVolumeClaims into volumes and
// PersistentVolumes: Kubernetes on one side, the volume store on the other.
//
// A claim's way: the library's controller (controller.go), or a manifest in a
// folder (package standalone), calls Provisioner.Provision; that reads the
// StorageClass (parameters.go), checks the claim (claim.go), finds what it is a
// copy of (clone.go), asks an Endpoint where clients reach the server
// (endpoint.go, service.go), has the volume.Store make the volume, and returns
// the PersistentVolume (pv.go).
//
// Beside the library's controller run, on the same informers, the Expander
// (expand.go), which the library has not, and the Reconciler (reconcile.go),
// which compares the disk with the cluster. The guard (guard.go) keeps all of
// them from working while another podnas works under the same name.
package provisioner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	v1 "k8s.io/api/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v8/controller"

	"github.com/podnas/podnas/volume"
)

// DefaultName is what a StorageClass calls podnas in its field provisioner.
const DefaultName = "podnas.io/nfs"

// InstanceAnnotation is on every PersistentVolume and holds the identity of the
// disk that has the volume.
const InstanceAnnotation = "podnas.io/instance"

// Annotations of every PersistentVolume that tell who keeps its volume below its
// size (kernel, server or off) and why, as it was when the PersistentVolume was
// made.
const (
	QuotaAnnotation       = "podnas.io/quota"
	QuotaReasonAnnotation = "podnas.io/quota-reason"
)

// Provisioner makes and deletes volumes for the library's controller. Its
// methods may be called concurrently.
type Provisioner struct {
	Store    *volume.Store
	Endpoint Endpoint
	// Name is what StorageClasses call it, DefaultName if empty. Volumes that
	// were made without a class carry it.
	Name string
	// InCluster: it is kubelet that mounts the volumes.
	InCluster bool
	// Claims tells which volume holds the data of a claim that is to be copied.
	// Where it is nil, none can be.
	Claims Claims
	// Volumes are the PersistentVolumes of the cluster, nil where there is none.
	Volumes corelisters.PersistentVolumeLister
	// NewDisk: volumes are made though PersistentVolumes of another disk lead here.
	NewDisk bool
	Log     *slog.Logger
}

// Provision makes the volume of a claim and returns its PersistentVolume. It is
// idempotent by options.PVName. Its errors are shown to the user as events on
// the claim.
func (p *Provisioner) Provision(ctx context.Context, options controller.ProvisionOptions) (*v1.PersistentVolume, controller.ProvisioningState, error) {
	pv, err := p.provision(ctx, options)
	var copying *volume.CopyingError
	if errors.As(err, &copying) {
		return nil, controller.ProvisioningInBackground, err
	}
	return pv, controller.ProvisioningFinished, err
}

func (p *Provisioner) provision(ctx context.Context, options controller.ProvisionOptions) (*v1.PersistentVolume, error) {
	// What an earlier call has made is as its record says, whatever became of
	// the class and the source since.
	v, err := p.Store.Get(options.PVName)
	var spec volume.Spec
	if err != nil {
		if spec, err = p.spec(options); err != nil {
			return nil, err
		}
	}
	// Before anything is made: a PersistentVolume that nobody can mount helps
	// nobody, and its address can't be changed later.
	address, err := p.Endpoint.Address(ctx)
	if err != nil {
		return nil, err
	}
	if spec.Name != "" {
		if err := p.checkDisk(address); err != nil {
			return nil, err
		}
		if v, err = p.Store.Create(ctx, spec); err != nil {
			return nil, err
		}
	}
	pv, err := p.persistentVolume(v, address)
	if err != nil {
		return nil, err
	}
	// As the user wrote it: 1G, not 976562500Ki.
	if request := options.PVC.Spec.Resources.Requests[v1.ResourceStorage]; request.Value() == v.Size {
		pv.Spec.Capacity = v1.ResourceList{v1.ResourceStorage: request}
	}
	return pv, nil
}

// spec is what the store is to make for a claim, if it can be made.
func (p *Provisioner) spec(options controller.ProvisionOptions) (volume.Spec, error) {
	claim := options.PVC
	params, err := parseClass(options.StorageClass)
	if err != nil {
		return volume.Spec{}, err
	}
	params.defaultPorts(p.InCluster)
	size, err := checkClaim(claim)
	if err != nil {
		return volume.Spec{}, err
	}
	path, err := params.path.expand(claim, options.PVName)
	if err != nil {
		return volume.Spec{}, err
	}
	source, err := p.source(claim, size)
	if err != nil {
		return volume.Spec{}, err
	}
	m := manifestOf(options.StorageClass, params)
	m.AccessModes, m.ClaimLabels = claim.Spec.AccessModes, claim.Labels
	if source.Name != "" {
		// The directory's group is that of the source, whatever the class says.
		from, err := ManifestOf(source)
		if err != nil {
			return volume.Spec{}, err
		}
		m.Annotations = from.Annotations
	}
	spec, err := params.spec(options.PVName, size, m)
	spec.Path, spec.Source = path, source.Name
	spec.Claim = &volume.Claim{Namespace: claim.Namespace, Name: claim.Name, UID: string(claim.UID)}
	return spec, err
}

// SupportsBlock tells the library to ask for block volumes as for others. They
// are refused like the rest of what can't be made: by an error that says what to
// change.
func (p *Provisioner) SupportsBlock(context.Context) bool { return true }

// Delete deletes the volume of a PersistentVolume, as its class said: OnDelete.
// One of another disk is left alone with a *controller.IgnoredError; one that is
// gone is no error.
func (p *Provisioner) Delete(ctx context.Context, pv *v1.PersistentVolume) error {
	if owner := pv.Annotations[InstanceAnnotation]; owner != p.Store.Identity() {
		return &controller.IgnoredError{
			Reason: fmt.Sprintf("volume %s belongs to podnas instance %q, this is %q", pv.Name, owner, p.Store.Identity()),
		}
	}
	v, err := p.Store.Get(pv.Name)
	if err == nil {
		if err = checkLeadsTo(pv, v); err == nil {
			err = p.Store.Delete(ctx, pv.Name)
		}
	}
	if errors.Is(err, volume.ErrNotFound) {
		p.Log.Info("volume: already deleted", "volume", pv.Name)
		return nil
	}
	return err
}

// checkLeadsTo makes sure that a PersistentVolume is that of a volume: whoever
// may write PersistentVolumes must not be able to end one by the name of another.
func checkLeadsTo(pv *v1.PersistentVolume, v volume.Volume) error {
	if pv.Spec.NFS == nil || pv.Spec.NFS.Path != exportPath(v) {
		return fmt.Errorf("PersistentVolume %s does not lead to the volume of that name, which is at %s: podnas does not change it", pv.Name, exportPath(v))
	}
	return nil
}
