package control

import (
	"net/http"
	"net/netip"
	"slices"

	"github.com/podnas/podnas/provisioner/controller"
)

// Usage lists the users of the volumes.
type Usage struct {
	// Cluster is whether Users is set. Without a cluster only Clients is.
	Cluster bool `json:"cluster"`
	// Users are the pods that have volumes mounted.
	Users []controller.User `json:"users"`
	// Clients are the connected machines, each once; an invalid address stands for
	// further ones. A mount that was not used for some minutes has no connection until
	// its next use.
	Clients []netip.Addr `json:"clients"`
}

func (s *Server) usage(r *http.Request) (any, error) {
	u := Usage{Cluster: s.Users != nil, Users: []controller.User{}, Clients: []netip.Addr{}}
	if s.Users != nil {
		users, err := s.Users(r.Context())
		if err != nil {
			return nil, err
		}
		u.Users = append(u.Users, users...)
	}
	if s.Clients != nil {
		u.Clients = append(u.Clients, s.Clients()...)
		slices.SortFunc(u.Clients, netip.Addr.Compare)
		u.Clients = slices.Compact(u.Clients)
	}
	return u, nil
}
