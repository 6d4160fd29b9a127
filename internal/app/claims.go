package app

import (
	"cmp"
	"context"
	"os"

	"k8s.io/client-go/kubernetes"

	"github.com/podnas/podnas/internal/doctor"
	"github.com/podnas/podnas/provisioner"
	"github.com/podnas/podnas/provisioner/checkup"
	"github.com/podnas/podnas/provisioner/controller"
	"github.com/podnas/podnas/provisioner/standalone"
)

// claims is what turns claims into volumes.
type claims struct {
	run func(context.Context) error
	// made is closed when others may use the client too.
	made chan struct{}
	// findings returns the claims that can't be fulfilled.
	findings func() []doctor.Result
	// What there is in a cluster alone, else nil.
	client     kubernetes.Interface
	reconciler *controller.Reconciler // compares the disk with the cluster
}

// newClaims sets it up, in a cluster or for a folder, with the address that clients mount from.
func (a *App) newClaims() (*claims, error) {
	port := uint16(a.address().Port)
	p := a.volumes
	if a.Standalone {
		ip := cmp.Or(a.ServerAddress, local(a.address()).IP.String())
		endpoint, err := provisioner.ParseStaticEndpoint(ip, port)
		if err != nil {
			return nil, err
		}
		p.Endpoint = endpoint
		runner := &standalone.Runner{
			Claims: a.ClaimsDir, Root: a.Root, Limits: a.limits.Reason,
			Grace: a.ClaimGrace, NewDisk: a.NewDisk, Provisioner: p, Out: a.Out, Log: a.Log,
		}
		made := make(chan struct{})
		close(made)
		return &claims{run: runner.Run, made: made, findings: runner.Findings}, nil
	}
	p.InCluster = true
	client, objects, err := a.Cluster.client(a.Version, a.Log)
	if err != nil {
		return nil, err
	}
	if p.Endpoint, err = a.Cluster.endpoint(client, a.ServerAddress, port); err != nil {
		return nil, err
	}
	working, err := a.Cluster.controller(client, p, a.Log)
	if err != nil {
		return nil, err
	}
	working.Snapshots = objects
	made := make(chan struct{})
	working.SharedNames = sharedNames(a.nfs.NFS4())
	working.DiskLost = a.diskLost
	working.Grace = grace(a.nfs.NFS4())
	working.Made = func() { close(made) }
	run := func(ctx context.Context) error { return controller.Run(ctx, working) }
	reconciler := working.Reconciler
	return &claims{run: run, made: made, findings: reconciler.Claims, client: client, reconciler: reconciler}, nil
}

// clusterChecks returns what the checks in a cluster need, nil without one.
func (a *App) clusterChecks() *checkup.Cluster {
	if a.claims.client == nil {
		return nil
	}
	return &checkup.Cluster{
		Client: a.claims.client, Provisioner: a.volumes, Reconciler: a.claims.reconciler,
		Namespace: cmp.Or(a.Cluster.LeaseNamespace, os.Getenv("POD_NAMESPACE")), Service: os.Getenv("SERVICE_NAME"),
		Check: a.served.Check, Active: a.active,
	}
}
