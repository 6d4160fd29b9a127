package exports

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"path"
	"path/filepath"
	"syscall"
	"time"

	"github.com/podnas/podnas/server/snapshot"
)

// The complete snapshots of a volume are in one folder. Clients see it as a directory of the volume's root that is not
// listed. It is a Volume of its own, and so is each snapshot in it: the handles of what is in it say so, nothing in it can be
// changed, and the handles of a snapshot that is deleted are those of a volume that has ended, though a file of it may have a
// name in another snapshot. To clients all are on the volume's file system, as their files are on the same disk: they need no
// other mount for them.
//
// A volume may have many snapshots, of which clients use few. So a snapshot is opened when the first handle of it comes, and its
// index has what was asked for (locate.Volume.OnDemand).

// SnapshotsName is the name of the directory of a volume's snapshots.
const SnapshotsName = ".snapshots"

// ofSnapshots makes the number of a volume's snapshots of its own, which is random.
const ofSnapshots = 0x736e617073686f74

// ReadsOwn has snapshots read files of the process's own user, whose modes keep even their owner from them, by what a function
// returns for their volume.
func (t *Table) ReadsOwn(own func(*Volume) *snapshot.Own) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.own = own
}

// OwnFiles returns what ReadsOwn has set, nil if the process may read everything.
func (v *Volume) OwnFiles() *snapshot.Own {
	v.table.mu.RLock()
	own := v.table.own
	v.table.mu.RUnlock()
	if own == nil {
		return nil
	}
	return own(v)
}

// SnapshotNamed returns the Volume of a snapshot, in a volume's snapshots. The error is ESTALE if there is none.
func (v *Volume) SnapshotNamed(name string) (*Volume, error) {
	id, ok := v.NumberOf([]byte(name))
	if !ok {
		return nil, syscall.ESTALE
	}
	return v.table.Find(id)
}

// Snapshot is one of the snapshots that clients see.
type Snapshot struct {
	Name string    // in the folder
	At   time.Time // its moment: with a name, no other snapshot of the volume ever has it
}

// number is the number of the Volume of a snapshot. It is the same in the next process.
func (s *Snapshot) number(shown uint64) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(binary.BigEndian.AppendUint64(nil, uint64(s.At.UnixNano()))) // a Hash returns no error
	_, _ = h.Write([]byte(s.Name))
	return shown ^ h.Sum64()
}

// shownSnapshot is a snapshot that may be opened.
type shownSnapshot struct {
	in   *Volume // the volume's snapshots
	name string
}

// Shown returns the snapshots of the volume, nil if it has none.
func (v *Volume) Shown() *Volume { return v.shown.Load() }

// NumberOf returns the number of the Volume of a name in the root of a volume's snapshots. ok is false for other names, and in
// other volumes.
func (v *Volume) NumberOf(name []byte) (id uint64, ok bool) {
	if all := v.numbers.Load(); all != nil {
		id, ok = (*all)[string(name)]
	}
	return id, ok
}

// ShowSnapshots has clients of a volume see a folder as its directory of snapshots, and says which of the names in it are snapshots.
// Those that are no more end, and it waits for their current calls.
func (t *Table) ShowSnapshots(id uint64, dir string, all []Snapshot) error {
	for {
		of, err := t.Find(id)
		if err != nil {
			return fmt.Errorf("show snapshots: %w", err)
		}
		before := of.Shown()
		shown := before
		if before == nil {
			if shown, err = t.openIn(of, Exported{ID: id ^ ofSnapshots, Path: path.Join(of.Path, SnapshotsName), Dir: dir}); err != nil {
				return err
			}
		}
		if gone, ok := t.replaceShown(of, before, shown, all); ok {
			t.Forget(end(gone)...)
			return nil
		}
		if before == nil {
			shown.end()
		}
	}
}

