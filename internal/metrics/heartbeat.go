package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/podnas/podnas/internal/heartbeat"
)

// heart tells how fresh the knowledge is that the disk is ours. It does not ask the disk, which may hang.
type heart struct{ beats *heartbeat.Heartbeat }

// Describe implements prometheus.Collector.
func (h *heart) Describe(ch chan<- *prometheus.Desc) { ch <- diskHeartbeat }

// Collect implements prometheus.Collector.
func (h *heart) Collect(ch chan<- prometheus.Metric) {
	out(ch).gauge(diskHeartbeat, h.beats.Age().Seconds())
}
