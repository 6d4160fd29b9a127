package main

import (
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/podnas/podnas/doctor"
	"github.com/podnas/podnas/process"
	"github.com/podnas/podnas/provisioner/controller"
	"github.com/podnas/podnas/provisioner/metrics"
	"github.com/podnas/podnas/server"
	"github.com/podnas/podnas/server/export"
	servermetrics "github.com/podnas/podnas/server/metrics"
	"github.com/podnas/podnas/volume"
)

// newCollectors makes podnas's own metrics. The reconciler is nil where there is no
// cluster.
func newCollectors(info process.Info, nfs *server.Server, exports *export.Table, store *volume.Store, reconciler *controller.Reconciler, findings *doctor.List, log *slog.Logger) []prometheus.Collector {
	volumes := metrics.Config{Process: info, Store: store, Findings: findings, Log: log}
	if reconciler != nil {
		volumes.Report = reconciler.Report
	}
	return append(metrics.New(volumes),
		servermetrics.New(servermetrics.Config{Server: nfs, Exports: exports, Names: namesOf(store)}))
}

// newRegistry makes what /metrics tells: podnas's own, and what every Go process does.
func newRegistry(parts ...prometheus.Collector) *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	registry.MustRegister(parts...)
	return registry
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
