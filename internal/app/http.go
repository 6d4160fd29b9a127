package app

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/podnas/podnas/internal/web"
	"github.com/podnas/podnas/server"
)

const (
	// headerMax has room for the cookies that a browser keeps for all of localhost.
	headerMax = 16 << 10
	// httpWrite is longer than anything here takes, for slow readers.
	httpWrite = 30 * time.Second
	// httpConns and httpClientConns are many more than kubelet, Prometheus and a few
	// people with browsers have.
	httpConns, httpClientConns = 512, 64
)

// pages are what is served over HTTP: the status page, kubelet's probes and Prometheus's
// metrics. Until start they are only that podnas is alive and not ready, since to open a
// disk can take long, and kubelet is not to end what has only begun.
type pages struct {
	handler atomic.Pointer[http.Handler]
	hosts   []string
}

func newPages(root string, hosts []string) *pages {
	p := &pages{hosts: hosts}
	p.opening(root)
	return p
}

// opening serves that the disk is being opened, from now on.
func (p *pages) opening(root string) {
	began := time.Now()
	opening := func() error {
		return fmt.Errorf("the disk %s is being opened, for %s", root, time.Since(began).Round(time.Second))
	}
	later := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "podnas is starting: "+opening().Error(), http.StatusServiceUnavailable)
	})
	p.set([]server.Check{{Name: "start", Run: func(context.Context) error { return opening() }}}, later, later)
}

// start serves the checks, the metrics and the page, when they exist.
func (p *pages) start(checks []server.Check, metrics prometheus.Gatherer, page http.Handler) {
	p.set(checks, web.Cached(promhttp.HandlerFor(metrics, promhttp.HandlerOpts{DisableCompression: true})), page)
}

func (p *pages) set(checks []server.Check, metrics, page http.Handler) {
	probes := server.NewProbes(checks)
	p.serve(probes, probes, metrics, page)
}

func (p *pages) serve(health, ready, metrics, page http.Handler) {
	named, mux := http.NewServeMux(), http.NewServeMux()
	named.Handle("/metrics", metrics)
	named.Handle("/", page)
	mux.Handle("/healthz", health)
	mux.Handle("/readyz", ready)
	mux.Handle("/", web.Hosts(named, p.hosts))
	handler := web.ReadOnly(mux)
	p.handler.Store(&handler)
}

// ServeHTTP implements http.Handler.
func (p *pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	(*p.handler.Load()).ServeHTTP(w, r)
}

// serveHTTP answers until ctx ends; a probe cut off then is made again.
func serveHTTP(ctx context.Context, l net.Listener, pages http.Handler, log *slog.Logger) error {
	s := &web.Server{
		Handler: pages, HeaderMax: headerMax, Write: httpWrite, Conns: httpConns, ClientConns: httpClientConns, Log: log,
	}
	return s.Serve(ctx, l)
}

// tellPage says where the status page is.
func (a *App) tellPage() {
	address := a.httpPort.Addr().(*net.TCPAddr)
	a.Log.Info("http: serving the status page, probes and metrics", "address", address)
	if a.Standalone {
		fmt.Fprintf(a.Out, "podnas: status page at http://%s/\n", local(address))
	}
}
