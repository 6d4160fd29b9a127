package vfs

import "time"

// CopyPiece is how much COPY copies at a time, and CopyFor for how long: a test has no disk that is as slow.
const CopyPiece = copyPiece

// CopyFor sets for how long a COPY begins pieces.
func (s *Service) CopyFor(d time.Duration) { s.copyFor = d }

// ErrGone is what a call gets whose reply is not sent.
var ErrGone = errGone

// Recovered has a call go on after a panic, which ends it in a server.
func (c *Call) Recovered() { c.acting = false }
