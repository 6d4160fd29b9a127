// Package snapshots serves the VolumeSnapshot API of Kubernetes, without CSI. It does what the sidecar csi-snapshotter does for
// a CSI driver, beside the stock snapshot-controller, which binds VolumeSnapshots to VolumeSnapshotContents.
//
// The snapshot-controller makes the content of a VolumeSnapshot only if its volume is a CSI volume. But if there is a content
// of the right name already, it binds the VolumeSnapshot to that, and looks at neither the volume nor the driver. So for a
// VolumeSnapshot whose class names this provisioner as its driver, podnas first takes the snapshot, and then makes the content
// (take.go). If the snapshot-controller is faster, the VolumeSnapshot has its error until the content is there.
//
// The path of a VolumeSnapshot:
//
//	VolumeSnapshot -> default class -> claim -> volume -> snapshot named by the UID of the VolumeSnapshot
//	               -> (the moment is there) VolumeSnapshotContent snapcontent-UID, with creationTime
//	               -> (the snapshot is complete) readyToUse
//
// content.go follows a content from then on, deletes its snapshot if its policy says so, and finds the snapshots of contents
// that people have made. source.go finds the snapshot for a claim with a VolumeSnapshot as its dataSource. findings.go says what does
// not fit together. Nothing is ever collected, because a cluster that was restored from a backup has objects of another time, but
// the snapshots of VolumeSnapshots that were deleted before they were bound (unwanted.go).
//
// It is active only while the API server has snapshot.storage.k8s.io/v1, which it looks for every 30 seconds, and lets podnas
// list its objects. Otherwise it asks for nothing else.
package snapshots

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"

	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/provisioner"
)

const (
	// lookEvery is how often the API is looked for.
	lookEvery = 30 * time.Second
	// workers limits how many objects are worked on at once.
	workers = 4
	// syncTimeout ends the work on one object, which is then tried again.
	syncTimeout = 30 * time.Second
	// The delays before a failed object is tried again.
	retryFirst, retryMax = time.Second, time.Minute
	// The delays before it is looked whether a snapshot is complete, or another one of its volume.
	waitFirst, waitMax = 10 * time.Millisecond, time.Second
)

// Controller works on the VolumeSnapshots and VolumeSnapshotContents of a driver. All exported fields but NewDisk are needed.
type Controller struct {
	Client    dynamic.Interface
	Discovery discovery.DiscoveryInterface
	Store     *volume.Store
	Driver    string // the provisioner's name
	NewDisk   bool   // that of the Provisioner
	Claims    corelisters.PersistentVolumeClaimLister
	Volumes   corelisters.PersistentVolumeLister
	Events    record.EventRecorder
	// SureOfDisk is provisioner.Provisioner.SureOfDisk.
	SureOfDisk func(ctx context.Context) error
	Log        *slog.Logger

	problems provisioner.Problems // of objects, by their keys

	mu sync.Mutex
	// +checklocks:mu
	active *session // nil: it is not active
	// +checklocks:mu
	why error // of that
}

// session is what there is while the controller is active.
type session struct {
	*Controller

	classes, snapshots, contents cache.SharedIndexInformer
	queue                        workqueue.TypedRateLimitingInterface[key]
	waits                        workqueue.TypedRateLimiter[key]
}

// key names a VolumeSnapshot, or without a namespace a VolumeSnapshotContent. The zero key is for endUnwanted.
type key struct {
	namespace, name string
	// uid is that of a VolumeSnapshot: another one may get its name before the first one is looked at.
	uid types.UID
}

func (vs *volumeSnapshot) key() key { return key{vs.Namespace, vs.Name, vs.UID} }

func (k key) String() string {
	switch {
	case k == key{}:
		return "VolumeSnapshots"
	case k.namespace == "":
		return "VolumeSnapshotContent " + k.name
	}
	return "VolumeSnapshot " + k.namespace + "/" + k.name
}

