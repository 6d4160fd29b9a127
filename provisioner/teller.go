package provisioner

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v8/controller"

	"github.com/podnas/podnas/volume"
)

// teller is the Provisioner as the library's controller has it. It says in the log
// what can't be done and why. The library would say it too, as an error at each of
// its retries; main lets that pass for detail.
type teller struct {
	*Provisioner
	told news
}

// Provision makes the volume of a claim.
func (t *teller) Provision(ctx context.Context, options controller.ProvisionOptions) (*v1.PersistentVolume, controller.ProvisioningState, error) {
	pv, state, err := t.Provisioner.Provision(ctx, options)
	if t.told.isNew(options.PVName, err) {
		level, message := slog.LevelWarn, "claim: gets no volume yet"
		var copying *volume.CopyingError
		if errors.As(err, &copying) {
			level, message = slog.LevelInfo, "claim: waits for its copy"
		}
		t.Log.Log(ctx, level, message, "claim", options.PVC.Namespace+"/"+options.PVC.Name, "volume", options.PVName, "reason", err)
	}
	return pv, state, err
}

// Delete deletes the volume of a PersistentVolume.
func (t *teller) Delete(ctx context.Context, pv *v1.PersistentVolume) error {
	err := t.Provisioner.Delete(ctx, pv)
	var ignored *controller.IgnoredError
	if t.told.isNew(pv.Name, err) && !errors.As(err, &ignored) {
		t.Log.Warn("volume: can't be deleted yet", "volume", pv.Name, "reason", err)
	}
	return err
}

// newsMax bounds what is remembered; what is forgotten is told once more.
const newsMax = 1000

// news tells what was said already. The zero news is ready for use.
type news struct {
	mu   sync.Mutex
	said map[string]string // by what it is about
}

// isNew tells whether what is wrong with something is to be said: it is another
// thing than the last time. No error is nothing to say.
func (n *news) isNew(about string, err error) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err == nil {
		delete(n.said, about)
		return false
	}
	if n.said == nil || len(n.said) >= newsMax {
		n.said = map[string]string{}
	}
	text := err.Error()
	// How much is free changes all the time, and so does what is copied.
	var noSpace *volume.NoSpaceError
	var copying *volume.CopyingError
	switch {
	case errors.As(err, &noSpace):
		text = "no space"
	case errors.As(err, &copying):
		text = "copying"
	}
	if n.said[about] == text {
		return false
	}
	n.said[about] = text
	return true
}
