package volume

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

// trashedTree is a directory in the trash that is no volume's: the files of a snapshot.
type trashedTree struct {
	dir   string // below the root of the disk
	of    string // the snapshot, for people
	retry time.Time
}

// treePrefix begins the names of such directories. Those of volumes are hexadecimal digits.
const treePrefix = "snapshot-"

// DeleteSnapshot deletes a snapshot; its files are removed in the background, also after a restart. It ends the taking of
// one that is not complete. Its errors are ErrNoSnapshot, ErrNotFound, ErrRecord, ErrBusy while a volume is being
// copied from it, and *ViewedError while a volume shows it.
func (s *Store) DeleteSnapshot(ctx context.Context, volume, name string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r, err := s.deletingSnapshot(volume, name)
	if err != nil || r == nil {
		return err
	}
	err = s.deleteSnapshot(r)
	s.mu.Lock()
	r.deleting = false
	s.mu.Unlock()
	if err != nil {
		return fmt.Errorf("delete snapshot %s of volume %s: %w", r.Name, r.Volume, err)
	}
	s.log.Info("snapshot: deleted, removing its files in the background", "volume", r.Volume, "snapshot", r.Name)
	return nil
}

// deletingSnapshot finds a snapshot that may be deleted. From then on it can't be copied. It returns nil if the snapshot
// was being taken, which it has ended.
func (s *Store) deletingSnapshot(volume, name string) (r *snapshotRecord, err error) {
	defer s.explain(volume, &err)
	s.mu.Lock()
	r = s.findSnapshotLocked(volume, name)
	if r == nil {
		var t *taking
		if v := s.records[volume]; v != nil {
			t = s.takings[v.ID]
		}
		none := s.noSnapshotLocked(volume, name)
		s.mu.Unlock()
		if t == nil || t.name != name || t.ended() {
			return nil, none
		}
		t.end(fmt.Errorf("%w: it was deleted while it was being taken", ErrNoSnapshot))
		s.mu.Lock()
		if r = s.findSnapshotLocked(volume, name); r == nil { // else it was complete before
			s.mu.Unlock()
			return nil, nil
		}
	}
	defer s.mu.Unlock()
	if r.deleting {
		return nil, fmt.Errorf("snapshot %s of volume %s: %w: another request is deleting it", r.Name, r.Volume, ErrBusy)
	}
	if going := s.restorings[r.VolumeID]; going != nil && going.needs(r.Name) {
		return nil, fmt.Errorf("snapshot %s is needed: %w", r.Name, going.busy())
	}
	for _, target := range s.records {
		if target.ID == r.VolumeID && (target.Restoring == r.Name || target.RestoreSafety == r.Name) { // one that is not served
			return nil, fmt.Errorf("snapshot %s of volume %s: %w: the volume is half restored to its snapshot %s", r.Name, r.Volume, ErrBusy, target.Restoring)
		}
		if !target.View && target.isCopyOf(r) {
			return nil, fmt.Errorf("snapshot %s of volume %s: %w: it is being copied to %s; delete it after that", r.Name, r.Volume, ErrBusy, target.Name)
		}
	}
	if err := s.viewedLocked(r); err != nil {
		return nil, err
	}
	r.deleting = true
	return r, nil
}

// isCopyOf reports whether a volume is being copied from a snapshot.
func (r *record) isCopyOf(from *snapshotRecord) bool {
	return (r.State == creating || r.State == copyingState) && r.SourceSnapshot == from.Name && r.SourceID == from.VolumeID
}

// deleteSnapshot does the steps of delete.
func (s *Store) deleteSnapshot(r *snapshotRecord) error {
	if err := s.trashTree(r.tree(), r.Name+" of "+r.Volume); err != nil {
		return err
	}
	s.step("snapshot is in the trash")
	s.hideSnapshot(r)
	if err := s.removeSnapshotRecord(r); err != nil {
		return err
	}
	s.mu.Lock()
	s.snapshots[r.VolumeID] = slices.DeleteFunc(s.snapshots[r.VolumeID], func(other *snapshotRecord) bool { return other == r })
	last := len(s.snapshots[r.VolumeID]) == 0
	if last {
		delete(s.snapshots, r.VolumeID)
	}
	unused := last && !s.isKnownLocked(r.VolumeID)
	s.mu.Unlock()
	if unused {
		s.removeSnapshotDirs(r.VolumeID)
	}
	return nil
}