// replaceShown sets the snapshots of a volume, and where clients see them. It returns those that are to end. ok is false if the volume
// has ended, or clients do not see its snapshots where they did before.
func (t *Table) replaceShown(of, before, shown *Volume, all []Snapshot) (gone []*Volume, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byID[of.ID] != of || of.Shown() != before {
		return nil, false
	}
	t.byID[shown.ID] = shown
	gone = t.setSnapshotsLocked(shown, all)
	of.shown.Store(shown) // with the numbers of what is in it
	return gone, true
}

// openIn is open for snapshots: of a volume, or one of its snapshots.
func (t *Table) openIn(of *Volume, e Exported) (*Volume, error) {
	e.Options, e.Form, e.of = of.Options, of.Files.Form(), of
	e.Options.ReadOnly = true
	v, err := t.open(e)
	if err == nil && v.FS.Device == of.FS.Device { // else the same inode numbers would be two files'
		v.FSID = of.FSID
	}
	return v, err
}

// setSnapshotsLocked sets the snapshots in the directory of a volume's, and returns those that are to end.
//
// +checklocks:t.mu
func (t *Table) setSnapshotsLocked(shown *Volume, all []Snapshot) (gone []*Volume) {
	numbers := make(map[string]uint64, len(all))
	stay := make(map[uint64]bool, len(all))
	for i := range all {
		n := all[i].number(shown.ID)
		numbers[all[i].Name], stay[n] = n, true
		t.snapshots[n] = shownSnapshot{shown, all[i].Name}
	}
	if before := shown.numbers.Swap(&numbers); before != nil {
		for _, n := range *before {
			if stay[n] {
				continue
			}
			delete(t.snapshots, n)
			if v := t.byID[n]; v != nil {
				delete(t.byID, n)
				gone = append(gone, v)
			}
		}
	}
	return gone
}

// end ends volumes, and returns their numbers.
func end(gone []*Volume) (ids []uint64) {
	for _, v := range gone {
		v.end()
		ids = append(ids, v.ID)
	}
	return ids
}

// openSnapshot opens a snapshot by its number. The error is ESTALE if there is none.
func (t *Table) openSnapshot(id uint64) (*Volume, error) {
	t.mu.RLock()
	s, ok := t.snapshots[id]
	t.mu.RUnlock()
	if !ok {
		return nil, syscall.ESTALE
	}
	dir := filepath.Join(s.in.Files.Root.Name(), s.name)
	opened, err := t.openIn(s.in, Exported{ID: id, Path: path.Join(s.in.Path, s.name), Dir: dir})
	switch {
	case errors.Is(err, syscall.ENOENT): // it is being deleted
		return nil, syscall.ESTALE
	case err != nil:
		t.log().Warn("nfs: can't open a snapshot", "snapshot", path.Join(s.in.Path, s.name), "err", err)
		return nil, err
	}
	t.mu.Lock()
	v := t.byID[id]
	if v == nil && t.snapshots[id] == s {
		v = opened
		t.byID[id] = v
	}
	t.mu.Unlock()
	if v != opened { // another call was faster, or the snapshot is gone
		opened.end()
	}
	if v == nil {
		return nil, syscall.ESTALE
	}
	return v, nil
}

// HideSnapshots ends ShowSnapshots, and waits for current calls. It returns whether there was anything to see.
func (t *Table) HideSnapshots(id uint64) bool {
	of, ok := t.ByID(id)
	if !ok {
		return false
	}
	ended := t.hideSnapshots(of)
	t.Forget(ended...)
	return len(ended) > 0
}

// hideSnapshots returns the numbers of the volumes that ended.
func (t *Table) hideSnapshots(of *Volume) (ended []uint64) {
	t.mu.Lock()
	v := of.shown.Swap(nil)
	if v == nil {
		t.mu.Unlock()
		return nil
	}
	gone := append(t.setSnapshotsLocked(v, nil), v)
	delete(t.byID, v.ID)
	t.mu.Unlock()
	return end(gone)
}
