package space

import "log/slog"

// Pass is one count of a tree, whose steps a test takes by itself: another goroutine takes them in a server.
type Pass = pass

// NewPass begins a count.
func NewPass(a *Account, ending <-chan struct{}, log *slog.Logger) *Pass {
	return newPass(a, ending, log)
}

// ErrEnding ends the count of a volume whose export ends.
var ErrEnding = errEnding

// IsCountedAgain reports whether all is to be counted once more.
func (a *Account) IsCountedAgain() bool { return a.again.Load() }
