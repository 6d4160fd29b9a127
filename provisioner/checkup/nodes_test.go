package checkup

import (
	"strings"
	"testing"
	"time"

	"github.com/podnas/podnas/internal/doctor"
	"github.com/podnas/podnas/provisioner/controller"
)

func TestSharedNames(t *testing.T) {
	if got := sharedNames(nil); len(got) != 1 || got[0].Status != doctor.OK {
		t.Errorf("with none: %+v", got)
	}
	last := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	got := sharedNames([]controller.SharedName{
		{Name: "Linux NFSv4 pi", Address: "10.0.0.1:700", Other: "10.0.0.2:800", Last: last},
		{Name: "Linux NFSv4 pi2", Last: last},
	})
	if len(got) != 2 || got[0].Status != doctor.Warning || !strings.Contains(got[0].Fix, "nfs4_unique_id") {
		t.Fatalf("with two: %+v", got)
	}
	for _, want := range []string{`"Linux NFSv4 pi"`, "10.0.0.1:700", "10.0.0.2:800", "2026-01-02T03:04:05Z"} {
		if !strings.Contains(got[0].Says, want) {
			t.Errorf("%q lacks %q", got[0].Says, want)
		}
	}
}
