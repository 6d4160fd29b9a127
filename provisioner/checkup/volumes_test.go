package checkup

import (
	"errors"
	"log/slog"
	"testing"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/podnas/podnas/internal/doctor"
	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/provisioner"
	"github.com/podnas/podnas/provisioner/internal/fixture"
	"github.com/podnas/podnas/quota"
)

// counter says what volumes use, by their names.
type counter map[string]quota.Usage

func (c counter) Usage(v volume.Volume) quota.Usage { return c[v.Name] }
func (counter) SetLimit(volume.Volume)              {}

func TestVolumes(t *testing.T) {
	counts := counter{}
	store, err := volume.Open(volume.Config{
		Root: t.TempDir(), Exports: fixture.NoExports{}, Log: slog.New(slog.DiscardHandler), Quota: quota.Choice{Server: true}, Counter: counts,
	})
	mustDo(t, err)
	t.Cleanup(func() { mustDo(t, store.Close()) })
	for _, spec := range []volume.Spec{
		{Name: "hand", Size: 1000}, {Name: "claimed", Size: 1000, Claim: &volume.Claim{Namespace: "team", Name: "data"}},
	} {
		_, err := store.Create(t.Context(), spec)
		mustDo(t, err)
	}
	for _, tt := range []struct {
		volume        string
		bytes, inodes int64
		check         string
		status        doctor.Status
		says, fix     string
	}{
		{"hand", 849, 84, "volumes", doctor.OK, "2 are served", ""},
		{"hand", 850, 84, "volume hand", doctor.Warning, "85% full: 850 of 1000 are used", "podnas volume resize hand SIZE"},
		{"claimed", 949, 0, "volume claimed", doctor.Warning, "94% full", "raise the request of claim team/data"},
		{"claimed", 950, 0, "volume claimed", doctor.Failed, "95% full", "raise the request of claim team/data"},
		{"hand", 1000, 0, "volume hand", doctor.Failed, "100% full", "podnas volume resize"},
		{"hand", 0, 85, "volume hand", doctor.Warning, "85% of its inodes are used: 85 of 100", "podnas volume resize"},
		{"claimed", 0, 100, "volume claimed", doctor.Failed, "100% of its inodes", "claim team/data"},
	} {
		clear(counts)
		counts[tt.volume] = quota.Usage{Bytes: tt.bytes, Inodes: tt.inodes, Limit: quota.Limit{Bytes: 1000, Inodes: 100}}
		results := run(t, Config{Store: store}, "volumes")
		want(t, results, tt.check, tt.status, tt.says, tt.fix)
		if len(results) != 1 {
			t.Errorf("%+v: %+v", tt, results)
		}
	}
	clear(counts) // nobody counts
	want(t, run(t, Config{Store: store}, "volumes"), "volumes", doctor.OK, "2 are served", "")
}

func TestSchedules(t *testing.T) {
	v := volume.Volume{Name: "data", Schedule: volume.Schedule{Daily: 7}}
	failed := errors.New("take snapshot daily of volume data: the disk is broken")
	for _, tt := range []struct {
		name      string
		all       []volume.Scheduled
		status    doctor.Status
		check     string
		says, fix string
	}{
		{"kept", []volume.Scheduled{{Volume: v}}, doctor.OK, "snapshots", "1 schedule, and none is late", ""},
		{"failed", []volume.Scheduled{{Volume: v, Err: failed}, {Volume: volume.Volume{Name: "well"}}}, doctor.Warning, "volume data", "(daily=7) are not taken: the last one could not be taken: " + failed.Error(), "volume set data --snapshots none"},
		{"failed for long", []volume.Scheduled{{Volume: v, Err: failed, Late: true}}, doctor.Failed, "volume data", "the disk is broken", "podnas tries again"},
		{"late", []volume.Scheduled{{Volume: v, Late: true}}, doctor.Failed, "volume data", "due for more than an hour", "podnas tries again"},
	} {
		results := schedules(tt.all)
		if len(results) != 1 {
			t.Fatalf("%s: %+v", tt.name, results)
		}
		if results[0].Check == "" {
			results[0].Check = "snapshots"
		}
		want(t, results, tt.check, tt.status, tt.says, tt.fix)
	}
	if results := schedules(nil); results != nil {
		t.Errorf("without a schedule: %+v", results)
	}
}

// A volume that mounts with NFSv4.1 is found where that is not served.
func TestVersions(t *testing.T) {
	store, _ := fixture.Store(t)
	off := errors.New("NFSv4.1 is turned off by --nfs4=false")
	add := func(name string, options ...string) {
		p := provisioner.Provisioner{}
		spec, err := p.StaticSpec(name, 1000, &storagev1.StorageClass{MountOptions: options}, nil)
		mustDo(t, err)
		_, err = store.Create(t.Context(), spec)
		mustDo(t, err)
	}
	one := func(no error, status doctor.Status, says, fix string) {
		t.Helper()
		r := versions(store, no)
		r.Check = "versions"
		want(t, []doctor.Result{r}, "versions", status, says, fix)
	}
	add("old", "nfsvers=3")
	one(nil, doctor.OK, "NFSv4.2 are served; new volumes mount with 4.2, unless their class names another; 1 volume with 3", "")
	one(off, doctor.OK, "no volume mounts with version 4: NFSv4.1 is turned off", "")
	add("locks", "nfsvers=4.1")
	add("highest", "v4")
	add("plain")
	one(nil, doctor.OK, "names another; 1 volume with 4.2; 1 volume with 4.1; 1 volume with 4; 1 volume with 3", "")
	one(off, doctor.Failed, "3 volumes can't be mounted, because they mount with NFSv4: highest, locks, plain. NFSv4.1 is turned off by --nfs4=false", "replace mountOptions")
}
