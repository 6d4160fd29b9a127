package stats

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

const (
	// slowBurst is how many slow calls are logged at once, and slowPeriod how long
	// until one more is: on a disk that hangs, all calls are slow.
	slowBurst  = 10
	slowPeriod = 6 * time.Second
)

// SlowLog logs slow calls. The nil SlowLog logs none.
type SlowLog struct {
	limit time.Duration
	names func(Status) string
	lines *Lines
}

// NewSlowLog returns a log of calls that take at least limit, nil if that is 0. names
// returns a status's name.
func NewSlowLog(limit time.Duration, names func(Status) string, log *slog.Logger) *SlowLog {
	if limit <= 0 {
		return nil
	}
	return &SlowLog{limit: limit, names: names, lines: NewLines(log, slowBurst, slowPeriod)}
}

func (l *SlowLog) takes(took time.Duration) bool { return l != nil && took >= l.limit }

func (l *SlowLog) tell(c *Conn, call *Call, status Status, xid uint32, took time.Duration) {
	volume := ""
	if call.Volume != nil {
		volume = call.Volume.Name
	}
	l.lines.Log(
		slog.LevelWarn, "nfs: a call took long",
		"procedure", c.server.procedures[call.procedure], "volume", volume, "client", c.addr,
		"xid", xid, "duration", took, "status", l.names(status),
	)
}

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
