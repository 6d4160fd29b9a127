package volume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/podnas/podnas/quota"
)

// volumeMode lets pods of every user write. The sticky bit is not set, because
// everybody who can access the volume owns it.
const volumeMode = 0o777

// Create creates a volume, or returns the one that an earlier call created from
// the same spec, but for its claim, manifest and schedule. Its errors are ErrInvalid, ErrExists, *NoSpaceError, ErrNotFound
// if the source of a copy is missing, *CopyingError while the copy is running, or
// an error of the disk. Except with *CopyingError, a failed Create leaves nothing
// behind.
func (s *Store) Create(ctx context.Context, spec Spec) (Volume, error) {
	v, made, err := s.createOrFind(ctx, spec)
	if made || err != nil {
		s.count(&s.activity.create, spec.Name, err)
	}
	return v, err
}

// createOrFind is Create. made is whether this call created the volume.
func (s *Store) createOrFind(ctx context.Context, spec Spec) (v Volume, made bool, err error) {
	if spec.Path == "" {
		spec.Path = spec.Name
	}
	if spec.Mode == 0 {
		spec.Mode = volumeMode
	}
	if spec.View {
		viewSpec(&spec)
	}
	if err := spec.validate(); err != nil {
		return Volume{}, false, err
	}
	if err := s.exports.Check(spec.Options); err != nil {
		return Volume{}, false, err
	}
	if err := s.checkSchedule(Volume{Name: spec.Name, Schedule: spec.Schedule}); err != nil {
		return Volume{}, false, err
	}
	unlock, err := s.names.lock(ctx, spec.Name)
	if err != nil {
		return Volume{}, false, err
	}
	defer unlock()
	if err := s.undoAgain(spec.Name); err != nil {
		return Volume{}, false, err
	}
	if v, err := s.existing(&spec); v != nil || err != nil {
		return *v, false, err
	}
	r := newRecord(creating, &spec)
	if err := s.reserve(r, &spec); err != nil {
		return Volume{}, false, err
	}
	if r.View {
		v, err = s.createView(r)
		return v, true, err
	}
	if err := s.create(r, &spec); err != nil {
		return Volume{}, false, errors.Join(fmt.Errorf("create volume %s: %w", spec.Name, err), s.undo(r))
	}
	if r.State == copyingState {
		s.startCopy(r)
		return Volume{}, false, &CopyingError{Source: r.Source, Snapshot: r.SourceSnapshot}
	}
	s.log.Info("volume: created", "volume", r.Name, "path", r.Path, "size", FormatSize(r.Size), "inodes", r.Inodes, "project", r.Project)
	return r.Volume, true, nil
}

// existing returns the volume of that name if it satisfies spec, nil if there is
// none, or an error and an empty Volume.
func (s *Store) existing(spec *Spec) (*Volume, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	none := &Volume{}
	if err := s.failed[spec.Name]; err != nil {
		delete(s.failed, spec.Name)
		return none, err
	}
	r := s.records[spec.Name]
	switch {
	case r == nil:
		return nil, nil
	case r.unserved != nil:
		return none, fmt.Errorf("volume %s: %w: it is not served: %w", r.Name, ErrBusy, r.unserved)
	case r.State == retained:
		return none, fmt.Errorf("volume %s: %w: it was deleted, and its files were kept in %s; adopt it, or move the files away", r.Name, ErrExists, r.Path)
	case r.State == copyingState:
		if c := s.copies[r.Name]; c != nil {
			return none, c.progress()
		}
		return none, fmt.Errorf("volume %s: %w: the copy of %s has failed, and its files can't be removed, see the log", r.Name, ErrBusy, r.source())
	case r.State != ready:
		return none, fmt.Errorf("volume %s: %w: another request is changing it", r.Name, ErrBusy)
	case r.Size < spec.Size || r.Path != spec.Path || r.Source != spec.Source || r.SourceSnapshot != spec.SourceSnapshot || r.View != spec.View:
		return none, fmt.Errorf("volume %s: %w with %s in %s, not %s in %s", r.Name, ErrExists, FormatSize(r.Size), r.Path, FormatSize(spec.Size), spec.Path)
	}
	if others := r.otherOptions(spec); len(others) > 0 {
		return none, fmt.Errorf("volume %s: %w, and other than requested in %s", r.Name, ErrExists, strings.Join(others, ", "))
	}
	v := r.Volume
	return &v, nil
}

