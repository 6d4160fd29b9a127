package provisioner

import (
	"log/slog"
	"strings"
	"testing"

	"k8s.io/client-go/tools/record"

	"github.com/podnas/podnas/quota"
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

// A look is one pass over all volumes, and forgets those that are gone.
func TestFullnessLook(t *testing.T) {
	counts := counter{"half": {Bytes: 50, Limit: 100}, "full": {Bytes: 99, Limit: 100}}
	store, err := volume.Open(volume.Config{
		Root: t.TempDir(), Exports: noExports{}, Log: slog.New(slog.DiscardHandler),
		Quota: quota.Choice{Server: true}, Counter: counts,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	for _, name := range []string{"full", "half", "not-counted"} {
		if _, err := store.Create(t.Context(), volume.Spec{Name: name, Size: 100, Claim: &volume.Claim{Namespace: "ns", Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	events := record.NewFakeRecorder(10)
	f := newFullness(store, events, slog.New(slog.DiscardHandler))
	f.look()
	f.look()
	if len(events.Events) != 1 {
		t.Fatalf("%d events, want one", len(events.Events))
	}
	if got := <-events.Events; !strings.HasPrefix(got, "Warning VolumeFillingUp Volume full is 99% full") {
		t.Error(got)
	}
	if err := store.Delete(t.Context(), "full"); err != nil {
		t.Fatal(err)
	}
	if f.look(); len(f.told) != 0 || len(events.Events) != 0 {
		t.Errorf("of a volume that is gone is kept: %v", f.told)
	}
}

// counter has what volumes use, by name.
type counter map[string]quota.Usage

func (c counter) SetLimit(volume.Volume)            {}
func (c counter) Usage(v volume.Volume) quota.Usage { return c[v.Name] }

// A volume that nobody has claimed is no reason for an event, or a panic.
func TestFullnessWithoutClaim(t *testing.T) {
	events := record.NewFakeRecorder(1)
	newFullness(nil, events, slog.New(slog.DiscardHandler)).tell(&volume.Volume{Name: "v"}, 99, 100)
	if len(events.Events) != 0 {
		t.Error(<-events.Events)
	}
}
