package process_test

import (
	"testing"

	"github.com/podnas/podnas/internal/process"
)

// What the page has people copy works where they paste it.
func TestCommand(t *testing.T) {
	for _, tt := range []struct {
		info process.Info
		want string
	}{
		{process.Info{Root: "/export", Namespace: "storage", Pod: "podnas-0"}, "kubectl exec -n storage podnas-0 -- podnas doctor"},
		{process.Info{Root: "/srv/disk"}, "podnas doctor --root=/srv/disk"},
		{process.Info{Root: "/srv/my disk's"}, `podnas doctor --root='/srv/my disk'"'"'s'`},
		{process.Info{Root: "/export", Pod: "podnas-0"}, "podnas doctor --root=/export"},
	} {
		if got := tt.info.Command("doctor"); got != tt.want {
			t.Errorf("%s, want %s", got, tt.want)
		}
	}
}
