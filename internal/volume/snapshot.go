package volume

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"
)

// A snapshot is the tree of a volume's files as they were at one moment. It depends on nothing: its volume and other
// snapshots can be deleted in any order, and a deleted volume keeps its snapshots.
//
//	snapshots/<volume id>/<name>.json       its record
//	snapshots/<volume id>/<name>.catalogue  of which files of the volume it was made, for the next one; it may be missing
//	snapshots/<volume id>/ready/<name>      its files
//	snapshots/<volume id>/making/           where one is being taken; nothing in it counts
//
// The steps, and what the next Open makes of a crash after each:
//
//	create:  making/tree, making/catalogue -> record                a record without files and making/ are removed
//	         -> catalogue moved -> making/tree moved to ready/
//	delete:  files moved to trash/ -> catalogue, record removed     a record without files is removed
//	         -> answer -> (in the background) files removed         the trash is emptied
//
// Files in ready/ without a record may be all that is left of a snapshot. They are a finding of Check, and nothing
// removes them.

const (
	snapshotsDir  = StateDir + "/snapshots"
	snapshotReady = "ready"
	snapshotWork  = "making"
	// snapshotTree is what Snapshotter.TakeSnapshot makes in work.
	snapshotTree = "tree"
	// snapshotCatalogue is the other thing that it makes there.
	snapshotCatalogue = "catalogue"
	// snapshotNameMax limits a snapshot's name, in bytes. Labels of Kubernetes have the same limit.
	snapshotNameMax = 63
	// snapshotWaitMax is how long a change may wait for a snapshot without a warning.
	snapshotWaitMax = time.Second
)

var (
	// ErrNoSnapshot means that there is no snapshot of that name.
	ErrNoSnapshot = errors.New("no such snapshot")
	// ErrSnapshotName means that a snapshot can't have that name.
	ErrSnapshotName = errors.New("invalid name of a snapshot")
	// ErrUnsupported means that there can be no snapshots on this disk.
	ErrUnsupported = errors.New("there can be no snapshots")
)

// Snapshotter takes snapshots of volumes that clients use. Exporter has exported them.
type Snapshotter interface {
	// CheckSnapshots returns nil, or why an exported volume can have no snapshots: a sentence for people that says what to do.
	// A volume without an ID is yet to be made.
	CheckSnapshots(v Volume) error
	// TakeSnapshot makes a directory "tree" in the directory work, with all files of an exported volume as they are at one
	// moment between two calls of clients, and perhaps a file "catalogue". Files that have not changed since may be those of
	// the earlier snapshot, if last is not nil. The tree is on the disk when TakeSnapshot returns nil. After an error, which is
	// ctx's if ctx has ended, what is in work is worth nothing.
	TakeSnapshot(ctx context.Context, v Volume, work *os.File, last *EarlierSnapshot, p *SnapshotProgress) (SnapshotTaken, error)
	// ShowSnapshots has clients of an exported volume see snapshots, which are directories in dir, as .snapshots/NAME, until
	// Unexport, and no others that they saw before: what clients know of these is not valid any more when it returns. Without a
	// snapshot there is no .snapshots. It is called before a snapshot is in dir, and again when one has come or gone.
	ShowSnapshots(v Volume, dir string, all []Snapshot) error
	// HoldVolume has clients' changes of an exported volume fail so that they try again, until release is called. When it returns, those
	// that were under way have ended. The error is ctx's if ctx has ended.
	HoldVolume(ctx context.Context, v Volume) (release func(), err error)
	// RestoreSnapshot makes the files of an exported volume those of one of the snapshots that it shows. The volume is held, and
	// the server, if it counts, refuses nothing for the volume's limit meanwhile. After an error, which is ctx's if ctx has ended, a part is
	// done if the progress says Changed, and it can be called again.
	RestoreSnapshot(ctx context.Context, v Volume, name string, p *RestoreProgress) error
	// OpenFiles returns how many files of a volume clients have open, as far as they tell.
	OpenFiles(v Volume) int
}

