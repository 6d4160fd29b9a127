package controller

import (
	"context"
	"log/slog"
	"strings"
)

// LogHandler returns a handler for what client-go and the library log through klog. It
// lowers their information, and the library's errors about claims and volumes, which
// come again at each retry, to debug: podnas itself logs the outcome.
func LogHandler(next slog.Handler) slog.Handler { return libraryHandler{next} }

type libraryHandler struct{ slog.Handler }

// level is the level of a record without its contents.
func (h libraryHandler) level(l slog.Level) slog.Level {
	if l <= slog.LevelInfo {
		return min(l, slog.LevelDebug)
	}
	return l
}

// Enabled implements slog.Handler.
func (h libraryHandler) Enabled(ctx context.Context, l slog.Level) bool {
	return h.Handler.Enabled(ctx, h.level(l))
}

// Handle implements slog.Handler.
func (h libraryHandler) Handle(ctx context.Context, r slog.Record) error {
	r.Level = h.level(r.Level)
	if isRetried(&r) {
		r.Level = slog.LevelDebug
		if !h.Handler.Enabled(ctx, r.Level) {
			return nil
		}
	}
	return h.Handler.Handle(ctx, r)
}

// isRetried reports whether a record is about a failure that the library retries. The
// errors in it have no type.
func isRetried(r *slog.Record) bool {
	retried := strings.Contains(r.Message, "volume deletion failed")
	r.Attrs(func(a slog.Attr) bool {
		text := a.Value.String()
		retried = retried || a.Key == "err" && (strings.HasPrefix(text, "error syncing claim ") || strings.HasPrefix(text, "error syncing volume "))
		return !retried
	})
	return retried
}

// WithAttrs implements slog.Handler.
func (h libraryHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return libraryHandler{h.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (h libraryHandler) WithGroup(name string) slog.Handler {
	return libraryHandler{h.Handler.WithGroup(name)}
}
