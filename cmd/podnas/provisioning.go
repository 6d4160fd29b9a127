package main

import (
	"context"
	"io"
	"log/slog"
	"net"

	"github.com/podnas/podnas/provisioner"
	"github.com/podnas/podnas/provisioner/standalone"
)

// newProvisioning sets up what turns claims into volumes, and in a cluster what
// compares the disk with it.
func newProvisioning(cfg *serveConfig, address *net.TCPAddr, p *provisioner.Provisioner, limits string, stdout io.Writer, log *slog.Logger) (func(context.Context) error, *provisioner.Reconciler, error) {
	port := uint16(address.Port)
	if cfg.standalone {
		ip := cfg.serverAddress
		if ip == "" {
			ip = local(address).IP.String()
		}
		endpoint, err := provisioner.ParseStaticEndpoint(ip, port)
		if err != nil {
			return nil, nil, err
		}
		p.Endpoint = endpoint
		runner := &standalone.Runner{
			Claims: cfg.claims, Root: cfg.root, Name: cfg.provisioner, Limits: limits,
			Provisioner: p, Out: stdout, Log: log,
		}
		return runner.Run, nil, nil
	}
	client, err := cfg.cluster.client(log)
	if err != nil {
		return nil, nil, err
	}
	if p.Endpoint, err = cfg.cluster.endpoint(client, cfg.serverAddress, port); err != nil {
		return nil, nil, err
	}
	controller, err := cfg.cluster.controller(client, cfg.provisioner, p, log)
	if err != nil {
		return nil, nil, err
	}
	run := func(ctx context.Context) error { return provisioner.RunController(ctx, controller) }
	return run, controller.Reconciler, nil
}
