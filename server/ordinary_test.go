package server_test

import (
	"slices"
	"testing"

	"github.com/podnas/podnas/test/testdisk"
)

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
