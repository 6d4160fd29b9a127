package stats

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// Lines logs lines that anybody may cause, not more than some at once and one in a time. A line says how many before it were
// withheld.
type Lines struct {
	log      *slog.Logger
	rate     *rate.Limiter
	withheld atomic.Uint64
}

// The usual limit of lines about clients: LinesBurst at once, and LinesPeriod until one more.
const (
	LinesBurst  = 50
	LinesPeriod = 2 * time.Second
)

// NewLines returns Lines of which burst are logged at once, and one more each period.
func NewLines(log *slog.Logger, burst int, period time.Duration) *Lines {
	return &Lines{log: log, rate: rate.NewLimiter(rate.Every(period), burst)}
}

// Log logs a line, or counts it.
func (l *Lines) Log(level slog.Level, message string, attrs ...any) {
	if !l.rate.Allow() {
		l.withheld.Add(1)
		return
	}
	if n := l.withheld.Swap(0); n > 0 {
		attrs = append(attrs, "withheld", n)
	}
	l.log.Log(context.Background(), level, message, attrs...)
}
