package tree

import (
	"os"
	"testing"
)

func TestEmpty(t *testing.T) {
	dir := tempDir(t)
	newGrower(t, 5).grow(dir, 4)
	must(t, os.Chmod(dir, 0o700))
	entries := len(describe(t, dir)) - 1
	n, err := Empty(t.Context(), open(t, dir))
	if err != nil || n < entries {
		t.Errorf("removed %d of %d, %v", n, entries, err)
	}
	if left, err := os.ReadDir(dir); len(left) != 0 || err != nil {
		t.Errorf("left: %v, %v", left, err)
	}
}