// SnapshotProgress is how far a snapshot is.
type SnapshotProgress struct {
	Cut          atomic.Int64 // the moment of the snapshot in Unix nanoseconds; 0: not yet
	Files, Bytes atomic.Int64
	Linked       atomic.Int64
	Paused       atomic.Int64 // how long all changes of the volume have waited for that moment, in nanoseconds: the longest time
	// Waited is how long a change of the volume has waited for the snapshot, in nanoseconds: the longest time. WaitedFor is the
	// path of the file that was changed. They are set at the end.
	Waited    atomic.Int64
	WaitedFor atomic.Pointer[string]
}

// EarlierSnapshot is a complete snapshot of a volume. It may be removed at any time.
type EarlierSnapshot struct {
	Tree      string // the path of its files
	Catalogue string // the path of its catalogue, which may be missing
	Cut       time.Time
}

// SnapshotTaken is what TakeSnapshot has made.
type SnapshotTaken struct {
	Cut          time.Time // the moment of the snapshot
	Files, Bytes int64     // entries of any type, and the blocks that their content takes
	Linked       int64     // files that are also those of the earlier snapshot
}

// Snapshot is a snapshot's record.
type Snapshot struct {
	// Name is unique among the snapshots of a volume.
	Name string `json:"name"`
	// Volume is the name of its volume, and VolumeID its Volume.ID. After the volume's deletion another one may have the
	// name.
	Volume   string `json:"volume"`
	VolumeID uint64 `json:"volumeId,string"`
	// VolumeDeleted is whether the volume is deleted by now. It is not in the record.
	VolumeDeleted bool `json:"-"`
	// Created is the moment of the snapshot, and Completed when its tree was.
	Created   time.Time `json:"created,omitzero"`
	Completed time.Time `json:"completed,omitzero"`
	// Size is the volume's size at that moment, which a copy of the snapshot has at least.
	Size int64 `json:"size"`
	// Files is the number of entries of any type, and Bytes what their content takes, if nothing shares its blocks.
	Files int64 `json:"files"`
	Bytes int64 `json:"bytes"`
	// Linked is how many of the files are those of the snapshot before, as they had not changed.
	Linked int64 `json:"linked,omitempty"`
	// Reserve is what is promised for it: what it may come to take.
	Reserve int64 `json:"reserve,omitempty"`
	// Unclaimed is whether it was taken for somebody who may have gone before it was known that it is there: see StartUnclaimed.
	Unclaimed bool `json:"unclaimed,omitempty"`
	// Scheduled has the kinds of the schedule that it was taken for, "hourly" and so on. Without one, somebody has asked for it.
	Scheduled []string `json:"scheduled,omitempty"`
	// Expires is when a scheduled snapshot is deleted, if its volume is by then.
	Expires time.Time `json:"expires,omitzero"`
	// LongestWait is how long a change of the volume has waited while it was taken, in milliseconds, and WaitedFor the file, if
	// that was long.
	LongestWait int64  `json:"longestWaitMs,omitempty"`
	WaitedFor   string `json:"waitedFor,omitempty"`
	// Paused is how long all changes have waited for the moment of the snapshot, in milliseconds: the longest time.
	Paused int64 `json:"pausedMs,omitempty"`
	// Manifest is the volume's.
	Manifest json.RawMessage `json:"manifest,omitempty"`
}

// SnapshotUnderWay is a snapshot that is being taken. Created is zero until the moment of the snapshot, and Files and
// Bytes are those of its tree so far.
type SnapshotUnderWay struct {
	Snapshot
	Began time.Time
}

// TakingError means that a snapshot is being taken.
type TakingError struct{ SnapshotUnderWay }

func (e *TakingError) Error() string {
	return fmt.Sprintf("snapshot %s of volume %s is being taken: %s with %s so far",
		e.Name, e.Volume, FormatCount(e.Files, "file"), FormatSize(e.Bytes))
}

// snapshotRecord is a snapshot's file.
type snapshotRecord struct {
	// Disk is the identity of the disk that the snapshot is on.
	Disk string `json:"disk,omitempty"`
	Snapshot

	unknown  object    // fields of a newer podnas
	deleting bool      // guarded by Store.mu
	gone     bool      // its files are in the trash; guarded by Store.mu
	expired  time.Time // when expire has first seen that; guarded by Store.mu
	known    time.Time // when it was taken, or found at the start, by the process's clock, which nobody sets
}

