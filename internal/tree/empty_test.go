package tree

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
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

// However deep a tree is, and however many names a directory has.
func TestEmptyLarge(t *testing.T) {
	dir := tempDir(t)
	at := open(t, dir)
	const levels, wideDirs = 5000, 512 // a path of twice PATH_MAX; several batches
	for range levels {
		must(t, unix.Mkdirat(int(at.Fd()), "d", 0o700))
		below, err := openDir(at, "d")
		must(t, err)
		must(t, at.Close())
		at = below
	}
	must(t, at.Close())
	wide := filepath.Join(dir, "wide")
	must(t, os.Mkdir(wide, 0o700))
	for i := range wideDirs {
		must(t, os.MkdirAll(filepath.Join(wide, fmt.Sprint(i), "sub"), 0o700))
	}
	if n, err := Empty(t.Context(), open(t, dir)); err != nil || n != levels+1+2*wideDirs {
		t.Errorf("removed %d, %v", n, err)
	}
	if left, err := os.ReadDir(dir); len(left) != 0 || err != nil {
		t.Errorf("left: %v, %v", left, err)
	}
}

// What is cut short removes less, and says so.
func TestEmptyEnds(t *testing.T) {
	dir := tempDir(t)
	for i := range 2 * emptyBatch {
		must(t, os.Mkdir(filepath.Join(dir, fmt.Sprint(i)), 0o700))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if n, err := Empty(ctx, open(t, dir)); !errors.Is(err, context.Canceled) || n > emptyBatch {
		t.Errorf("removed %d, %v", n, err)
	}
}

// What is deeper than a walk goes is emptied from the top, also where names of its own are in the way.
func TestEmptyDeep(t *testing.T) {
	root := tempDir(t)
	deep := filepath.Join(root, strings.Repeat("d/", 50))
	must(t, os.MkdirAll(deep, 0o755), os.WriteFile(filepath.Join(deep, "f"), nil, 0o600),
		os.MkdirAll(filepath.Join(root, "deep-0", "x"), 0o755), os.Chmod(deep, 0o500))
	e := emptier{top: open(t, root), deepest: 8}
	if n, err := e.empty(t.Context()); err != nil || n != 53 || e.raised == 0 {
		t.Errorf("removed %d, moved up %d, %v, want 53", n, e.raised, err)
	}
	if left, err := os.ReadDir(root); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
