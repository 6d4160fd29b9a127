package metrics

import (
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/provisioner/controller"
)

// store collects the metrics of the disk, in one pass over all volumes.
type store struct {
	*volume.Store

	report func() controller.Report // nil without a cluster
	log    *slog.Logger
}

// Describe implements prometheus.Collector.
func (s *store) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range [...]*prometheus.Desc{
		volumes, volumeSize, volumeUsed, volumeFiles, volumeFilesLimit,
		volumeSnapshots, volumeSnapshotBytes, volumeScheduled, volumeScheduleFails,
		diskSize, diskFree, diskPromised, diskInodes, diskInodesFree, diskInodesPromised,
		operations, failures, snapshots, given, copied, trash, trashBytes, reconciled, standsAside,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (s *store) Collect(ch chan<- prometheus.Metric) {
	o := out(ch)
	s.volumes(o)
	s.disk(o)
	s.operations(o)
	if s.report == nil {
		return
	}
	report, aside := s.report(), 0.0
	if report.StandsAside != "" {
		aside = 1
	}
	o.gauge(standsAside, aside)
	if !report.Time.IsZero() {
		o.gauge(reconciled, float64(report.Time.Unix()))
	}
}

func (s *store) volumes(o out) {
	known := s.List()
	usages, err := s.Usages(known)
	if err != nil {
		s.log.Warn("metrics: what volumes use is not known", "err", err)
	}
	taken := s.SnapshotUses()
	for i := range known {
		v := &known[i]
		labels := labelsOf(v)
		o.gauge(volumeSize, float64(v.Size), labels...)
		o.gauge(volumeSnapshots, float64(taken[v.ID].Count), labels...)
		o.gauge(volumeSnapshotBytes, float64(taken[v.ID].Bytes), labels...)
		if u, counted := usages[v.Name]; counted {
			o.gauge(volumeUsed, float64(u.Bytes), labels...)
			o.gauge(volumeFiles, float64(u.Inodes), labels...)
			if u.Limit.Inodes > 0 {
				o.gauge(volumeFilesLimit, float64(u.Limit.Inodes), labels...)
			}
		}
	}
	s.schedules(o)
	copies := s.Copies()
	for _, c := range copies {
		o.gauge(copied, float64(c.Bytes), c.Name)
	}
	states := map[string]int{volume.Ready: len(s.Served()), volume.Copying: len(copies), volume.Archived: 0, volume.Retained: 0}
	for _, u := range s.Unserved() {
		states[u.State]++
	}
	kept, err := s.Kept()
	if err != nil {
		s.log.Warn("metrics: what is archived and retained is not known", "err", err)
	}
	for _, k := range kept {
		states[k.State]++
	}
	for state, n := range states {
		o.gauge(volumes, float64(n), state)
	}
}

func (s *store) schedules(o out) {
	for _, kept := range s.Schedules() {
		labels, fails := labelsOf(&kept.Volume), 0.0
		if !kept.Last.IsZero() {
			o.gauge(volumeScheduled, float64(kept.Last.Unix()), labels...)
		}
		if kept.Problem() != "" {
			fails = 1
		}
		o.gauge(volumeScheduleFails, fails, labels...)
	}
}

func (s *store) disk(o out) {
	space, err := s.Space()
	if err != nil {
		s.log.Warn("metrics: the disk's size is not known", "err", err)
		return
	}
	o.gauge(diskSize, float64(space.Size))
	o.gauge(diskFree, float64(space.Free))
	o.gauge(diskPromised, float64(space.Promised))
	o.gauge(diskInodesPromised, float64(space.InodesPromised))
	if space.Inodes > 0 {
		o.gauge(diskInodes, float64(space.Inodes))
		o.gauge(diskInodesFree, float64(space.InodesFree))
	}
}

func (s *store) operations(o out) {
	for _, a := range s.Activities() {
		o.count(operations, a.Done, a.Operation)
		o.count(failures, a.Failed, a.Operation)
	}
	kept, _ := s.Snapshots("") // of all there is no error
	o.gauge(snapshots, float64(len(kept)))
	_, deletedForRoom := s.Given(0)
	o.count(given, uint64(deletedForRoom))
	deleted, err := s.Trash()
	o.gauge(trash, float64(deleted.Volumes))
	switch {
	case err != nil:
		s.log.Warn("metrics: what the trash uses is not known", "err", err)
	case deleted.Counted:
		o.gauge(trashBytes, float64(deleted.Bytes))
	}
}
