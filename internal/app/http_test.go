package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/podnas/podnas/internal/metrics"
	"github.com/podnas/podnas/server"
)

func TestHTTPPages(t *testing.T) {
	ready := errors.New("the disk is away")
	checks := []server.Check{{Name: "disk", Run: func(context.Context) error { return ready }}}
	page := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "the page at "+r.URL.Path) })
	pages := newPages("/disk", []string{"nas.example.com"})
	ask := func(method, host, path, body string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
		r.Host = host
		pages.ServeHTTP(w, r)
		return w
	}
	for path, want := range map[string]string{"/healthz": "200 ok", "/readyz": "503 start: the disk /disk is being opened", "/": "503 podnas is starting", "/metrics": "503 podnas is starting"} {
		if w := ask(http.MethodGet, "10.0.0.1:8080", path, ""); !strings.HasPrefix(fmt.Sprint(w.Code, " ", w.Body), want) {
			t.Errorf("before the start %s: %d, %q, want %q", path, w.Code, w.Body, want)
		}
	}
	pages.start(checks, metrics.NewRegistry(newTestCollectors(t)...), page)
	for _, tt := range []struct {
		method, path string
		code         int
		want         string
	}{
		{"GET", "/", 200, "the page at /"},
		{"GET", "/page.css", 200, "the page at /page.css"},
		{"GET", "/healthz", 200, "ok"},
		{"GET", "/readyz", 503, "disk: the disk is away"},
		{"HEAD", "/readyz", 503, ""},
		{"POST", "/readyz", 405, ""},
		{"POST", "/metrics", 405, ""},
		{"DELETE", "/", 405, ""},
		{"GET", "/metrics", 200, "podnas_nfs_connections 0"},
		{"GET", "/metrics", 200, "podnas_build_info{"},
		{"GET", "/metrics", 200, "go_goroutines"},
	} {
		w := ask(tt.method, "10.0.0.1:8080", tt.path, "")
		if w.Code != tt.code || !strings.Contains(w.Body.String(), tt.want) {
			t.Errorf("%s %s: %d, %q", tt.method, tt.path, w.Code, w.Body)
		}
	}
	if w := ask(http.MethodGet, "10.0.0.1:8080", "/metrics", "body"); w.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("a body: %d, %q", w.Code, w.Body)
	}
	for host, code := range map[string]int{"evil.example.com": 421, "nas.example.com": 200, "localhost:8080": 200} {
		for path, always := range map[string]int{"/": 0, "/volume/a": 0, "/?filter=a": 0, "/metrics": 0, "/healthz": 200, "/readyz": 503} {
			if w := ask(http.MethodGet, host, path, ""); w.Code != cmp.Or(always, code) {
				t.Errorf("%s at %s: %d, %q", path, host, w.Code, w.Body)
			}
		}
	}
}

// A standby is ready when it could take the disk over, and says who has it.
func TestPagesOfAStandby(t *testing.T) {
	var can error
	pages := newPages("/disk", nil)
	pages.standBy(func() (string, error) { return "podnas-1", can })
	ask := func(path string) string {
		w := httptest.NewRecorder()
		pages.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://10.0.0.1"+path, http.NoBody))
		return strings.TrimSpace(fmt.Sprint(w.Code, " ", w.Body))
	}
	const stands = "podnas is a standby: podnas-1 has the disk"
	for path, want := range map[string]string{"/healthz": "200 ok", "/readyz": "200 " + stands, "/": "200 " + stands, "/metrics": "200 # " + stands} {
		if got := ask(path); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	can = errors.New("no answer from the disk")
	for path, want := range map[string]string{"/healthz": "200 ok", "/readyz": "503", "/": "503", "/metrics": "200 # "} {
		if got := ask(path); !strings.HasPrefix(got, want) || path != "/healthz" && !strings.HasSuffix(got, "can't take the disk over: no answer from the disk") {
			t.Errorf("%s: %q, want %q and the reason", path, got, want)
		}
	}
	pages.opening("/disk")
	if got := ask("/readyz"); !strings.HasPrefix(got, "503 start: the disk /disk is being opened") {
		t.Errorf("when it has the disk: %q", got)
	}
}
