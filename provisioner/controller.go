package provisioner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v8/controller"
)

// How soon a claim that failed is tried again: at first soon, since most
// failures at a start pass within seconds (the Service does not lead here yet).
const (
	retryFirst = time.Second
	retryMax   = 5 * time.Minute
)

// Timing of the Lease, client-go's own defaults.
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
)

// ErrLostLease means that another instance has taken over.
var ErrLostLease = errors.New("lost the leader election's Lease")

// ControllerConfig says how a Controller runs. Client, Name, Provisioner and Log
// are needed.
type ControllerConfig struct {
	Client      kubernetes.Interface
	Name        string // of the provisioner, as StorageClasses say it
	Provisioner *Provisioner
	Workers     int    // claims, and volumes, worked on at a time; at least 1
	LeaseIn     string // namespace of the Lease; empty: no leader election
	Log         *slog.Logger
}

// Validate says what is wrong with a ControllerConfig.
func (c *ControllerConfig) Validate() error {
	if c.Workers < 1 {
		return fmt.Errorf("%d workers: at least 1 is needed", c.Workers)
	}
	if !strings.Contains(c.Name, "/") {
		return fmt.Errorf("provisioner name %q is not qualified: use DOMAIN/NAME, for example %s", c.Name, DefaultName)
	}
	return nil
}

// RunController works on claims and volumes until ctx ends or, with leader
// election, the Lease is lost; the error is then ErrLostLease, and the process
// must end: the library's workers can't be stopped and started again.
func RunController(ctx context.Context, cfg ControllerConfig) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	if cfg.LeaseIn == "" {
		return runController(ctx, cfg)
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	lease := strings.ReplaceAll(cfg.Name, "/", "-")
	log := cfg.Log.With("lease", cfg.LeaseIn+"/"+lease)
	log.Info("controller: waiting for the lease")
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: cfg.LeaseIn, Name: lease},
			Client:    cfg.Client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{
				// The disk's identity tells two pods of one name apart.
				Identity: host + "_" + cfg.Provisioner.Store.Identity(),
			},
		},
		LeaseDuration:   leaseDuration,
		RenewDeadline:   renewDeadline,
		RetryPeriod:     retryPeriod,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				log.Info("controller: holds the lease")
				_ = runController(ctx, cfg) // always nil
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return fmt.Errorf("set up leader election: %w", err)
	}
	elector.Run(ctx)
	if ctx.Err() != nil {
		return nil
	}
	return ErrLostLease
}

// runController runs the library's controller. The library's Run does not
// return when ctx ends, though all its work does; it is left behind.
func runController(ctx context.Context, cfg ControllerConfig) error {
	c := controller.NewProvisionController(cfg.Client, cfg.Name, cfg.Provisioner,
		controller.LeaderElection(false), // its lock, on Endpoints, is no more
		controller.Threadiness(cfg.Workers),
		controller.RateLimiter(newRateLimiter()),
		controller.FailedProvisionThreshold(0), // try for ever: giving up leaks the volume
		controller.FailedDeleteThreshold(0),
		// Saved from a queue, for ever: the other way deletes the volume after
		// some failures, though one of them may have saved it.
		controller.CreateProvisionedPVLimiter(newRateLimiter()),
		controller.MetricsPort(0),
	)
	cfg.Log.Info("controller: watching claims", "provisioner", cfg.Name, "workers", cfg.Workers)
	go c.Run(ctx)
	<-ctx.Done()
	return nil
}

// newRateLimiter spaces the retries of each claim or volume out, and bounds all
// retries together.
func newRateLimiter() workqueue.RateLimiter {
	return workqueue.NewMaxOfRateLimiter(
		workqueue.NewItemExponentialFailureRateLimiter(retryFirst, retryMax),
		&workqueue.BucketRateLimiter{Limiter: rate.NewLimiter(rate.Limit(50), 500)},
	)
}
