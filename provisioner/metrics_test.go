package provisioner

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/client-go/tools/record"

	"github.com/podnas/podnas/doctor"
	"github.com/podnas/podnas/quota"
	"github.com/podnas/podnas/volume"
)

func TestMetrics(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	store, err := volume.Open(volume.Config{
		Root: t.TempDir(), Exports: noExports{}, Log: log,
		Quota: quota.Choice{Server: true}, Counter: counter{"mine": {Bytes: 4096, Inodes: 3, Limit: quota.Limit{Bytes: 1 << 20, Inodes: 1024}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	for _, spec := range []volume.Spec{
		{Name: "mine", Size: 1 << 20, Claim: &volume.Claim{Namespace: "ns", Name: "c"}},
		{Name: "kept", Size: 1 << 20, OnDelete: volume.RetainFiles},
	} {
		if _, err := store.Create(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Delete(t.Context(), "kept"); err != nil {
		t.Fatal(err)
	}
	want := `
# HELP podnas_volume_files Files, directories and everything else in a volume. Missing if not counted.
# TYPE podnas_volume_files gauge
podnas_volume_files{claim="c",namespace="ns",volume="mine"} 3
# HELP podnas_volume_files_limit Maximum number of files of a volume. Missing if it is not enforced.
# TYPE podnas_volume_files_limit gauge
podnas_volume_files_limit{claim="c",namespace="ns",volume="mine"} 1024
# HELP podnas_volume_size_bytes Size of a volume.
# TYPE podnas_volume_size_bytes gauge
podnas_volume_size_bytes{claim="c",namespace="ns",volume="mine"} 1.048576e+06
# HELP podnas_volume_used_bytes Disk usage of a volume. Missing if not counted.
# TYPE podnas_volume_used_bytes gauge
podnas_volume_used_bytes{claim="c",namespace="ns",volume="mine"} 4096
# HELP podnas_volumes Volumes, by state.
# TYPE podnas_volumes gauge
podnas_volumes{state="archived"} 0
podnas_volumes{state="copying"} 0
podnas_volumes{state="ready"} 1
podnas_volumes{state="retained"} 1
`
	if err := testutil.CollectAndCompare(NewMetrics(store, log), strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

// Each source of findings is there with both severities, and a check that hangs is one of
// them.
func TestFindingsMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		list := doctor.NewList(slices.Concat(
			doctor.Of("disk",
				doctor.One("disk", func(context.Context) doctor.Result { <-hang; return doctor.Good("") }),
				doctor.One("space", func(context.Context) doctor.Result { return doctor.Warn("", "filling") })),
			doctor.Of("claims", doctor.One("claims", func(context.Context) doctor.Result { return doctor.Good("") })),
		))
		ctx, stop := context.WithCancel(t.Context())
		go list.Watch(ctx)
		want := func(failed int) {
			t.Helper()
			text := fmt.Sprintf(`
# HELP podnas_findings Findings, as shown by podnas doctor.
# TYPE podnas_findings gauge
podnas_findings{severity="failed",source="claims"} 0
podnas_findings{severity="failed",source="disk"} %d
podnas_findings{severity="warning",source="claims"} 0
podnas_findings{severity="warning",source="disk"} 1
`, failed)
			if err := testutil.CollectAndCompare(NewFindingsMetrics(list), strings.NewReader(text)); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(time.Second)
		want(0)
		time.Sleep(doctor.Timeout)
		want(1)
		close(hang)
		time.Sleep(doctor.Timeout * 2)
		want(0)
		stop()
		synctest.Wait()
	})
}

// BenchmarkThousandVolumes is what Prometheus's question, and a look at how full
// volumes are, cost with a thousand volumes, but for the kernel's part: quota's
// TestThousandProjects has that.
func BenchmarkThousandVolumes(b *testing.B) {
	log, counts := slog.New(slog.DiscardHandler), counter{}
	for i := range 1000 {
		counts[fmt.Sprint("v", i)] = quota.Usage{Bytes: 1, Inodes: 1, Limit: quota.Limit{Bytes: 100, Inodes: 100}}
	}
	store, err := volume.Open(volume.Config{Root: b.TempDir(), Exports: noExports{}, Log: log, Quota: quota.Choice{Server: true}, Counter: counts})
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	for name := range counts {
		if _, err := store.Create(b.Context(), volume.Spec{Name: name, Size: 100}); err != nil {
			b.Fatal(err)
		}
	}
	m := NewMetrics(store, log)
	b.Run("metrics", func(b *testing.B) {
		for b.Loop() {
			if n := testutil.CollectAndCount(m); n < 3*1000 {
				b.Fatal(n)
			}
		}
	})
	b.Run("fullness", func(b *testing.B) {
		f := newFullness(store, record.NewFakeRecorder(1), log)
		for b.Loop() {
			f.look()
		}
	})
}
