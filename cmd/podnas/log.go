package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"k8s.io/klog/v2"

	"github.com/podnas/podnas/status"
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
	klog.SetSlogLogger(slog.New(klogHandler{handler}))
	return slog.New(handler), nil
}

// klogHandler takes what klog calls information, and warnings with it, for
// detail: it tells each step of the library, and podnas tells what came of it. So
// it takes the library's errors about claims and volumes, which come again at each
// retry.
type klogHandler struct{ slog.Handler }

func (h klogHandler) level(l slog.Level) slog.Level {
	if l <= slog.LevelInfo {
		return min(l, slog.LevelDebug)
	}
	return l
}

func (h klogHandler) Enabled(ctx context.Context, l slog.Level) bool {
	return h.Handler.Enabled(ctx, h.level(l))
}

func (h klogHandler) Handle(ctx context.Context, r slog.Record) error {
	r.Level = h.level(r.Level)
	if isRetried(&r) {
		r.Level = slog.LevelDebug
		if !h.Handler.Enabled(ctx, r.Level) {
			return nil
		}
	}
	return h.Handler.Handle(ctx, r)
}

// isRetried tells whether the provisioning library says that it has failed and will
// try again. Its errors have no type by then.
func isRetried(r *slog.Record) bool {
	retried := strings.Contains(r.Message, "volume deletion failed")
	r.Attrs(func(a slog.Attr) bool {
		text := a.Value.String()
		retried = retried || a.Key == "err" && (strings.HasPrefix(text, "error syncing claim ") || strings.HasPrefix(text, "error syncing volume "))
		return !retried
	})
	return retried
}

func (h klogHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return klogHandler{h.Handler.WithAttrs(attrs)}
}

func (h klogHandler) WithGroup(name string) slog.Handler {
	return klogHandler{h.Handler.WithGroup(name)}
}
