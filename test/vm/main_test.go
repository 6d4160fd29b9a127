//go:build vm

// Package vm_test puts podnas before what a Kubernetes node would put before it:
// the Linux kernel's NFSv3 client, on a disk that is a real XFS with project
// quotas. The tests run as root inside the guest that vm.sh boots, with server
// and client side by side, and look at each volume from both ends: through the
// mount, and on the disk.
//
// A test starts an appliance (podnas serve --standalone) over a root of its own,
// writes a claim into its claims folder, reads the PersistentVolume that comes
// out and mounts it as kubelet would: with the volume's own server, path and
// mount options, and with nothing else.
package vm_test

import (
	"fmt"
	"os"
	"testing"
)

const xfs = "/xfs" // vm.sh -x: XFS with prjquota

func TestMain(m *testing.M) {
	if text := os.Getenv("WORK"); text != "" { // one of TestProcesses
		if err := workMain(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if os.Getenv("LOCKER") != "" { // one of TestTwoNodes
		if err := lockerMain(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if name := os.Getenv("GUEST"); name != "" { // one of TestTwoGuests
		if err := guestMain(name); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if dir := os.Getenv("FAULTY_LOAD"); dir != "" { // one of TestFaultyDisk
		faultyMain(dir)
		os.Exit(0)
	}
	if text := os.Getenv("CHAOS_CLIENTS"); text != "" { // one of TestChaos
		if err := chaosMain(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	for _, name := range []string{"PODNAS", "ENGINE"} {
		if os.Getenv(name) == "" {
			fmt.Fprintf(os.Stderr, "no %s in the environment: these tests run inside a guest, by test/vm/run.sh (make vm)\n", name)
			os.Exit(1)
		}
	}
	leaveOut()
	os.Exit(m.Run())
}

// nativeOnly passes a test over where the run is for the other engine.
func nativeOnly(t *testing.T, why string) {
	t.Helper()
	if engine := os.Getenv("ENGINE"); engine != "native" {
		t.Skipf("not for %s: %s", engine, why)
	}
}
