package app

import (
	"testing"
	"time"

	"github.com/podnas/podnas/internal/process"
	"github.com/podnas/podnas/server/nfsv41/state"
)

// A node has what all its clients have, and the state and address of the one that is there most.
func TestClientOfNode(t *testing.T) {
	at := func(minute int) time.Time { return time.Date(2026, 1, 2, 3, minute, 0, 0, time.UTC) }
	silent := state.ClientInfo{ID: 10, Owner: "Linux NFSv4.1 a\n", Address: "10.0.0.1:700", Minor: 1, Confirmed: true, Silent: true, Since: at(2), Seen: at(3), Sessions: 1, Opens: 2, Locks: 3}
	active := state.ClientInfo{ID: 11, Owner: "Linux NFSv4.2 a\n", Address: "10.0.0.1:800", Minor: 2, Confirmed: true, Since: at(1), Seen: at(9), Sessions: 2, Opens: 20, Locks: 30}
	fresh := state.ClientInfo{ID: 12, Owner: "Linux NFSv4.2 a\n", Address: "10.0.0.1:900", Minor: 2, Since: at(8), Seen: at(8)}
	for _, tt := range []struct {
		name                     string
		node                     []state.ClientInfo
		is, ids, version, where  string
		since, seen              time.Time
		sessions, opened, locked int
	}{
		{"active", []state.ClientInfo{active}, process.ClientActive, "000000000000000b", "4.2", "10.0.0.1:800", at(1), at(9), 2, 20, 30},
		{"silent", []state.ClientInfo{silent}, process.ClientSilent, "000000000000000a", "4.1", "10.0.0.1:700", at(2), at(3), 1, 2, 3},
		{"new", []state.ClientInfo{fresh}, process.ClientNew, "000000000000000c", "4.2", "10.0.0.1:900", at(8), at(8), 0, 0, 0},
		{"silent and active", []state.ClientInfo{silent, active}, process.ClientActive, "000000000000000a, 000000000000000b", "4.1,4.2", "10.0.0.1:800", at(1), at(9), 3, 22, 33},
		{"silent and new", []state.ClientInfo{silent, fresh}, process.ClientSilent, "000000000000000a, 000000000000000c", "4.1,4.2", "10.0.0.1:700", at(2), at(8), 1, 2, 3},
		{"of one version", []state.ClientInfo{active, fresh}, process.ClientActive, "000000000000000b, 000000000000000c", "4.2", "10.0.0.1:800", at(1), at(9), 2, 20, 30},
	} {
		c := client(tt.node)
		if c.Name != `Linux NFSv4 a\n` || c.Identities[0].Name != "Linux NFSv"+tt.version[:len("4.x")]+` a\n` {
			t.Errorf("%s: names %q and %+v", tt.name, c.Name, c.Identities)
		}
		if c.State != tt.is || c.IDs() != tt.ids || c.ID != c.Identities[0].ID || c.Version != tt.version || c.Address != tt.where || !c.Since.Equal(tt.since) || !c.Seen.Equal(tt.seen) ||
			c.Sessions != tt.sessions || c.Opens != tt.opened || c.Locks != tt.locked {
			t.Errorf("%s: %+v, want %+v", tt.name, c, tt)
		}
	}
}
