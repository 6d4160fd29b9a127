package provisioner

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/podnas/podnas/latest"
)

// metricsLate is how long a scrape waits for the disk. Prometheus waits for 10 seconds.
const metricsLate = 4 * time.Second

// patientMetrics combines collectors that read the disk. While the disk does not
// answer, their metrics are missing, and a metric says so.
type patientMetrics struct {
	parts []prometheus.Collector
	found *latest.Value[[]prometheus.Metric]
	log   *slog.Logger

	waiting *prometheus.Desc
}

// NewPatientMetrics combines collectors that hang when the disk hangs. Concurrent
// scrapes share one collection.
func NewPatientMetrics(log *slog.Logger, parts ...prometheus.Collector) prometheus.Collector {
	m := &patientMetrics{
		parts: parts, log: log,
		waiting: prometheus.NewDesc("podnas_disk_unanswered_seconds", "How long the disk has not answered the queries for metrics, otherwise 0. The metrics of the disk and of volumes' usage are missing meanwhile.", nil, nil),
	}
	m.found = latest.New(metricsLate, func(context.Context) ([]prometheus.Metric, error) { return m.collect(), nil })
	return m
}

// Describe implements prometheus.Collector.
func (m *patientMetrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- m.waiting
	for _, part := range m.parts {
		part.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (m *patientMetrics) Collect(ch chan<- prometheus.Metric) {
	found, err := m.found.Get(context.Background(), 0)
	for _, metric := range found {
		ch <- metric
	}
	waits, pending := time.Duration(0), (*latest.PendingError)(nil)
	if errors.As(err, &pending) {
		waits = time.Since(pending.Since)
	} else if err != nil {
		m.log.Error("metrics: can't be collected", "err", err)
	}
	ch <- prometheus.MustNewConstMetric(m.waiting, prometheus.GaugeValue, waits.Seconds())
}

// collect collects from one part after the other, because each waits for the disk.
func (m *patientMetrics) collect() (found []prometheus.Metric) {
	ch := make(chan prometheus.Metric)
	go func() {
		defer close(ch)
		for _, part := range m.parts {
			part.Collect(ch)
		}
	}()
	for metric := range ch {
		found = append(found, metric)
	}
	return found
}
