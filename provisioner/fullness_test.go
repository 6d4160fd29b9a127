package provisioner

import (
	"log/slog"
	"strings"
	"testing"

	"k8s.io/client-go/tools/record"

	"github.com/podnas/podnas/volume"
)

// One event for each mark that is crossed, on the way up and on the way down, and
// none for what moves about a mark.
func TestFullness(t *testing.T) {
	events := record.NewFakeRecorder(10)
	f := newFullness(nil, events, slog.New(slog.DiscardHandler))
	v := &volume.Volume{Name: "v", Claim: &volume.Claim{Namespace: "ns", Name: "c", UID: "u"}}
	for _, tt := range []struct {
		percent int64
		want    string
	}{
		{0, ""},
		{84, ""},
		{85, "Warning VolumeFillingUp Volume v is 85% full: 85Gi of 100Gi"},
		{86, ""},
		{83, ""},
		{85, ""},
		{81, ""},
		{90, ""},
		{95, "Warning VolumeFillingUp Volume v is 95% full"},
		{91, ""},
		{96, ""},
		{100, ""},
		{89, "Normal VolumeHasRoom Volume v is 89% full again"},
		{90, ""},
		{40, "Normal VolumeHasRoom"},
		{97, "Warning VolumeFillingUp Volume v is 97% full"},
		{10, "Normal VolumeHasRoom"},
	} {
		f.tell(v, tt.percent<<30, 100<<30)
		got := ""
		select {
		case got = <-events.Events:
		default:
		}
		if tt.want == "" && got != "" || !strings.HasPrefix(got, tt.want) {
			t.Errorf("at %d%%: %q, want %q", tt.percent, got, tt.want)
		}
	}
}

// A volume that nobody has claimed is no reason for an event, or a panic.
func TestFullnessWithoutClaim(t *testing.T) {
	events := record.NewFakeRecorder(1)
	newFullness(nil, events, slog.New(slog.DiscardHandler)).tell(&volume.Volume{Name: "v"}, 99, 100)
	if len(events.Events) != 0 {
		t.Error(<-events.Events)
	}
}
