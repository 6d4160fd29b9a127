package control

import (
	"errors"
	"net/http"

	"github.com/podnas/podnas/internal/volume"
)

// Code is the kind of an Error, for programs.
type Code string

// The codes.
const (
	Invalid  Code = "Invalid"  // the request can never succeed
	NotFound Code = "NotFound" // the volume or snapshot does not exist
	Exists   Code = "Exists"   // the name or the directory is in use
	Claimed  Code = "Claimed"  // the volume belongs to a claim
	Busy     Code = "Busy"     // the volume is temporarily in use
	Damaged  Code = "Damaged"  // the volume's record can't be relied on
	NoSpace  Code = "NoSpace"  // the disk has too little space
	Copying  Code = "Copying"  // in progress, repeat the request
	Internal Code = "Internal" // an error in podnas or its disk
)

// Error is podnas's reply to a request that failed. Its text is for people.
type Error struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
	// Progress is set with the code Copying.
	Progress *Progress `json:"progress,omitempty"`
}

// Progress is how far a copy is.
type Progress struct {
	Source string `json:"source"`
	// Snapshot is that of the source which is copied; empty: the source itself is.
	Snapshot string `json:"snapshot,omitempty"`
	Files    int64  `json:"files"`
	Bytes    int64  `json:"bytes"`
	// Total is what the source uses, in bytes; 0 if that is not known.
	Total int64 `json:"total,omitempty"`
}

func (e *Error) Error() string { return e.Message }

// toError converts an error to an Error.
func toError(err error) *Error {
	var (
		said    *Error
		noSpace *volume.NoSpaceError
		copying *volume.CopyingError
		tooLong *http.MaxBytesError
	)
	if errors.As(err, &said) {
		return said
	}
	e := &Error{Code: Internal, Message: err.Error()}
	switch {
	case errors.As(err, &copying):
		e.Code = Copying
		e.Progress = &Progress{Source: copying.Source, Snapshot: copying.Snapshot, Files: copying.Files, Bytes: copying.Bytes}
	case errors.As(err, &noSpace):
		e.Code = NoSpace
	case errors.Is(err, volume.ErrRecord):
		e.Code = Damaged
	case errors.Is(err, volume.ErrNotFound), errors.Is(err, volume.ErrNoSnapshot), errors.Is(err, volume.ErrNoRestore):
		e.Code = NotFound
	case errors.Is(err, volume.ErrExists):
		e.Code = Exists
	case errors.Is(err, volume.ErrBusy):
		e.Code = Busy
	case errors.Is(err, volume.ErrInvalid), errors.Is(err, volume.ErrShrink), errors.Is(err, volume.ErrSnapshotName), errors.Is(err, volume.ErrUnsupported), errors.As(err, &tooLong):
		e.Code = Invalid
	}
	return e
}

// status is the HTTP status of a code.
func (c Code) status() int {
	switch c {
	case Invalid:
		return http.StatusBadRequest
	case NotFound:
		return http.StatusNotFound
	case Exists, Claimed, Busy, Damaged:
		return http.StatusConflict
	case NoSpace:
		return http.StatusInsufficientStorage
	case Copying:
		return http.StatusAccepted
	default:
		return http.StatusInternalServerError
	}
}
