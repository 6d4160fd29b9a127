// Package web is podnas's HTTP server: on the port of the page, the probes and the
// metrics, and on the control socket. Whatever clients send or do not send, they get
// only limited memory, threads and time, and well-behaved ones are answered
// meanwhile.
//
// A request's path: the listener accepts its connection (conns.go), net/http reads its
// header within the limits of a Server (server.go), ReadOnly and Hosts refuse
// requests that are not for podnas (request.go, hosts.go), and expensive answers are
// generated once for all clients (cached.go), or one at a time (each.go).
package web

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

const (
	// headerTimeout is how long a request's header may take, and readTimeout a whole
	// request.
	headerTimeout = 5 * time.Second
	readTimeout   = 10 * time.Second
	// idleTimeout is longer than Prometheus's usual intervals.
	idleTimeout = 2 * time.Minute
)

// Server serves HTTP within limits. All fields but Stop are needed.
type Server struct {
	Handler   http.Handler
	HeaderMax int           // bytes of a request's header
	Write     time.Duration // from the end of a request to the end of its answer
	// Conns limits all connections, and ClientConns those of one client. Beyond a limit, a
	// new connection is accepted and an old one closed.
	Conns, ClientConns int
	Stop               time.Duration // time limit for the current requests when ctx ends
	Log                *slog.Logger
}

// Serve serves until ctx ends.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	h := &http.Server{
		Handler:           answering(s.Handler),
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      s.Write,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    s.HeaderMax,
		ConnContext:       withConn,
		ErrorLog:          slog.NewLogLogger(s.Log.Handler(), slog.LevelWarn),
	}
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		timeout, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.Stop)
		defer cancel()
		if h.Shutdown(timeout) != nil {
			_ = h.Close() // clients notice
		}
	})
	err := h.Serve(newListener(l, s.Conns, s.ClientConns))
	if !stop() {
		<-stopped
	}
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve HTTP: %w", err)
	}
	return nil
}
