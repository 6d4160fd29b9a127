package provisioner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v8/controller"
)

// How soon a claim that failed is tried again: at first soon, since most
// failures at a start pass within seconds (the Service does not lead here yet);
// and never late, since nothing else tells that there is room again, or that a
// copy is complete.
const (
	retryFirst = time.Second
	retryMax   = time.Minute
)

// Timing of the Lease, client-go's own defaults.
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
)

// ErrLostLease means that another instance has taken over.
var ErrLostLease = errors.New("lost the right to provision")

// ControllerConfig says how a Controller runs. Client, Name, Provisioner and Log
// are needed.
type ControllerConfig struct {
	Client      kubernetes.Interface
	Name        string // of the provisioner, as StorageClasses say it
	Provisioner *Provisioner
	Workers     int         // claims, and volumes, worked on at a time; at least 1
	LeaseIn     string      // namespace of the leader election's Lease; empty: no leader election
	GuardIn     string      // namespace of the Lease that guards Name; empty: no guard
	Pod, PodUID string      // the own pod in GuardIn, for events; empty: none
	Reconciler  *Reconciler // gets each report; nil: they are only logged
	// Made, if not nil, is called when others may use the Client too, see newWorkers.
	Made func()
	Log  *slog.Logger
}

// Validate says what is wrong with a ControllerConfig.
func (c *ControllerConfig) Validate() error {
	if c.Workers < 1 {
		return fmt.Errorf("%d workers: use at least 1", c.Workers)
	}
	if !strings.Contains(c.Name, "/") {
		return fmt.Errorf("provisioner name %q is not qualified: use DOMAIN/NAME, for example %s", c.Name, DefaultName)
	}
	return nil
}

// RunController works on claims and volumes until ctx ends or the right to is
// lost to another instance; the error is then ErrLostLease, and the process must
// end: the library's workers can't be stopped and started again.
func RunController(ctx context.Context, cfg ControllerConfig) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	if cfg.Reconciler == nil {
		cfg.Reconciler = &Reconciler{}
	}
	// The workers' own: it knows more than the caller's.
	p := *cfg.Provisioner
	p.Name = cfg.Name
	cfg.Provisioner = &p
	events := newEvents(ctx, cfg.Client, cfg.Name)
	own := ownPod(cfg.GuardIn, cfg.Pod, cfg.PodUID, events)
	w, err := newWorkers(&cfg, events, own)
	if err != nil {
		return err
	}
	if cfg.Made != nil {
		cfg.Made()
	}
	switch {
	case cfg.LeaseIn != "":
		return lead(ctx, &cfg, w)
	case cfg.GuardIn != "":
		return runGuarded(ctx, &cfg, w)
	}
	w.run(ctx)
	return nil
}

// runGuarded works while the guard lets it.
func runGuarded(ctx context.Context, cfg *ControllerConfig, w *workers) error {
	g := &guard{
		client: cfg.Client, namespace: cfg.GuardIn, provisioner: cfg.Name, identity: cfg.Provisioner.Store.Identity(),
		pod: w.pod, says: cfg.Reconciler.standAside, log: cfg.Log,
		period: guardPeriod, pause: guardPause, hold: guardDuration,
	}
	if g.wait(ctx) != nil {
		return nil // ctx has ended
	}
	group, working := errgroup.WithContext(ctx)
	group.Go(func() error { return g.keep(working) })
	group.Go(func() error {
		w.run(working)
		return nil
	})
	return group.Wait()
}

