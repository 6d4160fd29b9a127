package control

import (
	"errors"
	"net/http"

	"github.com/podnas/podnas/volume"
)

// Code is what kind of refusal an Error is, for programs.
type Code string

// The codes.
const (
	Invalid  Code = "Invalid"  // it can never be done as it was asked for
	NotFound Code = "NotFound" // there is no such volume
	Exists   Code = "Exists"   // the name or the directory is taken
	Claimed  Code = "Claimed"  // the volume belongs to a claim
	Busy     Code = "Busy"     // the volume is in use by something that will end
	NoSpace  Code = "NoSpace"  // the disk has not enough room
	Copying  Code = "Copying"  // it is under way, ask again
	Internal Code = "Internal" // podnas could not do it
)

// Error is the answer of a podnas that did not do what it was asked. Its text is
// for people.
type Error struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
}

func (e *Error) Error() string { return e.Message }

// toError says an error in the words of the protocol.
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
	case errors.As(err, &noSpace):
		e.Code = NoSpace
	case errors.Is(err, volume.ErrNotFound):
		e.Code = NotFound
	case errors.Is(err, volume.ErrExists):
		e.Code = Exists
	case errors.Is(err, volume.ErrBusy):
		e.Code = Busy
	case errors.Is(err, volume.ErrInvalid), errors.Is(err, volume.ErrShrink), errors.As(err, &tooLong):
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
	case Exists, Claimed, Busy:
		return http.StatusConflict
	case NoSpace:
		return http.StatusInsufficientStorage
	case Copying:
		return http.StatusAccepted
	default:
		return http.StatusInternalServerError
	}
}
