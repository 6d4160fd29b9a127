package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/podnas/podnas/internal/doctor"
)

// findings counts the findings of a list. It runs no checks, so it does not wait for a
// disk that hangs.
type findings struct{ list *doctor.List }

// Describe implements prometheus.Collector.
func (f *findings) Describe(ch chan<- *prometheus.Desc) { ch <- findingsCount }

// Collect implements prometheus.Collector. Without findings it reports 0.
func (f *findings) Collect(ch chan<- prometheus.Metric) {
	found, _ := f.list.Known()
	counts := map[string]map[doctor.Status]int{}
	for i := range found {
		r := &found[i]
		if counts[r.Source] == nil {
			counts[r.Source] = map[doctor.Status]int{}
		}
		counts[r.Source][r.Status]++
	}
	for source, count := range counts {
		for _, severity := range []doctor.Status{doctor.Failed, doctor.Warning} {
			out(ch).gauge(findingsCount, float64(count[severity]), source, string(severity))
		}
	}
}
