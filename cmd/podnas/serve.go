package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/podnas/podnas/internal/metrics"
	"github.com/podnas/podnas/internal/process"
	"github.com/podnas/podnas/internal/status"
	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/provisioner"
	"github.com/podnas/podnas/provisioner/checkup"
	"github.com/podnas/podnas/provisioner/control"
	"github.com/podnas/podnas/provisioner/controller"
	"github.com/podnas/podnas/provisioner/standalone"
	"github.com/podnas/podnas/quota"
	"github.com/podnas/podnas/server"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/gonfs"
	"github.com/podnas/podnas/server/nfsv41"
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
	root, listen, http, engine, handles, quota string
	hosts                                      []string
	provisioner, serverAddress                 string
	image                                      imageFlag
	standalone                                 bool
	claims                                     string
	claimGrace                                 time.Duration
	newDisk                                    bool
	newIdentity                                string
	overcommit                                 float64
	indexMemory                                int // MiB
	cluster                                    clusterConfig
	shutdownDelay                              time.Duration
	slowCall                                   time.Duration
	attrCache                                  bool
	nfs4, nfs4Asked                            bool // nfs4Asked: the flag was given
	stateLog                                   string
	logFormat, logLevel                        string
}

func newServeCommand() *cobra.Command {
	var cfg serveConfig
	cmd := &cobra.Command{
		Use:     "serve",
		Short:   "Serve volumes over NFS and provision claims",
		Example: serveExamples,
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg.nfs4Asked = cmd.Flags().Changed("nfs4")
			return serve(cmd.Context(), &cfg, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	addRootFlag(f, &cfg.root, "mount point of the disk that holds the volumes")
	f.Var(&cfg.image, "disk-image", "keep the volumes in an XFS with quotas in this file, which is created if missing,\nand mounted on --root, an empty directory: /disk/podnas.img,size=20Gi")
	f.StringVar(&cfg.listen, "listen", ":2049", "TCP address of NFS and MOUNT")
	f.StringVar(&cfg.http, "http", ":8080", "address of the status page (/), the probes (/healthz, /readyz), and the metrics\nfor Prometheus (/metrics)")
	f.StringSliceVar(&cfg.hosts, "http-host", nil, "further host `names` for the page and the metrics, separated by commas, such as that of\nan Ingress; always accepted: addresses, localhost, names without a dot, and names below\n.localhost, .svc and .cluster.local")
	f.StringVar(&cfg.handles, "handles", server.HandlesAuto, "how files are found: kernel, by the kernel's handles (needs DAC_READ_SEARCH),\nindex, by an index in memory, or auto: kernel where it can")
	f.IntVar(&cfg.indexMemory, "index-memory", defaultIndexMemory, "MiB of memory for where files are, if they are found by an index; a million files take 50.\nBeyond it the volumes with the most files forget those that were not used for long")
	f.StringVar(&cfg.engine, "engine", server.EngineAuto, "NFS engine: native, go-nfs (a library with limits), or auto: native")
	f.StringVar(&cfg.quota, "quota", string(quota.Auto), "what enforces sizes: kernel (project quotas; podnas refuses to start without them),\nserver (which counts what clients write), off, or auto: kernel if possible, else server")
	f.Float64Var(&cfg.overcommit, "overcommit", 0, "limit of the sum of all volumes' sizes, as a multiple of the disk's size: with 1, each\nvolume can always reach its size; 0: no limit, but a new volume must fit into the space\nthat is free at that time, and volumes that fill up later may find the disk full")
	f.BoolVar(&cfg.newDisk, "new-disk", false, "create volumes although there are PersistentVolumes of another disk, which this disk\nreplaces")
	f.StringVar(&cfg.newIdentity, "new-identity", "", "the identity of a disk that has lost .podnas/instance.json, if there is no backup: the UUID in\nthe annotation podnas.io/instance of its PersistentVolumes, or random; ignored by others")
	f.StringVar(&cfg.provisioner, "provisioner", provisioner.DefaultName, "name of this provisioner in StorageClasses")
	f.StringVar(&cfg.serverAddress, "server-address", "", "IP address that volumes are mounted from, if there is no Service")

	f.BoolVar(&cfg.standalone, "standalone", false, "serve the claims in a folder instead of a cluster")
	f.StringVar(&cfg.claims, "claims", "", "with --standalone: folder with the YAML and JSON files of StorageClasses and\nPersistentVolumeClaims; podnas writes PersistentVolumes to provisioned/ in it")
	f.DurationVar(&cfg.claimGrace, "claim-grace", time.Minute, "with --standalone: time from the removal of a claim, and the last change of any\nfile of the folder, until podnas deletes or archives its volume")

	cfg.cluster.addFlags(f)

	f.DurationVar(&cfg.shutdownDelay, "shutdown-delay", 0, "on SIGTERM, how long to continue to serve while not ready: in a pod, until no node\nsends new connections to it")
	f.BoolVar(&cfg.nfs4, "nfs4", true, "serve NFSv4.1 beside NFSv3, with the native engine; new volumes mount with it, unless\ntheir class asks for version 3")
	f.BoolVar(&cfg.attrCache, "attribute-cache", true, "remember attributes of files for a second, or until a client changes them: what is changed directly\non the disk may be seen that late")
	f.StringVar(&cfg.stateLog, "state-log", "", "folder in memory, such as one in /run or an emptyDir with medium Memory: what NFSv4.1 clients\nhave open and locked is logged there, and if podnas dies, they go on with it; empty: they\nhave to reclaim it, for which all wait up to 30 seconds")
	f.DurationVar(&cfg.slowCall, "slow-call", time.Second, "log calls of clients that take this long or longer, at most ten a minute; 0: never")
	f.StringVar(&cfg.logFormat, "log-format", "text", "text or json")
	f.StringVar(&cfg.logLevel, "log-level", "info", "debug, info, warn or error")
	return cmd
}

// serve wires the parts together and runs them until ctx ends or one fails.
func serve(ctx context.Context, cfg *serveConfig, stdout, stderr io.Writer) (err error) {
	events := &status.Events{}
	log, err := newLogger(stderr, cfg.logFormat, cfg.logLevel, events)
	if err != nil {
		return err
	}
	mode, err := cfg.validate()
	if err != nil {
		return &usageError{err}
	}
	if cfg.root, err = filepath.Abs(cfg.root); err != nil {
		return err
	}
	if cfg.standalone { // before anything is made
		if err := standalone.CheckFolder(cfg.claims); err != nil {
			return err
		}
	}
	gonfs.JoinLog(log)
	server.UseProcessors()
	tables := limitMemory(cfg.indexMemory)
	log.Info("podnas: starting", "version", version, "root", cfg.root)

	listener, err := listen("--listen", cfg.listen)
	if err != nil {
		return err
	}
	defer listener.Close() // closed twice on most ways, which does no harm
	probes, err := listen("--http", cfg.http)
	if err != nil {
		return err
	}
	defer probes.Close()
	pages := newPages(cfg.root, cfg.hosts)
	answering, stopAnswering := context.WithCancel(context.WithoutCancel(ctx))
	defer stopAnswering()
	answered := make(chan error, 1)
	go func() { answered <- serveHTTP(answering, probes, pages, log) }()

	exports := &exports.Table{Log: log}
	closeImage, err := cfg.image.open(ctx, cfg.root, exports, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeImage()) }()
	if err := cfg.checkDisk(); err != nil {
		return err
	}
	limits, err := quota.Select(mode, cfg.root)
	if err != nil {
		return err
	}
	log.Info("quota: "+limits.Reason, "mode", mode)
	if limits.Projects != nil {
		defer limits.Projects.Close()
	}
	engine, err := server.SelectEngine(cfg.engine, cfg.handles, cfg.root)
	if err != nil {
		return err
	}
	if err := engine.CheckNFS4(); err != nil && cfg.nfs4 && cfg.nfs4Asked {
		return &usageError{fmt.Errorf("--nfs4: %w", err)}
	}
	exports.ByIndex, exports.IndexMax = engine.ByIndex, cfg.indexMemory<<20
	exports.Only, exports.Modes = engine.Only(), filepath.Join(cfg.root, volume.ModesDir)
	exports.KeepMarks(filepath.Join(cfg.root, volume.UsageDir))
	exports.KeepIndexes(filepath.Join(cfg.root, volume.IndexDir))
	form, earlier, err := exports.Forms(cfg.root, filepath.Join(cfg.root, volume.RemovedDir))
	if err != nil {
		return err
	}
	served := exporter{Table: exports, Root: cfg.root, Engine: engine, Limits: limits, Log: log}
	disk := volume.Config{
		Root:       cfg.root,
		Exports:    served,
		Counter:    served.Counter(),
		Quota:      limits,
		Overcommit: cfg.overcommit,
		CountOnce:  cfg.standalone,
		Log:        log,

		NewIdentity: cfg.newIdentity,
		Handles:     string(form), EarlierHandles: string(earlier),
	}
	store, err := volume.Open(disk)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	defer exports.LastMarks()
	defer exports.LastIndexes()
	clientsDir := ""
	if cfg.nfs4 {
		clientsDir = filepath.Join(cfg.root, volume.ClientsDir)
	}
	nfs, err := server.New(server.Config{
		Engine:      engine,
		Exports:     exports,
		HandleKey:   store.HandleKey(),
		NFS4:        clientsDir,
		Removed:     filepath.Join(cfg.root, volume.RemovedDir),
		NoAttrCache: !cfg.attrCache,
		StateLog:    cfg.stateLog,
		Tables:      tables,
		Reserve:     store.Reserve(),
		SlowCall:    cfg.slowCall,
		Log:         log,
	})
	if err != nil {
		return err
	}
	address := listener.Addr().(*net.TCPAddr)
	p := &provisioner.Provisioner{Store: store, Name: cfg.provisioner, NewDisk: cfg.newDisk, NoNFS4: noNFS4(cfg, engine), Log: log}
	claims, err := newProvisioning(cfg, address, p, sharedNames(nfs.NFS4()), limits.Reason, stdout, log)
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
		server.Shared("nfs", func(ctx context.Context) error { return server.Ping(ctx, nfs.Dial, local(address).String()) }),
		server.Shared("disk", func(context.Context) error { return imageDisk{store, cfg.image.spec}.CheckWrite() }),
	}
	group.Go(func() error { return nfs.Serve(serving, listener) })
	info := describe(cfg, address, engine, limits)
	found := checkup.Findings(ctx, checkup.Config{
		Process: info, Store: store, Disk: imageDisk{store, cfg.image.spec}, Endpoint: p.Endpoint, Claims: claims.findings,
		FailedSyncs: exports.Syncs.Failed.Load, Dial: nfs.Dial, Address: local(address).String(), NoNFS4: p.NoNFS4, StateLog: stateLogFailed(nfs.NFS4()), SharedNames: sharedNames(nfs.NFS4()), Cluster: claims.checks(cfg, p, served),
	})
	group.Go(func() error { return watch(serving, claims.made, found) })
	measured := metrics.Config{Process: info, Server: nfs, Exports: exports, Store: store, Findings: found, Log: log}
	if claims.reconciler != nil {
		measured.Report = claims.reconciler.Report
	}
	overview, err := status.New(status.Config{
		Process: info,
		Store:   store, Served: nfs.Stats(), Exports: exports, Findings: found, Provisioner: p, Events: events, Log: log,
		NFS4: holdings(nfs.NFS4(), store, holdingsOnPage),
	})
	if err != nil {
		return err
	}
	tellPage(cfg, probes.Addr().(*net.TCPAddr), stdout, log)
	pages.start(checks, metrics.NewRegistry(metrics.New(measured)...), overview.Handler())
	group.Go(func() error {
		context.AfterFunc(serving, stopAnswering)
		return <-answered
	})
	group.Go(func() error {
		overview.Run(serving)
		return nil
	})
	group.Go(func() error { return claims.run(provisioning) })
	commands := &control.Server{
		Provisioner:   p,
		Process:       info,
		Findings:      found,
		Clients:       nfs.Stats().Connected,
		VolumeClients: func() map[uint64]int { return volumeClients(exports, nfs.Stats(), time.Now()) },
		Log:           log,
	}
	commands.Clients3 = func() []process.Client3 { return version3(nfs.Stats().Snapshot().Clients, time.Now()) }
	if served := nfs.NFS4(); served != nil {
		commands.NFS4 = control.NFS4{Holdings: holdings(served, store, holdingsMax), Evict: served.Evict}
	}
	if claims.client != nil {
		commands.Users = func(ctx context.Context) ([]controller.User, error) {
			return controller.Users(ctx, claims.client, store.Identity())
		}
		commands.Deleting = func(ctx context.Context) ([]string, error) {
			return controller.Deleting(ctx, claims.client, store.Identity())
		}
		commands.Compared = func() []volume.Finding { return claims.reconciler.Report().Findings }
	}
	group.Go(func() error { return serveCommands(provisioning, claims.made, cfg.root, commands) })
	return group.Wait()
}

