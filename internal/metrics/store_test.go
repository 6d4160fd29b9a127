package metrics

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/provisioner/controller"
	"github.com/podnas/podnas/quota"
)

func TestMetrics(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	opened, err := volume.Open(volume.Config{
		Root: t.TempDir(), Exports: noExports{}, Log: log,
		Quota: quota.Choice{Server: true}, Counter: counter{"mine": {Bytes: 4096, Inodes: 3, Limit: quota.Limit{Bytes: 1 << 20, Inodes: 1024}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	for _, spec := range []volume.Spec{
		{Name: "mine", Size: 1 << 20, Claim: &volume.Claim{Namespace: "ns", Name: "c"}},
		{Name: "kept", Size: 1 << 20, OnDelete: volume.RetainFiles},
	} {
		if _, err := opened.Create(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
	}
	if err := opened.Delete(t.Context(), "kept"); err != nil {
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
	if err := testutil.CollectAndCompare(&store{opened, nil, log}, strings.NewReader(want), "podnas_volumes",
		"podnas_volume_size_bytes", "podnas_volume_used_bytes", "podnas_volume_files", "podnas_volume_files_limit"); err != nil {
		t.Error(err)
	}
}

func TestDiskMetrics(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	opened, err := volume.Open(volume.Config{Root: t.TempDir(), Exports: noExports{}, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	ctx := t.Context()
	for range 2 { // the second finds what the first has made
		if _, err := opened.Create(ctx, volume.Spec{Name: "a", Size: 1 << 20}); err != nil {
			t.Fatal(err)
		}
	}
	var tooLarge *volume.NoSpaceError
	if _, err := opened.Create(ctx, volume.Spec{Name: "large", Size: 1 << 60}); !errors.As(err, &tooLarge) {
		t.Fatal(err)
	}
	for _, size := range []int64{2 << 20, 2 << 20, 1 << 20} { // raised, nothing to do, refused
		if _, err := opened.Resize(ctx, "a", size, 0); (err != nil) != (size == 1<<20) {
			t.Fatal(err)
		}
	}
	for {
		_, err := opened.Create(ctx, volume.Spec{Name: "copy", Size: 4 << 20, Source: "a"})
		var copying *volume.CopyingError
		if err == nil {
			break
		}
		if !errors.As(err, &copying) {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
	if err := opened.Delete(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	if err := opened.Delete(ctx, "a"); !errors.Is(err, volume.ErrNotFound) {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if trash, err := opened.Trash(); err == nil && trash.Volumes == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the trash is not emptied")
		}
	}
	report := func() controller.Report {
		return controller.Report{Time: time.Unix(1000, 0), StandsAside: "another podnas"}
	}
	want := `
# HELP podnas_disk_promised_bytes Sum of the sizes of all volumes, archived and retained ones too, and of what is promised for snapshots.
# TYPE podnas_disk_promised_bytes gauge
podnas_disk_promised_bytes 4.194304e+06
# HELP podnas_reconcile_last_success_timestamp_seconds Time of the last comparison of the disk with the cluster.
# TYPE podnas_reconcile_last_success_timestamp_seconds gauge
podnas_reconcile_last_success_timestamp_seconds 1000
# HELP podnas_snapshots Complete snapshots of all volumes, deleted volumes too.
# TYPE podnas_snapshots gauge
podnas_snapshots 0
# HELP podnas_stands_aside 1 if this podnas provisions no claims, because another one has its provisioner name.
# TYPE podnas_stands_aside gauge
podnas_stands_aside 1
# HELP podnas_trash_volumes Deleted volumes whose files are not removed yet.
# TYPE podnas_trash_volumes gauge
podnas_trash_volumes 0
# HELP podnas_volume_operation_failures_total Failed operations on volumes. Most are retried, and each failure counts.
# TYPE podnas_volume_operation_failures_total counter
podnas_volume_operation_failures_total{operation="copy"} 0
podnas_volume_operation_failures_total{operation="create"} 1
podnas_volume_operation_failures_total{operation="delete"} 0
podnas_volume_operation_failures_total{operation="empty"} 0
podnas_volume_operation_failures_total{operation="resize"} 1
podnas_volume_operation_failures_total{operation="snapshot"} 0
# HELP podnas_volume_operations_total Completed operations on volumes: create, resize, copy, snapshot, delete, and empty (removal of a deleted volume's files).
# TYPE podnas_volume_operations_total counter
podnas_volume_operations_total{operation="copy"} 1
podnas_volume_operations_total{operation="create"} 1
podnas_volume_operations_total{operation="delete"} 1
podnas_volume_operations_total{operation="empty"} 1
podnas_volume_operations_total{operation="resize"} 1
podnas_volume_operations_total{operation="snapshot"} 0
`
	collector := &store{opened, report, log}
	if err := testutil.CollectAndCompare(collector, strings.NewReader(want), "podnas_disk_promised_bytes",
		"podnas_reconcile_last_success_timestamp_seconds", "podnas_stands_aside", "podnas_trash_volumes", "podnas_trash_bytes",
		"podnas_volume_operation_failures_total", "podnas_volume_operations_total"); err != nil {
		t.Error(err)
	}
	if n := testutil.CollectAndCount(collector, "podnas_disk_size_bytes", "podnas_disk_free_bytes"); n != 2 {
		t.Errorf("%d of the disk's two sizes", n)
	}
}

// BenchmarkThousandVolumes is what a scrape costs with a thousand volumes, without the
// kernel's part, which quota's TestThousandProjects measures.
func BenchmarkThousandVolumes(b *testing.B) {
	log, counts := slog.New(slog.DiscardHandler), counter{}
	for i := range 1000 {
		counts[fmt.Sprint("v", i)] = quota.Usage{Bytes: 1, Inodes: 1, Limit: quota.Limit{Bytes: 100, Inodes: 100}}
	}
	opened, err := volume.Open(volume.Config{Root: b.TempDir(), Exports: noExports{}, Log: log, Quota: quota.Choice{Server: true}, Counter: counts})
	if err != nil {
		b.Fatal(err)
	}
	defer opened.Close()
	for name := range counts {
		if _, err := opened.Create(b.Context(), volume.Spec{Name: name, Size: 100}); err != nil {
			b.Fatal(err)
		}
	}
	m := &store{opened, nil, log}
	for b.Loop() {
		if n := testutil.CollectAndCount(m); n < 3*1000 {
			b.Fatal(n)
		}
	}
}

// counter has what volumes use, by name.
type counter map[string]quota.Usage

func (c counter) SetLimit(volume.Volume)            {}
func (c counter) Usage(v volume.Volume) quota.Usage { return c[v.Name] }

// noExports serves nothing.
type noExports struct{}

func (noExports) Export(volume.Volume) error { return nil }
func (noExports) Check(volume.Options) error { return nil }
func (noExports) Unexport(volume.Volume)     {}
