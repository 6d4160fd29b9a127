package app

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/podnas/podnas/internal/process"
	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/provisioner/controller"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/nfsv41"
	"github.com/podnas/podnas/server/nfsv41/state"
	"github.com/podnas/podnas/server/stats"
)

// How many opens, and how many locks, commands know of, and the page, which is generated
// each second.
const (
	holdingsMax    = 10_000
	holdingsOnPage = 1_000
)

// holdings returns a function that tells who has what by version 4.1, at most limit opens and
// locks; nil where it is not served.
func holdings(served *nfsv41.Server, store *volume.Store, limit int) func() process.NFS4 {
	if served == nil {
		return nil
	}
	return func() process.NFS4 {
		v := view{server: served, volumes: map[uint64]string{}, clients: map[uint64]process.Client{}, files: map[state.FileKey]file{}}
		for _, volume := range store.List() {
			v.volumes[volume.ID] = volume.Name
		}
		return v.of(served.Snapshot(limit))
	}
}

// clientRecent is how long after its last call a client counts as one of a volume.
const clientRecent = time.Hour

// volumeClients returns how many clients have lately made a call in each volume, by its ID. All those
// without counters of their own are one.
func volumeClients(exports *exports.Table, served *stats.Server, now time.Time) map[uint64]int {
	clients := map[uint64]int{}
	for _, v := range exports.Volumes() {
		clients[v.ID] = 0
		for _, seen := range served.ClientsOf(&v.Served) {
			if now.Sub(seen.Last) < clientRecent {
				clients[v.ID]++
			}
		}
	}
	return clients
}

// version3 returns the clients that have lately called by version 3, by their addresses.
func version3(served []stats.ClientTraffic, now time.Time) []process.Client3 {
	slices.SortFunc(served, func(a, b stats.ClientTraffic) int { return a.Address.Compare(b.Address) })
	var clients []process.Client3
	for i := range served {
		c := &served[i]
		if c.Seen3.IsZero() || now.Sub(c.Seen3) >= clientRecent {
			continue
		}
		address := "others"
		if c.Address.IsValid() {
			address = c.Address.Unmap().String()
		}
		clients = append(clients, process.Client3{Address: address, Seen: c.Seen3})
	}
	return clients
}

// sharedNames returns what tells which names two nodes have, nil if version 4.1 is not served.
func sharedNames(served *nfsv41.Server) func() []controller.SharedName {
	if served == nil {
		return nil
	}
	return func() (all []controller.SharedName) {
		for _, n := range served.SharedNames() {
			all = append(all, controller.SharedName(n))
		}
		return all
	}
}

// grace returns what the server waits for after a crash, nil if version 4 is not served.
func grace(served *nfsv41.Server) *controller.Grace {
	if served == nil {
		return nil
	}
	return &controller.Grace{Lasts: served.InGrace, Excuse: served.Excuse, Awaited: func() (all []controller.AwaitedClient) {
		for _, c := range served.Awaited() {
			all = append(all, controller.AwaitedClient(c))
		}
		return all
	}}
}

// stateLogFailed returns what tells why the log of --state-log was given up.
func stateLogFailed(served *nfsv41.Server) func() error {
	if served == nil {
		return func() error { return nil }
	}
	return served.StateLogFailed
}

// view turns what the server knows into what people read.
type view struct {
	server  *nfsv41.Server
	volumes map[uint64]string
	clients map[uint64]process.Client
	files   map[state.FileKey]file
}

type file struct {
	name  string
	inode uint64
}

func (v *view) of(snap state.Snapshot) process.NFS4 {
	all := process.NFS4{Clients: []process.Client{}, Opens: []process.Open{}, Locks: []process.Lock{}, Omitted: snap.Cut}
	for _, node := range state.Nodes(snap.Clients) {
		c := client(node)
		for i := range node {
			v.clients[node[i].ID] = c
		}
		all.Clients = append(all.Clients, c)
	}
	for i := range snap.Opens {
		o := &snap.Opens[i]
		all.Opens = append(all.Opens, process.Open{Holder: v.holder(o.File, o.ClientID, o.Since), Access: accessName(o.Access), Deny: accessName(o.Deny)})
	}
	for i := range snap.Locks {
		l := &snap.Locks[i]
		kind := "read"
		if l.Write {
			kind = "write"
		}
		all.Locks = append(all.Locks, process.Lock{
			Holder: v.holder(l.File, l.ClientID, l.Since), Type: kind, Waiting: l.Waiting, Offset: l.Offset, Length: l.Length,
		})
	}
	if g := &snap.Grace; g.Active {
		all.Grace = &process.Grace{Until: g.Until, Awaited: []string{}}
		for _, owner := range g.Awaited {
			name, _ := state.Node(owner)
			all.Grace.Awaited = append(all.Grace.Awaited, nfsv41.Printable(name))
		}
		slices.Sort(all.Grace.Awaited)
		all.Grace.Awaited = slices.Compact(all.Grace.Awaited)
	}
	return all
}

// client returns a node with all that its clients have. Its state and its address are those of the client that is there most.
func client(node []state.ClientInfo) process.Client {
	name, _ := state.Node(node[0].Owner)
	is := process.Client{Name: nfsv41.Printable(name), Since: node[0].Since}
	states, versions := []string{process.ClientNew, process.ClientSilent, process.ClientActive}, []string(nil)
	for i := range node {
		c := &node[i]
		of := process.Identity{ID: fmt.Sprintf("%016x", c.ID), Name: nfsv41.Printable(c.Owner), Version: fmt.Sprintf("4.%d", c.Minor)}
		is.Identities = append(is.Identities, of)
		if !slices.Contains(versions, of.Version) {
			versions = append(versions, of.Version)
		}
		if said := clientState(c); slices.Index(states, said) > slices.Index(states, is.State) {
			is.State, is.Address = said, c.Address
		}
		if c.Since.Before(is.Since) {
			is.Since = c.Since
		}
		if c.Seen.After(is.Seen) {
			is.Seen = c.Seen
		}
		is.Sessions += c.Sessions
		is.Opens += c.Opens
		is.Locks += c.Locks
	}
	is.ID, is.Version = is.Identities[0].ID, strings.Join(versions, ",")
	return is
}

func clientState(c *state.ClientInfo) string {
	switch {
	case !c.Confirmed:
		return process.ClientNew
	case c.Silent:
		return process.ClientSilent
	}
	return process.ClientActive
}

func (v *view) holder(key state.FileKey, id uint64, since time.Time) process.Holder {
	f, ok := v.files[key]
	if !ok {
		f.name, f.inode = v.server.File(key)
		v.files[key] = f
	}
	c := v.clients[id]
	return process.Holder{Volume: v.volumes[key.Volume], File: f.name, Inode: f.inode, ClientID: c.ID, Client: c.Name, Address: c.Address, Since: since}
}

func accessName(a state.Access) string {
	switch a {
	case state.Read:
		return "read"
	case state.Write:
		return "write"
	case state.Both:
		return "read+write"
	}
	return ""
}
