package active

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// Client makes the calls of this package.
//
// They go by connections of its own with HTTP/1.1, of which a call that is not answered in time costs the connection. With HTTP/2 the
// next calls would go by the same one for up to 45 seconds, although the API server has another address that works, and the active
// podnas would be taken for dead.
//
// It is a dynamic client, since it is used while the library's controller changes client-go's table of types, which each call of the
// typed clients reads.
type Client struct {
	objects   dynamic.Interface
	transport http.RoundTripper // nil in tests
}

// NewClient returns a Client for an API server.
func NewClient(config *rest.Config) (*Client, error) {
	config = rest.CopyConfig(config)
	config.NextProtos = []string{"http/1.1"}
	h, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	objects, err := dynamic.NewForConfigAndClient(config, h)
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	return &Client{objects: objects, transport: h.Transport}, nil
}

func (c *Client) leases(namespace string) dynamic.ResourceInterface {
	return c.objects.Resource(coordinationv1.SchemeGroupVersion.WithResource("leases")).Namespace(namespace)
}

func (c *Client) pods(namespace string) dynamic.ResourceInterface {
	return c.objects.Resource(v1.SchemeGroupVersion.WithResource("pods")).Namespace(namespace)
}

// failed says of a call what failed, and has the next one not use a connection by which the API server does not work.
func (c *Client) failed(what string, err error) error {
	utilnet.CloseIdleConnectionsFor(c.transport)
	return fmt.Errorf("%s: %w", what, err)
}

// lease returns a Lease, or nil if there is none.
func (c *Client) lease(ctx context.Context, namespace, name string) (*coordinationv1.Lease, error) {
	object, err := c.leases(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // said above
	case err != nil:
		return nil, c.failed("get Lease "+namespace+"/"+name, err)
	}
	return from[coordinationv1.Lease](object)
}

// write creates a Lease if it is new, else updates it, and returns what it is then.
func (c *Client) write(ctx context.Context, lease *coordinationv1.Lease, isNew bool) (*coordinationv1.Lease, error) {
	what := "write Lease " + lease.Namespace + "/" + lease.Name
	lease.TypeMeta = metav1.TypeMeta{APIVersion: coordinationv1.SchemeGroupVersion.String(), Kind: "Lease"}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(lease)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	object := &unstructured.Unstructured{Object: fields}
	if isNew {
		object, err = c.leases(lease.Namespace).Create(ctx, object, metav1.CreateOptions{})
	} else {
		object, err = c.leases(lease.Namespace).Update(ctx, object, metav1.UpdateOptions{})
	}
	if err != nil {
		return nil, c.failed(what, err)
	}
	return from[coordinationv1.Lease](object)
}

// pod returns a pod.
func (c *Client) pod(ctx context.Context, namespace, name string) (*v1.Pod, error) {
	object, err := c.pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, c.failed("get pod "+namespace+"/"+name, err)
	}
	return from[v1.Pod](object)
}

// podsOf lists the pods that a selector selects.
func (c *Client) podsOf(ctx context.Context, namespace, selector string) (pods []*v1.Pod, err error) {
	list, err := c.pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, c.failed("list pods in namespace "+namespace, err)
	}
	for i := range list.Items {
		pod, err := from[v1.Pod](&list.Items[i])
		if err != nil {
			return nil, err
		}
		pods = append(pods, pod)
	}
	return pods, nil
}

// setRole sets the label on a pod, and not on a later one of its name.
func (c *Client) setRole(ctx context.Context, pod *v1.Pod, role string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID, "labels": map[string]string{RoleLabel: role}}})
	if err == nil {
		_, err = c.pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	}
	if err != nil {
		return c.failed("label pod "+pod.Namespace+"/"+pod.Name, err)
	}
	return nil
}

// from returns an object as what it is.
func from[T any](object *unstructured.Unstructured) (*T, error) {
	typed := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, typed); err != nil {
		return nil, fmt.Errorf("read %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return typed, nil
}
