package controller

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"k8s.io/client-go/tools/record"

	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/provisioner/internal/fixture"
	"github.com/podnas/podnas/quota"
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
		inodes  bool
	}{
		{0, "", false},
		{84, "", false},
		{85, "Warning VolumeFillingUp Volume v is 85% full: 85Gi of 100Gi", false},
		{86, "", false},
		{83, "", false},
		{85, "", false},
		{81, "", false},
		{90, "", false},
		{86, "Warning VolumeFillingUp Volume v is at 86% of its inodes: 86 of 100 are used. Remove files, or raise", true},
		{90, "", true},
		{95, "Warning VolumeFillingUp Volume v is 95% full", false},
		{91, "", false},
		{40, "Normal VolumeHasRoom Volume v is at 40% of its inodes again: 40 of 100", true},
		{96, "", false},
		{100, "", false},
		{89, "Normal VolumeHasRoom Volume v is 89% full again", false},
		{90, "", false},
		{40, "Normal VolumeHasRoom", false},
		{97, "Warning VolumeFillingUp Volume v is 97% full", false},
		{10, "Normal VolumeHasRoom", false},
	} {
		unit := int64(1 << 30)
		if tt.inodes {
			unit = 1
		}
		f.tell(v, tt.inodes, tt.percent*unit, 100*unit)
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
	hundred := quota.Limit{Bytes: 100, Inodes: 100}
	counts := counter{"half": {Bytes: 50, Limit: hundred}, "full": {Bytes: 99, Inodes: 98, Limit: hundred}}
	store, err := volume.Open(volume.Config{
		Root: t.TempDir(), Exports: fixture.NoExports{}, Log: slog.New(slog.DiscardHandler),
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
	if len(events.Events) != 2 {
		t.Fatalf("%d events, want one for bytes and one for inodes", len(events.Events))
	}
	for _, want := range []string{"Volume full is 99% full", "Volume full is at 98% of its inodes"} {
		if got := <-events.Events; !strings.HasPrefix(got, "Warning VolumeFillingUp "+want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for _, tt := range []struct {
		volume string
		other  uint64 // makes the ID another one
		want   string
	}{
		{"half", 0, "Warning SnapshotDeleted podnas's disk fills up, so the oldest scheduled snapshots are deleted: hourly of volume half"},
		{"half", 1, ""},
		{"none", 0, ""},
	} {
		v, _ := store.Get(tt.volume)
		f.tellGiven(&volume.Snapshot{Name: "hourly", Volume: tt.volume, VolumeID: v.ID ^ tt.other})
		got := ""
		select {
		case got = <-events.Events:
		default:
		}
		if tt.want == "" && got != "" || !strings.HasPrefix(got, tt.want) {
			t.Errorf("of %s: %q, want %q", tt.volume, got, tt.want)
		}
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
	newFullness(nil, events, slog.New(slog.DiscardHandler)).tell(&volume.Volume{Name: "v"}, false, 99, 100)
	if len(events.Events) != 0 {
		t.Error(<-events.Events)
	}
}

// BenchmarkFullness is what a check of a thousand volumes costs, without the kernel's
// part, which quota's TestThousandProjects measures.
func BenchmarkFullness(b *testing.B) {
	log, counts := slog.New(slog.DiscardHandler), counter{}
	for i := range 1000 {
		counts[fmt.Sprint("v", i)] = quota.Usage{Bytes: 1, Inodes: 1, Limit: quota.Limit{Bytes: 100, Inodes: 100}}
	}
	store, err := volume.Open(volume.Config{Root: b.TempDir(), Exports: fixture.NoExports{}, Log: log, Quota: quota.Choice{Server: true}, Counter: counts})
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	for name := range counts {
		if _, err := store.Create(b.Context(), volume.Spec{Name: name, Size: 100}); err != nil {
			b.Fatal(err)
		}
	}
	f := newFullness(store, record.NewFakeRecorder(1), log)
	for b.Loop() {
		f.look()
	}
}
