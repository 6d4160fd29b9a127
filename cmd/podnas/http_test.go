package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/podnas/podnas/server"
)

func TestHTTPPages(t *testing.T) {
	ready := errors.New("the disk is away")
	checks := []server.Check{{Name: "disk", Run: func(context.Context) error { return ready }}}
	page := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "the page at "+r.URL.Path) })
	pages := httpPages(checks, newRegistry(newTestCollectors(t)...), page)
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
		{"GET", "/metrics", 200, "podnas_nfs_connections 0"},
		{"GET", "/metrics", 200, "podnas_build_info{"},
		{"GET", "/metrics", 200, "go_goroutines"},
	} {
		w := httptest.NewRecorder()
		pages.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), tt.method, tt.path, http.NoBody))
		if w.Code != tt.code || !strings.Contains(w.Body.String(), tt.want) {
			t.Errorf("%s %s: %d, %q", tt.method, tt.path, w.Code, w.Body)
		}
	}
}
