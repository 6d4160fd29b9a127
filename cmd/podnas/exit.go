package main

import (
	"errors"

	"github.com/podnas/podnas/provisioner/control"
	"github.com/podnas/podnas/provisioner/failover"
	"github.com/podnas/podnas/provisioner/remote"
)

// What podnas ends with, for scripts.
const (
	exitFailed     = 1
	exitUsage      = 2
	exitNotFound   = 3
	exitRefused    = 4
	exitNoSpace    = 5
	exitNotRunning = 6
	exitWarnings   = 7
)

const exitHelp = `Exit codes: 0 success; 1 failed; 2 invalid request; 3 no such
volume; 4 conflict: the name is taken, or a claim or a copy needs the volume; 5 not enough
space; 6 podnas is not running.`

// exitCode is what the process ends with after an error.
func exitCode(err error) int {
	var (
		usage     *usageError
		unreached *control.NotReachedError
		down      *downError
		said      *control.Error
		warnings  *warningsError
		inUse     *inUseError
		inPod     *remote.ExitError
		noPod     *remote.NotRunningError
		refused   *failover.RefusedError
		nobody    *failover.NobodyError
	)
	switch {
	case err == nil:
		return 0
	case errors.As(err, &usage), errors.As(err, &nobody):
		return exitUsage
	case errors.As(err, &inPod):
		return inPod.Code
	case errors.As(err, &unreached), errors.As(err, &down), errors.As(err, &noPod):
		return exitNotRunning
	case errors.As(err, &warnings):
		return exitWarnings
	case errors.As(err, &inUse), errors.As(err, &refused):
		return exitRefused
	case !errors.As(err, &said):
		return exitFailed
	}
	switch said.Code {
	case control.Invalid:
		return exitUsage
	case control.NotFound:
		return exitNotFound
	case control.Exists, control.Claimed, control.Busy:
		return exitRefused
	case control.NoSpace:
		return exitNoSpace
	default:
		return exitFailed
	}
}

// usageError is a command line that means nothing.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }

func (e *usageError) Unwrap() error { return e.err }
