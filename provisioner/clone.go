package provisioner

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/podnas/podnas/internal/volume"
)

// Claims knows the volumes of claims.
type Claims interface {
	// VolumeOf returns the name of the volume on this disk that a claim is bound to.
	// Its error is shown to the user.
	VolumeOf(namespace, claim string) (string, error)
}

// Snapshots knows the VolumeSnapshots of a cluster.
type Snapshots interface {
	// SnapshotFor returns the snapshot that a VolumeSnapshot stands for. Its error is shown to the user.
	SnapshotFor(ctx context.Context, namespace, name string) (SourceSnapshot, error)
}

// SourceSnapshot is a snapshot on this disk.
type SourceSnapshot struct {
	Volume, Name string          // of its volume, which may be deleted, and its own
	Size         int64           // of the volume at that moment
	Manifest     json.RawMessage // likewise
}

// source is what a new volume is a copy of: a volume, or a snapshot of one. The zero source is nothing.
type source struct {
	volume, snapshot string
	// view is whether the new volume shows the snapshot, and is no copy.
	view     bool
	size     int64
	manifest json.RawMessage
}

// source returns what a claim clones, which fits into its size.
func (p *Provisioner) source(ctx context.Context, claim *v1.PersistentVolumeClaim, size int64) (source, error) {
	from, err := sourceOf(claim)
	if err != nil || from.name == "" {
		return source{}, err
	}
	find := p.claimSource
	if from.isSnapshot {
		find = p.snapshotSource
	}
	found, err := find(ctx, claim.Namespace, from.name)
	if err != nil {
		return source{}, err
	}
	// What nobody may write needs no copy.
	found.view = from.isSnapshot && IsReadOnly(claim.Spec.AccessModes)
	if found.size > size {
		return source{}, tooSmall(from, found, size)
	}
	return found, nil
}

// tooSmall is the error of a claim that is smaller than what it is of.
func tooSmall(from sourceName, found source, size int64) error {
	needed, requested := volume.FormatSize(found.size), volume.FormatSize(size)
	if found.view {
		return fmt.Errorf("%s has a size of %s, and a claim that shows it, which takes no space, must request at least that, not %s", from, needed, requested)
	}
	return fmt.Errorf("%s has a size of %s, which does not fit into %s: request at least that size", from, needed, requested)
}

// IsReadOnly reports whether nobody may write to a volume with these access modes. One of a snapshot then shows it, and is no
// copy.
func IsReadOnly(modes []v1.PersistentVolumeAccessMode) bool {
	return slices.Equal(modes, []v1.PersistentVolumeAccessMode{v1.ReadOnlyMany})
}

func (p *Provisioner) claimSource(_ context.Context, namespace, from string) (source, error) {
	if p.Claims == nil {
		return source{}, fmt.Errorf("claim %s can't be copied: podnas does not know other claims here", from)
	}
	name, err := p.Claims.VolumeOf(namespace, from)
	if err != nil {
		return source{}, err
	}
	v, err := p.Store.Get(name)
	if err != nil {
		return source{}, fmt.Errorf("claim %s can't be copied: %w", from, err)
	}
	return source{volume: v.Name, size: v.Size, manifest: v.Manifest}, nil
}

func (p *Provisioner) snapshotSource(ctx context.Context, namespace, from string) (source, error) {
	if p.Snapshots == nil {
		return source{}, fmt.Errorf("VolumeSnapshot %s can't be copied: there are none without a cluster: use 'podnas volume create --from VOLUME --snapshot NAME'", from)
	}
	s, err := p.Snapshots.SnapshotFor(ctx, namespace, from)
	return source{volume: s.Volume, snapshot: s.Name, size: s.Size, manifest: s.Manifest}, err
}
