package provisioner

import (
	"context"
	"errors"
	"log/slog"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v8/controller"

	"github.com/podnas/podnas/volume"
)

// teller is the Provisioner that the library's controller calls. It logs what
// can't be done and why, once. The library logs it as an error at each retry; main
// logs that as debug.
type teller struct {
	*Provisioner
	permission *permission
	told       News // by claimKey; for volumes that can't be deleted by their names
}

// claimKey is the key of a claim in News. Names of volumes contain no slash.
func claimKey(claim *v1.PersistentVolumeClaim) string { return claim.Namespace + "/" + claim.Name }

// Provision creates the volume of a claim. If podnas may not save
// PersistentVolumes, the library would only log that, so Provision checks it
// first.
func (t *teller) Provision(ctx context.Context, options controller.ProvisionOptions) (*v1.PersistentVolume, controller.ProvisioningState, error) {
	var pv *v1.PersistentVolume
	state := controller.ProvisioningFinished
	err := t.permission.check(ctx)
	if err == nil {
		pv, state, err = t.Provisioner.Provision(ctx, options)
	}
	if t.told.Tell(claimKey(options.PVC), err) == IsNew {
		level, message := slog.LevelWarn, "claim: can't get a volume yet"
		var copying *volume.CopyingError
		if errors.As(err, &copying) {
			level, message = slog.LevelInfo, "claim: waiting for its copy"
		}
		t.Log.Log(ctx, level, message, "claim", claimKey(options.PVC), "volume", options.PVName, "reason", err)
	}
	return pv, state, err
}

// Delete deletes the volume of a PersistentVolume.
func (t *teller) Delete(ctx context.Context, pv *v1.PersistentVolume) error {
	err := t.Provisioner.Delete(ctx, pv)
	wrong := err
	if ignored := (*controller.IgnoredError)(nil); errors.As(err, &ignored) {
		wrong = nil // another podnas's
	}
	if t.told.Tell(pv.Name, wrong) == IsNew {
		t.Log.Warn("volume: can't be deleted yet", "volume", pv.Name, "reason", err)
	}
	return err
}
