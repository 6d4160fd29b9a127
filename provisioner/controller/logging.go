package controller

import (
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"
	library "sigs.k8s.io/sig-storage-lib-external-provisioner/v8/controller"

	"github.com/podnas/podnas/provisioner"
)

// loggingProvisioner is the Provisioner that the library's controller calls. It logs
// each reason why something can't be done once. The library logs it as an error at each
// retry; LogHandler lowers that to debug.
type loggingProvisioner struct {
	*provisioner.Provisioner
	permission *permission
	problems   provisioner.Problems // by claimKey; of volumes that can't be deleted, by their names
}

// claimKey is the key of a claim in a provisioner.Problems. Names of volumes contain no slash.
func claimKey(claim *v1.PersistentVolumeClaim) string { return claim.Namespace + "/" + claim.Name }

// Provision creates the volume of a claim. If podnas may not save
// PersistentVolumes, the library would only log that, so Provision checks it
// first.
func (p *loggingProvisioner) Provision(ctx context.Context, options library.ProvisionOptions) (*v1.PersistentVolume, library.ProvisioningState, error) {
	if err := ctx.Err(); err != nil { // the library goes on with what is queued when the right to provision is lost
		return nil, library.ProvisioningNoChange, err
	}
	var pv *v1.PersistentVolume
	state := library.ProvisioningFinished
	err := p.permission.check(ctx)
	if err == nil {
		pv, state, err = p.Provisioner.Provision(ctx, options)
	}
	key := claimKey(options.PVC)
	switch p.problems.Update(key, err) {
	case provisioner.ProblemNew:
		p.Log.Warn("claim: can't get a volume yet", "claim", key, "volume", options.PVName, "reason", err)
	case provisioner.ProblemWaiting:
		p.Log.Info("claim: waiting for its copy", "claim", key, "volume", options.PVName, "reason", err)
	case provisioner.ProblemUnchanged, provisioner.ProblemSolved:
	}
	return pv, state, err
}

// Delete deletes the volume of a PersistentVolume.
func (p *loggingProvisioner) Delete(ctx context.Context, pv *v1.PersistentVolume) error {
	if err := ctx.Err(); err != nil { // as in Provision
		return err
	}
	err := p.Provisioner.Delete(ctx, pv)
	wrong := err
	if ignored := (*library.IgnoredError)(nil); errors.As(err, &ignored) {
		wrong = nil // another podnas's
	}
	if p.problems.Update(pv.Name, wrong) == provisioner.ProblemNew {
		p.Log.Warn("volume: can't be deleted yet", "volume", pv.Name, "reason", err)
	}
	return err
}
