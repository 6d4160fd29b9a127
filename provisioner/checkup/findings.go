package checkup

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/podnas/podnas/doctor"
	"github.com/podnas/podnas/nfs/nfscheck"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/process"
	"github.com/podnas/podnas/provisioner"
	"github.com/podnas/podnas/provisioner/controller"
	"github.com/podnas/podnas/volume"
)

// Config is what Findings needs. All fields but NoNFS4, SharedNames and Cluster are needed.
type Config struct {
	Process  process.Info
	Store    *volume.Store
	Disk     Disk // Store, or what explains its errors
	Endpoint provisioner.Endpoint
	// Claims returns the findings about claims.
	Claims func() []doctor.Result
	// FailedSyncs returns how many syncs of the disk have failed.
	FailedSyncs func() uint64
	// Dial connects to the server without being counted as a client, and Address is
	// where this machine reaches it.
	Dial    func(ctx context.Context, address string) (*rpc.Client, error)
	Address string
	NoNFS4  error // why NFSv4.1 is not served; nil: it is
	// StateLog returns why the log of what NFSv4.1 clients have was given up, or nil.
	StateLog func() error
	// SharedNames returns the names that two nodes of NFSv4.1 have each; nil: it is not served.
	SharedNames func() []controller.SharedName
	Cluster     *Cluster // nil without a cluster
}

// Findings returns all checks of the running process, for podnas doctor, the status page
// and the metrics. running is the process's context, which ends when it is asked to end.
func Findings(running context.Context, cfg Config) *doctor.List {
	checks := slices.Concat(
		doctor.Of("disk", DiskChecks(cfg.Disk, cfg.Process.Root)...),
		doctor.Of("disk", RecordChecks(cfg.Store)...),
		doctor.Of("disk", doctor.Live(doctor.One("syncs", func(context.Context) doctor.Result { return Syncs(cfg.FailedSyncs()) }))...),
		doctor.Of("volumes", doctor.Live(VolumeChecks(cfg.Store)...)...),
		doctor.Of("claims", doctor.Live(doctor.Check{Name: "claims", Run: func(context.Context) []doctor.Result { return cfg.Claims() }})...),
		doctor.Of("process", ProcessChecks(cfg.Process)...),
		doctor.Of("process", rarely(
			doctor.One("versions", func(context.Context) doctor.Result { return versions(cfg.Store, cfg.NoNFS4) }),
			doctor.One("ports", func(ctx context.Context) doctor.Result { return nfscheck.Ports(ctx, cfg.Dial, cfg.Address) }),
		)...),
		doctor.Of("process", doctor.Live(
			doctor.Check{Name: "state log", Run: func(context.Context) []doctor.Result { return stateLog(cfg.StateLog()) }},
			doctor.Check{Name: "end", Run: func(context.Context) []doctor.Result { return stopping(running) }},
		)...),
	)
	if cfg.SharedNames != nil {
		names := doctor.Check{Name: "host names", Run: func(context.Context) []doctor.Result { return SharedNames(cfg.SharedNames()) }}
		checks = append(checks, doctor.Of("process", doctor.Live(names)...)...)
	}
	if cfg.Cluster == nil {
		address := doctor.One("address", func(ctx context.Context) doctor.Result { return Address(ctx, cfg.Endpoint) })
		checks = append(checks, doctor.Of("process", rarely(address)...)...)
	} else {
		path := doctor.One("way in", func(ctx context.Context) doctor.Result { return clientPath(ctx, cfg.Endpoint) })
		checks = slices.Concat(checks, doctor.Of("cluster", ClusterChecks(cfg.Cluster)...), doctor.Of("cluster", rarely(path)...))
	}
	return doctor.NewList(byClaim(cfg.Store, checks))
}

// stateLog warns that the log was given up, and returns nothing before.
func stateLog(failed error) []doctor.Result {
	if failed == nil {
		return nil
	}
	return []doctor.Result{doctor.Warn("make the folder of --state-log larger, or correct what the error names; then restart podnas", "what NFSv4.1 clients have open and locked can't be logged (%v): if podnas dies, they have to reclaim it, for which all wait up to 30 seconds", failed)}
}

// stopping warns that the process was asked to end, and returns nothing before.
func stopping(running context.Context) []doctor.Result {
	if running.Err() == nil {
		return nil
	}
	return []doctor.Result{doctor.Warn("nothing, if that was intended", "podnas was asked to end, and serves for --shutdown-delay")}
}

// clientPath checks the ports at the address that clients mount from.
func clientPath(ctx context.Context, e provisioner.Endpoint) doctor.Result {
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
