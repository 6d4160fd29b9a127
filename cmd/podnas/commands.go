package main

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/podnas/podnas/doctor"
	"github.com/podnas/podnas/nfs/nfscheck"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/process"
	"github.com/podnas/podnas/provisioner"
	"github.com/podnas/podnas/provisioner/checkup"
	"github.com/podnas/podnas/provisioner/control"
	"github.com/podnas/podnas/quota"
	"github.com/podnas/podnas/server"
	"github.com/podnas/podnas/server/stats"
)

// serveCommands answers podnas's own commands, from when they may be, until ctx
// ends. On a disk that takes no socket there are none; the clients of NFS need none.
func serveCommands(ctx context.Context, from <-chan struct{}, root string, s *control.Server) error {
	select {
	case <-from:
	case <-ctx.Done():
		return nil
	}
	l, err := control.Listen(root)
	if err != nil {
		s.Log.Error("control: 'podnas volume' and 'podnas doctor' can't reach this process", "err", err)
		return nil
	}
	defer l.Close() // closed twice on most ways, which does no harm
	return s.Serve(ctx, l)
}

// describe returns the facts about this process.
func describe(cfg *serveConfig, address *net.TCPAddr, engine server.Choice, limits quota.Choice) process.Info {
	info := process.Info{
		Version: version, PID: os.Getpid(), Started: time.Now(), Mode: process.InCluster,
		Provisioner: cfg.provisioner, Root: cfg.root, Listen: address.String(), Overcommit: cfg.overcommit,
		Engine: engine.Engine, EngineWhy: engine.Reason, Native: engine.Engine == server.EngineNative, Fallback: engine.Fallback,
		QuotaMode: cfg.quota, Quota: limits.Reason, Enforced: limits.Mode(), DiskImage: cfg.image.spec != nil,
	}
	if cfg.standalone {
		info.Mode = process.Standalone
	}
	return info
}

// findings has all that podnas looks at in the running process, for podnas doctor, the
// status page and the metrics. What asks the API server is looked at more rarely.
func findings(ctx context.Context, cfg *serveConfig, info process.Info, claims *provisioning, p *provisioner.Provisioner, e exporter, nfs *server.Server, address string) *doctor.List {
	checks := slices.Concat(
		doctor.Of("disk", checkup.DiskChecks(imageDisk{p.Store, &cfg.image}, cfg.root)...),
		doctor.Of("disk", checkup.RecordChecks(p.Store)...),
		doctor.Of("disk", doctor.One("syncs", func(context.Context) doctor.Result { return checkup.Syncs(e.table.Syncs.Failed.Load()) })),
		doctor.Of("volumes", checkup.VolumeChecks(p.Store)...),
		doctor.Of("claims", doctor.Check{Name: "claims", Run: func(context.Context) []doctor.Result { return claims.findings() }}),
		doctor.Of("process", checkup.ProcessChecks(info)...),
		doctor.Of("process",
			doctor.One("ports", func(ctx context.Context) doctor.Result { return nfscheck.Ports(ctx, nfs.Dial, address) }),
			doctor.Check{Name: "end", Run: func(context.Context) []doctor.Result { return ending(ctx) }}),
	)
	if claims.client == nil {
		return doctor.NewList(append(checks, doctor.Of("process", doctor.One("address", func(ctx context.Context) doctor.Result { return checkup.Address(ctx, p.Endpoint) }))...))
	}
	cluster := checkup.ClusterChecks(&checkup.Cluster{
		Client: claims.client, Provisioner: p, Reconciler: claims.reconciler,
		Namespace: cmp.Or(cfg.cluster.leaseNamespace, os.Getenv("POD_NAMESPACE")), Service: os.Getenv("SERVICE_NAME"),
		Check: e.Check,
	})
	way := doctor.One("way in", func(ctx context.Context) doctor.Result { return wayIn(ctx, p.Endpoint) })
	way.Every = time.Minute
	return doctor.NewList(slices.Concat(checks, doctor.Of("cluster", cluster...), doctor.Of("cluster", way)))
}

// watch has the list look from when it may use the client of the API server, until ctx
// ends.
func watch(ctx context.Context, from <-chan struct{}, found *doctor.List) error {
	select {
	case <-from:
		found.Watch(ctx)
	case <-ctx.Done():
	}
	return nil
}

// ending tells that the process was asked to end, by its context.
func ending(ctx context.Context) []doctor.Result {
	if ctx.Err() == nil {
		return nil
	}
	return []doctor.Result{doctor.Warn("nothing, if that was meant", "podnas was asked to end, and serves for --shutdown-delay")}
}

// connected are the addresses of the clients that are connected. One that is not
// valid stands for those that are not counted by themselves.
func connected(s *stats.Server) []netip.Addr {
	var clients []netip.Addr
	for _, c := range s.Snapshot().Clients {
		if c.Connections > 0 {
			clients = append(clients, c.Address)
		}
	}
	return clients
}

// wayIn goes the way that clients go.
func wayIn(ctx context.Context, e provisioner.Endpoint) doctor.Result {
	a, err := e.Address(ctx)
	if err != nil {
		return doctor.Good("not tested: the address that clients mount from is unknown")
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	r := nfscheck.Ports(ctx, rpc.Dial, netip.AddrPortFrom(a.IP, a.Port).String())
	if r.Status == doctor.Failed {
		// Some networks don't lead a pod to itself through its Service.
		r.Status = doctor.Warning
		r.Fix = "test it from a node, because only nodes mount volumes: podnas doctor mount. If that fails too: " + r.Fix
	}
	return r
}
