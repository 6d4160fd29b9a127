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

	"github.com/podnas/podnas/statedir"
)

// state of a record in volumes/.
type state string

const (
	// creating: the directory may exist, and no client has seen it.
	creating state = "creating"
	// copyingState: some of the source's files may be copied, and no client has seen
	// it.
	copyingState state = "copying"
	// adopting: the files existed before, and some may not be assigned to the project
	// yet.
	adopting state = "adopting"
	ready    state = "ready"
	// retained: deleted, but the files are unchanged.
	retained state = "retained"
	// archived: deleted, and being moved to the archive, or back.
	archived state = "archived"
)

// record is a volume's file in volumes/, archive/ or trash/. In the last two it
// keeps its last state.
type record struct {
	State   state     `json:"state"`
	Deleted time.Time `json:"deleted,omitzero"`
	// Boot identifies the machine's start in which it is copied: files copied before
	// that may not be on the disk.
	Boot string `json:"boot,omitempty"`
	Volume

	deleting bool      // guarded by Store.mu
	retry    time.Time // when emptying may be retried; guarded by Store.mu
}

// writeJSON replaces a file atomically, even in a crash, and syncs it before it
// returns. On a full disk it uses the reserve.
func writeJSON(dir *os.Root, reserve *statedir.Reserve, name string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	folder, err := dir.Open(path.Dir(name))
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	defer folder.Close()
	return reserve.Write(folder, path.Base(name), append(data, '\n'))
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

// readRecords reads the records of a state directory. It removes incomplete files
// left by a crash (*.tmp), which never were records. It reports a damaged record
// and keeps its file: its volume is not served, all others are. A record that
// podnas may not read is an error, because it is not damaged.
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

// damaged is a record that can't be parsed.
type damaged struct {
	file string // below the root of the disk
	err  error
}

const (
	damagedRecord = "the record is damaged, so its volume is not served"
	damagedFix    = "restore the record from a backup of the disk, or move it away and adopt the directory"
)

// Damaged returns the names of the volumes whose records are damaged. Their claims are
// unknown.
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

// stillDamaged returns the damaged records whose files still exist. The caller holds
// s.mu.
func (s *Store) stillDamaged() []damaged {
	s.damaged = slices.DeleteFunc(s.damaged, func(d damaged) bool {
		_, err := s.root.Lstat(d.file)
		return errors.Is(err, os.ErrNotExist)
	})
	return s.damaged
}

// check refuses a record that was edited or damaged, so that it can't refer to a
// wrong directory.
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

// keptName is the name of the volume's files and record in trash/ and archive/. It
// is the id, because a new volume may have the old name.
func (v *Volume) keptName() string { return fmt.Sprintf("%016x", v.ID) }

// keptIn is the path of its files in one of these.
func (v *Volume) keptIn(dir string) string { return path.Join(dir, v.keptName()) }

func syncDir(root *os.Root, name string) error {
	d, err := root.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
