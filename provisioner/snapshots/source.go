package snapshots

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/podnas/podnas/provisioner"
)

// SnapshotFor implements provisioner.Snapshots. A claim gets the files of a VolumeSnapshot only if that and its content belong to
// each other, and the content is of this driver: anybody may make a VolumeSnapshot that names another one's content.
func (c *Controller) SnapshotFor(ctx context.Context, namespace, name string) (provisioner.SourceSnapshot, error) {
	none := provisioner.SourceSnapshot{}
	vs, err := c.getSnapshot(ctx, namespace, name)
	switch {
	case apierrors.IsNotFound(err):
		return none, fmt.Errorf("VolumeSnapshot %s does not exist in namespace %s", name, namespace)
	case err != nil:
		return none, fmt.Errorf("get VolumeSnapshot %s: %w", name, err)
	case vs.DeletionTimestamp != nil && !slices.Contains(vs.Finalizers, sourceFinalizer):
		return none, fmt.Errorf("VolumeSnapshot %s is being deleted", name)
	case vs.Status.BoundContent == "" || !vs.Status.Ready:
		return none, fmt.Errorf("VolumeSnapshot %s is not ready to use yet", name)
	}
	content, err := c.getContent(ctx, vs.Status.BoundContent)
	if err != nil {
		return none, fmt.Errorf("get the content of VolumeSnapshot %s: %w", name, err)
	}
	ref := content.Spec.Snapshot
	switch {
	case ref.UID != vs.UID || ref.Namespace != vs.Namespace || ref.Name != vs.Name:
		return none, fmt.Errorf("VolumeSnapshot %s names a content that is another one's", name)
	case content.Spec.Driver != c.Driver:
		return none, fmt.Errorf("VolumeSnapshot %s is of the driver %s, and not of %s", name, content.Spec.Driver, c.Driver)
	case !content.isReady():
		return none, fmt.Errorf("the content of VolumeSnapshot %s is not ready to use yet", name)
	}
	of, err := c.parseHandle(content.statusHandle(), 3)
	if err != nil {
		return none, fmt.Errorf("VolumeSnapshot %s: %w", name, err)
	}
	found, err := c.Store.GetSnapshot(of[0], of[1])
	if err != nil {
		return none, fmt.Errorf("VolumeSnapshot %s: snapshot %s of volume %s: %w", name, of[1], of[0], err)
	}
	return provisioner.SourceSnapshot{Volume: of[0], Name: of[1], Size: found.Size, Manifest: found.Manifest}, nil
}
