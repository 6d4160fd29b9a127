package control

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/podnas/podnas/internal/process"
)

// NFS4 is the running server of version 4.1.
type NFS4 struct {
	// Holdings returns who has what.
	Holdings func() process.NFS4
	// Evict removes a node, by all its client IDs.
	Evict func(ctx context.Context, ids ...uint64) error
}

// served returns an error if version 4.1 is not served.
func (n *NFS4) served() error {
	if n.Holdings == nil {
		return &Error{Code: NotFound, Message: "this podnas serves version 3 of NFS alone, which has no clients that it remembers: NFSv4.1 needs the native engine, and --nfs4 not to be false"}
	}
	return nil
}

// clients tells who is there, and who has what: all, or of one volume.
func (s *Server) clients(r *http.Request) (any, error) {
	all := process.Clients{
		NFS4:     process.NFS4{Clients: []process.Client{}, Opens: []process.Open{}, Locks: []process.Lock{}},
		Version3: []process.Client3{},
	}
	if err := s.NFS4.served(); err != nil {
		all.NoNFS4 = err.Error()
	} else {
		all.NFS4 = s.NFS4.Holdings()
	}
	if name := r.URL.Query().Get("volume"); name != "" {
		return all.Of(name), nil
	}
	if s.Clients3 != nil {
		all.Version3 = append(all.Version3, s.Clients3()...)
	}
	return all, nil
}

// evict removes a node that is named by an ID or a name of one of its clients, its own name or the last word of that.
func (s *Server) evict(r *http.Request) (any, error) {
	if err := s.NFS4.served(); err != nil {
		return nil, err
	}
	name := r.URL.Query().Get("name")
	c, err := findClient(s.NFS4.Holdings().Clients, name)
	if err != nil {
		return nil, err
	}
	ids := make([]uint64, len(c.Identities))
	for i, of := range c.Identities {
		if ids[i], err = strconv.ParseUint(of.ID, 16, 64); err != nil {
			return nil, err
		}
	}
	s.Log.Info("control: request to evict a client", "client", c.Name, "id", c.IDs(), "address", c.Address)
	return c, s.NFS4.Evict(r.Context(), ids...)
}

// findClient finds the one client that a person means.
func findClient(clients []process.Client, name string) (process.Client, error) {
	var found []process.Client
	for _, c := range clients {
		// A Linux node is called "Linux NFSv4 HOSTNAME", and its clients "Linux NFSv4.1 HOSTNAME" and "Linux NFSv4.2 HOSTNAME".
		named := c.Name == name || c.Name[strings.LastIndexByte(c.Name, ' ')+1:] == name
		for _, of := range c.Identities {
			if of.ID == name {
				return c, nil
			}
			named = named || of.Name == name
		}
		if name != "" && named {
			found = append(found, c)
		}
	}
	switch len(found) {
	case 0:
		return process.Client{}, &Error{Code: NotFound, Message: fmt.Sprintf("there is no client %q", name)}
	case 1:
		return found[0], nil
	}
	var which []string
	for _, c := range found {
		which = append(which, fmt.Sprintf("%s at %s", c.ID, c.Address))
	}
	return process.Client{}, &Error{Code: Invalid, Message: fmt.Sprintf("%d clients are called %q: name one by its ID: %s", len(found), name, strings.Join(which, ", "))}
}
