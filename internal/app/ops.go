package app

import (
	"context"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/podnas/podnas/internal/doctor"
	"github.com/podnas/podnas/internal/metrics"
	"github.com/podnas/podnas/internal/process"
	"github.com/podnas/podnas/internal/status"
	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/provisioner/checkup"
	"github.com/podnas/podnas/provisioner/control"
	"github.com/podnas/podnas/provisioner/controller"
	"github.com/podnas/podnas/server"
)

// describe returns the facts about this process.
func (a *App) describe() process.Info {
	info := process.Info{
		Version: a.Version, PID: os.Getpid(), Started: time.Now(), Mode: process.InCluster,
		Provisioner: a.Provisioner, Root: a.Root, Listen: a.address().String(), Overcommit: a.Overcommit,
		Engine: a.engine.Engine, EngineWhy: a.engine.Reason,
		Rights: a.engine.Rights.String(), Adds: a.engine.Rights.RootLacks(),
		QuotaMode: string(a.Quota), Quota: a.limits.Reason, Enforced: a.limits.Mode(), DiskImage: a.Image != nil,
	}
	if a.Standalone {
		info.Mode = process.Standalone
	} else {
		info.Namespace, info.Pod = os.Getenv("POD_NAMESPACE"), os.Getenv("POD_NAME")
	}
	return info
}

// checks are those of kubelet's readiness probe.
func (a *App) checks(ctx context.Context) []server.Check {
	return []server.Check{
		{Name: "shutdown", Run: func(context.Context) error { return context.Cause(ctx) }},
		{Name: "disk", Run: func(context.Context) error { return a.diskError() }},
		server.Shared("nfs", func(ctx context.Context) error { return server.Ping(ctx, a.nfs.Dial, local(a.address()).String()) }),
	}
}

// findings are the checks of 'podnas doctor', with their last results.
func (a *App) findings(ctx context.Context) *doctor.List {
	return checkup.Findings(ctx, checkup.Config{
		Process: a.info, Store: a.store, Disk: a.store, Heartbeat: a.diskError, FullBelow: a.heartbeat.Full, Endpoint: a.volumes.Endpoint, Claims: a.claims.findings,
		FailedSyncs: a.exports.Syncs.Failed.Load, Dial: a.nfs.Dial, Address: local(a.address()).String(),
		NoNFS4: a.volumes.NoNFS4, StateLog: stateLogFailed(a.nfs.NFS4()), SharedNames: sharedNames(a.nfs.NFS4()), Cluster: a.clusterChecks(),
	})
}

func (a *App) metrics(found *doctor.List) prometheus.Gatherer {
	measured := metrics.Config{Process: a.info, Server: a.nfs, Exports: a.exports, Store: a.store, Heartbeat: a.heartbeat, Findings: found, Log: a.Log}
	if a.claims.reconciler != nil {
		measured.Report = a.claims.reconciler.Report
	}
	if a.active != nil {
		measured.Standby = a.active.HasStandby
	}
	return metrics.NewRegistry(metrics.New(measured)...)
}

func (a *App) page(found *doctor.List) (*status.Status, error) {
	return status.New(status.Config{
		Process: a.info,
		Store:   a.store, Served: a.nfs.Stats(), Exports: a.exports, Findings: found, Provisioner: a.volumes, Events: a.Events, Log: a.Log,
		NFS4: holdings(a.nfs.NFS4(), a.store, holdingsOnPage),
	})
}

// commands answers 'podnas volume', 'client' and 'doctor'.
func (a *App) commands(found *doctor.List) *control.Server {
	s := &control.Server{
		Provisioner:   a.volumes,
		Process:       a.info,
		Findings:      found,
		Clients:       a.nfs.Stats().Connected,
		VolumeClients: func() map[uint64]int { return volumeClients(a.exports, a.nfs.Stats(), time.Now()) },
		Clients3:      func() []process.Client3 { return version3(a.nfs.Stats().Snapshot().Clients, time.Now()) },
		Log:           a.Log,
	}
	if served := a.nfs.NFS4(); served != nil {
		s.NFS4 = control.NFS4{Holdings: holdings(served, a.store, holdingsMax), Evict: served.Evict}
	}
	if client := a.claims.client; client != nil {
		s.Users = func(ctx context.Context) ([]controller.User, error) {
			return controller.Users(ctx, client, a.store.Identity())
		}
		s.Deleting = func(ctx context.Context) ([]string, error) {
			return controller.Deleting(ctx, client, a.store.Identity())
		}
		s.Compared = func() []volume.Finding { return a.claims.reconciler.Report().Findings }
	}
	return s
}
