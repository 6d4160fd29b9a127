package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/restore"
	"github.com/podnas/podnas/server/snapshot"
)

// noClones is the error of CheckSnapshots on a disk that can't share blocks. There is no snapshot by copying: the first change of each
// file would have to wait until all of the file is copied.
func noClones(v volume.Volume) error {
	name := v.Name
	if v.ID == 0 || name == "" {
		name = "VOLUME"
	}
	return fmt.Errorf("the disk can't share blocks between files, for which it needs XFS (with reflink=1) or btrfs. "+
		"Put podnas's disk on one of these, or use podnas serve --disk-image, which keeps an XFS in a file. "+
		"A copy can be made on every disk, but takes the space again, and is of one moment only if nobody writes to the volume meanwhile: podnas volume copy %s %[1]s-copy", name)
}

// CheckSnapshots implements volume.Snapshotter. What is not known, as on a full disk, taking the snapshot tells.
func (e exporter) CheckSnapshots(v volume.Volume) error {
	if v.ID == 0 {
		if !exports.HasClones(e.Root) {
			return noClones(v)
		}
		return nil
	}
	served, err := e.begin(v)
	if err != nil {
		return err
	}
	defer served.Done()
	if !served.HasClones() {
		return noClones(v)
	}
	return nil
}

// begin begins a call in an exported volume, which its Done ends.
func (e exporter) begin(v volume.Volume) (*exports.Volume, error) {
	served, ok := e.Table.ByID(v.ID)
	if !ok || !served.Begin() {
		return nil, fmt.Errorf("volume %s is not exported", v.Name)
	}
	return served, nil
}

// TakeSnapshot implements volume.Snapshotter.
func (e exporter) TakeSnapshot(ctx context.Context, v volume.Volume, work *os.File, last *volume.EarlierSnapshot, p *volume.SnapshotProgress) (volume.SnapshotTaken, error) {
	served, err := e.begin(v)
	if err != nil {
		return volume.SnapshotTaken{}, err
	}
	defer served.Done()
	root, err := os.OpenRoot(work.Name())
	if err != nil {
		return volume.SnapshotTaken{}, err
	}
	defer root.Close()
	progress := (*snapshot.Progress)(p)
	if err := served.Snapshots.Take(ctx, &served.Files, served.OwnFiles(), root, (*snapshot.Earlier)(last), progress); err != nil {
		return volume.SnapshotTaken{}, err
	}
	return volume.SnapshotTaken{Cut: time.Unix(0, p.Cut.Load()), Files: p.Files.Load(), Bytes: p.Bytes.Load(), Linked: p.Linked.Load()}, nil
}

// ShowSnapshots implements volume.Snapshotter. Clients know what is in a directory as long as its change attribute, in
// version 3 its ctime, is the same. That of .snapshots moves with each snapshot, and the root's when .snapshots comes or goes.
func (e exporter) ShowSnapshots(v volume.Volume, dir string, all []volume.Snapshot) error {
	served, err := e.begin(v)
	if err != nil {
		return err
	}
	defer served.Done()
	if len(all) == 0 {
		if !e.Table.HideSnapshots(v.ID) {
			return nil
		}
		return e.touch(served)
	}
	appears := served.Shown() == nil
	shown := make([]exports.Snapshot, len(all))
	for i := range all {
		shown[i] = exports.Snapshot{Name: all[i].Name, At: all[i].Created}
	}
	if err := e.Table.ShowSnapshots(v.ID, dir, shown); err != nil {
		return err
	}
	if in := served.Shown(); in != nil { // else the volume is being deleted
		err = e.touch(in)
	}
	if appears {
		err = errors.Join(err, e.touch(served))
	}
	return err
}

// touch has clients look again what is in the root of a volume. Before there is a server, there are no clients.
func (e exporter) touch(v *exports.Volume) error {
	if e.NFS == nil || e.NFS() == nil {
		return nil
	}
	return e.NFS().Touch(v)
}

// HoldVolume implements volume.Snapshotter.
func (e exporter) HoldVolume(ctx context.Context, v volume.Volume) (release func(), err error) {
	served, err := e.begin(v)
	if err != nil {
		return nil, err
	}
	defer served.Done()
	return served.Snapshots.Hold(ctx)
}

// RestoreSnapshot implements volume.Snapshotter.
func (e exporter) RestoreSnapshot(ctx context.Context, v volume.Volume, name string, p *volume.RestoreProgress) error {
	served, err := e.begin(v)
	if err != nil {
		return err
	}
	defer served.Done()
	// What there is goes, and what the snapshot has comes, in the order of names: for a while both may be there.
	defer served.Account.Lift()()
	return e.NFS().Restore(ctx, served, name, (*restore.Progress)(p))
}

// OpenFiles implements volume.Snapshotter.
func (e exporter) OpenFiles(v volume.Volume) int { return e.NFS().OpenFiles(v.ID) }
