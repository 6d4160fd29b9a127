//go:build vm

package vm_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Programs on a mount, which do there what they do on the server's own disk.

// onDisks runs a test on each kind of disk, with an appliance and a folder beside its volumes: on the XFS with project quotas,
// which is "XFS", and on disks on which the server counts. A short run has some of them.
func onDisks(t *testing.T, disks, short []string, test func(t *testing.T, disk string, a *appliance, local string)) {
	for _, disk := range disks {
		name := disk
		if disk != "XFS" {
			name += ", the server counts"
		}
		t.Run(name, func(t *testing.T) {
			if !slices.Contains(short, disk) {
				notInShortRun(t, "make test has each call on this kind of disk, and what programs ask for does not depend on that")
			}
			var s settings
			if disk != "XFS" {
				root, _ := loopDisk(t, disk, "")
				s = settings{root: root, quota: "server"}
			}
			a := newAppliance(t, s)
			a.start()
			local := filepath.Join(a.root, "local")
			if err := os.Mkdir(local, 0o755); err != nil {
				t.Fatal(err)
			}
			test(t, disk, a, local)
		})
	}
}

// places are a folder on a mount, the same one on the disk, and one on the local disk.
type places struct{ mnt, onDisk, local string }

func placesIn(mnt, onDisk, local string) places {
	const dir = "d"
	return places{filepath.Join(mnt, dir), filepath.Join(onDisk, dir), filepath.Join(local, dir)}
}

func (p places) remove(t *testing.T) {
	if err := errors.Join(os.RemoveAll(p.mnt), os.RemoveAll(p.local)); err != nil {
		t.Error(err)
	}
}

// same runs a program in the folders on the mount and on the local disk, after prepare, and compares what it prints, in any
// order, and what describe says of the folders afterwards.
func (p places) same(t *testing.T, program string, prepare func(folder string), describe func(t *testing.T, folder string) string) {
	t.Helper()
	var printed, files [2]string
	for i, folder := range []string{p.mnt, p.local} {
		if err := os.MkdirAll(filepath.Join(folder, "tree", "folder"), 0o755); err != nil {
			t.Fatal(err)
		}
		prepare(folder)
		cmd := exec.Command("sh", "-c", program)
		cmd.Dir = folder
		out, err := cmd.CombinedOutput()
		printed[i] = fmt.Sprintf("%v\n%s", err, strings.ReplaceAll(string(out), folder, ""))
		files[i] = describe(t, folder)
	}
	if sorted(printed[0]) != sorted(printed[1]) {
		t.Errorf("on the mount %s\non the disk %s", printed[0], printed[1])
	}
	if files[0] != files[1] {
		t.Errorf("the mount has\n%s\nthe local disk\n%s", files[0], files[1])
	}
	if inVolume := describe(t, p.onDisk); inVolume != files[0] {
		t.Errorf("the mount has\n%s\nthe disk\n%s", files[0], inVolume)
	}
	dropCaches(t)
	if again := describe(t, p.mnt); again != files[0] {
		t.Errorf("without what the client remembers the mount has\n%s\nbefore\n%s", again, files[0])
	}
}

// sorted has the lines in an order: programs promise none.
func sorted(s string) string {
	lines := strings.Split(s, "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