// Run works until ctx ends.
func (c *Controller) Run(ctx context.Context) {
	for {
		if c.isServed(ctx) {
			c.runWhileServed(ctx)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(lookEvery):
		}
	}
}

// isServed reports whether the API server has the API, and podnas the right to list its objects.
func (c *Controller) isServed(ctx context.Context) bool {
	why := c.isMissing(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if why != nil && (c.why == nil || c.why.Error() != why.Error()) {
		c.Log.Info("snapshots: VolumeSnapshots are not served", "reason", why)
	}
	c.why = why
	return why == nil
}

// isMissing returns why the API is not served, or nil.
func (c *Controller) isMissing(ctx context.Context) error {
	_, err := c.Discovery.ServerResourcesForGroupVersion(groupVersion.String())
	switch {
	case apierrors.IsNotFound(err):
		return errNoAPI
	case err != nil:
		return fmt.Errorf("look for %s: %w", groupVersion, err)
	}
	for _, resource := range []schema.GroupVersionResource{classResource, snapshotResource, contentResource} {
		if _, err := c.Client.Resource(resource).List(ctx, metav1.ListOptions{Limit: 1}); err != nil {
			return fmt.Errorf("list %s: %w", resource.Resource, err)
		}
	}
	return nil
}

// runWhileServed works until ctx ends, or the API server has no such API any more.
func (c *Controller) runWhileServed(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := c.newSession()
	if err := s.watch(); err != nil {
		c.Log.Error("snapshots: can't watch", "err", err)
		return
	}
	var working sync.WaitGroup
	defer working.Wait()
	for _, informer := range s.informers() {
		working.Go(func() { informer.RunWithContext(ctx) })
	}
	working.Go(func() {
		defer s.queue.ShutDown()
		<-ctx.Done()
	})
	if !cache.WaitForCacheSync(ctx.Done(), s.classes.HasSynced, s.snapshots.HasSynced, s.contents.HasSynced) {
		return
	}
	s.queue.Add(key{}) // for VolumeSnapshots that were deleted meanwhile
	for range workers {
		working.Go(func() { s.work(ctx) })
	}
	c.set(s)
	defer c.set(nil)
	c.Log.Info("snapshots: serving VolumeSnapshots", "driver", c.Driver)
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(lookEvery):
		}
		if _, err := c.Discovery.ServerResourcesForGroupVersion(groupVersion.String()); apierrors.IsNotFound(err) {
			c.Log.Info("snapshots: VolumeSnapshots are served no more", "driver", c.Driver)
			return
		}
	}
}

func (c *Controller) set(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.active = s
}

// current returns the session, or why there is none.
func (c *Controller) current() (*session, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.active, c.why
}

func (c *Controller) newSession() *session {
	return &session{
		Controller: c,
		classes:    newInformer[class](c.Client, classResource),
		snapshots:  newInformer[volumeSnapshot](c.Client, snapshotResource),
		contents:   newInformer[content](c.Client, contentResource),
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedMaxOfRateLimiter(
			workqueue.NewTypedItemExponentialFailureRateLimiter[key](retryFirst, retryMax),
			&workqueue.TypedBucketRateLimiter[key]{Limiter: rate.NewLimiter(rate.Limit(20), 100)},
		)),
		waits: workqueue.NewTypedItemExponentialFailureRateLimiter[key](waitFirst, waitMax),
	}
}

func (s *session) informers() map[string]cache.SharedIndexInformer {
	return map[string]cache.SharedIndexInformer{
		classResource.Resource: s.classes, snapshotResource.Resource: s.snapshots, contentResource.Resource: s.contents,
	}
}

