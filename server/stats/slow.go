package stats

import (
	"log/slog"
	"time"
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
