package app

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestTellActive: a podnas with a shared disk in a pod tells the API server that it is active, from when it has the disk until it is to
// be quiet, and touches no pod before NFS is served.
func TestTellActive(t *testing.T) {
	var mu sync.Mutex
	calls := map[string]int{}
	api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		calls[r.Method+" "+r.URL.Path+" "+r.Proto]++
		mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodGet {
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}`)
			return
		}
		_, _ = io.Copy(w, r.Body)
	}))
	defer api.Close()
	called := func(what string) bool {
		mu.Lock()
		defer mu.Unlock()
		for call := range calls {
			if strings.Contains(call, what) {
				return true
			}
		}
		return false
	}
	wait := func(what string) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); !called(what); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("no call %q: %v", what, calls)
			}
		}
	}
	for key, value := range map[string]string{"POD_NAMESPACE": "podnas", "SERVICE_NAME": "nas", "POD_NAME": "nas-0", "POD_UID": "uid"} {
		t.Setenv(key, value)
	}
	kubeconfig := writeConfig(t, api)
	a := &App{Config: Config{Log: slog.New(slog.DiscardHandler), Cluster: Cluster{Kubeconfig: kubeconfig, QPS: -1}}, serves: make(chan struct{})}

	silent, stop, err := a.watchActive(t.Context())
	mustDo(t, err)
	wait("GET /apis/coordination.k8s.io/v1/namespaces/podnas/leases/nas-active HTTP/1.1")
	if silent() != 0 {
		t.Error("a Lease that is not there is silent")
	}
	stop()
	if called("POST") || called("/pods/") {
		t.Errorf("a standby has made calls %v", calls)
	}
	quiet := a.tellActive(t.Context())
	wait("POST /apis/coordination.k8s.io/v1/namespaces/podnas/leases HTTP/1.1")
	if called("/pods/") {
		t.Error("a pod is looked at before NFS is served")
	}
	close(a.serves)
	wait("GET /api/v1/namespaces/podnas/pods/nas-0 HTTP/1.1")
	quiet()
	quiet() // the disk is lost, and then the process ends
}

// writeConfig makes a kubeconfig for a test's API server.
func writeConfig(t *testing.T, api *httptest.Server) string {
	t.Helper()
	path := t.TempDir() + "/kubeconfig"
	mustDo(t, os.WriteFile(path, []byte(`{"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"clusters": [{"name": "c", "cluster": {"server": "`+api.URL+`", "insecure-skip-tls-verify": true}}],
		"users": [{"name": "c", "user": {}}],
		"contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}]}`), 0o600))
	return path
}

// TestTellNobody: without a cluster, or a pod in it, nobody is told, and the disk alone decides.
func TestTellNobody(t *testing.T) {
	for name, missing := range map[string]string{"standalone": "", "no pod": "POD_NAME", "no Service": "SERVICE_NAME"} {
		t.Run(name, func(t *testing.T) {
			for _, key := range []string{"POD_NAMESPACE", "SERVICE_NAME", "POD_NAME", "POD_UID"} {
				value := "x"
				if key == missing {
					value = ""
				}
				t.Setenv(key, value)
			}
			a := &App{Config: Config{Standalone: missing == "", Log: slog.New(slog.DiscardHandler)}}
			silent, stop, err := a.watchActive(t.Context())
			mustDo(t, err)
			stop()
			if silent != nil || a.active != nil {
				t.Error("somebody is told")
			}
			a.tellActive(t.Context())()
		})
	}
}
