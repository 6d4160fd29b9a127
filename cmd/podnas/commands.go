package main

import (
	"context"
	"net"
	"os"
	"time"

	"github.com/podnas/podnas/provisioner/control"
	"github.com/podnas/podnas/server"
)

// serveCommands answers podnas's own commands until ctx ends. On a disk that
// takes no socket there are none; the clients of NFS need none.
func serveCommands(ctx context.Context, root string, s *control.Server) error {
	l, err := control.Listen(root)
	if err != nil {
		s.Log.Error("control: 'podnas volume' and 'podnas doctor' can't reach this process", "err", err)
		return nil
	}
	defer l.Close() // closed twice on most ways, which does no harm
	return s.Serve(ctx, l)
}

// describe is what this process tells of itself.
func describe(cfg *serveConfig, address *net.TCPAddr, engine server.Choice, limits string) control.Process {
	p := control.Process{
		Version:     version,
		PID:         os.Getpid(),
		Started:     time.Now(),
		Mode:        "cluster",
		Provisioner: cfg.provisioner,
		Root:        cfg.root,
		Listen:      address.String(),
		Engine:      engine.Engine,
		EngineWhy:   engine.Reason,
		QuotaMode:   cfg.quota,
		Quota:       limits,
		Overcommit:  cfg.overcommit,
	}
	if cfg.standalone {
		p.Mode = "standalone"
	}
	return p
}

// findings has podnas doctor make the checks of the readiness probe.
func findings(checks []server.Check) func(context.Context) []control.Finding {
	return func(ctx context.Context) []control.Finding {
		var found []control.Finding
		for _, check := range checks {
			if err := check.Run(ctx); err != nil {
				found = append(found, control.Finding{
					About:   check.Name,
					Problem: err.Error(),
					Fix:     "see podnas's log; a restart is tried by the liveness probe",
				})
			}
		}
		return found
	}
}