// otherOptions names what clients may do otherwise in a volume than a spec has it, and whether other files are left of it: the names are
// those of a StorageClass's parameters.
func (v *Volume) otherOptions(spec *Spec) (others []string) {
	is, want := &v.Options, &spec.Options
	for _, o := range []struct {
		name string
		same bool
	}{
		{"allSquash", is.AllSquash == want.AllSquash},
		{"allowedClients", slices.Equal(is.Clients, want.Clients)},
		{"anonGid", is.AnonGID == want.AnonGID},
		{"anonUid", is.AnonUID == want.AnonUID},
		{"onDelete", cmp.Or(v.OnDelete, DeleteFiles) == cmp.Or(spec.OnDelete, DeleteFiles)},
		{"privilegedPorts", is.PrivilegedPorts == want.PrivilegedPorts},
		{"readOnly", is.ReadOnly == want.ReadOnly},
		{"rootSquash", is.RootSquash == want.RootSquash},
		{"sync", is.Async == want.Async},
	} {
		if !o.same {
			others = append(others, o.name)
		}
	}
	return others
}

func newRecord(state state, spec *Spec) *record {
	return &record{State: state, Volume: Volume{
		ID:              newID(),
		Name:            spec.Name,
		Path:            spec.Path,
		Size:            spec.Size,
		BytesPerInode:   spec.BytesPerInode,
		Options:         spec.Options,
		Schedule:        spec.Schedule,
		SnapshotReserve: spec.SnapshotReserve,
		OnDelete:        spec.OnDelete,
		Source:          spec.Source,
		SourceSnapshot:  spec.SourceSnapshot,
		View:            spec.View,
		Claim:           spec.Claim,
		Manifest:        spec.Manifest,
		Created:         time.Now().UTC().Truncate(time.Second),
	}}
}

// reserve checks that there is space for a volume, and reserves its name, path,
// project and size.
func (s *Store) reserve(r *record, spec *Spec) error {
	space, err := s.Space()
	if err != nil {
		return err
	}
	at := s.lookAt(r.Name, spec.Path)
	s.mu.Lock()
	err = s.reserveLocked(r, spec, &space, &at)
	s.mu.Unlock()
	if refused := refusal(spec.Source, at.refused); refused != nil && errors.Is(err, ErrNotFound) {
		err = fmt.Errorf("to be copied: %w", refused)
	}
	if err != nil || r.View {
		return err
	}
	project, err := s.newProject()
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Project = project; err != nil {
		delete(s.records, r.Name)
	}
	return err
}

// reserveLocked is reserve without the project.
//
// +checklocks:s.mu
func (s *Store) reserveLocked(r *record, spec *Spec, space *Space, at *site) error {
	if err := s.checkSourceLocked(r, spec); err != nil {
		return err
	}
	switch adopts := r.State == adopting; {
	case r.View: // it takes no space
	case !adopts && spec.Size > space.Free:
		return &NoSpaceError{Requested: spec.Size, Free: space.Free}
	case adopts && spec.Size > space.Size: // its files already use their space
		return fmt.Errorf("%w: %s is requested, and the whole disk has %s", ErrInvalid, FormatSize(spec.Size), FormatSize(space.Size))
	}
	overcommit := cmp.Or(spec.Overcommit, s.overcommit)
	if err := s.promiseLocked(spec.Size, space.Size, overcommit); err != nil && !r.View {
		return err
	}
	if err := refusal(r.Name, at.refused); err != nil {
		return fmt.Errorf("%w; a new volume would hide its files: %w", err, ErrExists)
	}
	if !errors.Is(at.noRecord, os.ErrNotExist) {
		return fmt.Errorf("volume %s: %w: there is a file %s, which was not there at the start; restart podnas", r.Name, errors.Join(ErrExists, at.noRecord), recordFile(r.Name))
	}
	if err := s.checkFreeLocked(at); err != nil {
		return err
	}
	if r.State == creating {
		if err := s.checkAboveLocked(at); err != nil {
			return err
		}
		if !errors.Is(at.noDir, os.ErrNotExist) {
			return fmt.Errorf("directory %s: %w and is not a volume: adopt it, or move it away", spec.Path, errors.Join(ErrExists, at.noDir))
		}
	}
	s.records[r.Name] = r
	if r.View {
		s.addViewLocked(r)
		return nil
	}
	if r.State == creating && spec.Source == "" {
		r.Inodes = space.inodesFor(r.Size, r.BytesPerInode, overcommit)
	}
	return nil
}

