package control

import (
	"context"
	"errors"
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
	clients := []process.Client{
		{ID: "000000000000000a", Name: "Linux NFSv4.1 node1", Address: "10.0.0.1:700"},
		{ID: "000000000000000b", Name: "Linux NFSv4.1 node2", Address: "10.0.0.2:700"},
		{ID: "000000000000000c", Name: "Linux NFSv4.1 node2", Address: "10.0.0.3:700"},
		{ID: "ffffffffffffffff", Name: "node3", Address: "10.0.0.4:700"},
		{ID: "000000000000000d", Name: "", Address: "10.0.0.5:700"},
		{ID: "000000000000000e", Name: "000000000000000a", Address: "10.0.0.6:700"},
	}
	s.NFS4 = NFS4{
		Holdings: func() process.NFS4 { return process.NFS4{Clients: clients} },
		Evict: func(_ context.Context, id uint64) error {
			if id == 13 {
				return errors.New("it can't be")
			}
			evicted = append(evicted, id)
			return nil
		},
	}
	for _, tt := range []struct {
		name string
		id   uint64
		code Code // of the refusal
		text string
	}{
		{"000000000000000a", 10, "", ""},
		{"Linux NFSv4.1 node1", 10, "", ""},
		{"node1", 10, "", ""},
		{"node3", 1<<64 - 1, "", ""},
		{"node2", 0, Invalid, `2 clients are called "node2": name one by its ID: 000000000000000b at 10.0.0.2:700, 000000000000000c at 10.0.0.3:700`},
		{"node", 0, NotFound, `no client "node"`},
		{"", 0, NotFound, "no client"},
		{"a", 0, NotFound, "no client"},
		{"000000000000000d", 0, Internal, "it can't be"},
	} {
		evicted = nil
		c, err := client.Evict(t.Context(), tt.name)
		if tt.code != "" {
			wantCode(t, err, tt.code, tt.text)
		} else if err != nil || len(evicted) != 1 || evicted[0] != tt.id || c.Address == "" {
			t.Errorf("%q: %+v, %v, evicted %x, want %x", tt.name, c, err, evicted, tt.id)
		}
		if tt.code != "" && len(evicted) != 0 {
			t.Errorf("%q: %x is evicted", tt.name, evicted)
		}
	}
}
