package provisioner

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/podnas/podnas/internal/volume"
)

// Claims knows the volumes of claims.
type Claims interface {
	// VolumeOf returns the name of the volume on this disk that a claim is bound to.
	// Its error is shown to the user.
	VolumeOf(namespace, claim string) (string, error)
}

// source returns the volume that a claim clones, or the zero Volume.
func (p *Provisioner) source(claim *v1.PersistentVolumeClaim, size int64) (volume.Volume, error) {
	from, err := sourceClaim(claim)
	if err != nil || from == "" {
		return volume.Volume{}, err
	}
	if p.Claims == nil {
		return volume.Volume{}, fmt.Errorf("claim %s can't be copied: podnas does not know other claims here", from)
	}
	name, err := p.Claims.VolumeOf(claim.Namespace, from)
	if err != nil {
		return volume.Volume{}, err
	}
	v, err := p.Store.Get(name)
	if err != nil {
		return volume.Volume{}, fmt.Errorf("claim %s can't be copied: %w", from, err)
	}
	if v.Size > size {
		return volume.Volume{}, fmt.Errorf("claim %s has a size of %s, which does not fit into %s: request at least that size", from, volume.FormatSize(v.Size), volume.FormatSize(size))
	}
	return v, nil
}
