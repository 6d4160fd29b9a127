package testdisk

import (
	"os"
	"testing"
)

// OnlyCI skips a test that takes long where CI is not set.
func OnlyCI(t *testing.T) {
	t.Helper()
	if !inCI() {
		t.Skip("it takes long: `CI=true make test` runs it")
	}
}

// Rounds is how often a test tries what may go wrong: more often where CI is set.
func Rounds(few, many int) int {
	if inCI() {
		return many
	}
	return few
}

func inCI() bool { return os.Getenv("CI") != "" }
