package main

import (
	"fmt"
	"io"
	"log/slog"

	"k8s.io/klog/v2"

	"github.com/podnas/podnas/internal/status"
	"github.com/podnas/podnas/provisioner/controller"
)

// newLogger makes the log, and has client-go and the provisioning library, which
// log through klog, write to it too. What matters of both is among the events.
func newLogger(w io.Writer, format, level string, events *status.Events) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("unknown log level %q: use debug, info, warn or error", level)
	}
	options := &slog.HandlerOptions{Level: l}
	var handler slog.Handler
	switch format {
	case "text":
		handler = slog.NewTextHandler(w, options)
	case "json":
		handler = slog.NewJSONHandler(w, options)
	default:
		return nil, fmt.Errorf("unknown log format %q: use text or json", format)
	}
	handler = events.Handler(handler)
	klog.SetSlogLogger(slog.New(controller.LogHandler(handler)))
	return slog.New(handler), nil
}
