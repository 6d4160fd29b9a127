// Package controller runs podnas in a cluster. It watches the API server, and has
// package provisioner make the volumes.
//
// Run starts the library's controller (sig-storage-lib-external-provisioner), which calls a
// Provisioner for each claim and for each volume to be deleted. newWorkers changes some of the
// library's defaults, and says why. Three files are between the library and what it uses:
//
//   - logging.go logs each problem of a claim once, however often the library retries it. liblog.go
//     lowers what the library itself logs about it to debug.
//   - libclient.go has the library change its finalizer alone, and no other field of a
//     PersistentVolume.
//   - savedvolumes.go keeps the PersistentVolumes that the library has saved apart from the
//     informer's store, to which the watch may have delivered newer ones.
//
// Beside the library run podnas's own controllers. Those that watch objects do so by the same
// informers; only kubelet's events have an informer of their own:
//
//   - expand.go expands volumes whose claims request more.
//
//   - finalizer.go lets PersistentVolumes go that are being deleted and that no claim will ever
//     release.
//
//   - reconcile.go reports what exists only on the disk or only in the cluster, and never removes
//     it. unfulfilled.go adds the claims that lack what they request.
//
//   - fullness.go puts events about full volumes on their claims.
//
//   - mountfailures.go reads kubelet's events about failed mounts, and puts an event with advice on
//     the claim.
//
//   - sharednames.go puts an event on podnas's own pod if two nodes have one name.
//
//   - package provisioner/snapshots serves the VolumeSnapshot API.
//
//   - inuse.go keeps a Lease that lists the bound claims. While there are any,
//     deploy/components/guard has the API server refuse to delete what they need.
//
//   - lostdisk.go puts an event on podnas's own pod when its disk may be lost.
//
// All of them run only while podnas has the right to provision, if the Config demands one: with
// LeaseIn that is the leader election's Lease, and with GuardIn, that no other podnas has held the
// provisioner's name for longer (guard.go). outofservice.go, by which clients of dead nodes are not waited for, does so
// in any case.
package controller

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
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	library "sigs.k8s.io/sig-storage-lib-external-provisioner/v8/controller"

	"github.com/podnas/podnas/provisioner"
	"github.com/podnas/podnas/provisioner/snapshots"
)

// The delays before a failed claim is retried. The first is short, because most
// failures at start pass within seconds (the Service has no endpoint yet). The
// longest is short too, because only a retry finds that space is free again, or
// that a copy is complete.
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

// ErrLostLease means that another instance took over, or may have.
var ErrLostLease = errors.New("lost the right to provision")

// Config is what Run needs: Client, Provisioner with its Name, Workers and Log, and the
// rest if wanted.
type Config struct {
	Client      kubernetes.Interface
	Provisioner *provisioner.Provisioner
	// Snapshots serves VolumeSnapshots by this client; nil: they are not served.
	Snapshots   dynamic.Interface
	Workers     int         // number of claims, and of volumes, processed concurrently; at least 1
	LeaseIn     string      // namespace of the leader election's Lease; empty: no leader election
	GuardIn     string      // namespace of the Lease that guards Name; empty: no guard
	Pod, PodUID string      // this pod, in GuardIn, for events; empty: none
	Reconciler  *Reconciler // gets each report; nil: they are only logged
	// SharedNames returns the names that two nodes of NFSv4.1 have each, for events on the
	// pod; nil: none.
	SharedNames func() []SharedName
	// DiskLost returns why clients get no answers, as the disk may be lost, or nil, for an event on the pod. It may be nil.
	DiskLost func() error
	// Grace is what the server waits for after a crash; nil: nothing.
	Grace *Grace
	// Made, if not nil, is called when others may start to use the Client, see
	// newWorkers.
	Made func()
	Log  *slog.Logger
}

// Validate returns what is wrong with a Config.
func (c *Config) Validate() error {
	if c.Workers < 1 {
		return fmt.Errorf("%d workers: use at least 1", c.Workers)
	}
	if !strings.Contains(c.Provisioner.Name, "/") {
		return fmt.Errorf("provisioner name %q is not qualified: use DOMAIN/NAME, for example %s", c.Provisioner.Name, provisioner.DefaultName)
	}
	return nil
}

// Run processes claims and volumes until ctx ends. If it had to stop because another instance may have
// taken over, and may go on, it returns ErrLostLease, and the process must end, because the
// library's workers can't be restarted.
func Run(ctx context.Context, cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	if cfg.Reconciler == nil {
		cfg.Reconciler = &Reconciler{}
	}
	// A copy for the workers, with more fields set than the caller's.
	p := *cfg.Provisioner
	cfg.Provisioner = &p
	events := newEvents(ctx, cfg.Client, cfg.Provisioner.Name)
	own := ownPod(cfg.GuardIn, cfg.Pod, cfg.PodUID, events)
	w, err := newWorkers(&cfg, events, own)
	if err != nil {
		return err
	}
	if cfg.Made != nil {
		cfg.Made()
	}
	// Clients wait for the look at nodes, whoever provisions.
	away := &outOfService{client: cfg.Client, grace: cfg.Grace, period: outOfServicePeriod, log: cfg.Log}
	var looking sync.WaitGroup
	defer looking.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	looking.Go(func() { away.run(ctx) })
	switch {
	case cfg.LeaseIn != "":
		return lead(ctx, &cfg, w)
	case cfg.GuardIn != "":
		return runGuarded(ctx, &cfg, w)
	}
	w.run(ctx)
	return nil
}

