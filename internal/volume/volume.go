// Package volume manages the volumes on a disk: directories with a quota, and
// records that describe them. It is independent of NFS and Kubernetes.
//
// The disk belongs to one Store at a time:
//
//	ROOT/<path>/             a volume
//	ROOT/.podnas/            state, 0700, never exported
//	    instance.json        the identity of this disk and the key of its file handles
//	    lock                 held while a Store is open
//	    control.sock         where commands reach it, package control
//	    clients/             clients of NFSv4 with something open or locked ...
//	    removed/             ... and what was removed meanwhile, both kept by the server
//	    volumes/<name>.json  one record per volume
//	    archive/<id>.json    the record of a volume that was deleted but kept ...
//	    archive/<id>/        ... and its files
//	    trash/<id>.json      the record of a deleted volume ...
//	    trash/<id>/          ... and its files, until they are gone
//	    snapshots/<id>/      the snapshots of a volume (snapshot.go)
//
// The records decide, if they have the right checksum (checksum.go), and none contradicts another
// (refused.go). Each is written to a temporary file, synced and renamed.
// After a crash between any two steps, the next Open finishes or undoes the
// operation:
//
//	Create:  record "creating" -> directory, project, limits -> record "ready" -> export
//	a copy:  record "creating" -> directory, project, limit -> record "copying" -> answer
//	         -> (in the background) files copied -> limit of inodes -> record "ready" -> export
//	Adopt:   record "adopting" -> project, limits -> record "ready" -> export
//	of very many files: record "adopting" -> record "ready" -> export -> answer
//	         -> (in the background) project -> limit (mark.go)
//	Resize:  record with the new size -> limits
//	Delete:  unexport -> record moved to trash/ -> directory moved to trash/ -> answer
//	         -> (in the background) files removed, limit cleared, record removed
//	archive: unexport -> record moved to archive/ -> directory moved to archive/
//	retain:  unexport -> record "retained"
//	a view of a snapshot has its own steps, and no directory (view.go)
//	a copy of the disk, file by file, has lost the projects (mark.go):
//	         export -> (in the background) limit lifted -> project -> limit
//
// A record reserves its name, its path, its project and, if sizes are promised,
// its size.
//
// Order of locks: a volume's name (Store.names), Store.tree, Store.mu. Store.mu is held over nothing that asks the disk
// or the kernel, which may hang: whoever lists volumes needs it.
package volume

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Volume is a volume's record.
type Volume struct {
	// ID is random, never 0 and never reused. File handles contain it.
	ID uint64 `json:"id,string"`
	// Name is unique on the disk: in Kubernetes the PersistentVolume's name.
	Name string `json:"name"`
	// Path is the directory, relative to the root of the disk.
	Path string `json:"path"`
	// Size is the requested limit, in bytes.
	Size int64 `json:"size"`
	// Inodes is the limit of files, directories and everything else, see inodes.go. 0:
	// none yet, because they are not counted yet.
	Inodes int64 `json:"inodes,omitempty"`
	// BytesPerInode, if not 0, is the requested number of bytes of the size per inode.
	BytesPerInode int64 `json:"bytesPerInode,omitempty"`
	// Options determine what clients may do.
	Options Options `json:"options,omitzero"`
	// Handles is the form of the volume's file handles, which never changes: locate.Form. If it is empty, the next
	// start gives it that of new volumes.
	Handles string `json:"handles,omitempty"`
	// OnDelete is what happens to the files when the volume is deleted.
	OnDelete OnDelete `json:"onDelete,omitempty"`
	// Schedule says which snapshots of the volume are taken and deleted without being asked for.
	Schedule Schedule `json:"schedule,omitzero"`
	// SnapshotReserve is the part of what the volume uses that is promised for each snapshot, in percent; nil: the default.
	SnapshotReserve *int `json:"snapshotReserve,omitempty"`
	// Source is the name of the volume that this one was copied from, and SourceSnapshot that of its snapshot, if it was
	// one.
	Source         string `json:"source,omitempty"`
	SourceSnapshot string `json:"sourceSnapshot,omitempty"`
	// SourceID is the ID of the volume that SourceSnapshot is of.
	SourceID uint64 `json:"sourceId,omitempty,string"`
	// View is whether the volume has no files of its own, but shows those of SourceSnapshot (view.go).
	View bool `json:"view,omitempty"`
	// Project is the kernel's project that enforces the size, 0 if there is none.
	Project uint32 `json:"project,omitempty"`
	// Claim is the volume's claim, nil if it has none or was released.
	Claim   *Claim    `json:"claim,omitempty"`
	Created time.Time `json:"created"`
	// Manifest belongs to the creator; Store keeps it without reading it.
	Manifest json.RawMessage `json:"manifest,omitempty"`
}

