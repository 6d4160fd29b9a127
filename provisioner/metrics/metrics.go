// Package metrics exports to Prometheus what podnas knows about its process, its disk,
// its volumes and its claims. Package server/metrics exports the statistics of the NFS server.
package metrics

import (
	"log/slog"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	library "sigs.k8s.io/sig-storage-lib-external-provisioner/v8/controller/metrics"

	"github.com/podnas/podnas/doctor"
	"github.com/podnas/podnas/process"
	"github.com/podnas/podnas/provisioner/controller"
	"github.com/podnas/podnas/volume"
)

// Config is what New needs. All fields but Report are required.
type Config struct {
	Process  process.Info
	Store    *volume.Store
	Report   func() controller.Report // nil without a cluster
	Findings *doctor.List
	Log      *slog.Logger
}

// New returns the collectors.
func New(cfg Config) []prometheus.Collector {
	m := library.M // is global in the process
	return []prometheus.Collector{
		info("build_info", "Version and platform of the binary. Always 1.", prometheus.Labels{
			"version": cfg.Process.Version, "goversion": runtime.Version(), "goos": runtime.GOOS, "goarch": runtime.GOARCH,
		}),
		info("serving_info", "The NFS engine, and what enforces sizes: kernel, server, or off. Always 1.", prometheus.Labels{
			"engine": cfg.Process.Engine, "quota": string(cfg.Process.Enforced),
		}),
		newTimeLimited(cfg.Log, &store{cfg.Store, cfg.Report, cfg.Log}),
		&findings{cfg.Findings},
		m.PersistentVolumeClaimProvisionTotal,
		m.PersistentVolumeClaimProvisionFailedTotal,
		m.PersistentVolumeClaimProvisionDurationSeconds,
		m.PersistentVolumeDeleteTotal,
		m.PersistentVolumeDeleteFailedTotal,
		m.PersistentVolumeDeleteDurationSeconds,
	}
}

// info returns a metric that says something by its labels.
func info(name, help string, labels prometheus.Labels) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "podnas_" + name, Help: help, ConstLabels: labels}, func() float64 { return 1 })
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("podnas_"+name, help, labels, nil)
}

// docs/metrics.md lists all of them; a test compares.
//
//nolint:gochecknoglobals // constants, if Go had such
var (
	volumes          = desc("volumes", "Volumes, by state.", "state")
	volumeSize       = desc("volume_size_bytes", "Size of a volume.", "volume", "namespace", "claim")
	volumeUsed       = desc("volume_used_bytes", "Disk usage of a volume. Missing if not counted.", "volume", "namespace", "claim")
	volumeFiles      = desc("volume_files", "Files, directories and everything else in a volume. Missing if not counted.", "volume", "namespace", "claim")
	volumeFilesLimit = desc("volume_files_limit", "Maximum number of files of a volume. Missing if it is not enforced.", "volume", "namespace", "claim")

	diskSize           = desc("disk_size_bytes", "Size of the disk.")
	diskFree           = desc("disk_free_bytes", "Free space on the disk.")
	diskPromised       = desc("disk_promised_bytes", "Sum of the sizes of all volumes, archived and retained ones too.")
	diskInodes         = desc("disk_inodes", "Total inodes of the disk. Missing if the file system has no limit.")
	diskInodesFree     = desc("disk_inodes_free", "Free inodes of the disk.")
	diskInodesPromised = desc("disk_promised_inodes", "Sum of the file limits of all volumes, archived and retained ones too.")
	diskUnanswered     = desc("disk_unanswered_seconds", "How long the disk has not answered the queries for metrics, otherwise 0. The metrics of the disk and of volumes' usage are missing meanwhile.")

	operations = desc("volume_operations_total", "Completed operations on volumes: create, resize, copy, delete, and empty (removal of a deleted volume's files).", "operation")
	failures   = desc("volume_operation_failures_total", "Failed operations on volumes. Most are retried, and each failure counts.", "operation")
	copied     = desc("volume_copied_bytes", "Bytes copied so far by a running copy.", "volume")
	trash      = desc("trash_volumes", "Deleted volumes whose files are not removed yet.")
	trashBytes = desc("trash_bytes", "Disk usage of deleted volumes. Missing if the kernel does not count it.")

	reconciled  = desc("reconcile_last_success_timestamp_seconds", "Time of the last comparison of the disk with the cluster.")
	standsAside = desc("stands_aside", "1 if this podnas provisions no claims, because another one has its provisioner name.")

	findingsCount = desc("findings", "Findings, as shown by podnas doctor.", "source", "severity")
)

// out receives the metrics.
type out chan<- prometheus.Metric

func (o out) gauge(d *prometheus.Desc, value float64, labels ...string) {
	o <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
}

func (o out) count(d *prometheus.Desc, n uint64, labels ...string) {
	o <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
}
