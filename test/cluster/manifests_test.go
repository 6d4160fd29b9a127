//go:build cluster

package cluster_test

import (
	"context"
	"path/filepath"
	"testing"
)

// The API server takes everything in deploy/ that a user applies: every field
// is known to it, and every object valid.
func TestManifests(t *testing.T) {
	for _, path := range files(t, "../../deploy/podnas.yaml", "../../deploy/examples/*.yaml") {
		t.Run(filepath.Base(path), func(t *testing.T) { dryRun(t, "-f", path) })
	}
	for _, path := range files(t, "../../deploy/overlays/*") {
		t.Run(filepath.Base(path), func(t *testing.T) {
			// A dry run doesn't change the Namespace, whose label says what
			// its pods may ask for.
			if err := applyRBAC(t.Context(), path); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := applyRBAC(context.Background(), "../../deploy/base"); err != nil {
					t.Error(err)
				}
			})
			dryRun(t, "-k", path)
		})
	}
}

// dryRun has the API server do all of an apply but keep it. kubectl fails here
// on a warning too.
func dryRun(t *testing.T, flag, path string) {
	t.Helper()
	out, err := kubectl(t.Context(), nil, "apply", "--dry-run=server", flag, path)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s", out)
}

// files returns what matches the patterns, of which each matches something.
func files(t *testing.T, patterns ...string) []string {
	t.Helper()
	var all []string
	for _, pattern := range patterns {
		paths, err := filepath.Glob(pattern)
		if err != nil || len(paths) == 0 {
			t.Fatalf("nothing in %s (%v)", pattern, err)
		}
		all = append(all, paths...)
	}
	return all
}