// MarshalJSON adds the checksum.
func (r snapshotRecord) MarshalJSON() ([]byte, error) {
	type plain snapshotRecord
	return encodeSummed(plain(r), r.unknown)
}

// UnmarshalJSON checks the checksum.
func (r *snapshotRecord) UnmarshalJSON(data []byte) (err error) {
	type plain snapshotRecord
	r.unknown, _, err = decodeSummed(data, (*plain)(r))
	return err
}

// snapshotsOf is the folder with the snapshots of a volume.
func snapshotsOf(id uint64) string { return path.Join(snapshotsDir, fmt.Sprintf("%016x", id)) }

// file is the path of the record.
func (r *Snapshot) file() string { return path.Join(snapshotsOf(r.VolumeID), r.Name+".json") }

// Catalogue is the path of its catalogue, below the root of the disk. There may be none.
func (r *Snapshot) Catalogue() string { return path.Join(snapshotsOf(r.VolumeID), r.Name+".catalogue") }

// tree is the path of the files.
func (r *Snapshot) tree() string { return path.Join(snapshotsOf(r.VolumeID), snapshotReady, r.Name) }

// volume names the volume of the snapshot by its ID, as another one may have its name.
func (r *Snapshot) volume() string { return path.Base(snapshotsOf(r.VolumeID)) }

// Directory is the path of its files, below the root of the disk.
func (r *Snapshot) Directory() string { return r.tree() }

// checkSnapshotName refuses names that are not one plain component of a path.
func checkSnapshotName(name string) error {
	switch {
	case len(name) > snapshotNameMax:
		return fmt.Errorf("%w: it has %d bytes, and the maximum is %d", ErrSnapshotName, len(name), snapshotNameMax)
	case !validName.MatchString(name):
		return fmt.Errorf("%w: %q is not a DNS subdomain (lower case letters, digits, '-' and '.')", ErrSnapshotName, name)
	}
	return nil
}

