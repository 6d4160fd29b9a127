package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
)

// Nothing is exported, moved, removed or created on the word of a record that is damaged, or that
// another record contradicts: podnas can't know which of two is right. Such a record is refused. Its
// file and its directory stay where they are, and all other volumes are served. Its name, its path
// and its project, as far as they are known, stay reserved.
//
// A damaged record contradicts no other: what it says is not known.

// refused is a record that is not used.
type refused struct {
	file string  // below the root of the disk
	r    *record // what could be read of it, nil if nothing
	err  error   // why
	// contradicted means that the record itself is well-formed.
	contradicted bool
	foreign      bool // it is contradicted, because it names another disk
}

const (
	damagedFix = "stop podnas, and restore the record from a backup of the disk; or correct it, remove its field " + checksumField +
		", and start podnas; or move the record away, and adopt the directory with 'podnas volume adopt'"
	contradictedFix = "stop podnas, find out which of the records is right, move the other away, out of " + StateDir + ", and start podnas"
	foreignFix      = "stop podnas, move the record away, out of " + StateDir + ", and start podnas; if " + InstanceFile + " is the wrong one instead, put the right one back from a backup of this disk"
)

// ErrRecord means that the volume's record is damaged, or that another contradicts it.
var ErrRecord = errors.New("its record can't be relied on")

func (d *refused) finding() Finding {
	f := Finding{Path: d.file, Problem: "the record is damaged, so its volume is not served: " + d.err.Error(), Fix: damagedFix}
	switch {
	case d.foreign:
		f.Problem, f.Fix = "the record is of another disk, so its volume is not served: "+d.err.Error(), foreignFix
	case d.contradicted:
		f.Problem, f.Fix = "the record contradicts another, so podnas neither serves nor removes anything because of it: "+d.err.Error(), contradictedFix
	}
	return f
}

// volume returns the name of the volume that the record is of, or "".
func (d *refused) volume() string {
	switch {
	case path.Dir(d.file) == volumesDir:
		return strings.TrimSuffix(path.Base(d.file), ".json")
	case d.contradicted:
		return d.r.Name
	}
	return ""
}

// path returns the path in the record, "" if it is not known.
func (d *refused) path() string {
	if d.r == nil || validPath(d.r.Path) != nil {
		return ""
	}
	return d.r.Path
}

// refuse stops the use of a record. Only load calls it, when nobody else has the Store yet.
//
// +checklocksignore
func (s *Store) refuse(d refused) {
	s.refused = append(s.refused, d)
	if d.r != nil {
		s.projects[d.r.Project] = true
	}
	f := d.finding()
	s.log.Error("volume: "+f.Problem, "record", d.file, "fix", f.Fix)
}

// isGone reports whether there is nothing at a path on the disk, which may hang.
//
// +checklocksexclude:s.mu
func (s *Store) isGone(p string) bool {
	_, err := s.root.Lstat(p)
	return errors.Is(err, os.ErrNotExist)
}

// stillRefused returns the refused records whose files still exist, and forgets the others.
//
// +checklocksexclude:s.mu
func (s *Store) stillRefused() []refused {
	s.mu.Lock()
	still := slices.Clone(s.refused)
	s.mu.Unlock()
	gone := map[string]bool{}
	for i := range still {
		if s.isGone(still[i].file) {
			gone[still[i].file] = true
		}
	}
	if len(gone) == 0 {
		return still
	}
	isGone := func(d refused) bool { return gone[d.file] }
	s.mu.Lock()
	s.refused = slices.DeleteFunc(s.refused, isGone)
	s.mu.Unlock()
	return slices.DeleteFunc(still, isGone)
}

// refusal returns an error if the record of a volume is among those that are refused.
func refusal(name string, still []refused) error {
	for _, d := range still {
		if path.Dir(d.file) == volumesDir && d.volume() == name {
			return fmt.Errorf("volume %s: %w: %w; %s", name, ErrRecord, d.err, d.finding().Fix)
		}
	}
	return nil
}

// explain has the error of a volume that is not there say so if there is a record of it that is refused. Who defers it does that before
// Store.mu is locked, so that it is free again.
//
// +checklocksexclude:s.mu
func (s *Store) explain(name string, err *error) {
	if !errors.Is(*err, ErrNotFound) {
		return
	}
	if refused := refusal(name, s.stillRefused()); refused != nil {
		*err = refused
	}
}

