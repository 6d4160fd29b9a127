package exports

import (
	"fmt"
	"path"
	"syscall"

	"github.com/podnas/podnas/server/snapshot"
)

// The complete snapshots of a volume are in one folder. Clients see it as a directory of the volume's root that is not
// listed. It is a Volume of its own, so that the handles of what is in it say so, and nothing in it can be changed. To
// clients it is on the volume's file system, as its files are on the same disk: they need no other mount for it.

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
	defer v.table.mu.RUnlock()
	if v.table.own == nil {
		return nil
	}
	return v.table.own(v)
}

// Shown returns the snapshots of the volume, nil if it has none.
func (v *Volume) Shown() *Volume { return v.shown.Load() }

// ShowSnapshots has clients of a volume see what is in a folder as its snapshots. The volume must not end meanwhile.
func (t *Table) ShowSnapshots(id uint64, dir string) error {
	of, ok := t.ByID(id)
	if !ok {
		return fmt.Errorf("show snapshots: %w", syscall.ESTALE)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if of.Shown() != nil {
		return nil
	}
	options := of.Options
	options.ReadOnly = true
	v, err := t.open(Exported{ID: id ^ ofSnapshots, Path: path.Join(of.Path, SnapshotsName), Dir: dir, Options: options, Form: of.Files.Form()})
	if err != nil {
		return err
	}
	if v.FS.Device == of.FS.Device { // else the same inode numbers would be two files'
		v.FSID = of.FSID
	}
	v.Of = of
	t.byID[v.ID] = v
	of.shown.Store(v)
	v.Files.Fill()
	return nil
}

// hideSnapshots ends ShowSnapshots.
func (t *Table) hideSnapshots(of *Volume) {
	v := of.shown.Swap(nil)
	if v == nil {
		return
	}
	t.mu.Lock()
	delete(t.byID, v.ID)
	t.mu.Unlock()
	v.end()
}