// watch queues what changes.
func (s *session) watch() error {
	for resource, informer := range s.informers() {
		err := informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
			s.Log.Debug("snapshots: can't watch", "resource", resource, "err", err)
		})
		if err != nil {
			return fmt.Errorf("watch %s: %w", resource, err)
		}
	}
	handler := cache.ResourceEventHandlerFuncs{AddFunc: s.enqueue, UpdateFunc: s.enqueueChanged, DeleteFunc: s.enqueue}
	for _, informer := range []cache.SharedIndexInformer{s.snapshots, s.contents} {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return err
		}
	}
	// A class that was missing may come, or become the default.
	all := func() {
		for _, o := range s.snapshots.GetStore().List() {
			if vs := o.(*volumeSnapshot); vs.Status.BoundContent == "" {
				s.enqueue(vs)
			}
		}
	}
	_, err := s.classes.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { all() }, UpdateFunc: func(any, any) { all() },
	})
	return err
}

// enqueue queues an object that has come or gone.
func (s *session) enqueue(object any) {
	if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = last.Obj
	}
	switch o := object.(type) {
	case *volumeSnapshot:
		s.queue.Add(o.key())
	case *content:
		if o.Spec.Driver == s.Driver {
			s.queue.Add(key{name: o.Name})
		}
	}
}

// enqueueChanged queues an object that has changed. After a new list, it may be another one of that name.
func (s *session) enqueueChanged(before, after any) {
	if was, ok := before.(*volumeSnapshot); ok && was.UID != after.(*volumeSnapshot).UID {
		s.enqueue(was)
	}
	s.enqueue(after)
}

// waiting means that an object is to be looked at again soon. It is no failure.
type waiting struct{ reason string }

func (w waiting) Error() string { return w.reason }

// unrelated means that an object may be none of podnas's, and is to be looked at again at times. It is no failure.
type unrelated struct{ reason string }

func (u unrelated) Error() string { return u.reason }

func (s *session) work(ctx context.Context) {
	for {
		k, down := s.queue.Get()
		if down {
			return
		}
		s.workOn(ctx, k)
		s.queue.Done(k)
	}
}

func (s *session) workOn(ctx context.Context, k key) {
	limited, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	var err error
	switch {
	case k == key{}:
		err = s.endUnwanted(limited)
	case k.namespace == "":
		err = s.syncContent(limited, k.name)
	default:
		err = s.syncSnapshot(limited, k)
	}
	switch {
	case ctx.Err() != nil:
	case errors.As(err, new(waiting)):
		s.queue.AddAfter(k, s.waits.When(k))
	case apierrors.IsConflict(err): // it has changed, which queues it again; the cache may be behind
		s.queue.AddAfter(k, s.waits.When(k))
	case errors.As(err, new(unrelated)):
		s.problems.Update(k.String(), nil)
		s.queue.AddRateLimited(k)
	case err != nil:
		s.isNew(k, err)
		s.queue.AddRateLimited(k)
	default:
		if s.problems.Update(k.String(), nil) == provisioner.ProblemSolved {
			s.Log.Info("snapshots: done, after a failure", "object", k.String())
		}
		s.queue.Forget(k)
		s.waits.Forget(k)
	}
}

// sure returns when an error of the store, or that it lacks something, may be told. Else the object is waiting: the next try may be that
// of the podnas that has the disk.
func (s *session) sure(ctx context.Context) error {
	if err := s.SureOfDisk(ctx); err != nil {
		return waiting{err.Error()}
	}
	return nil
}

// isNew reports whether a problem of an object was not told yet. It logs it then.
func (s *session) isNew(k key, err error) bool {
	if s.problems.Update(k.String(), err) != provisioner.ProblemNew {
		return false
	}
	s.Log.Warn("snapshots: can't do it, will try again", "object", k.String(), "err", err)
	return true
}

// event puts an event on an object.
func (c *Controller) event(kind string, o *metav1.ObjectMeta, reason, message string) {
	c.Events.Event(&v1.ObjectReference{
		APIVersion: groupVersion.String(), Kind: kind, Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion,
	}, v1.EventTypeWarning, reason, message)
}

// snapshotName is the name of the snapshot of a VolumeSnapshot.
func snapshotName(uid types.UID) string { return string(uid) }

// contentName is the name of the content of a VolumeSnapshot. The snapshot-controller looks for it.
func contentName(uid types.UID) string { return "snapcontent-" + string(uid) }
