package control

import (
	"net/http"
	"net/netip"
	"slices"

	"github.com/podnas/podnas/provisioner/controller"
)

// Mounted says who has volumes mounted, as far as podnas knows.
type Mounted struct {
	// Cluster is whether Users is set. Without a cluster only Clients is.
	Cluster bool `json:"cluster"`
	// Users are the pods that have volumes mounted.
	Users []controller.User `json:"users"`
	// Deleting are the PersistentVolumes that stay until podnas has deleted their volumes.
	Deleting []string `json:"deleting"`
	// Clients are the connected machines, each once; an invalid address stands for
	// further ones. A mount that was not used for some minutes has no connection until
	// its next use.
	Clients []netip.Addr `json:"clients"`
}

// Any reports whether something is mounted, or still to be deleted. Where the pods are known, they count: kubelet
// keeps mounted what they need, connected or not, and further clients may be nodes without
// a mount.
func (m *Mounted) Any() bool {
	if m.Cluster {
		return len(m.Users)+len(m.Deleting) > 0
	}
	return len(m.Clients) > 0
}

func (s *Server) mounted(r *http.Request) (any, error) {
	u := Mounted{Cluster: s.Users != nil, Users: []controller.User{}, Deleting: []string{}, Clients: []netip.Addr{}}
	if s.Users != nil {
		users, err := s.Users(r.Context())
		if err != nil {
			return nil, err
		}
		u.Users = append(u.Users, users...)
	}
	if s.Deleting != nil {
		names, err := s.Deleting(r.Context())
		if err != nil {
			return nil, err
		}
		u.Deleting = append(u.Deleting, names...)
	}
	if s.Clients != nil {
		u.Clients = append(u.Clients, s.Clients()...)
		slices.SortFunc(u.Clients, netip.Addr.Compare)
		u.Clients = slices.Compact(u.Clients)
	}
	return u, nil
}
