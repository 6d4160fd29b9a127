package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/podnas/podnas/quota"
	"github.com/podnas/podnas/server"
	"github.com/podnas/podnas/status"
)

// httpPages are what is served over HTTP: the status page, kubelet's probes and
// Prometheus's metrics.
func httpPages(checks []server.Check, metrics prometheus.Gatherer, page http.Handler) http.Handler {
	mux := http.NewServeMux()
	probes := server.NewProbes(checks)
	mux.Handle("/healthz", probes)
	mux.Handle("/readyz", probes)
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	mux.Handle("/", page)
	return mux
}

// serveHTTP answers until ctx ends.
func serveHTTP(ctx context.Context, l net.Listener, pages http.Handler) error {
	s := &http.Server{Handler: pages, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: time.Minute, IdleTimeout: 2 * time.Minute}
	stop := context.AfterFunc(ctx, func() { _ = s.Close() }) // a probe cut off is made again
	defer stop()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve HTTP: %w", err)
	}
	return nil
}

// tellPage says where the status page is.
func tellPage(cfg *serveConfig, address *net.TCPAddr, stdout io.Writer, log *slog.Logger) {
	url := fmt.Sprintf("http://%s/", local(address))
	log.Info("http: serving the status page, probes and metrics", "address", address)
	if cfg.standalone {
		fmt.Fprintf(stdout, "podnas: status page at %s\n", url)
	}
}

// aboutProcess is what the status page tells of this process.
func aboutProcess(cfg *serveConfig, address *net.TCPAddr, engine server.Choice, limits quota.Choice) status.Process {
	p := status.Process{
		Version: version, Mode: "cluster", Provisioner: cfg.provisioner, Root: cfg.root, Listen: address.String(),
		Started: time.Now(), Engine: engine, Limits: limits.Reason, Enforced: limits.Projects != nil || limits.Server,
	}
	if cfg.standalone {
		p.Mode = "standalone"
	}
	return p
}
