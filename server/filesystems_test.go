//go:build !race

package server_test

import (
	"slices"
	"testing"

	"github.com/podnas/podnas/server"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/locate"
	"github.com/podnas/podnas/test/conformance/nfstest4"
	"github.com/podnas/podnas/test/testdisk"
)

// The suites again, with other ways to find files, other disks and other rights than TestNativeConformance and
// TestNativeConformance4 have. Goroutines share the same things in all of them, so this file is not for
// the race detector, which takes five times as long: make test RACE=1 runs it by itself.

// TestWaysToFindFiles puts the native engine to the suites with the kernel's handles, where they work.
func TestWaysToFindFiles(t *testing.T) {
	testdisk.OnlyCI(t)
	t.Run("kernel counts", func(t *testing.T) { conformance(t, testdisk.Memory(t), handlesHere(), uncounted) })
	t.Run("server counts", func(t *testing.T) { conformance(t, testdisk.Memory(t), handlesHere(), counted) })
	t.Run("by index, kernel counts", func(t *testing.T) { conformance(t, testdisk.Memory(t), server.HandlesIndex, uncounted) })
	t.Run("by index, with the kernel's handles", func(t *testing.T) {
		conformance(t, testdisk.Memory(t), server.HandlesIndex, func(table *exports.Table, dir string) error {
			return table.Export(exports.Exported{ID: 1, Path: "/volume", Dir: dir, Form: locate.FormKernel})
		})
	})
	t.Run("version 4.1", func(t *testing.T) {
		nfstest4.Run(t, target4(t, testdisk.Memory(t), way4{handles: server.HandlesAuto}))
	})
	t.Run("version 4.2", func(t *testing.T) {
		target := target4(t, testdisk.Memory(t), way4{handles: server.HandlesAuto})
		target.Minor = 2
		nfstest4.Run(t, target)
	})
}

// TestFileSystems puts the native engine to the suite on file systems that it was not made for, with
// each way to find files that they have: docs/nfs.md lists them.
func TestFileSystems(t *testing.T) {
	testdisk.OnlyCI(t)
	testdisk.Others(t, func(t *testing.T, disk string) {
		for _, handles := range []string{server.HandlesKernel, server.HandlesIndex} {
			t.Run(handles, func(t *testing.T) {
				if handles == server.HandlesKernel {
					testdisk.NotInShort(t, "the index has it, which deploy/podnas.yaml has; TestWaysToFindFiles has the kernel's handles")
				}
				conformance(t, disk, handles, uncounted)
			})
		}
	})
}

// TestConformance4Switches is TestNativeConformance4 with a process after each restart that finds files in another
// way, by the kernel's handles and by the index in turn: what clients have open and locked, and their
// handles, go on, whatever form the volume's handles have.
func TestConformance4Switches(t *testing.T) {
	testdisk.OnlyCI(t)
	for _, form := range []locate.Form{locate.FormKernel, locate.FormInode} {
		t.Run(string(form), func(t *testing.T) {
			nfstest4.Run(t, target4(t, testdisk.Memory(t), way4{handles: handlesHere(), form: form}))
		})
	}
}

// podCapabilities are those that deploy/base gives the pod, capabilities(7): CHOWN,
// DAC_OVERRIDE, FOWNER, FSETID, SETGID, SETUID and MKNOD.
// capPerfmon is the first one that not every kernel has.
const capPerfmon = 38

var podCapabilities = []uintptr{0, 1, 3, 4, 6, 7, 27}

// TestOtherRights puts the native engine to both suites in processes with fewer rights than root has.
func TestOtherRights(t *testing.T) {
	const suites = "^(TestNativeConformance|TestNativeConformance4)$"
	t.Run("an ordinary user", func(t *testing.T) {
		t.Parallel()
		testdisk.Child(t, testdisk.User{ID: testdisk.Nobody}, suites)
	})
	t.Run("root of a namespace of one user", func(t *testing.T) {
		testdisk.OnlyCI(t)
		testdisk.NotInShort(t, "an ordinary user has it, and the pod of deploy/podnas.yaml")
		t.Parallel()
		testdisk.Child(t, testdisk.User{ID: testdisk.Nobody, Namespace: true}, suites)
	})
	t.Run("the pod of deploy/podnas.yaml", func(t *testing.T) {
		testdisk.OnlyCI(t)
		t.Parallel()
		var drops []uintptr
		for c := range uintptr(capPerfmon) {
			if !slices.Contains(podCapabilities, c) {
				drops = append(drops, c)
			}
		}
		testdisk.Child(t, testdisk.User{Drops: drops}, suites)
	})
}
