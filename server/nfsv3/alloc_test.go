//go:build !race

// Under the race detector sync.Pool drops what it is given at random, so make
// test-go runs this file in a run of its own.

package nfsv3_test

import (
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
		for _, call := range c.calls {
			if call.name == "WRITE" {
				for range 1100 { // until as many are remembered as may be
					c.do(call.record)
				}
			}
			if n := testing.AllocsPerRun(1000, func() { c.do(call.record) }); n != 0 {
				t.Errorf("%s, %s: %v allocations", name, call.name, n)
			}
		}
	}
}