// runGuarded runs the workers while the guard allows it.
func runGuarded(ctx context.Context, cfg *Config, w *workers) error {
	g := &guard{
		client: cfg.Client, namespace: cfg.GuardIn, provisioner: cfg.Provisioner.Name, identity: cfg.Provisioner.Store.Identity(),
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

// lead runs the workers while it holds the leader election's Lease. If that is lost, as when the API server is away, the volumes
// are served on, and it waits until it has the Lease again: only then the process must end, to begin with new workers.
func lead(ctx context.Context, cfg *Config, w *workers) error {
	const lost = "the Lease %s was lost, as the API server was away or another podnas of this provisioner name has it: the volumes are served, claims wait, and podnas starts again when it has the Lease"
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	lease := &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: cfg.LeaseIn, Name: strings.ReplaceAll(cfg.Provisioner.Name, "/", "-")},
		Client:    cfg.Client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{
			// The disk's identity distinguishes two pods of the same name.
			Identity: host + "_" + cfg.Provisioner.Store.Identity(),
		},
	}
	log := cfg.Log.With("lease", lease.Describe())
	log.Info("controller: waiting for the Lease")
	if err := holding(ctx, lease, func(ctx context.Context) {
		log.Info("controller: acquired the Lease")
		w.run(ctx)
	}); err != nil || ctx.Err() != nil {
		return err
	}
	why := fmt.Sprintf(lost, lease.Describe())
	log.Error("controller: this podnas stands aside: it creates and deletes no volumes", "reason", why)
	w.pod.warn("StandsAside", why)
	cfg.Reconciler.standAside(why)
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	if err := holding(waiting, lease, func(context.Context) { stop() }); err != nil || ctx.Err() != nil {
		return err
	}
	return ErrLostLease
}

// holding waits for a Lease, calls do when it has it, and returns when that has returned: do's context ends with ctx, or when the Lease
// is lost.
func holding(ctx context.Context, lease resourcelock.Interface, do func(context.Context)) error {
	led, ended := make(chan context.Context, 1), make(chan struct{})
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:            lease,
		LeaseDuration:   leaseDuration,
		RenewDeadline:   renewDeadline,
		RetryPeriod:     retryPeriod,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) { led <- ctx }, // on a goroutine that nobody waits for
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return fmt.Errorf("set up leader election: %w", err)
	}
	var doing sync.WaitGroup
	doing.Go(func() {
		select {
		case ctx := <-led:
			do(ctx)
		case <-ended:
		}
	})
	elector.Run(ctx)
	close(ended)
	doing.Wait()
	return nil
}

// workers has everything that processes claims and volumes: the library's controller,
// and on the same informers the expander, the comparison, the watches for full
// volumes and for failed mounts, and the list of volumes in use.
type workers struct {
	cfg          *Config
	factory      informers.SharedInformerFactory
	mounts       informers.SharedInformerFactory // of failed mounts
	provisioning *library.ProvisionController
	expand       *expander
	compare      *comparison
	depart       *departures
	full         *fullness
	use          *inUse
	shared       *sharedNames
	lost         *lostDisk
	snapshots    *snapshots.Controller // nil: VolumeSnapshots are not served
	pod          *pod
}

