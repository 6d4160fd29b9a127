package main

import (
	"log/slog"
	"runtime"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/podnas/podnas/doctor"
	"github.com/podnas/podnas/provisioner/controller"
	"github.com/podnas/podnas/provisioner/metrics"
	"github.com/podnas/podnas/quota"
	"github.com/podnas/podnas/server"
	"github.com/podnas/podnas/server/export"
	servermetrics "github.com/podnas/podnas/server/metrics"
	"github.com/podnas/podnas/volume"
)

// newCollectors makes podnas's own metrics. The reconciler is nil where there is no
// cluster.
func newCollectors(engine server.Choice, limits quota.Choice, nfs *server.Server, exports *export.Table, store *volume.Store, reconciler *controller.Reconciler, findings *doctor.List, log *slog.Logger) []prometheus.Collector {
	volumes := metrics.Config{Store: store, Findings: findings, Log: log}
	if reconciler != nil {
		volumes.Report = reconciler.Report
	}
	return slices.Concat(processInfo(engine, limits), metrics.New(volumes), []prometheus.Collector{
		servermetrics.New(servermetrics.Config{Server: nfs, Exports: exports, Names: namesOf(store)}),
	})
}

// newRegistry makes what /metrics tells: podnas's own, and what every Go process does.
func newRegistry(parts ...prometheus.Collector) *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	registry.MustRegister(parts...)
	return registry
}

// processInfo returns metrics of the build and of the mode.
func processInfo(engine server.Choice, limits quota.Choice) []prometheus.Collector {
	info := func(name, help string, labels prometheus.Labels) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels}, func() float64 { return 1 })
	}
	enforced := "off"
	switch {
	case limits.Projects != nil:
		enforced = "kernel"
	case limits.Server:
		enforced = "server"
	}
	return []prometheus.Collector{
		info("podnas_build_info", "Version and platform of the binary. Always 1.", prometheus.Labels{
			"version": version, "goversion": runtime.Version(), "goos": runtime.GOOS, "goarch": runtime.GOARCH,
		}),
		info("podnas_serving_info", "The NFS engine, and what enforces sizes: kernel, server, or off. Always 1.", prometheus.Labels{
			"engine": engine.Engine, "quota": enforced,
		}),
	}
}

// namesOf returns the names of a store's volumes, by ID.
func namesOf(store *volume.Store) func() map[uint64]servermetrics.Volume {
	return func() map[uint64]servermetrics.Volume {
		names := map[uint64]servermetrics.Volume{}
		for _, v := range store.List() {
			name := servermetrics.Volume{Name: v.Name}
			if v.Claim != nil {
				name.Namespace, name.Claim = v.Claim.Namespace, v.Claim.Name
			}
			names[v.ID] = name
		}
		return names
	}
}
