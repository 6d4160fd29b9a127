package provisioner

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/podnas/podnas/doctor"
)

// findingsMetrics counts the findings of a list.
type findingsMetrics struct {
	list     *doctor.List
	findings *prometheus.Desc
}

// NewFindingsMetrics returns the collector of a list. It runs no checks, so it does not
// wait for a disk that hangs.
func NewFindingsMetrics(list *doctor.List) prometheus.Collector {
	return &findingsMetrics{
		list:     list,
		findings: prometheus.NewDesc("podnas_findings", "Findings, as shown by podnas doctor.", []string{"source", "severity"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (m *findingsMetrics) Describe(ch chan<- *prometheus.Desc) { ch <- m.findings }

// Collect implements prometheus.Collector. Without findings it reports 0.
func (m *findingsMetrics) Collect(ch chan<- prometheus.Metric) {
	found, _ := m.list.Known()
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
			ch <- prometheus.MustNewConstMetric(m.findings, prometheus.GaugeValue, float64(count[severity]), source, string(severity))
		}
	}
}
