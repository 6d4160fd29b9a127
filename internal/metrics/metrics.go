// Package metrics exports to Prometheus what podnas knows about its process, its disk, its volumes, its
// claims, its findings and the NFS server. The packages that count know nothing of it; names.go has all
// names. The labels are bounded: procedures and statuses are the RFC's, clients those in server/stats,
// volumes those of the disk.
package metrics

import (
	"log/slog"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/podnas/podnas/internal/doctor"
	"github.com/podnas/podnas/internal/heartbeat"
	"github.com/podnas/podnas/internal/process"
	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/provisioner/controller"
	"github.com/podnas/podnas/server"
	"github.com/podnas/podnas/server/exports"
)

// Config is what New needs. All fields but Report and Standby are required.
type Config struct {
	Process   process.Info
	Server    *server.Server
	Exports   *exports.Table
	Store     *volume.Store
	Heartbeat *heartbeat.Heartbeat
	Report    func() controller.Report // nil without a cluster
	Standby   func() bool              // whether another podnas could take over; nil where none is meant to
	Findings  *doctor.List
	Log       *slog.Logger
}

// New returns podnas's own collectors.
func New(cfg Config) []prometheus.Collector {
	return append(controller.Metrics(),
		info("build_info", "Version and platform of the binary. Always 1.", prometheus.Labels{
			"version": cfg.Process.Version, "goversion": runtime.Version(), "goos": runtime.GOOS, "goarch": runtime.GOARCH,
		}),
		info("serving_info", "The NFS engine, and what enforces sizes: kernel, server, or off. Always 1.", prometheus.Labels{
			"engine": cfg.Process.Engine, "quota": string(cfg.Process.Enforced),
		}),
		newTimeLimited(cfg.Log, &store{cfg.Store, cfg.Report, cfg.Log}),
		&findings{cfg.Findings},
		&heart{cfg.Heartbeat},
		standby(cfg.Standby),
		&nfs{cfg.Server, cfg.Exports, cfg.Store.List},
	)
}

// NewRegistry returns what /metrics shows: the collectors' metrics, and those of every Go process.
func NewRegistry(own ...prometheus.Collector) *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	registry.MustRegister(own...)
	return registry
}

// info returns a metric that says something by its labels.
func info(name, help string, labels prometheus.Labels) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "podnas_" + name, Help: help, ConstLabels: labels}, func() float64 { return 1 })
}

// out receives the metrics.
type out chan<- prometheus.Metric

func (o out) gauge(d *prometheus.Desc, value float64, labels ...string) {
	o <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
}

func (o out) count(d *prometheus.Desc, n uint64, labels ...string) {
	o <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
}

// labelsOf returns the labels of a volume's metrics.
func labelsOf(v *volume.Volume) []string {
	if v.Claim == nil {
		return []string{v.Name, "", ""}
	}
	return []string{v.Name, v.Claim.Namespace, v.Claim.Name}
}
