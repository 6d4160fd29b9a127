package provisioner

import (
	"context"
	"errors"
	"log/slog"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v8/controller"

	"github.com/podnas/podnas/volume"
)

// teller is the Provisioner as the library's controller has it. It says in the log
// what can't be done and why. The library would say it too, as an error at each of
// its retries; main lets that pass for detail.
type teller struct {
	*Provisioner
	permission *permission
	told       News
}

// Provision makes the volume of a claim. The library would say of one whose
// PersistentVolume it may not save in the log alone, so that is found out before.
func (t *teller) Provision(ctx context.Context, options controller.ProvisionOptions) (*v1.PersistentVolume, controller.ProvisioningState, error) {
	var pv *v1.PersistentVolume
	state := controller.ProvisioningFinished
	err := t.permission.check(ctx)
	if err == nil {
		pv, state, err = t.Provisioner.Provision(ctx, options)
	}
	if t.told.Tell(options.PVName, err) == IsNew {
		level, message := slog.LevelWarn, "claim: can't get a volume yet"
		var copying *volume.CopyingError
		if errors.As(err, &copying) {
			level, message = slog.LevelInfo, "claim: waiting for its copy"
		}
		t.Log.Log(ctx, level, message, "claim", options.PVC.Namespace+"/"+options.PVC.Name, "volume", options.PVName, "reason", err)
	}
	return pv, state, err
}

// Delete deletes the volume of a PersistentVolume.
func (t *teller) Delete(ctx context.Context, pv *v1.PersistentVolume) error {
	err := t.Provisioner.Delete(ctx, pv)
	var ignored *controller.IgnoredError
	if t.told.Tell(pv.Name, err) == IsNew && !errors.As(err, &ignored) {
		t.Log.Warn("volume: can't be deleted yet", "volume", pv.Name, "reason", err)
	}
	return err
}
