package control

import (
	"net/http"
	"net/netip"
	"slices"

	"github.com/podnas/podnas/provisioner"
)

// Usage is who uses the volumes.
type Usage struct {
	// Cluster: Users are known. Where there is no cluster, only Clients are.
	Cluster bool `json:"cluster"`
	// Users are the pods that have volumes mounted.
	Users []provisioner.User `json:"users"`
	// Clients are the machines that are connected, each once; one that is not valid
	// stands for more. A mount that nobody has used for some minutes has no
	// connection, and gets one when it is used.
	Clients []netip.Addr `json:"clients"`
}

func (s *Server) usage(r *http.Request) (any, error) {
	u := Usage{Cluster: s.Users != nil, Users: []provisioner.User{}, Clients: []netip.Addr{}}
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
