package control

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/podnas/podnas/internal/process"
)

// A client is found by its ID, its name, or its host name, and one that somebody else's name
// fits too is not guessed.
func TestEvict(t *testing.T) {
	client, s, _ := start(t)
	s.Clients3 = func() []process.Client3 { return []process.Client3{{Address: "10.0.0.7"}} }
	if all, err := client.Clients(t.Context()); err != nil || len(all.Clients) != 0 || len(all.Version3) != 1 || !strings.Contains(all.NoNFS4, "version 3 of NFS alone") {
		t.Errorf("without version 4.1: %+v, %v", all, err)
	}
	if of, err := client.NFS4(t.Context(), "v"); err != nil || of.Opens == nil {
		t.Errorf("a volume without version 4.1: %+v, %v", of, err)
	}
	_, err := client.Evict(t.Context(), "a")
	wantCode(t, err, NotFound, "version 3 of NFS alone")

	var evicted []uint64
	node := func(name, address string, of ...process.Identity) process.Client {
		return process.Client{ID: of[0].ID, Name: name, Address: address, Identities: of}
	}
	clients := []process.Client{
		node("Linux NFSv4 node1", "10.0.0.1:700", process.Identity{ID: "000000000000000a", Name: "Linux NFSv4.1 node1"}),
		node("Linux NFSv4 node2", "10.0.0.2:700", process.Identity{ID: "000000000000000b", Name: "Linux NFSv4.1 node2"}),
		node("Linux NFSv4 node2", "10.0.0.3:700", process.Identity{ID: "000000000000000c", Name: "Linux NFSv4.1 node2"}),
		node("node3", "10.0.0.4:700", process.Identity{ID: "ffffffffffffffff", Name: "node3"}),
		node("", "10.0.0.5:700", process.Identity{ID: "000000000000000d", Name: ""}),
		node("000000000000000a", "10.0.0.6:700", process.Identity{ID: "000000000000000e", Name: "000000000000000a"}),
		node("Linux NFSv4 both", "10.0.0.7:700",
			process.Identity{ID: "0000000000000010", Name: "Linux NFSv4.1 both"}, process.Identity{ID: "0000000000000011", Name: "Linux NFSv4.2 both"}),
	}
	s.NFS4 = NFS4{
		Holdings: func() process.NFS4 { return process.NFS4{Clients: clients} },
		Evict: func(_ context.Context, ids ...uint64) error {
			if slices.Contains(ids, 13) {
				return errors.New("it can't be")
			}
			evicted = ids
			return nil
		},
	}
	id := func(ids ...uint64) []uint64 { return ids }
	for _, tt := range []struct {
		name string
		ids  []uint64
		code Code // of the refusal
		text string
	}{
		{"000000000000000a", id(10), "", ""},
		{"Linux NFSv4 node1", id(10), "", ""},
		{"Linux NFSv4.1 node1", id(10), "", ""},
		{"Linux NFSv4.2 node1", nil, NotFound, "no client"},
		{"node1", id(10), "", ""},
		{"node3", id(1<<64 - 1), "", ""},
		{"both", id(16, 17), "", ""},
		{"Linux NFSv4 both", id(16, 17), "", ""},
		{"Linux NFSv4.2 both", id(16, 17), "", ""},
		{"0000000000000010", id(16, 17), "", ""},
		{"0000000000000011", id(16, 17), "", ""},
		{"node2", nil, Invalid, `2 clients are called "node2": name one by its ID: 000000000000000b at 10.0.0.2:700, 000000000000000c at 10.0.0.3:700`},
		{"node", nil, NotFound, `no client "node"`},
		{"", nil, NotFound, "no client"},
		{"a", nil, NotFound, "no client"},
		{"000000000000000d", nil, Internal, "it can't be"},
	} {
		evicted = nil
		c, err := client.Evict(t.Context(), tt.name)
		if tt.code != "" {
			wantCode(t, err, tt.code, tt.text)
		} else if err != nil || !slices.Equal(evicted, tt.ids) || c.Address == "" {
			t.Errorf("%q: %+v, %v, evicted %x, want %x", tt.name, c, err, evicted, tt.ids)
		}
		if tt.code != "" && len(evicted) != 0 {
			t.Errorf("%q: %x is evicted", tt.name, evicted)
		}
	}
}
