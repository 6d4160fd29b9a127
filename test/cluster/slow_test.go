//go:build cluster

package cluster_test

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// apiServer is how podnas reaches the API server, and where that is.
func apiServer(t *testing.T) (*rest.Config, *url.URL) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", cluster.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	server, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	return config, server
}

// slowly relays connections to the API server and holds back all that passes for
// a time, each way. It returns the API server's address by that way.
func slowly(t *testing.T, delay time.Duration) string {
	t.Helper()
	_, server := apiServer(t)
	l, err := net.Listen("tcp", net.JoinHostPort(server.Hostname(), "0"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	relay := func(to, from net.Conn) {
		defer to.Close()
		buf := make([]byte, 32<<10)
		for {
			n, err := from.Read(buf)
			time.Sleep(delay)
			if _, writeErr := to.Write(buf[:n]); err != nil || writeErr != nil {
				return
			}
		}
	}
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", server.Host)
			if err != nil {
				near.Close()
				continue
			}
			go relay(far, near)
			go relay(near, far)
		}
	}()
	return "https://" + l.Addr().String()
}

// TestSlowAPIServer: each answer takes a third of a second, and others write to
// the same objects all the time, so that what podnas has read is old.
func TestSlowAPIServer(t *testing.T) {
	n := newTenant(t)
	p := newPodnas(t, n.provisioner, local, "--master="+slowly(t, 150*time.Millisecond))
	p.start()
	class := n.class("", expandable)
	const claims = 10
	for i := range claims {
		n.claim(fmt.Sprint("slow-", i), class, "1Mi", nil)
	}
	ctx, cancel := context.WithCancel(t.Context())
	written := make(chan error, 1)
	go func() { written <- n.annotateAll(ctx) }()
	n.allBound(2*time.Minute, claims)
	for i := range claims {
		n.grow(fmt.Sprint("slow-", i), "2Mi")
	}
	for i := range claims {
		n.grown(fmt.Sprint("slow-", i), "2Mi")
	}
	cancel()
	if err := <-written; err != nil {
		t.Errorf("the other writer: %v", err)
	}
	if volumes := p.volumes(); len(volumes) != claims {
		t.Errorf("%d volumes for %d claims: %v", len(volumes), claims, volumes)
	}
}

// annotateAll changes every claim of the tenant, and its volume, until ctx ends.
func (n *tenant) annotateAll(ctx context.Context) error {
	for i := 0; ctx.Err() == nil; i++ {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"somebody":"%d"}}}`, i)
		list, err := cluster.client.CoreV1().PersistentVolumeClaims(n.name).List(ctx, metav1.ListOptions{})
		if err != nil {
			return ignoreEnd(ctx, err)
		}
		for _, claim := range list.Items {
			if _, err := cluster.client.CoreV1().PersistentVolumeClaims(n.name).Patch(ctx, claim.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
				return ignoreEnd(ctx, err)
			}
			// The relay carries no more than 200 KB a second to each watch.
			time.Sleep(100 * time.Millisecond)
			if claim.Spec.VolumeName == "" {
				continue
			}
			if _, err := cluster.client.CoreV1().PersistentVolumes().Patch(ctx, claim.Spec.VolumeName, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
				return ignoreEnd(ctx, err)
			}
		}
	}
	return nil
}

func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
