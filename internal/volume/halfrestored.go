package volume

import "fmt"

// Restores that a process before has not completed, or that have failed.

// ResumeRestores goes on with the restores that the process before has not completed. When it returns, changes of these volumes wait. It is to
// be called before clients are served.
func (s *Store) ResumeRestores() {
	var names []string
	s.mu.Lock()
	for name := range s.records {
		names = append(names, name)
	}
	s.mu.Unlock()
	for _, name := range names {
		s.resumeRestore(name)
	}
}

// resumeRestore goes on with the restore of a volume that is served, if its record has one.
func (s *Store) resumeRestore(name string) {
	s.mu.Lock()
	v := s.records[name]
	if v == nil || v.State != ready || v.unserved != nil || v.Restoring == "" {
		s.mu.Unlock()
		return
	}
	of := Snapshot{Name: v.Restoring, Volume: v.Name, VolumeID: v.ID} // without such a snapshot it fails, and clients wait
	if found := s.snapshotLocked(v.ID, v.Restoring); found != nil {
		of = found.Snapshot
	}
	r := s.newRestoring(v.Volume, of)
	r.half = true
	if v.RestoreSafety != "" {
		safety := v.RestoreSafety
		r.safety.Store(&safety)
	}
	s.mu.Unlock()
	if err := s.startRestore(r); err != nil {
		s.log.Error("snapshot: the restore of a volume was interrupted, and can't be completed", "volume", v.Name, "snapshot", of.Name, "err", err)
		return
	}
	<-r.held
}

// halfRestoredLocked returns the findings of Check for volumes whose restore has failed.
//
// +checklocks:s.mu
func (s *Store) halfRestoredLocked() (all []Finding) {
	for _, r := range s.restorings {
		if r.ended() && r.half && r.err != nil {
			all = append(all, Finding{
				Volume: r.volume.Name, Path: r.volume.Path, Problem: "it is half restored: " + r.err.Error(),
				Fix: fmt.Sprintf("correct the cause, and run 'podnas snapshot restore %s %s'", r.volume.Name, r.snapshot.Name),
			})
		}
	}
	return all
}
