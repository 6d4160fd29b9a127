package snapshots

import (
	"strings"
	"testing"

	"github.com/podnas/podnas/provisioner/internal/fixture"
)

func TestParseHandle(t *testing.T) {
	store, _ := fixture.Store(t)
	c := &Controller{Store: store}
	us := store.Identity()
	for _, tt := range []struct {
		handle string
		parts  int
		want   string // joined by spaces
		wrong  string
	}{
		{us + "/v/s", 3, "v s", ""},
		{us + "/v", 2, "v", ""},
		{us + "/v", 3, "", "none of podnas"},
		{us + "/v/s/t", 3, "", "none of podnas"},
		{us + "/../s", 3, ".. s", ""}, // which is no volume's name
		{"", 3, "", "none of podnas"},
		{"//", 3, "", "on the disk"},
		{"0/v/s", 3, "", "on the disk 0"},
	} {
		got, err := c.parseHandle(tt.handle, tt.parts)
		if strings.Join(got, " ") != tt.want || (err == nil) != (tt.wrong == "") || err != nil && !strings.Contains(err.Error(), tt.wrong) {
			t.Errorf("%q of %d parts: %q, %v, want %q, or an error with %q", tt.handle, tt.parts, got, err, tt.want, tt.wrong)
		}
	}
}