// checkSourceLocked checks that a volume can be a copy of its source, if it has one.
//
// +checklocks:s.mu
func (s *Store) checkSourceLocked(r *record, spec *Spec) error {
	var size int64
	switch source, snapshot := s.records[spec.Source], s.findSnapshotLocked(spec.Source, spec.SourceSnapshot); {
	case spec.Source == "":
		return nil
	case spec.SourceSnapshot != "" && snapshot == nil:
		return fmt.Errorf("to be copied: %w", s.noSnapshotLocked(spec.Source, spec.SourceSnapshot))
	case spec.SourceSnapshot != "" && snapshot.deleting:
		return fmt.Errorf("to be copied: snapshot %s of volume %s: %w: it is being deleted", spec.SourceSnapshot, spec.Source, ErrBusy)
	case spec.SourceSnapshot != "":
		r.SourceID, size = snapshot.VolumeID, snapshot.Size
	case source == nil || source.State != ready || source.deleting:
		return fmt.Errorf("to be copied: %w", notFound(spec.Source))
	case s.restorings[source.ID].busy() != nil:
		return fmt.Errorf("to be copied: %w", s.restorings[source.ID].busy())
	case source.unserved != nil:
		return fmt.Errorf("%s, to be copied: %w: it is not served: %w", spec.Source, ErrBusy, source.unserved)
	default:
		size = source.Size
	}
	if size > spec.Size {
		what := "a copy of"
		if r.View {
			what = "a volume that shows"
		}
		return fmt.Errorf("%w: %s the %s needs at least its size: %s, not %s", ErrInvalid, what, r.source(), FormatSize(size), FormatSize(spec.Size))
	}
	return nil
}

// promisedLocked is the sum of all sizes and of what is promised for snapshots, and promisedInodes that of all inode limits.
//
// +checklocks:s.mu
func (s *Store) promisedLocked() int64 {
	return s.sumLocked((*record).promised) + s.promisedToSnapshotsLocked()
}

// +checklocks:s.mu
func (s *Store) promisedInodesLocked() int64 {
	return s.sumLocked(func(r *record) int64 { return r.Inodes })
}

// +checklocks:s.mu
func (s *Store) sumLocked(of func(*record) int64) (sum int64) {
	for _, r := range s.records {
		sum += of(r)
	}
	for _, r := range s.archived {
		sum += of(r)
	}
	return sum
}

// promiseLocked checks whether size more bytes may be promised.
//
// +checklocks:s.mu
func (s *Store) promiseLocked(size, capacity int64, overcommit float64) error {
	if overcommit == 0 {
		return nil
	}
	promised := s.promisedLocked()
	if float64(promised)+float64(size) > overcommit*float64(capacity) {
		return &NoSpaceError{Requested: size, Overcommit: overcommit, Promised: promised, Capacity: capacity}
	}
	return nil
}

