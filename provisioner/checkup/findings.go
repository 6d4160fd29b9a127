package checkup

import (
	"context"
	"net/netip"
	"time"

	"github.com/podnas/podnas/internal/doctor"
	"github.com/podnas/podnas/internal/process"
	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/nfs/nfscheck"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/provisioner"
	"github.com/podnas/podnas/provisioner/controller"
)

// Config is what Findings needs. All fields but NoNFS4, SharedNames and Cluster are needed.
type Config struct {
	Process process.Info
	Store   *volume.Store
	Disk    Disk // Store
	// Heartbeat returns why the disk is not known to be ours, or nil, and FullBelow whether it has no room even in place.
	Heartbeat func() error
	FullBelow func() bool
	Endpoint  provisioner.Endpoint
	// Claims returns the findings about claims: Reconciler.Claims of package controller, or
	// Runner.Findings of package standalone.
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
	return doctor.NewList(byClaim(cfg.Store, cfg.checks(running)))
}

const (
	// rarely is how often the running process runs checks that cost something, or whose results hardly change: they
	// would be most of what it does when it is idle.
	rarely = time.Minute
	// seldom is how often it runs those that cost most, which call the API server or look at each volume's directory.
	seldom = 10 * time.Minute
)

// checks returns the checks in the order in which podnas doctor prints their results.
func (cfg *Config) checks(running context.Context) []doctor.Check {
	p := &cfg.Process
	checks := []doctor.Check{
		{Source: "disk", Name: "file system", Every: rarely, Run: one(func() doctor.Result { return fileSystem(p.Root) })},
		{Source: "disk", Name: "disk", Live: true, Run: one(func() doctor.Result { return writable(cfg.Heartbeat(), cfg.FullBelow()) })},
		{Source: "disk", Name: "space", Live: true, Run: one(func() doctor.Result { return space(cfg.Disk) })},
		{Source: "disk", Name: "inodes", Live: true, Run: one(func() doctor.Result { return inodes(cfg.Disk) })},
		{Source: "disk", Name: "damaged files", Every: rarely, Run: some(func() []doctor.Result { return aside(p.Root) })},
		{Source: "disk", Name: "secrets", Every: rarely, Run: one(func() doctor.Result { return secrets(p.Root) })},
		{Source: "disk", Name: "records", Every: seldom, Run: some(func() []doctor.Result { return records(cfg.Store) })},
		{Source: "disk", Name: "syncs", Live: true, Run: one(func() doctor.Result { return syncs(cfg.FailedSyncs()) })},
		{Source: "volumes", Name: "volumes", Live: true, Run: some(func() []doctor.Result { return volumes(cfg.Store) })},
		{Source: "volumes", Name: "snapshots", Live: true, Run: some(func() []doctor.Result { return schedules(cfg.Store.Schedules()) })},
		{Source: "claims", Name: "claims", Live: true, Run: some(cfg.Claims)},
		{Source: "process", Name: "engine", Every: rarely, Run: one(func() doctor.Result { return doctor.Good("%s: %s", p.Engine, p.EngineWhy) })},
		{Source: "process", Name: "quota", Every: rarely, Run: one(func() doctor.Result { return limits(p) })},
		{Source: "process", Name: "capabilities", Every: rarely, Run: one(func() doctor.Result { return capabilities(p) })},
		{Source: "process", Name: "descriptors", Every: rarely, Run: one(descriptors)},
		{Source: "process", Name: "versions", Every: rarely, Run: one(func() doctor.Result { return versions(cfg.Store, cfg.NoNFS4) })},
		{Source: "process", Name: "ports", Every: rarely, Run: asking(func(ctx context.Context) doctor.Result { return nfscheck.Ports(ctx, cfg.Dial, cfg.Address) })},
		{Source: "process", Name: "state log", Live: true, Run: some(func() []doctor.Result { return stateLog(cfg.StateLog()) })},
		{Source: "process", Name: "end", Live: true, Run: some(func() []doctor.Result { return stopping(running) })},
	}
	if cfg.SharedNames != nil {
		checks = append(checks, doctor.Check{Source: "process", Name: "host names", Live: true, Run: some(func() []doctor.Result { return sharedNames(cfg.SharedNames()) })})
	}
	path := asking(func(ctx context.Context) doctor.Result { return address(ctx, cfg.Endpoint) })
	c := cfg.Cluster
	if c == nil {
		return append(checks, doctor.Check{Source: "process", Name: "address", Every: rarely, Run: path})
	}
	if c.Active != nil {
		checks = append(checks, doctor.Check{Source: "cluster", Name: "standby", Live: true, Run: some(c.Active.Findings)})
	}
	return append(
		checks,
		doctor.Check{Source: "cluster", Name: "service", Every: rarely, Run: path}, // two calls, and claims depend on it
		doctor.Check{Source: "cluster", Name: "rights", Every: seldom, Run: c.rights},
		doctor.Check{Source: "cluster", Name: "policy", Every: seldom, Run: asking(c.policy)},
		doctor.Check{Source: "cluster", Name: "classes", Every: seldom, Run: c.classes},
		doctor.Check{Source: "cluster", Name: "clock", Every: seldom, Run: asking(c.clock)},
		doctor.Check{Source: "cluster", Name: "cluster", Live: true, Run: some(c.compared)}, // the comparison ran already
		doctor.Check{Source: "cluster", Name: "way in", Every: rarely, Run: asking(func(ctx context.Context) doctor.Result { return clientPath(ctx, cfg.Endpoint) })},
	)
}

// one is the Run of a check with one result, which needs no context.
func one(check func() doctor.Result) func(context.Context) []doctor.Result {
	return func(context.Context) []doctor.Result { return []doctor.Result{check()} }
}

// some is the Run of a check with several results.
func some(check func() []doctor.Result) func(context.Context) []doctor.Result {
	return func(context.Context) []doctor.Result { return check() }
}

// asking is the Run of a check that waits for others, such as the API server.
func asking(check func(context.Context) doctor.Result) func(context.Context) []doctor.Result {
	return func(ctx context.Context) []doctor.Result { return []doctor.Result{check(ctx)} }
}

// stateLog warns that the log was given up, and returns nothing before.
func stateLog(failed error) []doctor.Result {
	if failed == nil {
		return nil
	}
	return []doctor.Result{doctor.Warn("make the folder of --state-log larger, or correct what the error names; then restart podnas", "what NFSv4.1 clients have open and locked can't be logged (%v): if podnas dies, they have to reclaim it, for which all wait up to two leases (--lease)", failed)}
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
