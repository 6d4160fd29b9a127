//go:build cluster

package cluster_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// podIP is where podnas would have its pod.
const podIP = "10.244.0.7"

// servicePort is the Service's own; podnas listens on another.
const servicePort = 2049

// A volume points at the Service, so no volume leaves before the Service leads
// to this very pod. The claim's event says what is wrong with it, and the claim
// is bound once that is put right.
func TestService(t *testing.T) {
	n := newTenant(t)
	p := newPodnas(t, n.provisioner)
	p.env = []string{"SERVICE_NAME=" + podnasName, "POD_NAMESPACE=" + podnasNamespace, "POD_NAME=podnas-0", "POD_IP=" + podIP}
	p.start()
	class := n.class("", nil)

	nfs := corev1.ServicePort{Name: "nfs", Port: servicePort, TargetPort: intstr.FromInt(p.port)}
	other := corev1.ServicePort{Name: "http", Port: 80, TargetPort: intstr.FromInt(p.port + 1)}
	tests := []struct {
		name    string
		service *corev1.ServiceSpec
		behind  string // the address in the EndpointSlice
		want    string // in the event
	}{
		{"missing", nil, "", `Service podnas/podnas is missing`},
		{"headless", &corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Ports: []corev1.ServicePort{nfs}}, podIP, `has no ClusterIP`},
		{"external-name", &corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "nas.example.com"}, "", `ExternalName`},
		{"no-nfs-port", &corev1.ServiceSpec{Ports: []corev1.ServicePort{other}}, podIP, fmt.Sprintf(`(?i)port.*\b%d\b`, p.port)},
		{"not-behind-it", &corev1.ServiceSpec{Ports: []corev1.ServicePort{nfs}}, "10.244.0.8", regexp.QuoteMeta(podIP)},
		{"nothing-behind-it", &corev1.ServiceSpec{Ports: []corev1.ServicePort{nfs}}, "", regexp.QuoteMeta(podIP)},
	}
	var names []string
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			setService(t, test.service, test.behind, p.port)
			n.claim(test.name, class, "1Mi", nil)
			names = append(names, test.name)
			message := n.failure(test.name)
			t.Log(message)
			if !regexp.MustCompile(test.want).MatchString(message) {
				t.Errorf("the event is %q, want it to match %s", message, test.want)
			}
		})
	}
	if got := p.volumes(); len(got) != 0 {
		t.Errorf("the disk has %q while the Service is wrong", got)
	}

	service := setService(t, &corev1.ServiceSpec{Ports: []corev1.ServicePort{other, nfs}}, podIP, p.port)
	for _, name := range names {
		v := n.bound(name)
		if v.Spec.NFS.Server != service.Spec.ClusterIP {
			t.Errorf("%s: the server is %s, want the ClusterIP %s", name, v.Spec.NFS.Server, service.Spec.ClusterIP)
		}
		if want := fmt.Sprintf("port=%d", servicePort); !slices.Contains(v.Spec.MountOptions, want) {
			t.Errorf("%s: mount options %q, want the Service's port, %s", name, v.Spec.MountOptions, want)
		}
	}

	six := setService(t, &corev1.ServiceSpec{Ports: []corev1.ServicePort{nfs}, IPFamilies: []corev1.IPFamily{corev1.IPv6Protocol}}, "fd00:10:244::7", p.port)
	p.stop()
	p.env[len(p.env)-1] = "POD_IP=" + podIP + ",fd00:10:244::7"
	p.start()
	n.claim("six", class, "1Mi", nil)
	v := n.bound("six")
	if v.Spec.NFS.Server != six.Spec.ClusterIP || !slices.Contains(v.Spec.MountOptions, "proto=tcp6") {
		t.Errorf("server %s with %q, want %s with proto=tcp6", v.Spec.NFS.Server, v.Spec.MountOptions, six.Spec.ClusterIP)
	}
}

// setService replaces podnas's Service and what is behind it. It has no
// selector, so the EndpointSlice is ours.
func setService(t *testing.T, spec *corev1.ServiceSpec, behind string, port int) *corev1.Service {
	t.Helper()
	removeService(t, t.Context())
	if spec == nil {
		return nil
	}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: podnasName}, Spec: *spec}
	service, err := cluster.client.CoreV1().Services(podnasNamespace).Create(t.Context(), service, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removeService(t, context.Background()) })
	if behind == "" {
		return service
	}
	family := discoveryv1.AddressTypeIPv4
	if len(service.Spec.IPFamilies) > 0 && service.Spec.IPFamilies[0] == corev1.IPv6Protocol {
		family = discoveryv1.AddressTypeIPv6
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: podnasName, Labels: map[string]string{discoveryv1.LabelServiceName: podnasName}},
		AddressType: family,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{behind}}},
		Ports:       []discoveryv1.EndpointPort{{Name: new("nfs"), Port: new(int32(port))}},
	}
	if _, err := cluster.client.DiscoveryV1().EndpointSlices(podnasNamespace).Create(t.Context(), slice, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return service
}

func removeService(t *testing.T, ctx context.Context) {
	t.Helper()
	// Deleting what isn't there is fine; that it is gone is checked below.
	_ = cluster.client.CoreV1().Services(podnasNamespace).Delete(ctx, podnasName, metav1.DeleteOptions{})
	_ = cluster.client.DiscoveryV1().EndpointSlices(podnasNamespace).Delete(ctx, podnasName, metav1.DeleteOptions{})
	deadline := time.Now().Add(10 * time.Second)
	for {
		services, err := cluster.client.CoreV1().Services(podnasNamespace).List(ctx, metav1.ListOptions{})
		slices, sliceErr := cluster.client.DiscoveryV1().EndpointSlices(podnasNamespace).List(ctx, metav1.ListOptions{})
		if err == nil && sliceErr == nil && len(services.Items)+len(slices.Items) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the Service and its EndpointSlices are still there (%v, %v)", err, sliceErr)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
