package controller

import (
	"context"
	"encoding/json"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	typedcore "k8s.io/client-go/kubernetes/typed/core/v1"
)

// libraryClient is the client that the library gets.
//
// To change its finalizer the library writes a whole PersistentVolume as its cache has it. The
// API server refuses that if the PersistentVolume has changed meanwhile, as it has after each
// deletion: the library itself has just set its time of deletion. It would try again, and
// count each deletion as one that failed. This client changes the finalizer alone.
type libraryClient struct{ kubernetes.Interface }

// CoreV1 implements kubernetes.Interface.
func (c libraryClient) CoreV1() typedcore.CoreV1Interface { return libraryCore{c.Interface.CoreV1()} }

type libraryCore struct{ typedcore.CoreV1Interface }

// PersistentVolumes implements typedcore.CoreV1Interface.
func (c libraryCore) PersistentVolumes() typedcore.PersistentVolumeInterface {
	return libraryVolumes{c.CoreV1Interface.PersistentVolumes()}
}

type libraryVolumes struct {
	typedcore.PersistentVolumeInterface
}

// Update adds the finalizer to a PersistentVolume, or removes it, so that it is as in pv. The
// library changes nothing else of one that exists.
func (v libraryVolumes) Update(ctx context.Context, pv *v1.PersistentVolume, _ metav1.UpdateOptions) (*v1.PersistentVolume, error) {
	return setFinalizer(ctx, v.PersistentVolumeInterface, pv, slices.Contains(pv.Finalizers, finalizer))
}

// setFinalizer adds or removes the finalizer, and leaves the others alone.
func setFinalizer(ctx context.Context, api typedcore.PersistentVolumeInterface, pv *v1.PersistentVolume, held bool) (*v1.PersistentVolume, error) {
	list := "finalizers"
	if !held {
		list = "$deleteFromPrimitiveList/finalizers"
	}
	// With the uid: a conflict if the name now belongs to another.
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pv.UID, list: []string{finalizer}}})
	if err != nil {
		return nil, err
	}
	return api.Patch(ctx, pv.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
}
