package provisioner

import (
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	library "sigs.k8s.io/sig-storage-lib-external-provisioner/v8/controller/metrics"

	"github.com/podnas/podnas/volume"
)

// LibraryMetrics returns the metrics of the library's controller, which are global
// in the process.
func LibraryMetrics() []prometheus.Collector {
	m := library.M
	return []prometheus.Collector{
		m.PersistentVolumeClaimProvisionTotal,
		m.PersistentVolumeClaimProvisionFailedTotal,
		m.PersistentVolumeClaimProvisionDurationSeconds,
		m.PersistentVolumeDeleteTotal,
		m.PersistentVolumeDeleteFailedTotal,
		m.PersistentVolumeDeleteDurationSeconds,
	}
}

// diskMetrics collects metrics of the disk and of operations on it.
type diskMetrics struct {
	store      *volume.Store
	reconciler *Reconciler // nil without a cluster
	log        *slog.Logger

	size, free, promised               *prometheus.Desc
	inodes, inodesFree, inodesPromised *prometheus.Desc
	operations, failures, copied       *prometheus.Desc
	trash, trashBytes                  *prometheus.Desc
	reconciled, aside                  *prometheus.Desc
}

// NewDiskMetrics returns the collector of a disk. The reconciler may be nil.
func NewDiskMetrics(store *volume.Store, reconciler *Reconciler, log *slog.Logger) prometheus.Collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("podnas_"+name, help, labels, nil)
	}
	return &diskMetrics{
		store: store, reconciler: reconciler, log: log,
		size:           desc("disk_size_bytes", "Size of the disk."),
		free:           desc("disk_free_bytes", "Free space on the disk."),
		promised:       desc("disk_promised_bytes", "Sum of the sizes of all volumes, archived and retained ones too."),
		inodes:         desc("disk_inodes", "Total inodes of the disk. Missing if the file system has no limit."),
		inodesFree:     desc("disk_inodes_free", "Free inodes of the disk."),
		inodesPromised: desc("disk_promised_inodes", "Sum of the file limits of all volumes, archived and retained ones too."),
		operations:     desc("volume_operations_total", "Completed operations on volumes: create, resize, copy, delete, and empty (removal of a deleted volume's files).", "operation"),
		failures:       desc("volume_operation_failures_total", "Failed operations on volumes. Most are retried, and each failure counts.", "operation"),
		copied:         desc("volume_copied_bytes", "Bytes copied so far by a running copy.", "volume"),
		trash:          desc("trash_volumes", "Deleted volumes whose files are not removed yet."),
		trashBytes:     desc("trash_bytes", "Disk usage of deleted volumes. Missing if the kernel does not count it."),
		reconciled:     desc("reconcile_last_success_timestamp_seconds", "Time of the last comparison of the disk with the cluster."),
		aside:          desc("stands_aside", "1 if this podnas provisions no claims, because another one has its provisioner name."),
	}
}

// Describe implements prometheus.Collector.
func (m *diskMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		m.size, m.free, m.promised, m.inodes, m.inodesFree, m.inodesPromised, m.operations, m.failures, m.copied, m.trash, m.trashBytes, m.reconciled, m.aside,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *diskMetrics) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	space, err := m.store.Space()
	if err != nil {
		m.log.Warn("metrics: the disk's size is not known", "err", err)
	} else {
		gauge(m.size, float64(space.Size))
		gauge(m.free, float64(space.Free))
		gauge(m.promised, float64(space.Promised))
		gauge(m.inodesPromised, float64(space.InodesPromised))
		if space.Inodes > 0 {
			gauge(m.inodes, float64(space.Inodes))
			gauge(m.inodesFree, float64(space.InodesFree))
		}
	}
	for _, a := range m.store.Activities() {
		ch <- prometheus.MustNewConstMetric(m.operations, prometheus.CounterValue, float64(a.Done), a.Operation)
		ch <- prometheus.MustNewConstMetric(m.failures, prometheus.CounterValue, float64(a.Failed), a.Operation)
	}
	for _, c := range m.store.Copies() {
		gauge(m.copied, float64(c.Bytes), c.Name)
	}
	trash, err := m.store.Trash()
	gauge(m.trash, float64(trash.Volumes))
	switch {
	case err != nil:
		m.log.Warn("metrics: what the trash uses is not known", "err", err)
	case trash.Counted:
		gauge(m.trashBytes, float64(trash.Bytes))
	}
	if m.reconciler == nil {
		return
	}
	report, aside := m.reconciler.Report(), 0.0
	if report.StandsAside != "" {
		aside = 1
	}
	gauge(m.aside, aside)
	if !report.Time.IsZero() {
		gauge(m.reconciled, float64(report.Time.Unix()))
	}
}
