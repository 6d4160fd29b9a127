package volume

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"strings"
)

// State of a record in volumes/. A record in trash/ has the state it had.
type state string

const (
	// creating: the directory may be there or not, and no client has seen it.
	creating state = "creating"
	ready    state = "ready"
)

// record is a volume's file in volumes/ or trash/.
type record struct {
	State state `json:"state"`
	Volume
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
	err = errors.Join(err, f.Sync(), f.Close())
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
// read is reported and left alone: its volume is not served, all others are.
func readRecords(dir *os.Root, name string, log *slog.Logger) ([]record, error) {
	entries, err := fs.ReadDir(dir.FS(), name)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", name, err)
	}
	var records []record
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
			if err == nil {
				err = r.check(file)
			}
			if err != nil {
				log.Error("volume: its record is damaged, it is not served; restore the record from a backup of the disk", "err", err)
				continue
			}
			records = append(records, r)
		}
	}
	return records, nil
}

// check refuses a record that was changed by hand or damaged before it can
// point anything at the wrong directory.
func (r *record) check(file string) error {
	spec := Spec{Name: r.Name, Size: r.Size}
	if err := spec.validate(); err != nil {
		return fmt.Errorf("record %s: %w", file, err)
	}
	if r.ID == 0 || r.Path != r.Name || (r.State != creating && r.State != ready) {
		return fmt.Errorf("record %s: %w: id %d, path %q, state %q", file, ErrInvalid, r.ID, r.Path, r.State)
	}
	if want := path.Base(file); want != r.Name+".json" && want != r.trashName()+".json" {
		return fmt.Errorf("record %s: %w: it is the record of %s", file, ErrInvalid, r.Name)
	}
	return nil
}

// trashName is what the volume's files and its record are called in trash/: the
// name may be in use again by then, the id never is.
func (v *Volume) trashName() string { return fmt.Sprintf("%016x", v.ID) }

func syncDir(root *os.Root, name string) error {
	d, err := root.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
