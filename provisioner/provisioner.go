// Package provisioner turns PersistentVolumeClaims into volumes and
// PersistentVolumes: Kubernetes on one side, the volume store on the other.
//
// A claim's path through it: the library's controller (package controller), or a
// Runner (package standalone), calls Provisioner.Provision. That parses the
// StorageClass (parameters.go), checks the claim (claim.go), finds the volume to
// clone (clone.go), gets the server's address from an Endpoint (endpoint.go,
// service.go), checks that this is the disk of the existing PersistentVolumes
// (otherdisk.go), creates the volume in the volume.Store, and returns the
// PersistentVolume (pv.go). The volume's path follows the class's pattern
// (pathpattern.go), and its mount options the version of NFS that the class asks for
// (mountoptions.go). What only the PersistentVolume needs is kept in the volume's record
// (manifest.go). While a volume is copied, Provision returns an error, and is called again.
//
// This package watches nothing: package controller does.
package provisioner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	v1 "k8s.io/api/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v8/controller"

	"github.com/podnas/podnas/internal/volume"
)

// DefaultName is the default provisioner name in StorageClasses.
const DefaultName = "podnas.io/nfs"

// InstanceAnnotation is on every PersistentVolume and contains the identity of the
// volume's disk.
const InstanceAnnotation = "podnas.io/instance"

// DefaultClassAnnotation is "true" on the StorageClass of claims without a class. The
// API server reads the beta one, too.
const (
	DefaultClassAnnotation     = "storageclass.kubernetes.io/is-default-class"
	BetaDefaultClassAnnotation = "storageclass.beta.kubernetes.io/is-default-class"
)

// Annotations of every PersistentVolume that say what enforces the volume's size
// (kernel, server or off) and why, at the time the PersistentVolume was created.
const (
	QuotaAnnotation       = "podnas.io/quota"
	QuotaReasonAnnotation = "podnas.io/quota-reason"
)

// Provisioner creates and deletes volumes for the library's controller. Its
// methods may be called concurrently.
type Provisioner struct {
	Store    *volume.Store
	Endpoint Endpoint
	// Name is the provisioner name in StorageClasses, DefaultName if empty. Volumes
	// without a class have it too.
	Name string
	// InCluster is whether kubelet mounts the volumes.
	InCluster bool
	// Claims finds the volume of a claim to clone. If it is nil, claims can't be
	// cloned.
	Claims Claims
	// Snapshots finds the snapshot of a VolumeSnapshot to clone. If it is nil, there are none.
	Snapshots Snapshots
	// Volumes lists the PersistentVolumes of the cluster; nil without a cluster.
	Volumes corelisters.PersistentVolumeLister
	// NewDisk allows new volumes although PersistentVolumes of another disk have this
	// server's address.
	NewDisk bool
	// NoNFS4 is why the server does not serve NFSv4.1; nil: it does.
	NoNFS4 error
	// WaitBeat returns when the disk is known to have been this process's own after the call, or ctx ends. Nil: nobody else can have it.
	WaitBeat func(ctx context.Context) error
	Log      *slog.Logger
}

// Provision creates the volume of a claim and returns its PersistentVolume. It is
// idempotent by options.PVName. Its errors are shown to the user as events on the
// claim.
func (p *Provisioner) Provision(ctx context.Context, options controller.ProvisionOptions) (*v1.PersistentVolume, controller.ProvisioningState, error) {
	pv, err := p.provision(ctx, options)
	if err != nil {
		if lost := p.SureOfDisk(ctx); lost != nil {
			err = lost
		}
	}
	var copying *volume.CopyingError
	if errors.As(err, &copying) {
		return nil, controller.ProvisioningInBackground, err
	}
	return pv, controller.ProvisioningFinished, err
}

func (p *Provisioner) provision(ctx context.Context, options controller.ProvisionOptions) (*v1.PersistentVolume, error) {
	// If an earlier call created the volume, its record counts, even if the class or
	// the source has changed since.
	v, err := p.Store.Get(options.PVName)
	var spec volume.Spec
	if err != nil {
		// Before the claim's source is looked for, which may be gone: its volume stays until
		// the copy is complete.
		if err := p.Store.Copying(options.PVName); err != nil {
			return nil, err
		}
		if spec, err = p.spec(ctx, options); err != nil {
			return nil, err
		}
	}
	// Get the address first: a PersistentVolume that can't be mounted is useless, and
	// its address can't be changed later.
	address, err := p.Endpoint.Address(ctx)
	if err != nil {
		return nil, err
	}
	if spec.Name != "" {
		if err := p.CheckDisk(address); err != nil {
			return nil, err
		}
		if v, err = p.Store.Create(ctx, spec); err != nil {
			return nil, err
		}
	}
	return p.volumeFor(options.PVC, v, address)
}

