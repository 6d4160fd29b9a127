//go:build !race

package server_test

import (
	"testing"

	"github.com/podnas/podnas/server"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/locate"
	"github.com/podnas/podnas/test/testdisk"
)

// The suites again, with other ways to find files and other disks than TestNativeConformance and
// TestNativeConformance4 have. Goroutines share the same things in all of them, so this file is not for
// the race detector, which takes five times as long: make test RACE=1 runs it by itself.

// TestWaysToFindFiles puts the native engine to the suites with the kernel's handles, where they work.
func TestWaysToFindFiles(t *testing.T) {
	t.Run("kernel counts", func(t *testing.T) { conformance(t, testdisk.Memory(t), handlesHere(), uncounted) })
	t.Run("server counts", func(t *testing.T) { conformance(t, testdisk.Memory(t), handlesHere(), counted) })
	t.Run("by index, kernel counts", func(t *testing.T) { conformance(t, testdisk.Memory(t), server.HandlesIndex, uncounted) })
	t.Run("by index, with the kernel's handles", func(t *testing.T) {
		conformance(t, testdisk.Memory(t), server.HandlesIndex, func(table *exports.Table, dir string) error {
			return table.Export(exports.Exported{ID: 1, Path: "/volume", Dir: dir, Form: locate.FormKernel})
		})
	})
	t.Run("version 4.1", func(t *testing.T) { conformance4(t, server.HandlesAuto, "") })
}

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
