package server

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// probeTimeout bounds a readiness check; kubelet's own must be longer.
const probeTimeout = 4 * time.Second

// Check is one thing that must hold for the server to be ready.
type Check struct {
	Name string
	Run  func(context.Context) error
}

// NewProbes answers kubelet's probes: /healthz as long as the process can
// answer at all, /readyz while every check holds. The body says which does not.
func NewProbes(checks []Check) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), probeTimeout)
		defer cancel()
		for _, c := range checks {
			if err := c.Run(ctx); err != nil {
				http.Error(w, fmt.Sprintf("%s: %v", c.Name, err), http.StatusServiceUnavailable)
				return
			}
		}
		fmt.Fprintln(w, "ok")
	})
	return mux
}
