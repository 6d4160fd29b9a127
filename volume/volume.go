// Package volume keeps volumes on a disk: directories with a quota, and the
// records that say what they are. It knows nothing of NFS or Kubernetes.
//
// The disk belongs to one Store at a time:
//
//	ROOT/<path>/             a volume
//	ROOT/.podnas/            state, 0700, never exported
//	    instance.json        the identity of this disk and the key of its file handles
//	    lock                 held while a Store is open
//	    volumes/<name>.json  one record per volume
//	    trash/<id>.json      the record of a deleted volume ...
//	    trash/<id>/          ... and its files, until they are gone
//
// Records are the truth. Each is written whole to a temporary file, synced and
// renamed, and every step of Create and Delete leaves the disk so that the next
// Open finishes or undoes it:
//
//	Create: record "creating" -> directory, project, limit -> record "ready" -> export
//	Delete: unexport -> record moved to trash/ -> directory moved to trash/ -> answer
//	        -> (in the background) files removed, limit cleared, record removed
package volume

import (
	"errors"
	"fmt"
	"regexp"
	"time"
)

// Volume is what a record says of a volume.
type Volume struct {
	// ID is random, never 0 and never given again. File handles carry it.
	ID uint64 `json:"id,string"`
	// Name is unique on the disk: in Kubernetes the PersistentVolume's name.
	Name string `json:"name"`
	// Path is the directory, relative to the root of the disk.
	Path string `json:"path"`
	// Size is the limit that was asked for, in bytes.
	Size int64 `json:"size"`
	// Project is the project that enforces the size, 0 where nothing does.
	Project uint32 `json:"project,omitempty"`
	// Claim is who the volume was made for, nil if nobody holds it any more.
	Claim   *Claim    `json:"claim,omitempty"`
	Created time.Time `json:"created"`
}

// Claim names a Kubernetes PersistentVolumeClaim.
type Claim struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
}

// Spec is what Create makes a volume from.
type Spec struct {
	Name  string
	Size  int64 // in bytes
	Claim *Claim
}

var (
	// ErrNotFound means that there is no volume of that name.
	ErrNotFound = errors.New("no such volume")
	// ErrInvalid means that what was asked for can never be made.
	ErrInvalid = errors.New("invalid volume")
	// ErrExists means that the name or the directory is taken by something else.
	ErrExists = errors.New("already exists")
	// ErrInUse means that another process holds the disk.
	ErrInUse = errors.New("the disk is in use by another podnas")
)

// NoSpaceError refuses a volume that is larger than what is free. Both numbers
// are bytes.
type NoSpaceError struct {
	Requested, Free int64
}

func (e *NoSpaceError) Error() string {
	return fmt.Sprintf("%s are asked for, but only %s are free on the disk", FormatSize(e.Requested), FormatSize(e.Free))
}

// FormatSize writes bytes as Kubernetes quantities are written, to three digits
// at most where the number is not whole: 10Gi, 1.5Gi, 79.3Gi.
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

// validName is a DNS subdomain (RFC 1123), as every name of a Kubernetes object
// is. It holds no slash, does not start with a dot, and so is always one plain
// path component that never meets the state directory.
var validName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)

func (s Spec) validate() error {
	if len(s.Name) > 253 || !validName.MatchString(s.Name) {
		return fmt.Errorf("%w: the name %q is not a DNS subdomain (lower case letters, digits, '-' and '.')", ErrInvalid, s.Name)
	}
	if s.Size <= 0 {
		return fmt.Errorf("%w: the size is %d bytes, it must be more than 0", ErrInvalid, s.Size)
	}
	return nil
}
