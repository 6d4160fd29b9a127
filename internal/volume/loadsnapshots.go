package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/podnas/podnas/internal/statedir"
)

// badSnapshot is the record of a snapshot that is not used. Nothing is removed because of it.
type badSnapshot struct {
	file         string // below the root of the disk
	volume, name string // the volume's name may be unknown
	err          error  // why
}

// loadSnapshots reads the records of all snapshots, and removes what interrupted operations have left. What can't be
// read is a finding, and stops nothing: volumes are served without their snapshots. Nobody else has the Store yet.
//
// +checklocksignore
func (s *Store) loadSnapshots() {
	trashed, err := fs.ReadDir(s.root.FS(), trashDir)
	if err != nil {
		s.log.Error("snapshot: can't read the trash; the next start tries again", "err", err)
	}
	for _, e := range trashed {
		if strings.HasPrefix(e.Name(), treePrefix) {
			s.trashedTrees = append(s.trashedTrees, &trashedTree{dir: path.Join(trashDir, e.Name()), of: "of an earlier process"})
		}
	}
	folders, err := s.snapshotFolders()
	if err != nil {
		s.log.Error("snapshot: can't read them", "err", err)
	}
	for _, id := range folders {
		if err := s.loadSnapshotsOf(id); err != nil {
			s.log.Error("snapshot: can't read those of a volume", "folder", snapshotsOf(id), "err", err)
		}
		if len(s.snapshots[id]) == 0 && !s.isKnownLocked(id) {
			s.removeSnapshotDirs(id)
		}
	}
}

