package metrics

import "github.com/prometheus/client_golang/prometheus"

// standby tells whether another podnas could take over; nil where none is meant to.
type standby func() bool

// Describe implements prometheus.Collector.
func (s standby) Describe(ch chan<- *prometheus.Desc) { ch <- standbyReady }

// Collect implements prometheus.Collector.
func (s standby) Collect(ch chan<- prometheus.Metric) {
	if s == nil {
		return
	}
	value := 0.0
	if s() {
		value = 1
	}
	out(ch).gauge(standbyReady, value)
}
