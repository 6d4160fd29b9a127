package snapshots

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/podnas/podnas/internal/doctor"
	"github.com/podnas/podnas/internal/volume"
)

// unboundMax is how long a content that is ready may not be bound to its VolumeSnapshot, and a snapshot have no content.
const unboundMax = 10 * time.Second

// Findings returns what is wrong with VolumeSnapshots: what fails, and what does not fit together.
func (c *Controller) Findings() []doctor.Result {
	s, why := c.current()
	if s == nil {
		if why == nil || errors.Is(why, errNoAPI) {
			return nil
		}
		// No problem for who does not use them.
		return []doctor.Result{named("VolumeSnapshots", doctor.Good("the cluster has them, and podnas does not serve them (%v): deploy/overlays/snapshots, in the chart snapshots.enabled, gives it the rights", why))}
	}
	var results []doctor.Result
	failures := s.problems.Current()
	for _, about := range slices.Sorted(maps.Keys(failures)) {
		result := doctor.Fail("solve that; podnas tries again within a minute", "%v", failures[about])
		if errors.As(failures[about], new(*volume.ViewedError)) {
			result = doctor.Warn("nothing, if the claim is to stay: the snapshot is deleted when it is gone", "it is to be deleted, and can't be yet: %v", failures[about])
		}
		results = append(results, named(about, result))
	}
	now := time.Now()
	results = append(results, s.unbound(now)...)
	return append(results, s.unmatched(now)...)
}

// named is a result about one object.
func named(about string, r doctor.Result) doctor.Result {
	r.Check = about
	return r
}

// unbound finds VolumeSnapshots that nobody binds to their contents.
func (s *session) unbound(now time.Time) []doctor.Result {
	var results []doctor.Result
	for _, o := range s.snapshots.GetStore().List() {
		vs := o.(*volumeSnapshot)
		content := s.content(contentName(vs.UID))
		if vs.Status.BoundContent == "" && content != nil && content.Spec.Driver == s.Driver && content.isReady() && now.Sub(content.CreationTimestamp.Time) > unboundMax {
			results = append(results, named(vs.key().String(), doctor.Fail(
				"install the snapshot-controller of Kubernetes, or see its log: docs/volumesnapshots.md", "its snapshot is there, but nothing binds it to its content")))
		}
	}
	return results
}

// unmatched finds contents without a snapshot, and snapshots that were taken for VolumeSnapshots and have no content. podnas
// removes neither: a cluster that was restored from a backup has objects of another time.
func (s *session) unmatched(now time.Time) []doctor.Result {
	var results []doctor.Result
	has := map[string]bool{} // handles
	for _, o := range s.contents.GetStore().List() {
		ct := o.(*content)
		has[ct.statusHandle()], has[ct.Spec.Source.SnapshotHandle], has[ct.Spec.Source.VolumeHandle+"/"+snapshotName(ct.Spec.Snapshot.UID)] = true, true, true
		if ct.Spec.Driver != s.Driver || !ct.isReady() || ct.DeletionTimestamp != nil {
			continue
		}
		of, err := s.parseHandle(ct.statusHandle(), 3)
		if err == nil {
			_, err = s.Store.GetSnapshot(of[0], of[1])
		}
		if err != nil && !errors.As(err, new(*volume.TakingError)) {
			results = append(results, named(key{name: ct.Name}.String(), doctor.Fail("delete its VolumeSnapshot, unless the snapshot can come back", "its snapshot is not there: %v", err)))
		}
	}
	all, err := s.Store.Snapshots("")
	if err != nil {
		return append(results, named("VolumeSnapshots", doctor.Fail("read podnas's log", "the snapshots can't be listed: %v", err)))
	}
	for i := range all {
		snap := &all[i]
		if _, err := uuid.Parse(snap.Name); err != nil || has[s.snapshotHandle(snap.Volume, snap.Name)] || now.Sub(snap.Completed) < unboundMax {
			continue // somebody has named it, or it has a content, or gets one
		}
		results = append(results, named("snapshot "+snap.Name+" of volume "+snap.Volume, doctor.Warn(
			"delete it by 'podnas snapshot delete', or make a VolumeSnapshotContent for it: docs/volumesnapshots.md", "it was taken for a VolumeSnapshot, and no VolumeSnapshotContent has it")))
	}
	return results
}
