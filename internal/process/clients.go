package process

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// NFS4 is who has what by NFSv4.1. Commands get it as JSON.
type NFS4 struct {
	Clients []Client `json:"clients"` // by name
	Opens   []Open   `json:"opens"`
	Locks   []Lock   `json:"locks"`
	// Omitted is how many opens and locks are left out.
	Omitted int `json:"omitted,omitempty"`
	// Grace is the time after a crash in which clients reclaim what they had, or nil.
	Grace *Grace `json:"grace,omitempty"`
}

// Of returns who has what of a volume.
func (n NFS4) Of(volume string) NFS4 {
	of := NFS4{Clients: []Client{}, Opens: []Open{}, Locks: []Lock{}, Omitted: n.Omitted, Grace: n.Grace}
	holds := map[string]bool{}
	for _, o := range n.Opens {
		if o.Volume == volume {
			of.Opens, holds[o.ClientID] = append(of.Opens, o), true
		}
	}
	for _, l := range n.Locks {
		if l.Volume == volume {
			of.Locks, holds[l.ClientID] = append(of.Locks, l), true
		}
	}
	of.Clients = slices.DeleteFunc(slices.Clone(n.Clients), func(c Client) bool { return !holds[c.ID] })
	return of
}

// Text says how the file is open.
func (o *Open) Text() string {
	if o.Deny != "" {
		return "open " + o.Access + ", denies " + o.Deny
	}
	return "open " + o.Access
}

// Text says what of the file is locked.
func (l *Lock) Text() string {
	verb := "lock"
	if l.Waiting {
		verb = "waits for lock"
	}
	switch {
	case l.Length == math.MaxUint64 && l.Offset == 0:
		return verb + " " + l.Type
	case l.Length == math.MaxUint64:
		return fmt.Sprintf("%s %s from %d", verb, l.Type, l.Offset)
	}
	return fmt.Sprintf("%s %s %d to %d", verb, l.Type, l.Offset, l.Offset+l.Length-1)
}

// Values of Client.State.
const (
	ClientActive = "active"
	ClientSilent = "silent" // its lease ran out; it keeps what nobody else wants
	ClientNew    = "new"    // it has no session yet
)

// Client is a client: a node, for all its mounts. To the protocol it is one for each minor version that it mounts with.
type Client struct {
	ID       string    `json:"id"`   // of the first of Identities
	Name     string    `json:"name"` // what it calls itself, made printable, and without Linux's minor version
	Address  string    `json:"address"`
	Version  string    `json:"version"` // of NFS: 4.1, 4.2, or 4.1,4.2
	State    string    `json:"state"`
	Since    time.Time `json:"since"`
	Seen     time.Time `json:"seen"`
	Sessions int       `json:"sessions"`
	Opens    int       `json:"opens"`
	Locks    int       `json:"locks"`

	Identities []Identity `json:"identities"` // by name
}

// IDs returns the client IDs of its identities, in one string.
func (c *Client) IDs() string {
	var ids []string
	for _, of := range c.Identities {
		ids = append(ids, of.ID)
	}
	return strings.Join(ids, ", ")
}

// Identity is a client as the protocol knows it.
type Identity struct {
	ID      string `json:"id"`   // client ID, in hexadecimal digits
	Name    string `json:"name"` // what it calls itself, made printable
	Version string `json:"version"`
}

// Client3 is a client of version 3, which tells the server neither its name nor what it has mounted.
type Client3 struct {
	Address string    `json:"address"` // or "others", which have no counters of their own
	Seen    time.Time `json:"seen"`    // its last call
}

// Clients are the clients of all versions, and who has what by NFSv4.1.
type Clients struct {
	NFS4

	Version3 []Client3 `json:"version3"` // by address: those that have called in the last hour
	// NoNFS4 is why version 4.1 is not served, or empty.
	NoNFS4 string `json:"noNFS4,omitempty"`
}

// Holder is who has a file open or locked, and which.
type Holder struct {
	Volume   string    `json:"volume"`
	File     string    `json:"file"` // its path in the volume, or its inode number
	Inode    uint64    `json:"inode"`
	ClientID string    `json:"clientID"` // Client.ID
	Client   string    `json:"client"`   // its name
	Address  string    `json:"address"`
	Since    time.Time `json:"since"` // when the file was opened, for locks too
}

// Open is an open file.
type Open struct {
	Holder

	Access string `json:"access"` // read, write, or read+write
	Deny   string `json:"deny,omitempty"`
}

// Lock is a locked range of a file.
type Lock struct {
	Holder

	Type    string `json:"type"`              // read or write
	Waiting bool   `json:"waiting,omitempty"` // it is not locked, but waited for
	Offset  uint64 `json:"offset"`
	Length  uint64 `json:"length"` // 2^64-1: to the end of the file
}

// Grace is a grace period.
type Grace struct {
	Until time.Time `json:"until"` // at the latest
	// Awaited are the names of the clients that have not reclaimed what they had. Others
	// can open and lock nothing until they have.
	Awaited []string `json:"awaited"`
}

// Text says why clients can open and lock nothing new.
func (g *Grace) Text(now time.Time) string {
	const awaitedMax = 10
	awaited := strings.Join(g.Awaited[:min(len(g.Awaited), awaitedMax)], ", ")
	if more := len(g.Awaited) - awaitedMax; more > 0 {
		awaited += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("podnas was restarted: for at most %s only clients that had files open or locked can open or lock files; it waits for %s",
		max(0, g.Until.Sub(now)).Round(time.Second), awaited)
}
