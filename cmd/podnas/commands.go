package main

import (
	"context"
	"net"
	"os"
	"time"

	"github.com/podnas/podnas/doctor"
	"github.com/podnas/podnas/process"
	"github.com/podnas/podnas/provisioner/control"
	"github.com/podnas/podnas/quota"
	"github.com/podnas/podnas/server"
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
		Engine: engine.Engine, EngineWhy: engine.Reason,
		Rights: engine.Rights.String(), Adds: engine.Rights.RootLacks(),
		QuotaMode: cfg.quota, Quota: limits.Reason, Enforced: limits.Mode(), DiskImage: cfg.image.spec != nil,
	}
	if cfg.standalone {
		info.Mode = process.Standalone
	}
	return info
}

// watch runs the checks of a list from when they may use the client of the API server,
// until ctx ends.
func watch(ctx context.Context, from <-chan struct{}, found *doctor.List) error {
	select {
	case <-from:
		found.Watch(ctx)
	case <-ctx.Done():
	}
	return nil
}
