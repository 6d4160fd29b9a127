package volume

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"time"

	"github.com/podnas/podnas/internal/statedir"
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
	// Restoring is the name of the snapshot that its files are being made those of.
	Restoring string `json:"restoring,omitempty"`
	// RestoreSafety is the name of the snapshot that has what its files were before that.
	RestoreSafety string `json:"restoreSafety,omitempty"`
	// Disk is the identity of the disk that the volume is on.
	Disk string `json:"disk,omitempty"`
	Volume

	file     string    // where it was read, below the root of the disk; empty if it was created since
	unknown  object    // fields of a newer podnas
	summed   bool      // the file has a checksum
	unserved error     // why a volume that is ready is not served; guarded by Store.mu
	deleting bool      // guarded by Store.mu
	inPlace  bool      // its directory may still be to be moved to the trash; guarded by Store.mu
	retry    time.Time // when emptying may be retried; guarded by Store.mu
}

// MarshalJSON adds the checksum.
func (r record) MarshalJSON() ([]byte, error) {
	type plain record
	if r.View {
		r.State = viewState
	}
	return encodeSummed(plain(r), r.unknown)
}

// UnmarshalJSON checks the checksum.
func (r *record) UnmarshalJSON(data []byte) (err error) {
	type plain record
	r.unknown, r.summed, err = decodeSummed(data, (*plain)(r))
	if r.View && r.State == viewState {
		r.State = ready
	}
	return err
}

// stateFileMax is the maximum size of a file that is read, in bytes. A record has some 500 and its
// manifest.
const stateFileMax = 4 << 20

// writeJSON replaces a file atomically, even in a crash, and syncs it before it
// returns. On a full disk it uses the reserve.
func writeJSON(dir *os.Root, reserve *statedir.Reserve, name string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	folder, err := openDir(dir, path.Dir(name))
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	defer folder.Close()
	return reserve.Write(folder, path.Base(name), append(data, '\n'))
}

// readJSON reads a file of the state directory. It follows no link and does not wait for the other end of a fifo.
func readJSON(dir *os.Root, name string, v any) error {
	folder, err := openDir(dir, path.Dir(name))
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	defer folder.Close()
	data, err := statedir.Of(folder, nil, nil).Read(path.Base(name), stateFileMax)
	if err == nil {
		err = json.Unmarshal(data, v)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	return nil
}

// check refuses a record that was edited or damaged, so that it can't refer to a
// wrong directory.
func (r *record) check() error {
	spec := Spec{Name: r.Name, Path: r.Path, Size: r.Size, BytesPerInode: r.BytesPerInode, OnDelete: r.OnDelete, Schedule: r.Schedule, SnapshotReserve: r.SnapshotReserve}
	if err := spec.validate(); err != nil {
		return err
	}
	if r.Inodes < 0 {
		return fmt.Errorf("%w: a limit of %d inodes", ErrInvalid, r.Inodes)
	}
	if r.ID == 0 {
		return fmt.Errorf("%w: no id", ErrInvalid)
	}
	want := r.keptName()
	if path.Dir(r.file) == volumesDir {
		want = r.Name
	}
	if path.Base(r.file) != want+".json" {
		return fmt.Errorf("%w: it is the record of %s, in the file of another", ErrInvalid, r.Name)
	}
	if r.View {
		return r.checkView()
	}
	return r.checkState()
}

// checkState refuses a state that the rest of the record contradicts: acting on it, podnas would move
// or remove files. Records of older versions have no checksum that would show a changed state.
func (r *record) checkState() error {
	right := true
	switch r.State {
	case creating:
		right = r.Deleted.IsZero()
	case copyingState:
		right = r.Source != "" && r.Inodes == 0 && (r.SourceSnapshot == "") == (r.SourceID == 0)
	case adopting:
		right = r.Deleted.IsZero() && r.Inodes == 0
	case retained:
		right = r.OnDelete == RetainFiles
	case archived:
		right = !r.Deleted.IsZero() && r.OnDelete == ArchiveFiles
	case ready:
	default:
		return fmt.Errorf("%w: state %q", ErrInvalid, r.State)
	}
	switch path.Dir(r.file) {
	case trashDir: // where no state makes a difference
		return nil
	case archiveDir:
		right = right && r.State == archived
	}
	if !right {
		return fmt.Errorf("%w: its state is %q, which the rest of it contradicts", ErrInvalid, r.State)
	}
	return nil
}

// source says for people what a volume is copied from.
func (r *record) source() string { return sourceName(r.Source, r.SourceSnapshot) }

func sourceName(volume, snapshot string) string {
	if snapshot != "" {
		return fmt.Sprintf("snapshot %s of volume %s", snapshot, volume)
	}
	return "volume " + volume
}

// keptName is the name of the volume's files and record in trash/ and archive/. It
// is the id, because a new volume may have the old name.
func (v *Volume) keptName() string { return fmt.Sprintf("%016x", v.ID) }

// keptIn is the path of its files in one of these.
func (v *Volume) keptIn(dir string) string { return path.Join(dir, v.keptName()) }

func syncDir(root *os.Root, name string) error {
	d, err := openDir(root, name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