// stateLogFailed returns what tells why the log of --state-log was given up.
func stateLogFailed(served *nfsv41.Server) func() error {
	if served == nil {
		return func() error { return nil }
	}
	return served.StateLogFailed
}

// noNFS4 is why version 4.1 is not served, or nil.
func noNFS4(cfg *serveConfig, engine server.Choice) error {
	if !cfg.nfs4 {
		return errors.New("NFSv4.1 is turned off by --nfs4=false")
	}
	return engine.CheckNFS4()
}

// checkDisk refuses a disk that can't be served, before anything is changed on it.
func (c *serveConfig) checkDisk() error {
	if _, err := volume.IdentityOf(c.root); err != nil {
		if c.newIdentity != "" { // Open knows more
			return nil
		}
		return err
	}
	if c.standalone && !c.newDisk {
		return standalone.CheckDisk(c.claims, c.root)
	}
	return nil
}

// validate refuses flags that mean nothing.
func (c *serveConfig) validate() (quota.Mode, error) {
	switch {
	case c.standalone != (c.claims != ""):
		return "", errors.New("--standalone and --claims=DIR must be used together")
	case c.claimGrace < 0:
		return "", fmt.Errorf("invalid --claim-grace=%s: use 0 or more", c.claimGrace)
	case !(c.overcommit >= 0): // nor is NaN
		return "", fmt.Errorf("invalid --overcommit=%g: use 0, or a multiple of the size of the disk", c.overcommit)
	case !slices.Contains(server.Handles(), c.handles):
		return "", fmt.Errorf("unknown --handles=%s: use one of %s", c.handles, strings.Join(server.Handles(), ", "))
	case c.indexMemory <= 0:
		return "", fmt.Errorf("invalid --index-memory=%d: use more than 0", c.indexMemory)
	case !slices.Contains(server.Engines(), c.engine):
		return "", fmt.Errorf("unknown --engine=%s: use one of %s", c.engine, strings.Join(server.Engines(), ", "))
	}
	if err := volume.CheckNewIdentity(c.newIdentity); err != nil {
		return "", fmt.Errorf("--new-identity: %w", err)
	}
	mode, err := quota.ParseMode(c.quota)
	if err != nil {
		return "", fmt.Errorf("--quota: %w", err)
	}
	if !c.standalone {
		err = c.cluster.check()
	}
	return mode, err
}

// listen opens the port that a flag names.
func listen(flag, address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%s=%s: another program uses this port: choose another one, or end that program (ss -ltnp shows it): %w", flag, address, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%s=%s: %w", flag, address, err)
	}
	return l, nil
}

// local is an address that reaches a listener from this machine.
func local(address *net.TCPAddr) *net.TCPAddr {
	if !address.IP.IsUnspecified() {
		return address
	}
	return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: address.Port}
}