// Claim names a Kubernetes PersistentVolumeClaim.
type Claim struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
}

// Options determine what clients may do in a volume. With the zero Options, every
// client may mount it, root is not squashed, and each change is durable before its
// reply.
type Options struct {
	RootSquash bool   `json:"rootSquash,omitempty"` // root becomes the anonymous user
	AllSquash  bool   `json:"allSquash,omitempty"`  // everyone does
	AnonUID    uint32 `json:"anonUid,omitempty"`    // the anonymous user, 0 stands for 65534
	AnonGID    uint32 `json:"anonGid,omitempty"`    // and group
	ReadOnly   bool   `json:"readOnly,omitempty"`   // nothing can be changed
	Async      bool   `json:"async,omitempty"`      // metadata is not synced before the reply
	// PrivilegedPorts refuses calls from ports that any user may bind.
	PrivilegedPorts bool `json:"privilegedPorts,omitempty"`
	// Clients are the networks that may mount, all if empty.
	Clients []netip.Prefix `json:"clients,omitempty"`
}

// OnDelete is what happens to a volume's files when it is deleted.
type OnDelete string

// The values of OnDelete. The zero value is DeleteFiles.
const (
	DeleteFiles  OnDelete = "delete"  // they are removed
	ArchiveFiles OnDelete = "archive" // they are moved to the archive, with the record
	RetainFiles  OnDelete = "retain"  // they stay where they are
)

// Spec describes a volume for Create.
type Spec struct {
	Name string
	// Path is the directory below the root of the disk, Name if empty.
	Path string
	Size int64 // in bytes
	// BytesPerInode is the number of bytes of the size per inode; 0: the default.
	BytesPerInode int64
	Claim         *Claim
	// UID, GID and Mode of the volume's root directory. Mode 0 means 0777.
	UID, GID, Mode uint32
	Options        Options
	OnDelete       OnDelete
	// Source is the name of a volume to copy, empty for an empty volume. With SourceSnapshot, that snapshot of the volume,
	// which may be deleted, is copied instead.
	Source         string
	SourceSnapshot string
	// View makes a read-only volume that shows the files of SourceSnapshot, instead of a copy. Its options are read-only, and
	// what only a volume with files of its own can have is ignored.
	View bool
	// Overcommit, if not 0, replaces Config.Overcommit.
	Overcommit float64
	Schedule   Schedule
	// SnapshotReserve is that of the Volume.
	SnapshotReserve *int
	Manifest        json.RawMessage
	// Restore, if not nil, has Adopt of a kept volume use the manifest that it returns, or fail with its error.
	Restore func(kept Volume) (json.RawMessage, error)
}

// Kept is a deleted volume whose files were kept.
type Kept struct {
	Volume
	State string    `json:"state"` // Archived or Retained
	Since time.Time `json:"since"` // when it was deleted
}

// The states of volumes.
const (
	Ready   = string(ready)        // clients can mount it
	Copying = string(copyingState) // of a Copy
	// Of Unserved:
	Damaged   = "damaged"    // its record can't be relied on
	NotServed = "not served" // for another reason
	// Of Kept:
	Archived = "archived" // in the state directory
	Retained = "retained" // where it was
)

var (
	// ErrNotFound means that there is no volume of that name.
	ErrNotFound = errors.New("no such volume")
	// ErrInvalid means that the request can never succeed.
	ErrInvalid = errors.New("invalid volume")
	// ErrExists means that the name or the directory is in use by something else.
	ErrExists = errors.New("already exists")
	// ErrShrink means that a volume can't become smaller.
	ErrShrink = errors.New("a volume can't be made smaller")
	// ErrBusy means that the request can't be executed now.
	ErrBusy = errors.New("the volume is busy")
	// ErrInUse means that another process holds the disk.
	ErrInUse = errors.New("the disk is in use by another podnas")
)

// NoSpaceError means that a size exceeds the free space or, if sizes are promised,
// the space that is not promised yet. All numbers are bytes.
type NoSpaceError struct {
	Requested, Free int64
	// If Overcommit is not 0, the sum of all volumes' sizes may be that many times
	// Capacity, the disk's size, and Promised is the current sum.
	Overcommit         float64
	Promised, Capacity int64
}

