package server_test

import (
	"testing"

	"github.com/podnas/podnas/server"
	"github.com/podnas/podnas/server/testdisk"
)

// TestFileSystems puts the native engine to the suite on file systems that it was not made for, with
// each way to find files that they have: docs/nfs.md lists them.
func TestFileSystems(t *testing.T) {
	testdisk.OnlyCI(t)
	testdisk.Others(t, func(t *testing.T, disk string) {
		for _, handles := range []string{server.HandlesKernel, server.HandlesIndex} {
			t.Run(handles, func(t *testing.T) {
				conformance(t, disk, handles, uncounted)
			})
		}
	})
}