// snapshotFolders returns the IDs of the volumes that may have snapshots.
func (s *Store) snapshotFolders() ([]uint64, error) {
	entries, err := fs.ReadDir(s.root.FS(), snapshotsDir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var ids []uint64
	for _, e := range entries {
		id, err := strconv.ParseUint(e.Name(), 16, 64)
		if err == nil && e.IsDir() && path.Base(snapshotsOf(id)) == e.Name() {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// loadSnapshotsOf is loadSnapshots for one volume.
//
// +checklocksignore
func (s *Store) loadSnapshotsOf(id uint64) error {
	of := snapshotsOf(id)
	if err := s.discardWork(id); err != nil {
		s.log.Warn("snapshot: can't remove one that was not completed; the next start tries again", "folder", of, "err", err)
	}
	folder, err := openDir(s.root, of)
	if err != nil {
		return err
	}
	defer folder.Close()
	if err := statedir.Of(folder, s.room, s.log).RemoveTemporary(); err != nil {
		s.log.Warn("snapshot: can't remove what was half written", "folder", of, "err", err)
	}
	names, err := recordFiles(s.root, of)
	if err != nil {
		return err
	}
	for _, name := range names {
		r := &snapshotRecord{}
		file := path.Join(of, name)
		err := readJSON(s.root, file, r)
		if err == nil {
			err = s.checkSnapshot(r, file)
		}
		if err != nil {
			d := badSnapshot{file: file, volume: r.Volume, name: strings.TrimSuffix(name, ".json"), err: err}
			s.badSnapshots = append(s.badSnapshots, d)
			f := d.finding()
			s.log.Error("snapshot: "+f.Problem, "record", file, "fix", f.Fix)
			continue
		}
		if _, err := s.root.Lstat(r.tree()); errors.Is(err, os.ErrNotExist) {
			s.log.Info("snapshot: removing the record of one without files, which was being taken or deleted", "volume", r.Volume, "snapshot", r.Name)
			if err := s.removeSnapshotRecord(r); err != nil {
				s.log.Warn("snapshot: can't remove its record; the next start tries again", "record", file, "err", err)
			}
			continue
		}
		r.known = time.Now()
		s.snapshots[id] = append(s.snapshots[id], r)
	}
	return nil
}

// checkSnapshot refuses a record that was edited, moved or damaged, or that is of another disk.
func (s *Store) checkSnapshot(r *snapshotRecord, file string) error {
	if err := checkSnapshotName(r.Name); err != nil {
		return fmt.Errorf("record %s: %w", file, err)
	}
	switch {
	case r.file() != file:
		return fmt.Errorf("record %s: it is the record of %s, in the file of another", file, r.file())
	case !s.instance.isOf(r.Disk):
		return fmt.Errorf("record %s: it is of the disk %s, and this one is %s", file, r.Disk, s.instance.Identity)
	case r.Created.IsZero() || r.Size <= 0 || r.Files < 0 || r.Bytes < 0 || r.Reserve < 0:
		return fmt.Errorf("record %s: it is of %s, with a size of %d, %d files, and %d bytes", file, r.Created, r.Size, r.Files, r.Bytes)
	case len(r.Volume) > nameMax || !validName.MatchString(r.Volume):
		return fmt.Errorf("record %s: %w: the name %q of its volume", file, ErrInvalid, r.Volume)
	}
	return nil
}

func (d *badSnapshot) finding() Finding {
	return Finding{
		Volume: d.volume, Path: d.file,
		Problem: "the record of a snapshot is damaged, so podnas neither lists nor deletes it: " + d.err.Error(),
		Fix:     "stop podnas, restore the record from a backup of the disk, or move it away, out of " + StateDir + ", and start podnas",
	}
}

// checkSnapshots compares the records of snapshots with what is on the disk.
func (s *Store) checkSnapshots() []Finding {
	folders, err := s.snapshotFolders()
	var findings []Finding
	if err != nil {
		findings = append(findings, Finding{Path: snapshotsDir, Problem: "snapshots can't be read: " + err.Error(), Fix: "check the disk, and restart podnas"})
	}
	for _, id := range folders {
		findings = append(findings, s.checkSnapshotsOf(id)...)
	}
	for _, d := range s.stillBadSnapshots() {
		findings = append(findings, d.finding())
	}
	return findings
}

// stillBadSnapshots returns the records of snapshots that are not used, and forgets those whose files are gone.
//
// +checklocksexclude:s.mu
func (s *Store) stillBadSnapshots() []badSnapshot {
	s.mu.Lock()
	bad := slices.Clone(s.badSnapshots)
	s.mu.Unlock()
	gone := map[string]bool{}
	for i := range bad {
		gone[bad[i].file] = s.isGone(bad[i].file)
	}
	isGone := func(d badSnapshot) bool { return gone[d.file] }
	s.mu.Lock()
	defer s.mu.Unlock()
	s.badSnapshots = slices.DeleteFunc(s.badSnapshots, isGone)
	return slices.DeleteFunc(bad, isGone)
}

// checkSnapshotsOf is checkSnapshots for one volume.
func (s *Store) checkSnapshotsOf(id uint64) []Finding {
	ready := path.Join(snapshotsOf(id), snapshotReady)
	trees, err := fs.ReadDir(s.root.FS(), ready) // before the records: one of these may be taken meanwhile
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return []Finding{{Path: ready, Problem: "snapshots can't be read: " + err.Error(), Fix: "check the disk"}}
	}
	unfinished, _ := fs.ReadDir(s.root.FS(), path.Join(snapshotsOf(id), snapshotWork))
	unknown, known, findings := s.compareSnapshots(id, trees, len(unfinished) > 0)
	for _, name := range unknown {
		p := path.Join(ready, name)
		if s.isGone(p) { // deleted meanwhile
			continue
		}
		findings = append(findings, Finding{
			Path: p, Notice: true,
			Problem: "files of a snapshot without a record: clients of the volume see it in .snapshots, but podnas neither lists nor deletes it",
			Fix: fmt.Sprintf("restore %s/%s.json from a backup of the disk and restart podnas, or move the files away, out of %s",
				snapshotsOf(id), name, StateDir),
		})
	}
	for i := range known {
		if r := &known[i]; s.isGone(r.tree()) && s.hasSnapshot(r) {
			findings = append(findings, Finding{
				Volume: r.Volume, Path: r.tree(), Problem: "the files of its snapshot " + r.Name + " are missing",
				Fix: fmt.Sprintf("put them back, or delete the snapshot: 'podnas snapshot delete %s %s'", r.Volume, r.Name),
			})
		}
	}
	return findings
}

// compareSnapshots returns the names of those of the trees of a volume's snapshots that no record has, and the snapshots that have
// one. Beside that it returns the findings that the disk says no more about. unfinished is whether there are files of one that is not
// complete.
func (s *Store) compareSnapshots(id uint64, trees []fs.DirEntry, unfinished bool) (unknown []string, known []Snapshot, findings []Finding) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.takings[id]
	taken := t != nil && !t.ended()
	for _, e := range trees {
		if name := e.Name(); s.snapshotLocked(id, name) == nil && (!taken || t.name != name) && !s.isBadSnapshotLocked(id, name) {
			unknown = append(unknown, name)
		}
	}
	for _, r := range s.snapshots[id] {
		known = append(known, r.Snapshot)
	}
	if last := s.lastSnapshotLocked(id); last != nil && last.waitedLong() {
		findings = append(findings, last.longWait())
	}
	if unfinished && !taken {
		findings = append(findings, Finding{
			Path: path.Join(snapshotsOf(id), snapshotWork), Notice: true,
			Problem: "files of a snapshot that was not completed take space", Fix: "restart podnas, which removes them",
		})
	}
	return unknown, known, findings
}

// hasSnapshot reports whether there is still a snapshot, which nobody is deleting.
func (s *Store) hasSnapshot(of *Snapshot) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.snapshotLocked(of.VolumeID, of.Name)
	return r != nil && !r.deleting
}

// isBadSnapshotLocked reports whether the record of a snapshot is there, but not used.
//
// +checklocks:s.mu
func (s *Store) isBadSnapshotLocked(id uint64, name string) bool {
	file := (&Snapshot{VolumeID: id, Name: name}).file()
	return slices.ContainsFunc(s.badSnapshots, func(d badSnapshot) bool { return d.file == file })
}

// longWait is the finding about a snapshot that made clients wait.
func (r *Snapshot) longWait() Finding {
	if r.Paused > r.LongestWait {
		return Finding{
			Volume: r.Volume, Path: r.Directory(), Notice: true,
			Problem: fmt.Sprintf("while its snapshot %s was taken, all changes of the volume waited %.1f s for its moment: one that was under way took so long, as when clients write more than the disk takes",
				r.Name, float64(r.Paused)/1000),
			Fix: "take snapshots of this volume at quiet times, or none. The next snapshot ends this notice",
		}
	}
	file := "a file"
	if r.WaitedFor != "" {
		file = strconv.Quote(r.WaitedFor)
	}
	return Finding{
		Volume: r.Volume, Path: r.Directory(), Notice: true,
		Problem: fmt.Sprintf("while its snapshot %s was taken, a change of %s waited %.1f s: the file is in very many pieces, or the disk is slow",
			r.Name, file, float64(r.LongestWait)/1000),
		Fix: "write the file anew while nobody uses it (cp FILE NEW && mv NEW FILE), take snapshots of this volume at quiet times, or none. The next snapshot ends this notice",
	}
}
