package server

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/podnas/podnas/latest"
)

const (
	// probeTimeout bounds a readiness check; kubelet's own must be longer.
	probeTimeout = 4 * time.Second
	// checkAge is how old a check's result may be.
	checkAge = time.Second
)

// Check is one thing that must hold for the server to be ready. Run returns when its
// context ends.
type Check struct {
	Name string
	Run  func(context.Context) error
}

// Shared makes a Check of a function that may hang. It runs once for all who ask within a
// second, and while it hangs it is not run again, and all are told since when.
func Shared(name string, run func(context.Context) error) Check {
	result := latest.New(probeTimeout, func(ctx context.Context) (struct{}, error) { return struct{}{}, run(ctx) })
	return Check{Name: name, Run: func(ctx context.Context) error {
		_, err := result.Get(ctx, checkAge)
		return err
	}}
}

// NewProbes answers kubelet's probes: /healthz as long as the process can answer at
// all, /readyz while every check holds. The body says which does not. Nothing that
// another start would not mend makes /healthz fail, a disk that hangs least of all: the
// process that waits for it can't be ended, and the next one would wait too.
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
