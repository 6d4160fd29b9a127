package provisioner

import (
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/podnas/podnas/volume"
)

// metrics collects the volumes' metrics, at each scrape in one pass over all volumes.
type metrics struct {
	store *volume.Store
	log   *slog.Logger

	volumes, size, used, files, filesLimit *prometheus.Desc
}

// NewMetrics returns the collector of the volumes of a disk.
func NewMetrics(store *volume.Store, log *slog.Logger) prometheus.Collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("podnas_"+name, help, labels, nil)
	}
	perVolume := []string{"volume", "namespace", "claim"}
	return &metrics{
		store: store, log: log,
		volumes:    desc("volumes", "Volumes, by state.", "state"),
		size:       desc("volume_size_bytes", "Size of a volume.", perVolume...),
		used:       desc("volume_used_bytes", "Disk usage of a volume. Missing if not counted.", perVolume...),
		files:      desc("volume_files", "Files, directories and everything else in a volume. Missing if not counted.", perVolume...),
		filesLimit: desc("volume_files_limit", "Maximum number of files of a volume. Missing if it is not enforced.", perVolume...),
	}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.volumes, m.size, m.used, m.files, m.filesLimit} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	served := m.store.List()
	usages, err := m.store.Usages()
	if err != nil {
		m.log.Warn("metrics: what volumes use is not known", "err", err)
	}
	for _, v := range served {
		labels := []string{v.Name, "", ""}
		if v.Claim != nil {
			labels = []string{v.Name, v.Claim.Namespace, v.Claim.Name}
		}
		gauge(m.size, float64(v.Size), labels...)
		if u, counted := usages[v.Name]; counted {
			gauge(m.used, float64(u.Bytes), labels...)
			gauge(m.files, float64(u.Inodes), labels...)
			if u.Limit.Inodes > 0 {
				gauge(m.filesLimit, float64(u.Limit.Inodes), labels...)
			}
		}
	}
	states := map[string]int{"ready": len(served), volume.Copying: len(m.store.Copies()), volume.Archived: 0, volume.Retained: 0}
	kept, err := m.store.Kept()
	if err != nil {
		m.log.Warn("metrics: what is archived and retained is not known", "err", err)
	}
	for _, k := range kept {
		states[k.State]++
	}
	for state, n := range states {
		gauge(m.volumes, float64(n), state)
	}
}
