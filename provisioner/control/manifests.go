package control

import (
	"context"
	"fmt"
	"net/http"

	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/provisioner"
)

func (s *Server) manifests(r *http.Request) (any, error) {
	var volumes []volume.Volume
	if names := r.URL.Query()["name"]; len(names) == 0 {
		volumes = s.store().List()
	} else {
		for _, name := range names {
			v, err := s.store().Get(name)
			if err != nil {
				return nil, err
			}
			volumes = append(volumes, v)
		}
	}
	manifests := []Manifest{} // in JSON [], not null
	for _, v := range volumes {
		m, err := s.manifest(r.Context(), v)
		if err != nil {
			return nil, fmt.Errorf("the manifest of volume %s: %w", v.Name, err)
		}
		manifests = append(manifests, m)
	}
	return manifests, nil
}

// manifest returns the objects that a cluster needs to use a volume. The
// PersistentVolume is reserved for its claim.
func (s *Server) manifest(ctx context.Context, v volume.Volume) (Manifest, error) {
	pv, err := s.Provisioner.PersistentVolume(ctx, v)
	if err != nil {
		return Manifest{}, err
	}
	claim, err := provisioner.Bind(pv, v)
	return Manifest{Volume: pv, Claim: claim}, err
}
