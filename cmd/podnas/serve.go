package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/podnas/podnas/provisioner"
	"github.com/podnas/podnas/provisioner/standalone"
	"github.com/podnas/podnas/quota"
	"github.com/podnas/podnas/server"
	"github.com/podnas/podnas/server/export"
	"github.com/podnas/podnas/server/gonfs"
	"github.com/podnas/podnas/volume"
)

const serveExamples = `  # In a pod, as deploy/podnas.yaml runs it
  podnas serve --root=/export

  # Without a cluster: claims are YAML files in a folder
  podnas serve --standalone --root=data/disk --claims=data/claims \
    --listen=127.0.0.1:20490 --http=127.0.0.1:20491

  # Outside the cluster that it serves; nodes mount from 192.0.2.10
  podnas serve --root=/srv/podnas --kubeconfig=$HOME/.kube/config --server-address=192.0.2.10`

// serveConfig is what the flags and the environment say.
type serveConfig struct {
	root, listen, http, engine, quota string
	provisioner, serverAddress        string
	standalone                        bool
	claims                            string
	cluster                           clusterConfig
	shutdownDelay                     time.Duration
	logFormat, logLevel               string
}

func newServeCommand() *cobra.Command {
	var cfg serveConfig
	cmd := &cobra.Command{
		Use:     "serve",
		Short:   "Serve volumes over NFS and provision claims",
		Example: serveExamples,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return serve(cmd.Context(), &cfg, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&cfg.root, "root", "/export", "directory of the disk that holds the volumes")
	f.StringVar(&cfg.listen, "listen", ":2049", "address that NFS and MOUNT are served on, TCP")
	f.StringVar(&cfg.http, "http", ":8080", "address of the probes /healthz and /readyz")
	f.StringVar(&cfg.engine, "engine", server.EngineAuto, "NFS engine: native, go-nfs (fewer rights, with limits), or auto: native where it can run")
	f.StringVar(&cfg.quota, "quota", string(quota.Auto), "how sizes are enforced: auto, xfs (project quotas, refuse to start without) or off")
	f.StringVar(&cfg.provisioner, "provisioner", provisioner.DefaultName, "name that StorageClasses call this provisioner by")
	f.StringVar(&cfg.serverAddress, "server-address", "", "IP address that volumes are mounted from, where there is no Service")

	f.BoolVar(&cfg.standalone, "standalone", false, "serve claims of a folder instead of a cluster")
	f.StringVar(&cfg.claims, "claims", "", "with --standalone: folder of StorageClass and PersistentVolumeClaim YAML;\nPersistentVolumes are written to its folder provisioned/")

	cfg.cluster.addFlags(f)

	f.DurationVar(&cfg.shutdownDelay, "shutdown-delay", 0, "how long to go on serving, but not ready, when asked to end: in a pod, until\nno node sends new connections to it")
	f.StringVar(&cfg.logFormat, "log-format", "text", "text or json")
	f.StringVar(&cfg.logLevel, "log-level", "info", "debug, info, warn or error")
	return cmd
}

// serve wires the parts together and runs them until ctx ends or one fails.
func serve(ctx context.Context, cfg *serveConfig, stdout, stderr io.Writer) (err error) {
	log, err := newLogger(stderr, cfg.logFormat, cfg.logLevel)
	if err != nil {
		return err
	}
	if cfg.standalone != (cfg.claims != "") {
		return errors.New("--standalone and --claims=DIR go together")
	}
	if cfg.root, err = filepath.Abs(cfg.root); err != nil {
		return err
	}
	gonfs.JoinLog(log)
	log.Info("podnas: starting", "version", version, "root", cfg.root)

	mode, err := quota.ParseMode(cfg.quota)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", cfg.listen)
	if err != nil {
		return fmt.Errorf("listen for NFS: %w", err)
	}
	defer listener.Close() // closed twice on most ways, which does no harm
	probes, err := net.Listen("tcp", cfg.http)
	if err != nil {
		return fmt.Errorf("listen for probes: %w", err)
	}
	defer probes.Close()

	// Made here as the store makes it too: quotas are looked for on its disk.
	if err := os.MkdirAll(cfg.root, 0o755); err != nil {
		return fmt.Errorf("make the root of the disk: %w", err)
	}
	limits, err := quota.Select(mode, cfg.root)
	if err != nil {
		return err
	}
	log.Info("quota: "+limits.Reason, "mode", mode)
	if limits.Projects != nil {
		defer limits.Projects.Close()
	}
	exports := &export.Table{}
	store, err := volume.Open(volume.Config{
		Root:    cfg.root,
		Exports: exporter{exports, cfg.root},
		Quota:   limits.Projects,
		Log:     log,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	nfs, err := server.New(server.Config{
		Engine:    cfg.engine,
		Root:      cfg.root,
		Exports:   exports,
		HandleKey: store.HandleKey(),
		Log:       log,
	})
	if err != nil {
		return err
	}
	address := listener.Addr().(*net.TCPAddr)
	provision, err := newProvisioning(cfg, address, store, limits.Reason, stdout, log)
	if err != nil {
		return err
	}

	// Asked to end, the process stops provisioning and is not ready at once; it
	// serves until the delay is over, or a part has failed.
	group, failed := errgroup.WithContext(context.WithoutCancel(ctx))
	serving, stopServing := context.WithCancel(failed)
	defer stopServing()
	provisioning, stopProvisioning := context.WithCancel(failed)
	defer stopProvisioning()
	context.AfterFunc(ctx, func() {
		stopProvisioning()
		log.Info("podnas: stopping", "delay", cfg.shutdownDelay)
		time.AfterFunc(cfg.shutdownDelay, stopServing)
	})
	checks := []server.Check{
		{Name: "shutdown", Run: func(context.Context) error { return context.Cause(ctx) }},
		{Name: "nfs", Run: func(ctx context.Context) error { return server.Ping(ctx, local(address).String()) }},
		{Name: "disk", Run: func(context.Context) error { return store.CheckWrite() }},
	}
	group.Go(func() error { return nfs.Serve(serving, listener) })
	group.Go(func() error { return serveProbes(serving, probes, checks) })
	group.Go(func() error { return provision(provisioning) })
	return group.Wait()
}

// newProvisioning sets up what turns claims into volumes.
func newProvisioning(cfg *serveConfig, address *net.TCPAddr, store *volume.Store, limits string, stdout io.Writer, log *slog.Logger) (func(context.Context) error, error) {
	p := &provisioner.Provisioner{Store: store, Log: log}
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
			Claims: cfg.claims, Root: cfg.root, Name: cfg.provisioner, Limits: limits,
			Provisioner: p, Out: stdout, Log: log,
		}
		return runner.Run, nil
	}
	client, err := cfg.cluster.client(log)
	if err != nil {
		return nil, err
	}
	if p.Endpoint, err = cfg.cluster.endpoint(client, cfg.serverAddress, port); err != nil {
		return nil, err
	}
	controller, err := cfg.cluster.controller(client, cfg.provisioner, p, log)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error { return provisioner.RunController(ctx, controller) }, nil
}

// serveProbes answers kubelet until ctx ends.
func serveProbes(ctx context.Context, l net.Listener, checks []server.Check) error {
	s := &http.Server{
		Handler:           server.NewProbes(checks),
		ReadHeaderTimeout: 5 * time.Second,
	}
	stop := context.AfterFunc(ctx, func() { _ = s.Close() }) // a probe cut off is made again
	defer stop()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve probes: %w", err)
	}
	return nil
}

// local is an address that reaches a listener from this machine.
func local(address *net.TCPAddr) *net.TCPAddr {
	if !address.IP.IsUnspecified() {
		return address
	}
	return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: address.Port}
}

// exporter puts the store's volumes into the server's table.
type exporter struct {
	table *export.Table
	root  string
}

func (e exporter) Export(v volume.Volume) error {
	return e.table.Add(v.ID, "/"+v.Path, filepath.Join(e.root, v.Path), export.Options{})
}

func (e exporter) Unexport(v volume.Volume) { e.table.Remove(v.ID) }
