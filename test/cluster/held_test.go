//go:build cluster

package cluster_test

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// holding passes requests on to the API server, and holds the answer back to each that
// makes a PersistentVolume. It returns the API server's address by that way.
func holding(t *testing.T, delay time.Duration) string {
	t.Helper()
	proxy := apiProxy(t)
	proxy.ModifyResponse = func(r *http.Response) error {
		if makesVolume(r.Request) {
			time.Sleep(delay)
		}
		return nil
	}
	return serveProxy(t, proxy)
}

// refusing passes requests on to the API server, but none that makes a PersistentVolume. It
// closes reached at the first one. It returns the API server's address by that way.
func refusing(t *testing.T, reached chan<- struct{}) string {
	t.Helper()
	proxy := apiProxy(t)
	var once sync.Once
	return serveProxy(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if makesVolume(r) && r.URL.Query().Get("dryRun") == "" {
			once.Do(func() { close(reached) })
			http.Error(w, "not today", http.StatusServiceUnavailable)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
}

func makesVolume(r *http.Request) bool {
	return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/persistentvolumes")
}

// apiProxy passes requests on to the API server.
func apiProxy(t *testing.T) *httputil.ReverseProxy {
	t.Helper()
	config, server := apiServer(t)
	transport, err := rest.TransportFor(config) // with the credentials of podnas, which sends none in the clear
	if err != nil {
		t.Fatal(err)
	}
	return &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(server) },
		Transport:     transport,
		FlushInterval: -1, // for watches
	}
}

func serveProxy(t *testing.T, proxy http.Handler) (address string) {
	t.Helper()
	s := httptest.NewServer(proxy)
	t.Cleanup(s.Close)
	t.Cleanup(s.CloseClientConnections) // watches have no end of their own
	return s.URL
}

// A PersistentVolume is bound before podnas hears that it was made, and that is what
// podnas goes by from then on.
func TestBoundBeforeSaved(t *testing.T) {
	forgetInUse(t)
	n := newTenant(t)
	// Less than podnas lets pass before it looks what is bound.
	p := newPodnas(t, n.provisioner, local, "--master="+holding(t, 500*time.Millisecond))
	p.env = []string{"POD_NAMESPACE=" + podnasNamespace}
	p.start()
	n.claim("data", n.class("", nil), "1Mi", nil)
	n.bound("data")
	eventually(t, 20*time.Second, "podnas says that a volume is in use", func() bool {
		leases, err := cluster.client.CoordinationV1().Leases(podnasNamespace).List(t.Context(), metav1.ListOptions{LabelSelector: inUseLabel + "=true"})
		return err == nil && len(leases.Items) == 1
	})
}