// lead works while it holds the leader election's Lease.
func lead(ctx context.Context, cfg *ControllerConfig, w *workers) error {
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	lease := strings.ReplaceAll(cfg.Name, "/", "-")
	log := cfg.Log.With("lease", cfg.LeaseIn+"/"+lease)
	log.Info("controller: waiting for the Lease")
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
				log.Info("controller: acquired the Lease")
				w.run(ctx)
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

// workers are what works on claims and volumes: the library's controller, and on
// the same informers the expander, the comparison, the watches on full volumes and on
// mounts that fail, and what says which volumes are in use.
type workers struct {
	cfg     *ControllerConfig
	factory informers.SharedInformerFactory
	mounts  informers.SharedInformerFactory // of failed mounts
	library *controller.ProvisionController
	expand  *expander
	compare *comparison
	full    *fullness
	use     *inUse
	pod     *pod
}

// newWorkers makes them. Nothing may use the client meanwhile: the library writes
// to client-go's table of types, which every call reads.
func newWorkers(cfg *ControllerConfig, events record.EventRecorder, own *pod) (*workers, error) {
	p := cfg.Provisioner
	factory := informers.NewSharedInformerFactoryWithOptions(cfg.Client, controller.DefaultResyncPeriod, informers.WithTransform(withoutManagers))
	claims, volumes := factory.Core().V1().PersistentVolumeClaims(), factory.Core().V1().PersistentVolumes()
	classes := factory.Storage().V1().StorageClasses()
	p.Volumes = volumes.Lister()
	p.Claims = clusterClaims{claims: claims.Lister(), volumes: volumes.Lister(), identity: p.Store.Identity()}

	tells := &teller{Provisioner: p, permission: &permission{client: cfg.Client, name: cfg.Name}}
	library := controller.NewProvisionController(cfg.Client, cfg.Name, tells,
		controller.LeaderElection(false), // its lock, on Endpoints, is no more
		controller.Threadiness(cfg.Workers),
		controller.RateLimiter(newRateLimiter()),
		controller.FailedProvisionThreshold(0), // try for ever: giving up leaks the volume
		controller.FailedDeleteThreshold(0),
		// Saved from a queue, for ever: the other way deletes the volume after
		// some failures, though one of them may have saved it.
		controller.CreateProvisionedPVLimiter(newRateLimiter()),
		controller.MetricsPort(0),
		controller.ClaimsInformer(claims.Informer()),
		controller.VolumesInformer(newSavedVolumes(volumes.Informer())),
		controller.ClassesInformer(classes.Informer()),
		controller.NodesLister(anyNode{}),
	)
	expand := &expander{
		client: cfg.Client, p: p, classes: classes.Lister(), volumes: volumes.Lister(), events: events, log: cfg.Log,
		queue: workqueue.NewTypedRateLimitingQueue(newRetries[string]()),
	}
	if err := expand.watch(claims.Informer()); err != nil {
		return nil, fmt.Errorf("watch claims: %w", err)
	}
	cfg.Reconciler.lookAt(&unfulfilled{
		name: p.Name, claims: claims.Lister(), classes: classes.Lister(), volumes: volumes.Lister(), made: &tells.told, raised: &expand.told,
	})
	mounts := newMountFailureEvents(cfg.Client)
	failures := &mountFailures{
		volumes: volumes.Lister(), identity: p.Store.Identity(), events: events,
		started: time.Now(), log: cfg.Log, told: map[mountFailure]time.Time{},
	}
	if err := failures.watch(mounts.Core().V1().Events().Informer()); err != nil {
		return nil, fmt.Errorf("watch events: %w", err)
	}
	use := newInUse(cfg.Client, cfg.GuardIn, p.Store.Identity(), volumes.Lister(), cfg.Log)
	if err := use.watch(volumes.Informer()); err != nil {
		return nil, fmt.Errorf("watch volumes: %w", err)
	}
	return &workers{
		cfg: cfg, factory: factory, mounts: mounts, library: library, expand: expand, use: use,
		compare: &comparison{p: p, volumes: volumes.Lister(), events: events, pod: own, log: cfg.Log},
		full:    newFullness(p.Store, events, cfg.Log),
		pod:     own,
	}, nil
}

// anyNode is what the library asks for the node that a claim's first consumer goes to.
// Volumes are for every node, so that one may be gone, and podnas need not see nodes. Else
// the library would also change the claim of a node that is gone, to have another chosen.
type anyNode struct{}

// List is not called.
func (anyNode) List(labels.Selector) ([]*v1.Node, error) { return nil, nil }

// Get answers with a node of that name.
func (anyNode) Get(name string) (*v1.Node, error) {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, nil
}

// withoutManagers takes from an object, before it is cached, who manages which of its
// fields: a fifth of its memory, which nobody here reads. Who writes the object back
// changes nothing of them: the API server takes none for those it has.
func withoutManagers(object any) (any, error) {
	if o, ok := object.(metav1.Object); ok {
		o.SetManagedFields(nil)
	}
	return object, nil
}

// run works until ctx ends. The library's Run does not return then, though all its
// work ends; it is left behind.
func (w *workers) run(ctx context.Context) {
	w.factory.Start(ctx.Done())
	w.factory.WaitForCacheSync(ctx.Done())
	// Later, and not waited for: a failed mount is told with the volume at hand,
	// and an older deploy/ does not let podnas see events.
	w.mounts.Start(ctx.Done())
	w.cfg.Log.Info("controller: provisioning claims", "provisioner", w.cfg.Name, "workers", w.cfg.Workers)
	go w.library.Run(ctx)
	var working sync.WaitGroup
	for range w.cfg.Workers {
		working.Go(func() { w.expand.work(ctx) })
	}
	working.Go(func() { w.cfg.Reconciler.run(ctx, w.compare) })
	working.Go(func() { w.full.run(ctx) })
	working.Go(func() { w.use.run(ctx) })
	<-ctx.Done()
	w.expand.queue.ShutDown()
	working.Wait()
}

// newRetries spaces the retries of each claim or volume out, and bounds all
// retries together.
func newRetries[T comparable]() workqueue.TypedRateLimiter[T] {
	return workqueue.NewTypedMaxOfRateLimiter(
		workqueue.NewTypedItemExponentialFailureRateLimiter[T](retryFirst, retryMax),
		&workqueue.TypedBucketRateLimiter[T]{Limiter: rate.NewLimiter(rate.Limit(50), 500)},
	)
}

// newRateLimiter is newRetries for the library, which knows no types.
func newRateLimiter() workqueue.RateLimiter { return newRetries[any]() }
