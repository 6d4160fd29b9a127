package snapshots

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
)

// Group is the API group of VolumeSnapshots, and Kind their kind.
const (
	Group = "snapshot.storage.k8s.io"
	Kind  = "VolumeSnapshot"

	contentKind = "VolumeSnapshotContent"
)

//nolint:gochecknoglobals // values that Go has no constants for
var (
	groupVersion     = schema.GroupVersion{Group: Group, Version: "v1"}
	classResource    = groupVersion.WithResource("volumesnapshotclasses")
	snapshotResource = groupVersion.WithResource("volumesnapshots")
	contentResource  = groupVersion.WithResource("volumesnapshotcontents")
)

var errNoAPI = errors.New("the cluster has no VolumeSnapshots")

// Finalizers and annotations of the snapshot-controller.
const (
	contentFinalizer = "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection"
	sourceFinalizer  = "snapshot.storage.kubernetes.io/volumesnapshot-as-source-protection"
	beingDeleted     = "snapshot.storage.kubernetes.io/volumesnapshot-being-deleted"
	isDefaultClass   = "snapshot.storage.kubernetes.io/is-default-class"
)

// policyDelete is the deletion policy by which a snapshot goes with its content. The other one is Retain.
const policyDelete = "Delete"

// class is a VolumeSnapshotClass: what is read of it.
type class struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Driver            string `json:"driver"`
	DeletionPolicy    string `json:"deletionPolicy"`
}

// volumeSnapshot is a VolumeSnapshot: what is read of it.
type volumeSnapshot struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Source struct {
			Claim   string `json:"persistentVolumeClaimName"`
			Content string `json:"volumeSnapshotContentName"`
		} `json:"source"`
		Class *string `json:"volumeSnapshotClassName"`
	} `json:"spec"`
	Status struct {
		BoundContent string `json:"boundVolumeSnapshotContentName"`
		Ready        bool   `json:"readyToUse"`
	} `json:"status"`
}

// content is a VolumeSnapshotContent.
type content struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              contentSpec    `json:"spec"`
	Status            *contentStatus `json:"status,omitempty"`
}

type contentSpec struct {
	Driver           string             `json:"driver"`
	DeletionPolicy   string             `json:"deletionPolicy"`
	Class            *string            `json:"volumeSnapshotClassName,omitempty"`
	SourceVolumeMode string             `json:"sourceVolumeMode,omitempty"`
	Source           contentSource      `json:"source"`
	Snapshot         v1.ObjectReference `json:"volumeSnapshotRef"`
}

type contentSource struct {
	VolumeHandle   string `json:"volumeHandle,omitempty"`
	SnapshotHandle string `json:"snapshotHandle,omitempty"`
}

// contentStatus is the status of a content. What is nil is not changed by a patch.
type contentStatus struct {
	SnapshotHandle *string `json:"snapshotHandle,omitempty"`
	CreationTime   *int64  `json:"creationTime,omitempty"` // in Unix nanoseconds
	RestoreSize    *int64  `json:"restoreSize,omitempty"`
	Ready          *bool   `json:"readyToUse,omitempty"`
	// Error is removed by a patch if it is nil.
	Error *contentError `json:"error"`
}

type contentError struct {
	Time    metav1.Time `json:"time"`
	Message string      `json:"message"`
}

func (c *content) isReady() bool {
	return c.Status != nil && c.Status.Ready != nil && *c.Status.Ready
}

// statusHandle is the handle in the status, or "".
func (c *content) statusHandle() string {
	if c.Status == nil || c.Status.SnapshotHandle == nil {
		return ""
	}
	return *c.Status.SnapshotHandle
}

// A volume's handle is INSTANCE/VOLUME, and a snapshot's INSTANCE/VOLUME/SNAPSHOT.

func (c *Controller) volumeHandle(name string) string { return c.Store.Identity() + "/" + name }

func (c *Controller) snapshotHandle(volume, name string) string {
	return c.volumeHandle(volume) + "/" + name
}

// parseHandle returns the parts of a handle: of a snapshot, or of a volume.
func (c *Controller) parseHandle(handle string, parts int) ([]string, error) {
	found := strings.Split(handle, "/")
	switch {
	case len(found) != parts:
		return nil, fmt.Errorf("the handle %q is none of podnas, which are INSTANCE/VOLUME/SNAPSHOT, with INSTANCE %s for this disk", handle, c.Store.Identity())
	case found[0] != c.Store.Identity():
		return nil, &otherDiskError{found[0], c.Store.Identity()}
	}
	return found[1:], nil
}

// otherDiskError means that something is on another disk.
type otherDiskError struct{ theirs, ours string }

func (e *otherDiskError) Error() string {
	return fmt.Sprintf("the snapshot is on the disk %s, and the disk of this podnas is %s", e.theirs, e.ours)
}

// newInformer watches the objects of a resource in all namespaces. Its store has them as a T.
func newInformer[T any](client dynamic.Interface, resource schema.GroupVersionResource) cache.SharedIndexInformer {
	api := client.Resource(resource)
	informer := cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return api.List(ctx, o) },
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return api.Watch(ctx, o)
		},
	}, &unstructured.Unstructured{}, 0, cache.Indexers{})
	_ = informer.SetTransform(func(object any) (any, error) { // fails only once it runs
		u, ok := object.(*unstructured.Unstructured)
		if !ok {
			return object, nil
		}
		return convert[T](u)
	})
	return informer
}

// convert makes an own type of an object as it comes from the API server.
func convert[T any](u *unstructured.Unstructured) (*T, error) {
	u.SetManagedFields(nil)
	o := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, o); err != nil {
		return nil, fmt.Errorf("read %s %s: %w", u.GetKind(), u.GetName(), err)
	}
	return o, nil
}

// cached returns the object of a key, or nil.
func cached[T any](of cache.SharedIndexInformer, key string) *T {
	o, _, _ := of.GetStore().GetByKey(key)
	found, _ := o.(*T)
	return found
}

func (s *session) class(name string) *class { return cached[class](s.classes, name) }

func (s *session) snapshot(namespace, name string) *volumeSnapshot {
	return cached[volumeSnapshot](s.snapshots, namespace+"/"+name)
}

func (s *session) content(name string) *content { return cached[content](s.contents, name) }

// get asks the API server.
func get[T any](ctx context.Context, api dynamic.ResourceInterface, name string) (*T, error) {
	u, err := api.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return convert[T](u)
}

func (c *Controller) getSnapshot(ctx context.Context, namespace, name string) (*volumeSnapshot, error) {
	return get[volumeSnapshot](ctx, c.Client.Resource(snapshotResource).Namespace(namespace), name)
}

func (c *Controller) getContent(ctx context.Context, name string) (*content, error) {
	return get[content](ctx, c.Client.Resource(contentResource), name)
}

// createContent makes a content, without its status.
func (c *Controller) createContent(ctx context.Context, made *content) error {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(made)
	if err != nil {
		return err
	}
	delete(object, "status")
	_, err = c.Client.Resource(contentResource).Create(ctx, &unstructured.Unstructured{Object: object}, metav1.CreateOptions{})
	return err
}

// patchStatus sets the status of a content, as far as it is given.
func (c *Controller) patchStatus(ctx context.Context, name string, status any) error {
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	_, err = c.Client.Resource(contentResource).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}