// create does the steps in the package comment.
func (s *Store) create(r *record, spec *Spec) error {
	if err := s.write(r); err != nil {
		return err
	}
	s.step("record is creating")
	if err := s.makeDir(r.Path); err != nil {
		return err
	}
	s.step("directory is made")
	dir, err := openDir(s.root, r.Path)
	if err != nil {
		return err
	}
	defer dir.Close()
	if r.Project != 0 {
		if err := s.quota.Assign(dir, r.Project); err != nil {
			return err
		}
		s.step("project is assigned")
		if err := s.quota.SetLimit(r.Project, r.limit()); err != nil {
			return err
		}
		s.step("limit is set")
	}
	if spec.UID != 0 || spec.GID != 0 {
		err := dir.Chown(int(spec.UID), int(spec.GID))
		if errors.Is(err, fs.ErrPermission) {
			return fmt.Errorf("%w: podnas lacks the capability CHOWN, so volumes can't belong to user %d and group %d: leave out uid and gid, or use podnas's own", ErrInvalid, spec.UID, spec.GID)
		}
		if err != nil {
			return err
		}
	}
	// After Mkdir, whose mode the umask restricts, and Chown, which clears setgid.
	if err := dir.Chmod(fileMode(spec.Mode)); err != nil {
		return err
	}
	if err := errors.Join(dir.Sync(), syncDir(s.root, ".")); err != nil {
		return err
	}
	state := ready
	if r.Source != "" {
		state = copyingState
	}
	return s.enter(r, state)
}

// fileMode converts a mode to that of package os.
func fileMode(mode uint32) os.FileMode {
	m := os.FileMode(mode & 0o777)
	for bit, os := range map[uint32]os.FileMode{0o4000: os.ModeSetuid, 0o2000: os.ModeSetgid, 0o1000: os.ModeSticky} {
		if mode&bit != 0 {
			m |= os
		}
	}
	return m
}

// enter writes a record with the state and, if that is ready, exports the volume.
func (s *Store) enter(r *record, state state) error {
	next := *r
	next.State, next.Handles = state, cmp.Or(r.Handles, s.handles)
	if err := s.write(&next); err != nil {
		return err
	}
	s.step("record is " + string(state))
	if state == ready {
		if err := s.export(next.Volume); err != nil {
			return err
		}
		s.limitWhenCounted(next.Volume)
	}
	next.unserved = nil
	s.mu.Lock()
	*r = next
	s.mu.Unlock()
	s.wakeSchedules()
	return nil
}

// write writes a record in volumes/.
func (s *Store) write(r *record) error {
	next := *r
	next.Disk = s.instance.Identity
	return writeJSON(s.root, s.room, recordFile(r.Name), next)
}

// undoAgain undoes what a Create or Adopt before has left of a volume, because it could not be undone then, as on a disk that was
// read-only for a moment. The caller has locked the name, so nobody else is at work on that.
func (s *Store) undoAgain(name string) error {
	s.mu.Lock()
	r := s.records[name]
	left := r != nil && r.unserved == nil && (r.State == creating || r.State == adopting)
	s.mu.Unlock()
	if !left {
		return nil
	}
	undo := s.undo
	if r.State == adopting || r.View {
		undo = s.forget
	}
	if err := undo(r); err != nil {
		return fmt.Errorf("volume %s: %w: an earlier try has failed, and what it has left can't be removed: %w", name, ErrBusy, err)
	}
	s.log.Info("volume: removed what an earlier try to make it has left", "volume", name)
	return nil
}

// undo removes what create has created. No client has seen the volume, so its
// directory is empty. If it is not empty, it is kept with its record, and the
// error says so.
func (s *Store) undo(r *record) error {
	err := s.removeDir(r.Path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("undo the creation of volume %s: %w", r.Name, err)
	}
	s.step("directory is removed")
	if r.Project != 0 && s.quota != nil {
		if err := s.quota.SetLimit(r.Project, quota.Limit{}); err != nil {
			return err
		}
	}
	s.step("limit is lifted")
	err = s.root.Remove(recordFile(r.Name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("undo the creation of volume %s: %w", r.Name, err)
	}
	s.mu.Lock()
	delete(s.records, r.Name)
	delete(s.projects, r.Project)
	s.mu.Unlock()
	return errors.Join(syncDir(s.root, volumesDir), syncDir(s.root, "."))
}
