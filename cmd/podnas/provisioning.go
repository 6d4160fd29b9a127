package main

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"net"
	"os"

	"k8s.io/client-go/kubernetes"

	"github.com/podnas/podnas/internal/doctor"
	"github.com/podnas/podnas/provisioner"
	"github.com/podnas/podnas/provisioner/checkup"
	"github.com/podnas/podnas/provisioner/controller"
	"github.com/podnas/podnas/provisioner/standalone"
)

// provisioning is what turns claims into volumes.
type provisioning struct {
	run func(context.Context) error
	// made is closed when others may use the client too.
	made chan struct{}
	// findings returns the claims that can't be fulfilled.
	findings func() []doctor.Result
	// What there is in a cluster alone, else nil.
	client     kubernetes.Interface
	reconciler *controller.Reconciler // compares the disk with the cluster
}

// newProvisioning sets it up, in a cluster or for a folder.
func newProvisioning(cfg *serveConfig, address *net.TCPAddr, p *provisioner.Provisioner, shared func() []controller.SharedName, limits string, stdout io.Writer, log *slog.Logger) (*provisioning, error) {
	port := uint16(address.Port)
	if cfg.standalone {
		ip := cfg.serverAddress
		if ip == "" {
			ip = local(address).IP.String()
		}
		endpoint, err := provisioner.ParseStaticEndpoint(ip, port)
		if err != nil {
			return nil, err
		}
		p.Endpoint = endpoint
		runner := &standalone.Runner{
			Claims: cfg.claims, Root: cfg.root, Limits: limits,
			Grace: cfg.claimGrace, NewDisk: cfg.newDisk, Provisioner: p, Out: stdout, Log: log,
		}
		made := make(chan struct{})
		close(made)
		return &provisioning{run: runner.Run, made: made, findings: runner.Findings}, nil
	}
	p.InCluster = true
	client, err := cfg.cluster.client(log)
	if err != nil {
		return nil, err
	}
	if p.Endpoint, err = cfg.cluster.endpoint(client, cfg.serverAddress, port); err != nil {
		return nil, err
	}
	working, err := cfg.cluster.controller(client, p, log)
	if err != nil {
		return nil, err
	}
	made := make(chan struct{})
	working.SharedNames = shared
	working.Made = func() { close(made) }
	run := func(ctx context.Context) error { return controller.Run(ctx, working) }
	reconciler := working.Reconciler
	return &provisioning{run: run, made: made, findings: reconciler.Claims, client: client, reconciler: reconciler}, nil
}

// checks returns what the checks in a cluster need, nil without one.
func (p *provisioning) checks(cfg *serveConfig, volumes *provisioner.Provisioner, served exporter) *checkup.Cluster {
	if p.client == nil {
		return nil
	}
	return &checkup.Cluster{
		Client: p.client, Provisioner: volumes, Reconciler: p.reconciler,
		Namespace: cmp.Or(cfg.cluster.leaseNamespace, os.Getenv("POD_NAMESPACE")), Service: os.Getenv("SERVICE_NAME"),
		Check: served.Check,
	}
}
