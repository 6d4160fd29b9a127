package provisioner

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func ptr[T any](v T) *T { return &v }

// rightService leads from port 2049, and 80 for HTTP, to the pod 10.1.0.5 that
// serves NFS on port 20490.
func rightService() (*v1.Service, *discoveryv1.EndpointSlice) {
	meta := metav1.ObjectMeta{Namespace: "podnas", Name: "podnas"}
	service := &v1.Service{ObjectMeta: meta, Spec: v1.ServiceSpec{
		ClusterIP: "10.96.0.9",
		Ports: []v1.ServicePort{
			{Name: "http", Port: 80, TargetPort: intstr.FromInt32(8080)},
			{Name: "nfs", Port: 2049, TargetPort: intstr.FromString("nfs")},
		},
	}}
	meta.Labels = map[string]string{discoveryv1.LabelServiceName: "podnas"}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: meta,
		Ports: []discoveryv1.EndpointPort{
			{Name: ptr("http"), Port: ptr[int32](8080), Protocol: ptr(v1.ProtocolTCP)},
			{Name: ptr("nfs"), Port: ptr[int32](20490), Protocol: ptr(v1.ProtocolTCP)},
		},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.1.0.5"}, Conditions: discoveryv1.EndpointConditions{Ready: ptr(true)}}},
	}
	return service, slice
}

func TestServiceEndpoint(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*v1.Service, *discoveryv1.EndpointSlice)
		want   string // in the error; none: it is right
	}{
		{"right", func(*v1.Service, *discoveryv1.EndpointSlice) {}, ""},
		{"IPv6", func(s *v1.Service, e *discoveryv1.EndpointSlice) {
			s.Spec.ClusterIP, e.Endpoints[0].Addresses[0] = "fd00::9", "fd00::5"
		}, ""},
		{"missing", func(s *v1.Service, _ *discoveryv1.EndpointSlice) { s.Name = "other" }, "podnas/podnas is missing"},
		{"headless", func(s *v1.Service, _ *discoveryv1.EndpointSlice) { s.Spec.ClusterIP = v1.ClusterIPNone }, "has no ClusterIP"},
		{"external", func(s *v1.Service, _ *discoveryv1.EndpointSlice) {
			s.Spec.Type, s.Spec.ClusterIP = v1.ServiceTypeExternalName, ""
		}, "ExternalName"},
		{"no endpoints", func(_ *v1.Service, e *discoveryv1.EndpointSlice) { e.Endpoints = nil }, "selector"},
		{"another pod", func(_ *v1.Service, e *discoveryv1.EndpointSlice) { e.Endpoints[0].Addresses[0] = "10.1.0.6" }, "10.1.0.5"},
		{"another service's slice", func(_ *v1.Service, e *discoveryv1.EndpointSlice) { e.Labels = nil }, "selector"},
		{"not ready", func(_ *v1.Service, e *discoveryv1.EndpointSlice) { e.Endpoints[0].Conditions.Ready = ptr(false) }, "not ready"},
		{"no NFS port", func(_ *v1.Service, e *discoveryv1.EndpointSlice) { e.Ports = e.Ports[:1] }, "port 20490"},
		{"UDP", func(_ *v1.Service, e *discoveryv1.EndpointSlice) { e.Ports[1].Protocol = ptr(v1.ProtocolUDP) }, "port 20490"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			service, slice := rightService()
			tt.change(service, slice)
			e := &ServiceEndpoint{
				Client:    fake.NewClientset(service, slice),
				Namespace: "podnas", Name: "podnas", PodIP: "10.1.0.5,fd00::5", Port: 20490,
			}
			address, err := e.Address(t.Context())
			if tt.want == "" {
				if err != nil || address.IP.String() != service.Spec.ClusterIP || address.Port != 2049 {
					t.Errorf("%v, %v", address, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, %v, want an error with %q", address, err, tt.want)
			}
		})
	}
}

// A Service that is put right is seen at once; one that was right is asked for
// only now and then.
func TestServiceEndpointAsksRarely(t *testing.T) {
	service, slice := rightService()
	client := fake.NewClientset(slice)
	e := &ServiceEndpoint{Client: client, Namespace: "podnas", Name: "podnas", PodIP: "10.1.0.5", Port: 20490}
	if _, err := e.Address(t.Context()); err == nil {
		t.Fatal("no error without a Service")
	}
	if _, err := client.CoreV1().Services("podnas").Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		if _, err := e.Address(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if calls := len(client.Actions()); calls > 4 { // get; create; get, list
		t.Errorf("%d calls to the API server", calls)
	}
}

// An API server that does not answer keeps nobody longer than their context allows, and a burst of calls asks it once.
func TestServiceEndpointHangs(t *testing.T) {
	service, slice := rightService()
	client := fake.NewClientset(service, slice)
	hang, asked := make(chan struct{}), make(chan struct{}, 10)
	client.PrependReactor("get", "services", func(clienttesting.Action) (bool, runtime.Object, error) {
		asked <- struct{}{}
		<-hang
		return false, nil, nil
	})
	e := &ServiceEndpoint{Client: client, Namespace: "podnas", Name: "podnas", PodIP: "10.1.0.5", Port: 20490}
	answers := make(chan error, 5)
	for range cap(answers) {
		go func() {
			_, err := e.Address(t.Context())
			answers <- err
		}()
	}
	<-asked
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := e.Address(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("with a context that ends: %v", err)
	}
	close(hang)
	for range cap(answers) {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
	if n := len(asked); n != 0 {
		t.Errorf("the API server was asked %d times more", n)
	}
}