// newWorkers returns the workers. Nothing else may use the client while it runs,
// because the library writes to client-go's table of types, which every call
// reads.
func newWorkers(cfg *Config, events record.EventRecorder, own *pod) (*workers, error) {
	p := cfg.Provisioner
	factory := informers.NewSharedInformerFactoryWithOptions(cfg.Client, library.DefaultResyncPeriod, informers.WithTransform(withoutManagers))
	claims, volumes := factory.Core().V1().PersistentVolumeClaims(), factory.Core().V1().PersistentVolumes()
	classes := factory.Storage().V1().StorageClasses()
	p.Volumes = volumes.Lister()
	p.Claims = clusterClaims{claims: claims.Lister(), volumes: volumes.Lister(), identity: p.Store.Identity()}

	logging := &loggingProvisioner{Provisioner: p, permission: &permission{client: cfg.Client, name: p.Name}}
	provisioning := library.NewProvisionController(libraryClient{cfg.Client}, p.Name, logging,
		library.LeaderElection(false), // it uses a lock on Endpoints, which no longer exists
		library.Threadiness(cfg.Workers),
		library.RateLimiter(newRateLimiter()),
		library.FailedProvisionThreshold(0), // retry forever: giving up leaks the volume
		library.FailedDeleteThreshold(0),
		// Save from a queue, and retry forever. Without the queue the library deletes the
		// volume after some failed attempts, although one of them may have saved the
		// PersistentVolume.
		library.CreateProvisionedPVLimiter(newRateLimiter()),
		library.AddFinalizer(true), // see finalizer.go
		library.MetricsPort(0),
		library.ClaimsInformer(claims.Informer()),
		library.VolumesInformer(newSavedVolumes(volumes.Informer(), p.Store.Identity(), p.Name)),
		library.ClassesInformer(classes.Informer()),
		library.NodesLister(anyNode{}),
	)
	expand := &expander{
		client: cfg.Client, p: p, classes: classes.Lister(), volumes: volumes.Lister(), events: events, log: cfg.Log,
		queue: workqueue.NewTypedRateLimitingQueue(newRetries[string]()),
	}
	if err := expand.watch(claims.Informer()); err != nil {
		return nil, fmt.Errorf("watch claims: %w", err)
	}
	depart := &departures{
		client: cfg.Client, p: p, claims: claims.Lister(), volumes: volumes.Lister(), log: cfg.Log,
		queue: workqueue.NewTypedRateLimitingQueue(newRetries[string]()),
	}
	compare := &comparison{
		p: p, claims: claims.Lister(), volumes: volumes.Lister(), events: events, pod: own, log: cfg.Log, changed: make(chan struct{}, 1),
	}
	if err := errors.Join(depart.watch(volumes.Informer()), compare.watch(volumes.Informer())); err != nil {
		return nil, fmt.Errorf("watch volumes: %w", err)
	}
	var snaps *snapshots.Controller
	if cfg.Snapshots != nil {
		snaps = &snapshots.Controller{
			Client: cfg.Snapshots, Discovery: cfg.Client.Discovery(), Store: p.Store, Driver: p.Name,
			Claims: claims.Lister(), Volumes: volumes.Lister(), Events: events, SureOfDisk: p.SureOfDisk, Log: cfg.Log,
		}
		p.Snapshots = snaps
	}
	cfg.Reconciler.lookAt(&unfulfilled{
		name: p.Name, claims: claims.Lister(), classes: classes.Lister(), volumes: volumes.Lister(), provision: &logging.problems, expand: &expand.problems,
	}, snaps)
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
		cfg: cfg, factory: factory, mounts: mounts, provisioning: provisioning, expand: expand, use: use,
		compare: compare, depart: depart, snapshots: snaps,
		full:   newFullness(p.Store, events, cfg.Log),
		shared: &sharedNames{list: cfg.SharedNames, pod: own},
		lost:   &lostDisk{err: cfg.DiskLost, pod: own},
		pod:    own,
	}, nil
}

// anyNode gives the library the node of a claim's first consumer. Any node will do,
// because volumes are available on every node: so podnas needs no right to see nodes, and
// the library does not change a claim whose node is gone in order to get another one.
type anyNode struct{}

// List is never called.
func (anyNode) List(labels.Selector) ([]*v1.Node, error) { return nil, nil }

// Get returns a node of that name.
func (anyNode) Get(name string) (*v1.Node, error) {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, nil
}

// withoutManagers removes managedFields from an object before it is cached: a fifth
// of its memory, which nothing here reads. Writing the object back without them does
// not change them in the API server.
func withoutManagers(object any) (any, error) {
	if o, ok := object.(metav1.Object); ok {
		o.SetManagedFields(nil)
	}
	return object, nil
}

// run works until ctx ends. The library's Run does not return then, although its
// work ends: its goroutine is abandoned.
func (w *workers) run(ctx context.Context) {
	var working sync.WaitGroup
	w.factory.Start(ctx.Done())
	w.factory.WaitForCacheSync(ctx.Done())
	// Started last, because reports of a failed mount need its volume, and not waited
	// for, because podnas may not have the right to see events.
	w.mounts.Start(ctx.Done())
	w.cfg.Log.Info("controller: provisioning claims", "provisioner", w.cfg.Provisioner.Name, "workers", w.cfg.Workers)
	go w.provisioning.Run(ctx)
	for range w.cfg.Workers {
		working.Go(func() { w.expand.work(ctx) })
	}
	working.Go(func() { w.depart.work(ctx) })
	working.Go(func() { w.cfg.Reconciler.run(ctx, w.compare) })
	working.Go(func() { w.full.run(ctx) })
	working.Go(func() { w.use.run(ctx) })
	working.Go(func() { w.shared.run(ctx) })
	working.Go(func() { w.lost.run(ctx) })
	if w.snapshots != nil {
		working.Go(func() { w.snapshots.Run(ctx) })
	}
	<-ctx.Done()
	w.expand.queue.ShutDown()
	w.depart.queue.ShutDown()
	working.Wait()
}

// newRetries backs off exponentially for each claim or volume, and limits the rate
// of all retries.
func newRetries[T comparable]() workqueue.TypedRateLimiter[T] {
	return workqueue.NewTypedMaxOfRateLimiter(
		workqueue.NewTypedItemExponentialFailureRateLimiter[T](retryFirst, retryMax),
		&workqueue.TypedBucketRateLimiter[T]{Limiter: rate.NewLimiter(rate.Limit(50), 500)},
	)
}

// newRateLimiter is newRetries for the library, which has no type parameters.
func newRateLimiter() workqueue.RateLimiter { return newRetries[any]() }
