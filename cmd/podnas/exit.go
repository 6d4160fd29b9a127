package main

import (
	"context"
	"errors"

	"github.com/podnas/podnas/provisioner/control"
	"github.com/podnas/podnas/provisioner/failover"
	"github.com/podnas/podnas/provisioner/remote"
)

// What podnas ends with, for scripts.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitNotFound    = 3
	exitRefused     = 4
	exitNoSpace     = 5
	exitNotRunning  = 6
	exitWarnings    = 7
	exitInterrupted = 130 // as a shell says it of a program that SIGINT has ended
)

const exitHelp = `Exit codes: 0 success; 1 failed; 2 invalid request; 3 no such
volume; 4 conflict: the name is taken, or a claim or a copy needs the volume; 5 not enough
space; 6 podnas is not running; 130 interrupted, what was begun may go on.`

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
		stopped   *interruptedError
	)
	switch {
	case err == nil:
		return 0
	case errors.As(err, &stopped):
		return exitInterrupted
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

// interruptedError is what a command ends with that a signal has ended before it was done: a script must not go on as if
// it were. The text says what goes on without the command.
type interruptedError struct{ text string }

func (e *interruptedError) Error() string { return e.text }

// isInterrupted reports whether an error is the end of ctx, by a signal.
func isInterrupted(ctx context.Context, err error) bool {
	return ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(ctx)))
}

// orInterrupted returns an *interruptedError for an error that is the end of ctx, and others unchanged.
func orInterrupted(ctx context.Context, err error) error {
	var said *interruptedError
	switch {
	case errors.As(err, &said) || !isInterrupted(ctx, err):
		return err
	case err.Error() == context.Canceled.Error():
		return &interruptedError{"interrupted"}
	}
	return &interruptedError{"interrupted: " + err.Error()}
}
