package actas

import (
	"fmt"
	"testing"
)

func TestIdentity(t *testing.T) {
	for _, tt := range []struct {
		name     string
		squash   Squash
		uid, gid uint32
		groups   []uint32
		want     string
	}{
		{"as it is", Squash{}, 1000, 100, []uint32{1, 2}, "1000 100 [1 2]"},
		{"root", Squash{}, 0, 0, []uint32{0, 4}, "0 0 [0 4]"},
		{"uid -1", Squash{}, noID, 100, []uint32{1}, "65534 65534 []"},
		{"gid -1", Squash{}, 1000, noID, []uint32{1}, "65534 65534 []"},
		{"group -1", Squash{}, 1000, 100, []uint32{noID, 2}, "1000 100 [2]"},
		{"root squash", Squash{Root: true}, 0, 0, []uint32{0, 4}, "65534 65534 [4]"},
		{"root squash, not root", Squash{Root: true}, 1000, 0, []uint32{0}, "1000 65534 []"},
		{"all squash", Squash{All: true, AnonUID: 7, AnonGID: 8}, 1000, 100, []uint32{1}, "7 8 []"},
		{"anonymous is never -1", Squash{All: true, AnonUID: noID, AnonGID: noID}, 0, 0, nil, "65534 65534 []"},
		{"too many groups", Squash{}, 1, 1, make([]uint32, 20), "1 1 [0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0]"},
	} {
		id := tt.squash.Identity(tt.uid, tt.gid, tt.groups)
		if got := fmt.Sprint(id.UID, id.GID, id.groups[:id.n]); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}
