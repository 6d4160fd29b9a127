package controller

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	library "sigs.k8s.io/sig-storage-lib-external-provisioner/v8/controller"

	"github.com/podnas/podnas/provisioner"
)

// loggingProvisioner is the Provisioner that the library's controller calls. It logs
// each reason why something can't be done once. The library logs it as an error at each
// retry; LogHandler lowers that to debug.
type loggingProvisioner struct {
	*provisioner.Provisioner
	client     kubernetes.Interface
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

// Delete deletes the volume of a PersistentVolume, if the API server says that it is still to be deleted: the library's cache is old
// when the API server was away, and a deletion may be tried again for hours. kube-controller-manager asks before a deletion, too.
func (p *loggingProvisioner) Delete(ctx context.Context, pv *v1.PersistentVolume) error {
	if err := ctx.Err(); err != nil { // as in Provision
		return err
	}
	err := p.checkReleased(ctx, pv)
	if err == nil {
		err = p.Provisioner.Delete(ctx, pv)
	}
	wrong := err
	if ignored := (*library.IgnoredError)(nil); errors.As(err, &ignored) {
		wrong = nil // another podnas's, or it stays
	}
	if p.problems.Update(pv.Name, wrong) == provisioner.ProblemNew {
		p.Log.Warn("volume: can't be deleted yet", "volume", pv.Name, "reason", err)
	}
	return err
}

// checkReleased asks the API server whether a PersistentVolume, as the cache has it, is to be deleted with its volume. If not, the error
// is a *library.IgnoredError.
func (p *loggingProvisioner) checkReleased(ctx context.Context, pv *v1.PersistentVolume) error {
	now, err := p.client.CoreV1().PersistentVolumes().Get(ctx, pv.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return &library.IgnoredError{Reason: fmt.Sprintf("PersistentVolume %s is gone", pv.Name)}
	case err != nil:
		return fmt.Errorf("see whether PersistentVolume %s is still to be deleted: %w", pv.Name, err)
	case now.UID != pv.UID || now.Status.Phase != v1.VolumeReleased || now.Spec.PersistentVolumeReclaimPolicy != v1.PersistentVolumeReclaimDelete:
		return &library.IgnoredError{Reason: fmt.Sprintf("PersistentVolume %s is not to be deleted any more: it is %s, with the reclaim policy %s", pv.Name, now.Status.Phase, now.Spec.PersistentVolumeReclaimPolicy)}
	}
	return nil
}
