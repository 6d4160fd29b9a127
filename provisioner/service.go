package provisioner

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// serviceCheckInterval is how long a successful check of the Service is cached: a
// burst of claims checks once.
const serviceCheckInterval = 10 * time.Second

// serviceCheckTimeout limits a check: an API server may take a call and not answer it.
const serviceCheckTimeout = 10 * time.Second

// ServiceEndpoint is the pod's own Service. Volumes point at its ClusterIP,
// which stays when the pod is replaced. The Service must have this pod as a ready
// endpoint, and a port that leads to the pod's NFS port.
type ServiceEndpoint struct {
	Client    kubernetes.Interface
	Namespace string // of the Service
	Name      string // of the Service
	PodIP     string // of this pod; if it has several, separated by commas
	Port      uint16 // this pod's NFS port

	checks singleflight.Group

	mu sync.Mutex
	// +checklocks:mu
	checked time.Time // time of the last successful check
	// +checklocks:mu
	address Address
}

// Address checks that the Service leads to this pod, and returns its address. The
// error says what is wrong with the Service. Calls that come during a check wait for its result,
// as long as their contexts allow.
func (e *ServiceEndpoint) Address(ctx context.Context) (Address, error) {
	if address, ok := e.cached(); ok {
		return address, nil
	}
	result := e.checks.DoChan("", func() (any, error) { return nil, e.renew(context.WithoutCancel(ctx)) })
	var err error
	select {
	case r := <-result:
		err = r.Err
	case <-ctx.Done():
		err = fmt.Errorf("check Service %s/%s: %w", e.Namespace, e.Name, ctx.Err())
	}
	if err != nil {
		return Address{}, fmt.Errorf("volumes can't be reached, so none is created: %w", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.address, nil
}

// cached returns the address if it was checked a moment ago.
func (e *ServiceEndpoint) cached() (Address, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.address, time.Since(e.checked) < serviceCheckInterval
}

// renew checks the Service.
func (e *ServiceEndpoint) renew(ctx context.Context) error {
	if _, ok := e.cached(); ok { // another call was faster
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, serviceCheckTimeout)
	defer cancel()
	address, err := e.check(ctx)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.checked, e.address = time.Now(), address
	return nil
}

func (e *ServiceEndpoint) check(ctx context.Context) (Address, error) {
	service, err := e.Client.CoreV1().Services(e.Namespace).Get(ctx, e.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return Address{}, fmt.Errorf("Service %s/%s is missing: create it, or set SERVICE_NAME to the right one", e.Namespace, e.Name)
	}
	if err != nil {
		return Address{}, fmt.Errorf("get Service %s/%s: %w", e.Namespace, e.Name, err)
	}
	name := e.Namespace + "/" + e.Name
	if service.Spec.Type == v1.ServiceTypeExternalName {
		return Address{}, fmt.Errorf("Service %s has type ExternalName: change it to type ClusterIP, because nodes need a fixed address to mount from", name)
	}
	if service.Spec.ClusterIP == "" || service.Spec.ClusterIP == v1.ClusterIPNone {
		return Address{}, fmt.Errorf("Service %s has no ClusterIP: remove clusterIP: None, because nodes need a fixed address to mount from", name)
	}
	ip, err := netip.ParseAddr(service.Spec.ClusterIP)
	if err != nil {
		return Address{}, fmt.Errorf("Service %s: %w", name, err)
	}
	found, err := e.Client.DiscoveryV1().EndpointSlices(e.Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: discoveryv1.LabelServiceName + "=" + e.Name,
	})
	if err != nil {
		return Address{}, fmt.Errorf("list the EndpointSlices of Service %s: %w", name, err)
	}
	port, err := e.port(service, found.Items)
	if err != nil {
		return Address{}, fmt.Errorf("Service %s %w", name, err)
	}
	return Address{IP: ip, Port: port}, nil
}

// port finds the Service's port that leads to this pod's NFS port. It uses the
// EndpointSlices, because a targetPort may be a name.
func (e *ServiceEndpoint) port(service *v1.Service, found []discoveryv1.EndpointSlice) (uint16, error) {
	ready, listed := false, false
	for i := range found {
		slice := &found[i]
		for j := range slice.Endpoints {
			if !e.isPod(&slice.Endpoints[j]) {
				continue
			}
			listed = true
			if r := slice.Endpoints[j].Conditions.Ready; r != nil && !*r {
				continue
			}
			ready = true
			if port, ok := e.servicePort(service, slice.Ports); ok {
				return port, nil
			}
		}
	}
	switch {
	case ready:
		return 0, fmt.Errorf("has no TCP port that leads to port %d of this pod: add one with targetPort: %d", e.Port, e.Port)
	case listed:
		return 0, fmt.Errorf("does not lead to this pod (%s), because it is not ready: its readiness probe says why", e.PodIP)
	default:
		return 0, fmt.Errorf("does not lead to this pod (%s): make its selector match the pod's labels", e.PodIP)
	}
}

func (e *ServiceEndpoint) isPod(endpoint *discoveryv1.Endpoint) bool {
	// An EndpointSlice has the addresses of one family, which need not be the pod's first.
	own := strings.Split(e.PodIP, ",")
	return slices.ContainsFunc(endpoint.Addresses, func(address string) bool { return slices.Contains(own, address) })
}

// servicePort finds the Service's port with the name of the slice's NFS port.
func (e *ServiceEndpoint) servicePort(service *v1.Service, ports []discoveryv1.EndpointPort) (uint16, bool) {
	for _, p := range ports {
		if p.Port == nil || *p.Port != int32(e.Port) || (p.Protocol != nil && *p.Protocol != v1.ProtocolTCP) {
			continue
		}
		for _, sp := range service.Spec.Ports {
			if p.Name == nil || *p.Name == sp.Name {
				return uint16(sp.Port), true
			}
		}
	}
	return 0, false
}
