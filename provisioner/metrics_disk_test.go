package provisioner

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/podnas/podnas/volume"
)

func TestDiskMetrics(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	store, err := volume.Open(volume.Config{Root: t.TempDir(), Exports: noExports{}, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	ctx := t.Context()
	for range 2 { // the second finds what the first has made
		if _, err := store.Create(ctx, volume.Spec{Name: "a", Size: 1 << 20}); err != nil {
			t.Fatal(err)
		}
	}
	var tooLarge *volume.NoSpaceError
	if _, err := store.Create(ctx, volume.Spec{Name: "large", Size: 1 << 60}); !errors.As(err, &tooLarge) {
		t.Fatal(err)
	}
	for _, size := range []int64{2 << 20, 2 << 20, 1 << 20} { // raised, nothing to do, refused
		if _, err := store.Resize(ctx, "a", size, 0); (err != nil) != (size == 1<<20) {
			t.Fatal(err)
		}
	}
	for {
		_, err := store.Create(ctx, volume.Spec{Name: "copy", Size: 4 << 20, Source: "a"})
		var copying *volume.CopyingError
		if err == nil {
			break
		}
		if !errors.As(err, &copying) {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
	if err := store.Delete(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	if err := store.Delete(ctx, "a"); !errors.Is(err, volume.ErrNotFound) {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if trash, err := store.Trash(); err == nil && trash.Volumes == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the trash is not emptied")
		}
	}
	reconciler := &Reconciler{}
	reconciler.latest.Time = time.Unix(1000, 0)
	reconciler.standAside("another podnas")
	want := `
# HELP podnas_disk_promised_bytes Sum of the sizes of all volumes, archived and retained ones too.
# TYPE podnas_disk_promised_bytes gauge
podnas_disk_promised_bytes 4.194304e+06
# HELP podnas_reconcile_last_success_timestamp_seconds Time of the last comparison of the disk with the cluster.
# TYPE podnas_reconcile_last_success_timestamp_seconds gauge
podnas_reconcile_last_success_timestamp_seconds 1000
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
# HELP podnas_volume_operations_total Completed operations on volumes: create, resize, copy, delete, and empty (removal of a deleted volume's files).
# TYPE podnas_volume_operations_total counter
podnas_volume_operations_total{operation="copy"} 1
podnas_volume_operations_total{operation="create"} 1
podnas_volume_operations_total{operation="delete"} 1
podnas_volume_operations_total{operation="empty"} 1
podnas_volume_operations_total{operation="resize"} 1
`
	collector := NewDiskMetrics(store, reconciler, log)
	if err := testutil.CollectAndCompare(collector, strings.NewReader(want), "podnas_disk_promised_bytes",
		"podnas_reconcile_last_success_timestamp_seconds", "podnas_stands_aside", "podnas_trash_volumes", "podnas_trash_bytes",
		"podnas_volume_operation_failures_total", "podnas_volume_operations_total"); err != nil {
		t.Error(err)
	}
	if n := testutil.CollectAndCount(collector, "podnas_disk_size_bytes", "podnas_disk_free_bytes"); n != 2 {
		t.Errorf("%d of the disk's two sizes", n)
	}
}
