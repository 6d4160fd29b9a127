package server

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/podnas/podnas/internal/latest"
)

const (
	// probeTimeout limits a readiness check; kubelet's timeout must be longer.
	probeTimeout = 4 * time.Second
	// checkAge is how old a check's result may be.
	checkAge = time.Second
)

// Check is a condition for the server to be ready. Run must return when its context
// ends.
type Check struct {
	Name string
	Run  func(context.Context) error
}

// Shared makes a Check of a function that may hang. Callers within a second share one
// run. While it hangs, it is not run again, and callers get an error that says since
// when.
func Shared(name string, run func(context.Context) error) Check {
	result := latest.New(probeTimeout, func(ctx context.Context) (struct{}, error) { return struct{}{}, run(ctx) })
	return Check{Name: name, Run: func(ctx context.Context) error {
		_, err := result.Get(ctx, checkAge)
		return err
	}}
}

// NewProbes answers kubelet's probes: /healthz always succeeds while the process can
// answer, and /readyz while every check succeeds. The body says which check failed.
// /healthz does not fail for problems that a restart does not solve, such as a disk
// that hangs: a process that waits for it can't be killed, and the next one would wait
// too.
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
