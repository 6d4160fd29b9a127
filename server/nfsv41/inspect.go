package nfsv41

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/server/nfsv41/state"
)

// Counts returns how much clients have, and Totals what has become of them.
func (s *Server) Counts() state.Counts { return s.state.Counts() }

// Totals returns how often what has become of clients.
func (s *Server) Totals() Totals { return s.events.totals() }

// Snapshot returns who has what: of opens and locks at most limit each.
func (s *Server) Snapshot(limit int) state.Snapshot { return s.state.Snapshot(limit) }

// AwaitedClient is a client for which the grace period waits.
type AwaitedClient struct {
	Owner     string
	Host      string       // what the client calls itself; empty: that is not known
	Addresses []netip.Addr // from which it came; one is invalid if it is not known
}

// Awaited returns the clients for which the grace period waits, and which have not come yet.
func (s *Server) Awaited() (clients []AwaitedClient) {
	at := map[string]int{}
	for _, e := range s.state.Awaited() {
		i, ok := at[e.Owner]
		if !ok {
			i = len(clients)
			at[e.Owner] = i
			clients = append(clients, AwaitedClient{Owner: e.Owner, Host: state.Host(e.Owner)})
		}
		address, _ := netip.ParseAddr(e.Address) // invalid with an error
		clients[i].Addresses = append(clients[i].Addresses, address)
	}
	return clients
}

// Excuse has the grace period not wait for clients, by their owners, whose nodes are out of service.
func (s *Server) Excuse(owners ...string) { s.state.Excuse(owners...) }

// InGrace reports whether the grace period lasts.
func (s *Server) InGrace() bool { return s.state.InGrace() }

// File returns the name and the inode number of a file that some client has open. The name
// is its path in its volume, where the kernel knows that. If nobody has it open any more,
// both are zero.
func (s *Server) File(key state.FileKey) (name string, inode uint64) {
	h := s.descriptorOf(key)
	if h == nil {
		return "", 0
	}
	defer h.Release()
	path, inode, removed := h.Where()
	name = Printable(path)
	if path == "" {
		name = fmt.Sprintf("inode %d", inode)
	}
	if removed {
		name += " (removed)"
	}
	return name, inode
}

// evictAgain is the time between two attempts to evict a client.
const evictAgain = 50 * time.Millisecond

// Evict removes the clients of a node with all that they have open and locked. It waits for calls of
// theirs that change what is on the disk about them. It is an error if all have gone meanwhile.
func (s *Server) Evict(ctx context.Context, ids ...uint64) error {
	found := false
	for _, id := range ids {
		was, err := s.evict(ctx, id)
		if err != nil {
			return err
		}
		found = found || was
	}
	if !found {
		return errors.New("the client has gone meanwhile")
	}
	return nil
}

// evict removes a client, and reports whether it was there.
func (s *Server) evict(ctx context.Context, id uint64) (found bool, err error) {
	for {
		switch s.state.Evict(id) {
		case nfs4.OK:
			return true, nil
		case nfs4.ErrStaleClientID:
			return false, nil
		}
		select {
		case <-ctx.Done():
			return false, fmt.Errorf("the list of clients on the disk could not be changed: %w", ctx.Err())
		case <-time.After(evictAgain):
		}
	}
}
