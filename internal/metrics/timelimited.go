package metrics

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/podnas/podnas/internal/latest"
)

// scrapeTimeout is how long a scrape waits for the disk. Prometheus waits for 10 seconds.
const scrapeTimeout = 4 * time.Second

// timeLimited is a collector that reads the disk, with a time limit. While the disk does
// not answer, its metrics are missing, and one of its own says so. Concurrent scrapes
// share one collection.
type timeLimited struct {
	collector prometheus.Collector
	found     *latest.Value[[]prometheus.Metric]
	log       *slog.Logger
}

func newTimeLimited(log *slog.Logger, c prometheus.Collector) *timeLimited {
	l := &timeLimited{collector: c, log: log}
	l.found = latest.New(scrapeTimeout, func(context.Context) ([]prometheus.Metric, error) { return l.collect(), nil })
	return l
}

// Describe implements prometheus.Collector.
func (l *timeLimited) Describe(ch chan<- *prometheus.Desc) {
	ch <- diskUnanswered
	l.collector.Describe(ch)
}

// Collect implements prometheus.Collector.
func (l *timeLimited) Collect(ch chan<- prometheus.Metric) {
	found, err := l.found.Get(context.Background(), 0)
	for _, metric := range found {
		ch <- metric
	}
	waits, pending := time.Duration(0), (*latest.PendingError)(nil)
	if errors.As(err, &pending) {
		waits = time.Since(pending.Since)
	} else if err != nil {
		l.log.Error("metrics: can't be collected", "err", err)
	}
	out(ch).gauge(diskUnanswered, waits.Seconds())
}

func (l *timeLimited) collect() (found []prometheus.Metric) {
	ch := make(chan prometheus.Metric)
	go func() {
		defer close(ch)
		l.collector.Collect(ch)
	}()
	for metric := range ch {
		found = append(found, metric)
	}
	return found
}