// recordFiles lists the names of the records in a directory.
func recordFiles(root *os.Root, dir string) ([]string, error) {
	entries, err := fs.ReadDir(root.FS(), dir)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", dir, err)
	}
	var names []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".json") {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// readRecord reads a record. With an error it returns what it could read, or nil.
func readRecord(root *os.Root, file string) (*record, error) {
	r := &record{file: file}
	err := readJSON(root, file, r)
	if err == nil {
		if err = r.check(); err != nil {
			err = fmt.Errorf("record %s: %w", file, err)
		}
	}
	if r.Name == "" && r.Path == "" {
		r = nil
	}
	return r, err
}

// readRecords reads the records of a state directory, and refuses those that are
// damaged. A record that podnas may not read is an error, because it is not damaged.
func (s *Store) readRecords(dir string) ([]*record, error) {
	names, err := recordFiles(s.root, dir)
	if err != nil {
		return nil, err
	}
	var records []*record
	for _, name := range names {
		file := path.Join(dir, name)
		r, err := readRecord(s.root, file)
		switch {
		case errors.Is(err, fs.ErrPermission):
			return nil, err
		case err != nil:
			s.refuse(refused{file: file, r: r, err: err})
		default:
			records = append(records, r)
		}
	}
	return records, nil
}

// withoutContradictions refuses the records that contradict each other, or that are of another disk, and
// returns the others.
func (s *Store) withoutContradictions(records []*record) []*record {
	against := map[*record][]string{}
	both := func(a, b *record, what string) {
		against[a] = append(against[a], fmt.Sprintf("%s has %s, too", b.file, what))
		against[b] = append(against[b], fmt.Sprintf("%s has %s, too", a.file, what))
	}
	ids, projects, paths := map[uint64]*record{}, map[uint32]*record{}, map[string]*record{}
	for _, r := range records {
		if !s.instance.isOf(r.Disk) {
			s.refuse(refused{
				file: r.file, r: r, contradicted: true, foreign: true,
				err: fmt.Errorf("record %s: it is of the disk %s, and this one is %s", r.file, r.Disk, s.instance.Identity),
			})
			continue // it says nothing about the others
		}
		if other := ids[r.ID]; other != nil {
			both(r, other, "the id "+r.keptName())
		} else {
			ids[r.ID] = r
		}
		if other := projects[r.Project]; other != nil && r.Project != 0 {
			both(r, other, fmt.Sprintf("the project %d", r.Project))
		} else {
			projects[r.Project] = r
		}
		// The path of a volume that was deleted or archived may be another's now.
		if path.Dir(r.file) != volumesDir {
			continue
		}
		if other := paths[r.Path]; other != nil {
			both(r, other, "the path "+r.Path)
		} else {
			paths[r.Path] = r
		}
	}
	for p, r := range paths {
		for above := path.Dir(p); above != "."; above = path.Dir(above) {
			if other := paths[above]; other != nil {
				both(r, other, fmt.Sprintf("a path above or below: %s and %s", other.Path, r.Path))
			}
		}
	}
	var right []*record
	for _, r := range records {
		why := against[r]
		switch {
		case !s.instance.isOf(r.Disk):
		case why != nil:
			slices.Sort(why)
			s.refuse(refused{file: r.file, r: r, contradicted: true, err: fmt.Errorf("record %s: %s", r.file, strings.Join(slices.Compact(why), "; "))})
		default:
			right = append(right, r)
		}
	}
	return right
}

// site is what the disk has where a volume is to be. It is found out before Store.mu is locked, by a caller that holds the volume's
// name: so nobody writes a record meanwhile, and a directory that is made meanwhile is in the path of a volume.
type site struct {
	path            string
	noRecord, noDir error     // of Lstat; ErrNotExist: there is none
	refused         []refused // the records that are not used
	above           []string  // the directories above the path; only with such records
}

// lookAt looks where the volume of a name is to be.
//
// +checklocksexclude:s.mu
func (s *Store) lookAt(name, p string) site {
	at := site{path: p, refused: s.stillRefused()}
	_, at.noRecord = s.root.Lstat(recordFile(name))
	_, at.noDir = s.root.Lstat(p)
	for above := path.Dir(p); above != "." && len(at.refused) > 0; above = path.Dir(above) {
		if info, err := s.root.Lstat(above); err == nil && info.IsDir() {
			at.above = append(at.above, above)
		}
	}
	return at
}

// checkFreeLocked returns an error if a path belongs to a volume, or to a record that is not used.
//
// +checklocks:s.mu
func (s *Store) checkFreeLocked(at *site) error {
	if other := s.takenByLocked(at.path); other != nil {
		return fmt.Errorf("path %s: %w: volume %s has %s", at.path, ErrExists, other.Name, other.Path)
	}
	for _, d := range at.refused {
		if known := d.path(); known != "" && nests(known, at.path) {
			return fmt.Errorf("path %s: %w: %s, in the record %s, which is not used: %w", at.path, ErrExists, known, d.file, d.err)
		}
	}
	return nil
}

// checkAboveLocked returns an error if a path is inside of a directory that may belong to a damaged record.
//
// +checklocks:s.mu
func (s *Store) checkAboveLocked(at *site) error {
	unknown := slices.IndexFunc(at.refused, func(d refused) bool { return !d.contradicted && path.Dir(d.file) != archiveDir })
	if unknown < 0 {
		return nil
	}
	for _, above := range at.above {
		if !s.isAboveLocked(above) {
			return fmt.Errorf("path %s: %w: the directory %s belongs to no volume that is known, and may belong to a damaged record: %w",
				at.path, ErrExists, above, at.refused[unknown].err)
		}
	}
	return nil
}

// isAboveLocked reports whether a directory is above that of a volume.
//
// +checklocks:s.mu
func (s *Store) isAboveLocked(dir string) bool {
	for _, r := range s.records {
		if strings.HasPrefix(r.Path, dir+"/") {
			return true
		}
	}
	return slices.ContainsFunc(s.refused, func(d refused) bool { return d.contradicted && strings.HasPrefix(d.r.Path, dir+"/") })
}

// mayBeOf returns which of the records that are refused a deleted volume's directory, if it is still at its path, may belong to.
func (r *record) mayBeOf(still []refused) *refused {
	for i := range still {
		d := &still[i]
		if path.Dir(d.file) == archiveDir {
			continue // as is its directory
		}
		if p := d.path(); p == "" || nests(p, r.Path) || d.volume() == r.Name || d.r.ID == r.ID {
			return d
		}
	}
	return nil
}

// Damaged returns the names of the volumes whose records are not used. Their claims are
// unknown.
func (s *Store) Damaged() []string {
	var names []string
	for _, d := range s.stillRefused() {
		if path.Dir(d.file) == volumesDir {
			names = append(names, d.volume())
		}
	}
	return names
}
