//go:build !race

// Under the race detector sync.Pool drops what it is given at random, so make
// test runs this file in a run of its own.

package nfsv41_test

import (
	"os"
	"runtime/debug"
	"testing"
)

// TestAllocations: the calls that are made most allocate nothing in steady state,
// from socket to socket, for root and owners as for others.
func TestAllocations(t *testing.T) {
	// A collection of garbage empties the pools, which would be counted.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	for name, c := range map[string]*caller{
		"root":                newCaller(t, 0, false),
		"user":                newCaller(t, 1000, false),
		"user, server counts": newCaller(t, 1000, true),
	} {
		for _, made := range c.calls {
			// Files that have just changed are looked at in a way of their own.
			mustDo(t, os.Chmod(c.file, 0o666))
			if n := testing.AllocsPerRun(1000, func() { c.do(made) }); n != 0 {
				t.Errorf("%s, %s: %v allocations", name, made.name, n)
			}
		}
	}
}
