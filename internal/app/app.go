// Package app makes the parts of 'podnas serve' of a Config and runs them together.
//
// # The order of a start
//
//  1. [New] refuses what the flags can't mean, and opens the two ports, so that a port that is taken
//     costs nothing.
//  2. [App.Run] answers over HTTP at once: podnas is alive, and not ready (http.go).
//  3. It opens the disk, mounts the image first, if there is one, or waits as a standby for a shared one (shared.go), and chooses what enforces sizes and how
//     files are found (disk.go). The store exports each volume through the exporter (exporter.go).
//  4. It makes the server of NFS, and what turns claims into volumes, in a cluster or for a folder (claims.go).
//  5. It serves NFS, then says that it is ready. The checks of 'podnas doctor', the page, the metrics and the
//     commands each ask the other parts for what they tell (ops.go, clients.go, commands.go).
//
// At the end it stops in the reverse order.
package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/podnas/podnas/internal/heartbeat"
	"github.com/podnas/podnas/internal/process"
	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/internal/volume/shareddisk"
	"github.com/podnas/podnas/provisioner"
	"github.com/podnas/podnas/provisioner/active"
	"github.com/podnas/podnas/provisioner/standalone"
	"github.com/podnas/podnas/quota"
	"github.com/podnas/podnas/server"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/gonfs"
)

// App is one podnas: an NFS server and a provisioner over one disk.
type App struct {
	Config

	nfsPort, httpPort net.Listener
	pages             *pages
	tables            func(bytes int)
	serves            chan struct{} // closed when NFS is served

	// What Run makes, in this order.
	exports   *exports.Table
	mounted   time.Time        // when the disk was there
	shared    *shareddisk.Disk // nil without --shared-disk
	active    *active.Active   // nil without --shared-disk, and without a cluster
	quiet     func()           // ends what active tells
	limits    quota.Choice
	engine    server.Choice
	served    exporter
	store     *volume.Store
	heartbeat *heartbeat.Heartbeat
	nfs       *server.Server
	info      process.Info
	volumes   *provisioner.Provisioner
	claims    *claims
	atEnd     []func() error // the last one first
}

// New checks a Config and opens the ports. The error is a FlagError if the flags mean nothing. Run must be called.
func New(cfg Config) (*App, error) {
	if err := cfg.validate(); err != nil {
		return nil, &FlagError{err}
	}
	var err error
	if cfg.Root, err = filepath.Abs(cfg.Root); err != nil {
		return nil, err
	}
	if cfg.Standalone { // before anything is made
		if err := standalone.CheckFolder(cfg.ClaimsDir); err != nil {
			return nil, err
		}
	}
	gonfs.JoinLog(cfg.Log)
	server.UseProcessors()
	a := &App{Config: cfg, tables: limitMemory(cfg.IndexMemory), serves: make(chan struct{})}
	cfg.Log.Info("podnas: starting", "version", cfg.Version, "root", cfg.Root)
	if a.nfsPort, err = listen("--listen", cfg.Listen); err != nil {
		return nil, err
	}
	if a.httpPort, err = listen("--http", cfg.HTTP); err != nil {
		return nil, errors.Join(err, a.nfsPort.Close())
	}
	if cfg.SharedDisk != "" { // the port can be had, and is opened again with the disk
		if err := a.nfsPort.Close(); err != nil {
			return nil, err
		}
	}
	a.pages = newPages(cfg.Root, cfg.Hosts)
	return a, nil
}

// Run runs all until ctx ends or a part fails. Call it once.
func (a *App) Run(ctx context.Context) (err error) {
	defer func() { _ = a.nfsPort.Close() }() // closed twice on most ways, which does no harm
	defer a.httpPort.Close()
	answering, stopAnswering := context.WithCancel(context.WithoutCancel(ctx))
	defer stopAnswering()
	answered := make(chan error, 1)
	go func() { answered <- serveHTTP(answering, a.httpPort, a.pages, a.Log) }()
	defer func() { err = errors.Join(err, a.close()) }()
	for _, begin := range []func(context.Context) error{a.openDisk, a.openVolumes, a.openServer} {
		if err := begin(ctx); err != nil {
			if errors.Is(err, errStandby) {
				err = nil
			}
			return err
		}
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
		a.Log.Info("podnas: stopping", "delay", a.ShutdownDelay)
		time.AfterFunc(a.ShutdownDelay, stopServing)
	})
	group.Go(func() error { return a.stayActive(serving) })
	group.Go(func() error { return a.nfs.Serve(serving, a.nfsPort) })
	close(a.serves)
	group.Go(func() error {
		context.AfterFunc(serving, stopAnswering)
		return <-answered
	})
	found := a.findings(ctx)
	group.Go(func() error { return watch(serving, a.claims.made, found) })
	page, err := a.page(found)
	if err != nil {
		stopServing()
		return errors.Join(err, group.Wait())
	}
	a.tellPage()
	a.pages.start(a.checks(ctx), a.metrics(found), page.Handler())
	group.Go(func() error {
		page.Run(serving)
		return nil
	})
	group.Go(func() error { return a.claims.run(provisioning) })
	for _, keep := range []func(context.Context){a.store.RunSchedules, a.store.KeepRoom} {
		group.Go(func() error {
			keep(serving)
			return nil
		})
	}
	group.Go(func() error { return serveCommands(provisioning, a.claims.made, a.Root, a.commands(found)) })
	return group.Wait()
}

// endWith has Run do something at its end, before what it was told earlier.
func (a *App) endWith(do func() error) { a.atEnd = append(a.atEnd, do) }

func (a *App) close() (err error) {
	for _, do := range slices.Backward(a.atEnd) {
		err = errors.Join(err, do())
	}
	return err
}

// address is that of NFS.
func (a *App) address() *net.TCPAddr { return a.nfsPort.Addr().(*net.TCPAddr) }

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