// Snapshots lists the snapshots of a volume, or of all, by the names of volumes and the oldest first. The volume may be
// deleted. The error is ErrNotFound if there is neither a volume nor a snapshot of one.
func (s *Store) Snapshots(volume string) ([]Snapshot, error) {
	list, err := s.unsortedSnapshots(volume)
	slices.SortFunc(list, func(a, b Snapshot) int {
		return cmp.Or(cmp.Compare(a.Volume, b.Volume), a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
	})
	return list, err
}

func (s *Store) unsortedSnapshots(volume string) (list []Snapshot, err error) {
	defer s.explain(volume, &err)
	s.mu.Lock()
	defer s.mu.Unlock()
	list = []Snapshot{}
	for _, of := range s.snapshots {
		for _, r := range of {
			if volume == "" || r.isOf(volume) {
				list = append(list, s.describeLocked(r))
			}
		}
	}
	if volume != "" && len(list) == 0 && s.records[volume] == nil {
		return nil, notFound(volume)
	}
	return list, nil
}

// GetSnapshot returns a snapshot. If its volume is deleted and another one has its name, the snapshot of the other one
// comes first; the volume's ID in hexadecimal digits names it, too. Its errors are ErrNoSnapshot, *TakingError while the
// snapshot is being taken, and for some minutes why it could not be taken.
func (s *Store) GetSnapshot(volume, name string) (found Snapshot, err error) {
	defer s.explain(volume, &err)
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.findSnapshotLocked(volume, name); r != nil {
		return s.describeLocked(r), nil
	}
	if r := s.records[volume]; r != nil {
		if err := s.outcomeLocked(r.ID, name); err != nil {
			return Snapshot{}, err
		}
	}
	return Snapshot{}, s.noSnapshotLocked(volume, name)
}

// SnapshotsUnderWay lists the snapshots that are being taken, by the names of their volumes.
func (s *Store) SnapshotsUnderWay() []SnapshotUnderWay {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []SnapshotUnderWay
	for _, t := range s.takings {
		if !t.ended() {
			list = append(list, t.underWay())
		}
	}
	slices.SortFunc(list, func(a, b SnapshotUnderWay) int { return cmp.Compare(a.Volume, b.Volume) })
	return list
}

// waitedLong reports whether a change has waited long while it was taken.
func (r *Snapshot) waitedLong() bool {
	return max(r.LongestWait, r.Paused) > snapshotWaitMax.Milliseconds()
}

// isOf reports whether it is a snapshot of a volume, by the volume's name or ID.
func (r *snapshotRecord) isOf(volume string) bool {
	return r.Volume == volume || path.Base(snapshotsOf(r.VolumeID)) == volume
}

// describeLocked returns a snapshot with what is not in its record.
//
// +checklocks:s.mu
func (s *Store) describeLocked(r *snapshotRecord) Snapshot {
	found := r.Snapshot
	v := s.records[r.Volume]
	found.VolumeDeleted = v == nil || v.ID != r.VolumeID || v.State != ready
	return found
}

// findSnapshotLocked returns the record of a snapshot, or nil: the volume's that has the name now, else the latest.
//
// +checklocks:s.mu
func (s *Store) findSnapshotLocked(volume, name string) *snapshotRecord {
	if v := s.records[volume]; v != nil {
		if r := s.snapshotLocked(v.ID, name); r != nil {
			return r
		}
	}
	var found *snapshotRecord
	for id, of := range s.snapshots {
		if !of[0].isOf(volume) {
			continue
		}
		if r := s.snapshotLocked(id, name); r != nil && (found == nil || found.Created.Before(r.Created)) {
			found = r
		}
	}
	return found
}

// snapshotLocked returns the record of a snapshot of the volume with that ID, or nil.
//
// +checklocks:s.mu
func (s *Store) snapshotLocked(id uint64, name string) *snapshotRecord {
	for _, r := range s.snapshots[id] {
		if r.Name == name {
			return r
		}
	}
	return nil
}

// noSnapshotLocked returns the error of GetSnapshot for one that is not there. That of an unknown volume is explained after it.
//
// +checklocks:s.mu
func (s *Store) noSnapshotLocked(volume, name string) error {
	for _, d := range s.badSnapshots {
		if d.name == name && (d.volume == volume || path.Base(path.Dir(d.file)) == volume) {
			return fmt.Errorf("snapshot %s of volume %s: %w: %w", name, volume, ErrRecord, d.err)
		}
	}
	known := s.records[volume] != nil
	for _, of := range s.snapshots {
		known = known || of[0].isOf(volume)
	}
	if !known {
		return notFound(volume)
	}
	return fmt.Errorf("snapshot %s of volume %s: %w", name, volume, ErrNoSnapshot)
}

// export has clients see a volume and its snapshots.
func (s *Store) export(v Volume) error {
	if err := s.exports.Export(v); err != nil {
		return err
	}
	s.mu.Lock()
	has := len(s.snapshots[v.ID]) > 0
	s.mu.Unlock()
	if has {
		s.showSnapshots(v)
	}
	return nil
}

// showSnapshots has clients of an exported volume see the snapshots that it has now, also one that is about to be in its place.
func (s *Store) showSnapshots(v Volume) {
	if s.snapshotter == nil {
		return
	}
	// By volume, as this waits for clients' calls in snapshots that are no more.
	if unlock, err := s.showing.lock(context.Background(), snapshotsOf(v.ID)); err == nil {
		defer unlock()
	}
	var all []Snapshot
	s.mu.Lock()
	for _, r := range s.snapshots[v.ID] {
		if !r.gone {
			all = append(all, r.Snapshot)
		}
	}
	if t := s.takings[v.ID]; t != nil && t.coming != nil {
		all = append(all, *t.coming)
	}
	s.mu.Unlock()
	dir := filepath.Join(s.root.Name(), snapshotsOf(v.ID), snapshotReady)
	if err := s.snapshotter.ShowSnapshots(v, dir, all); err != nil {
		s.log.Error("snapshot: clients can't see those of a volume as they are", "volume", v.Name, "err", err)
	}
}