// hideSnapshot has clients of the volume, if it is exported, not see a snapshot any more whose files are in the trash.
func (s *Store) hideSnapshot(r *snapshotRecord) {
	s.mu.Lock()
	r.gone = true
	var of []Volume
	for _, v := range s.records {
		if v.ID == r.VolumeID && v.State == ready && v.unserved == nil && !v.deleting {
			of = append(of, v.Volume)
		}
	}
	s.mu.Unlock()
	for _, v := range of {
		s.showSnapshots(v)
	}
}

// isKnownLocked reports whether there is a volume of an ID, which may be deleted and kept.
//
// +checklocks:s.mu
func (s *Store) isKnownLocked(id uint64) bool {
	for _, r := range s.records {
		if r.ID == id {
			return true
		}
	}
	return slices.ContainsFunc(s.archived, func(r *record) bool { return r.ID == id })
}

// knownLocked returns the IDs for which isKnownLocked is true, for a caller that asks for many.
//
// +checklocks:s.mu
func (s *Store) knownLocked() map[uint64]bool {
	known := make(map[uint64]bool, len(s.records)+len(s.archived))
	for _, r := range s.records {
		known[r.ID] = true
	}
	for _, r := range s.archived {
		known[r.ID] = true
	}
	return known
}

// removeSnapshotRecord removes the record, if there is one, and the catalogue.
func (s *Store) removeSnapshotRecord(r *snapshotRecord) error {
	if err := s.root.Remove(r.Catalogue()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := s.root.Remove(r.file()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	s.step("snapshot's record is removed")
	if err := syncDir(s.root, path.Dir(r.file())); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// removeSnapshotDirs removes the folders for snapshots of a volume, as far as nothing is in them.
func (s *Store) removeSnapshotDirs(id uint64) {
	of := snapshotsOf(id)
	for _, dir := range []string{path.Join(of, snapshotWork), path.Join(of, snapshotReady), of} {
		_ = s.root.Remove(dir) // what is in it is a finding of Check
	}
}

// moveTree moves a directory of files of clients, whose mode and flags may prevent that.
func (s *Store) moveTree(from, to string) error {
	err := s.rename(from, to)
	if !errors.Is(err, os.ErrPermission) {
		return err
	}
	info, _ := s.root.Lstat(from)
	if info == nil || !info.IsDir() {
		return err
	}
	if err := errors.Join(s.makeMutable(from), s.root.Chmod(from, info.Mode().Perm()|0o700)); err != nil {
		return err
	}
	return errors.Join(s.rename(from, to), s.root.Chmod(to, info.Mode()))
}

// trashTree moves a directory to the trash, if there is one, and hands it to the emptier.
func (s *Store) trashTree(dir, of string) error {
	t := &trashedTree{dir: path.Join(trashDir, treePrefix+strings.ToLower(rand.Text())), of: of}
	if err := s.moveTree(dir, t.dir); err != nil {
		if _, gone := s.root.Lstat(dir); errors.Is(gone, os.ErrNotExist) {
			return nil
		}
		return err
	}
	s.enqueueTree(t)
	return errors.Join(syncDir(s.root, path.Dir(dir)), syncDir(s.root, trashDir))
}

func (s *Store) enqueueTree(t *trashedTree) {
	s.mu.Lock()
	s.trashedTrees = append(s.trashedTrees, t)
	s.mu.Unlock()
	s.treesEmptier.wakeUp()
}

// nextTree returns the oldest directory in the trash that may be tried now, or nil.
func (s *Store) nextTree() *trashedTree {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.trashedTrees {
		if !time.Now().Before(t.retry) {
			return t
		}
	}
	return nil
}

// emptyTree removes a directory in the trash, and reports whether there was one.
func (s *Store) emptyTree(ctx context.Context) bool {
	t := s.nextTree()
	if t == nil {
		return false
	}
	removed, err := s.destroyTree(ctx, t.dir)
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	if ctx.Err() != nil {
		return true
	}
	s.count(&s.activity.empty, t.dir, err)
	s.mu.Lock()
	if err == nil {
		s.trashedTrees = slices.DeleteFunc(s.trashedTrees, func(other *trashedTree) bool { return other == t })
	} else {
		t.retry = time.Now().Add(trashRetry)
	}
	s.mu.Unlock()
	if err != nil {
		s.log.Error("snapshot: can't remove its files, will try again", "snapshot", t.of, "files", t.dir, "in", trashRetry, "err", err)
		time.AfterFunc(trashRetry, s.treesEmptier.wakeUp)
		return true
	}
	s.log.Info("snapshot: removed its files", "snapshot", t.of, "files", removed)
	return true
}
