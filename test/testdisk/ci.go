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

// NotInShort skips a test, or a case of one, that the CI of each change leaves out (SHORT=1). Each night it runs.
func NotInShort(t *testing.T, why string) {
	t.Helper()
	if short() {
		t.Skipf("left out by SHORT=1: %s", why)
	}
}

// Rounds is how often a test tries what may go wrong: more often each night, where CI is set and SHORT is not.
func Rounds(few, many int) int {
	if inCI() && !short() {
		return many
	}
	return few
}

func inCI() bool { return os.Getenv("CI") != "" }

func short() bool { return os.Getenv("SHORT") != "" }
