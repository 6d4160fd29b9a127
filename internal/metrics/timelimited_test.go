package metrics

import (
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// hanging is a collector that hangs while its channel is open.
type hanging struct {
	desc *prometheus.Desc
	hang chan struct{}
	asks atomic.Int64
}

func (h *hanging) Describe(ch chan<- *prometheus.Desc) { ch <- h.desc }

func (h *hanging) Collect(ch chan<- prometheus.Metric) {
	h.asks.Add(1)
	<-h.hang
	ch <- prometheus.MustNewConstMetric(h.desc, prometheus.GaugeValue, 7)
}

// A disk that hangs takes its own metrics along, once however often it is asked, and
// since when is told.
func TestTimeLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hanging{desc: prometheus.NewDesc("disk", "It.", nil, nil), hang: make(chan struct{})}
		registry := prometheus.NewRegistry()
		registry.MustRegister(newTimeLimited(slog.New(slog.DiscardHandler), h))
		gather := func() map[string]float64 {
			t.Helper()
			families, err := registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			found := map[string]float64{}
			for _, f := range families {
				found[f.GetName()] = f.GetMetric()[0].GetGauge().GetValue()
			}
			return found
		}
		for range 5 {
			if m := gather(); len(m) != 1 || m["podnas_disk_unanswered_seconds"] < scrapeTimeout.Seconds() {
				t.Errorf("while it hangs: %v", m)
			}
		}
		time.Sleep(time.Minute)
		if m := gather(); m["podnas_disk_unanswered_seconds"] != (time.Minute+scrapeTimeout).Seconds() || h.asks.Load() != 1 {
			t.Errorf("a minute later, asked %d times: %v", h.asks.Load(), m)
		}
		close(h.hang)
		synctest.Wait()
		if m := gather(); m["disk"] != 7 || m["podnas_disk_unanswered_seconds"] != 0 || len(m) != 2 {
			t.Errorf("when it is back: %v", m)
		}
	})
}