func (e *NoSpaceError) Error() string {
	if e.Overcommit != 0 {
		return fmt.Sprintf("%s is requested, but %s is promised to other volumes, and the limit for the disk of %s is %s in all (overcommit %g)",
			FormatSize(e.Requested), FormatSize(e.Promised), FormatSize(e.Capacity), FormatSize(int64(e.Overcommit*float64(e.Capacity))), e.Overcommit)
	}
	return fmt.Sprintf("%s is requested, but only %s is free on the disk", FormatSize(e.Requested), FormatSize(e.Free))
}

// CopyingError means that a volume is still being copied. Create returns it until
// the copy is complete.
type CopyingError struct {
	Source       string // the volume
	Snapshot     string // the snapshot of it; empty: the volume itself is copied
	Files, Bytes int64  // copied so far
}

func (e *CopyingError) Error() string {
	return fmt.Sprintf("%s is being copied: %s with %s so far", e.Of(), FormatCount(e.Files, "file"), FormatSize(e.Bytes))
}

// Of says for people what is copied.
func (e *CopyingError) Of() string { return sourceName(e.Source, e.Snapshot) }

// FormatSize formats bytes as a Kubernetes quantity, with at most three digits if
// the number is not whole: 10Gi, 1.5Gi, 79.3Gi.
func FormatSize(bytes int64) string {
	units := []string{"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"}
	value, unit := float64(bytes), 0
	for value >= 1024 && unit < len(units)-1 {
		value /= 1024
		unit++
	}
	if value >= 100 || value == float64(int64(value)) {
		return fmt.Sprintf("%.0f%s", value, units[unit])
	}
	return fmt.Sprintf("%.3g%s", value, units[unit])
}

// FormatCount formats a number of things for people: 1 file, 12,345 files.
func FormatCount[N int | int64 | uint64](n N, thing string) string {
	digits := strconv.FormatUint(uint64(n), 10)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	if thing != "" && n != 1 {
		thing += "s"
	}
	return strings.TrimSpace(digits + " " + thing)
}

// namesMax is how many names a message has.
const namesMax = 5

// FormatNames formats the names of some things for people: all of them, or the first few and
// "...".
func FormatNames(names []string) string {
	if len(names) > namesMax {
		names = append(names[:namesMax:namesMax], "...")
	}
	return strings.Join(names, ", ")
}

// validName matches a DNS subdomain (RFC 1123), like every name of a Kubernetes
// object. It contains no slash and no leading dot, so it is one plain path
// component and never the state directory.
var validName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)

// nameMax limits a volume's name: file systems have at most 255 bytes for that of its record.
const nameMax = 255 - len(".json")

func (s *Spec) validate() error {
	if len(s.Name) > nameMax {
		return fmt.Errorf("%w: the name %q has %d bytes, and the maximum is %d", ErrInvalid, s.Name, len(s.Name), nameMax)
	}
	if !validName.MatchString(s.Name) {
		return fmt.Errorf("%w: the name %q is not a DNS subdomain (lower case letters, digits, '-' and '.')", ErrInvalid, s.Name)
	}
	if s.Size <= 0 {
		return fmt.Errorf("%w: the size is %d bytes; it must be more than 0", ErrInvalid, s.Size)
	}
	switch s.OnDelete {
	case "", DeleteFiles, ArchiveFiles, RetainFiles:
	default:
		return fmt.Errorf("%w: onDelete is %q; it must be %s, %s or %s", ErrInvalid, s.OnDelete, DeleteFiles, ArchiveFiles, RetainFiles)
	}
	if s.SourceSnapshot != "" && s.Source == "" {
		return fmt.Errorf("%w: of which volume is the snapshot %s that is to be copied", ErrInvalid, s.SourceSnapshot)
	}
	if s.View && s.SourceSnapshot == "" {
		return fmt.Errorf("%w: a view of no snapshot", ErrInvalid)
	}
	if s.Mode&^0o7777 != 0 || s.UID == math.MaxUint32 || s.GID == math.MaxUint32 {
		return fmt.Errorf("%w: mode %#o, owner %d:%d", ErrInvalid, s.Mode, s.UID, s.GID)
	}
	if err := checkBytesPerInode(s.BytesPerInode); err != nil {
		return err
	}
	if s.Overcommit < 0 {
		return fmt.Errorf("%w: overcommit is %g; it must not be negative", ErrInvalid, s.Overcommit)
	}
	if err := s.Schedule.check(); err != nil {
		return err
	}
	if s.SnapshotReserve != nil {
		if err := checkSnapshotReserve(*s.SnapshotReserve); err != nil {
			return err
		}
	}
	return validPath(s.Path)
}