// VolumeFor returns the PersistentVolume of a claim's existing volume.
func (p *Provisioner) VolumeFor(ctx context.Context, claim *v1.PersistentVolumeClaim, v volume.Volume) (*v1.PersistentVolume, error) {
	address, err := p.Endpoint.Address(ctx)
	if err != nil {
		return nil, err
	}
	return p.volumeFor(claim, v, address)
}

func (p *Provisioner) volumeFor(claim *v1.PersistentVolumeClaim, v volume.Volume, address Address) (*v1.PersistentVolume, error) {
	pv, err := p.persistentVolume(v, address)
	if err != nil {
		return nil, err
	}
	// As the user wrote it: 1G, not 976562500Ki.
	if request := claim.Spec.Resources.Requests[v1.ResourceStorage]; request.Value() == v.Size {
		pv.Spec.Capacity = v1.ResourceList{v1.ResourceStorage: request}
	}
	return pv, nil
}

// spec returns the Spec of a claim's volume, or why it can't be created.
func (p *Provisioner) spec(ctx context.Context, options controller.ProvisionOptions) (volume.Spec, error) {
	claim := options.PVC
	params, err := p.parseClass(options.StorageClass)
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
	source, err := p.source(ctx, claim, size)
	if err != nil {
		return volume.Spec{}, err
	}
	m := manifestOf(options.StorageClass, params)
	m.AccessModes, m.ClaimLabels = claim.Spec.AccessModes, claim.Labels
	if source.volume != "" {
		// The directory's group is copied from the source, whatever the class says.
		from, err := ManifestOf(volume.Volume{Name: source.volume, Manifest: source.manifest})
		if err != nil {
			return volume.Spec{}, err
		}
		m.Annotations = from.Annotations
	}
	if source.view || params.options.ReadOnly {
		m.MountOptions = ReadOnlyMount(m.MountOptions)
	}
	spec, err := params.spec(options.PVName, size, m)
	spec.Path, spec.Source, spec.SourceSnapshot, spec.View = path, source.volume, source.snapshot, source.view
	spec.Claim = &volume.Claim{Namespace: claim.Namespace, Name: claim.Name, UID: string(claim.UID)}
	return spec, err
}

// SupportsBlock makes the library call Provision for block volumes too, which
// refuses them with an error that says what to change.
func (p *Provisioner) SupportsBlock(context.Context) bool { return true }

// Delete deletes the volume of a PersistentVolume, according to its class's
// onDelete. It ignores a volume of another disk, with a *controller.IgnoredError.
// A missing volume is no error.
func (p *Provisioner) Delete(ctx context.Context, pv *v1.PersistentVolume) error {
	if owner := pv.Annotations[InstanceAnnotation]; owner != p.Store.Identity() {
		return &controller.IgnoredError{
			Reason: fmt.Sprintf("volume %s belongs to podnas instance %q, this is %q", pv.Name, owner, p.Store.Identity()),
		}
	}
	v, err := p.Store.Get(pv.Name)
	if err == nil {
		if err = CheckLeadsTo(pv, v); err == nil {
			err = p.Store.Delete(ctx, pv.Name)
		}
	}
	if err != nil {
		if lost := p.SureOfDisk(ctx); lost != nil {
			return lost
		}
	}
	if errors.Is(err, volume.ErrNotFound) {
		p.Log.Info("volume: already deleted", "volume", pv.Name)
		return nil
	}
	return err
}

// SureOfDisk returns when an error of the store, or that it lacks something, is true of the disk and may be told: a podnas that has lost
// its disk, and does not know yet, has failures that are not the disk's, and lacks what another podnas has made since. The error is that
// ctx has ended before.
func (p *Provisioner) SureOfDisk(ctx context.Context) error {
	if p.WaitBeat == nil {
		return nil
	}
	if err := p.WaitBeat(ctx); err != nil {
		return fmt.Errorf("the disk may be lost: %w", err)
	}
	return nil
}

// CheckLeadsTo makes sure that a PersistentVolume belongs to a volume: somebody
// who may write PersistentVolumes must not be able to delete a volume through one
// with the name of another.
func CheckLeadsTo(pv *v1.PersistentVolume, v volume.Volume) error {
	if pv.Spec.NFS == nil || pv.Spec.NFS.Path != exportPath(v) {
		return fmt.Errorf("PersistentVolume %s does not lead to the volume of that name, which is at %s: podnas does not change it", pv.Name, exportPath(v))
	}
	return nil
}
