package volume

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

// state of a record in volumes/.
type state string

const (
	// creating: the directory may be there or not, and no client has seen it.
	creating state = "creating"
	// copyingState: some of the source's files may be there, and no client has
	// seen it.
	copyingState state = "copying"
	// adopting: the files were there before, some may not be under the project.
	adopting state = "adopting"
	ready    state = "ready"
	// retained: deleted, with its files where they were.
	retained state = "retained"
	// archived: deleted, on its way to the archive, or back from there.
	archived state = "archived"
)

// record is a volume's file in volumes/, archive/ or trash/. In the last two it
// has the state it had.
type record struct {
	State   state     `json:"state"`
	Deleted time.Time `json:"deleted,omitzero"`
	// Boot is when the machine was started on which it is copied: what was copied
	// before may not have come to the disk.
	Boot string `json:"boot,omitempty"`
	Volume

	deleting bool      // guarded by Store.mu
	retry    time.Time // when it may be emptied again; guarded by Store.mu
}

// writeJSON replaces a file so that after a crash it is either the old one or
// the new one, and is on the disk when writeJSON returns.
func writeJSON(dir *os.Root, name string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	temporary := name + ".tmp"
	f, err := dir.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	_, err = f.Write(append(data, '\n'))
	err = errors.Join(err, own(dir, f), f.Sync(), f.Close())
	if err == nil {
		err = dir.Rename(temporary, name)
	}
	if err == nil {
		err = syncDir(dir, path.Dir(name))
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

func readJSON(dir *os.Root, name string, v any) error {
	data, err := dir.ReadFile(name)
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	return nil
}

// readRecords reads every record of a state directory. What a crash left half
// written (*.tmp) was never a record and is removed. A record that can't be
// understood is reported and left alone: its volume is not served, all others are.
// One that may not be read is an error: nothing is wrong with it.
func (s *Store) readRecords(name string) ([]*record, error) {
	dir := s.root
	entries, err := fs.ReadDir(dir.FS(), name)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", name, err)
	}
	var records []*record
	for _, e := range entries {
		file := path.Join(name, e.Name())
		switch {
		case strings.HasSuffix(file, ".tmp"):
			if err := dir.Remove(file); err != nil {
				return nil, fmt.Errorf("remove what an interrupted write left: %w", err)
			}
		case strings.HasSuffix(file, ".json"):
			var r record
			err := readJSON(dir, file, &r)
			if errors.Is(err, fs.ErrPermission) {
				return nil, err
			}
			if err == nil {
				err = r.check(file)
			}
			if err != nil {
				s.log.Error("volume: "+damagedRecord, "record", file, "err", err, "fix", damagedFix)
				s.damaged = append(s.damaged, damaged{file: file, err: err})
				continue
			}
			records = append(records, &r)
		}
	}
	return records, nil
}

// damaged is a record that can't be understood.
type damaged struct {
	file string // below the root of the disk
	err  error
}

const (
	damagedRecord = "the record is damaged, so its volume is not served"
	damagedFix    = "restore the record from a backup of the disk, or move it away and adopt the directory"
)

// Damaged are the names of the volumes whose records can't be understood. Which claims
// they are for is not known.
func (s *Store) Damaged() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for _, d := range s.stillDamaged() {
		if dir, file := path.Split(d.file); path.Clean(dir) == volumesDir {
			names = append(names, strings.TrimSuffix(file, ".json"))
		}
	}
	return names
}

// stillDamaged are the damaged records that nobody has moved away. The caller holds s.mu.
func (s *Store) stillDamaged() []damaged {
	s.damaged = slices.DeleteFunc(s.damaged, func(d damaged) bool {
		_, err := s.root.Lstat(d.file)
		return errors.Is(err, os.ErrNotExist)
	})
	return s.damaged
}

// check refuses a record that was changed by hand or damaged before it can
// point anything at the wrong directory.
func (r *record) check(file string) error {
	spec := Spec{Name: r.Name, Path: r.Path, Size: r.Size, BytesPerInode: r.BytesPerInode, OnDelete: r.OnDelete}
	if err := spec.validate(); err != nil {
		return fmt.Errorf("record %s: %w", file, err)
	}
	switch r.State {
	case creating, copyingState, adopting, ready, retained, archived:
	default:
		return fmt.Errorf("record %s: %w: state %q", file, ErrInvalid, r.State)
	}
	if r.Inodes < 0 {
		return fmt.Errorf("record %s: %w: a limit of %d inodes", file, ErrInvalid, r.Inodes)
	}
	if r.ID == 0 {
		return fmt.Errorf("record %s: %w: no id", file, ErrInvalid)
	}
	if want := path.Base(file); want != r.Name+".json" && want != r.keptName()+".json" {
		return fmt.Errorf("record %s: %w: it is the record of %s", file, ErrInvalid, r.Name)
	}
	return nil
}

// keptName is what the volume's files and its record are called in trash/ and
// archive/: the name may be in use again by then, the id never is.
func (v *Volume) keptName() string { return fmt.Sprintf("%016x", v.ID) }

// keptIn is where its files are in one of these.
func (v *Volume) keptIn(dir string) string { return path.Join(dir, v.keptName()) }

func syncDir(root *os.Root, name string) error {
	d, err := root.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
