package stats

import (
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
	limit    time.Duration
	log      *slog.Logger
	names    func(Status) string
	rate     *rate.Limiter
	withheld atomic.Uint64
}

// NewSlowLog returns a log of calls that take at least limit, nil if that is 0. names
// returns a status's name.
func NewSlowLog(limit time.Duration, names func(Status) string, log *slog.Logger) *SlowLog {
	if limit <= 0 {
		return nil
	}
	return &SlowLog{limit: limit, log: log, names: names, rate: rate.NewLimiter(rate.Every(slowPeriod), slowBurst)}
}

func (l *SlowLog) takes(took time.Duration) bool { return l != nil && took >= l.limit }

func (l *SlowLog) tell(c *Conn, call *Call, status Status, xid uint32, took time.Duration) {
	if !l.rate.Allow() {
		l.withheld.Add(1)
		return
	}
	volume := ""
	if call.Volume != nil {
		volume = call.Volume.Name
	}
	attrs := []any{
		"procedure", c.server.procedures[call.procedure], "volume", volume, "client", c.addr,
		"xid", xid, "duration", took, "status", l.names(status),
	}
	if n := l.withheld.Swap(0); n > 0 {
		attrs = append(attrs, "withheld", n)
	}
	l.log.Warn("nfs: a call took long", attrs...)
}
