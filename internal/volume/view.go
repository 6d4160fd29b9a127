package volume

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
)

// A view is a volume whose files are those of a snapshot. Nothing in it can be changed, and it takes no space: there is nothing of
// it but its record, so it is made and deleted at once. While there is a view of a snapshot, the snapshot is not deleted.
//
//	create:  record "view" -> export        the next Open exports it
//	delete:  unexport -> record removed
//
// In the record, the state of a view is "view" and not "ready": a podnas that knows no views refuses the record, and so serves,
// moves and removes nothing because of it.

// viewState is the state of a view in its record. In memory it is ready.
const viewState state = "view"

var (
	// ErrView means that a view of a snapshot can't have or be what is requested.
	ErrView = fmt.Errorf("%w: it shows a snapshot, and has no files of its own", ErrInvalid)
	// errNoView means that what a view shows is gone.
	errNoView = errors.New("what it shows is gone")
)

// ViewedError means that a snapshot can't be deleted, as a volume is a view of it.
type ViewedError struct {
	Volume, Snapshot string
	View             string // the volume that shows it
	Claim            *Claim // of that volume, nil if it has none
}

func (e *ViewedError) Error() string {
	by := "volume " + e.View
	if e.Claim != nil {
		by = fmt.Sprintf("claim %s/%s (%s)", e.Claim.Namespace, e.Claim.Name, by)
	}
	return fmt.Sprintf("snapshot %s of volume %s: %v: %s shows its files; delete that first", e.Snapshot, e.Volume, ErrBusy, by)
}

// Unwrap makes it an ErrBusy.
func (e *ViewedError) Unwrap() error { return ErrBusy }

// Directory is the path of the volume's files, below the root of the disk: for a view, those of the snapshot.
func (v *Volume) Directory() string {
	if v.View {
		of := v.viewed()
		return of.tree()
	}
	return v.Path
}

// viewed is the snapshot that a view shows, as far as the record of the view has it.
func (v *Volume) viewed() Snapshot {
	return Snapshot{Volume: v.Source, VolumeID: v.SourceID, Name: v.SourceSnapshot}
}

// promised is how many bytes are promised to a volume.
func (r *record) promised() int64 {
	if r.View {
		return 0
	}
	return r.Size
}

// viewSpec leaves of a Spec what a view can have.
func viewSpec(spec *Spec) {
	spec.Options.ReadOnly = true
	spec.OnDelete, spec.Schedule, spec.SnapshotReserve, spec.BytesPerInode = "", Schedule{}, nil, 0
}

// checkView refuses the record of a view that does not make sense.
func (r *record) checkView() error {
	right := r.State == ready && path.Dir(r.file) == volumesDir && r.Deleted.IsZero() && r.Options.ReadOnly && r.Project == 0 && r.SourceID != 0 &&
		r.Schedule.IsZero() && (r.OnDelete == "" || r.OnDelete == DeleteFiles)
	if err := checkSnapshotName(r.SourceSnapshot); err != nil {
		return err
	}
	if !right {
		return fmt.Errorf("%w: it is the view of a snapshot, which the rest of it contradicts", ErrInvalid)
	}
	return nil
}

// createView does the steps of create. The caller has reserved the name.
func (s *Store) createView(r *record) (Volume, error) {
	if err := s.enter(r, ready); err != nil {
		return Volume{}, errors.Join(fmt.Errorf("create volume %s: %w", r.Name, err), s.forget(r))
	}
	s.log.Info("volume: created, a read-only view", "volume", r.Name, "path", r.Path, "of", r.source())
	return r.Volume, nil
}

// resumeView serves a view at Open.
func (s *Store) resumeView(r *record) error {
	s.mu.Lock()
	found, none := s.snapshotLocked(r.SourceID, r.SourceSnapshot), s.noSnapshotLocked(r.Source, r.SourceSnapshot)
	s.mu.Unlock()
	if found == nil {
		s.explain(r.Source, &none)
		return fmt.Errorf("%w: %w", errNoView, none)
	}
	if err := s.servable(r.Directory()); err != nil {
		return err
	}
	return s.export(r.Volume)
}

// deleteView does the steps of delete. The view is not exported any more.
func (s *Store) deleteView(r *record) error {
	if err := s.forget(r); err != nil {
		if _, gone := s.root.Lstat(recordFile(r.Name)); errors.Is(gone, os.ErrNotExist) {
			return s.halfDeleted(r.Name, err)
		}
		return errors.Join(err, s.exportAgain(r))
	}
	s.log.Info("volume: deleted, a read-only view", "volume", r.Name, "of", r.source())
	return nil
}

// snapshotID identifies a snapshot.
type snapshotID struct {
	volume uint64
	name   string
}

func (r *Snapshot) id() snapshotID { return snapshotID{r.VolumeID, r.Name} }

// addViewLocked remembers a view whose name is reserved, and forgetViewLocked ends that.
//
// +checklocks:s.mu
func (s *Store) addViewLocked(r *record) {
	of := r.viewed()
	names := s.views[of.id()]
	if at, known := slices.BinarySearch(names, r.Name); !known {
		s.views[of.id()] = slices.Insert(names, at, r.Name)
	}
}

// +checklocks:s.mu
func (s *Store) forgetViewLocked(r *record) {
	of := r.viewed()
	left := slices.DeleteFunc(s.views[of.id()], func(name string) bool { return name == r.Name })
	if s.views[of.id()] = left; len(left) == 0 {
		delete(s.views, of.id())
	}
}

// isView reports whether a volume is a view.
func (s *Store) isView(name string) bool {
	v, err := s.Get(name)
	return err == nil && v.View
}

// ViewsOf returns the names of the views of a snapshot.
func (s *Store) ViewsOf(of *Snapshot) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.views[of.id()])
}

// viewedLocked returns why a snapshot can't be deleted, if there is a view of it.
//
// +checklocks:s.mu
func (s *Store) viewedLocked(of *snapshotRecord) error {
	views := s.views[of.id()]
	if len(views) == 0 {
		return nil
	}
	r := s.records[views[0]]
	return &ViewedError{Volume: of.Volume, Snapshot: of.Name, View: r.Name, Claim: r.Claim}
}
