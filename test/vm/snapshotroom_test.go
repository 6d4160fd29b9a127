//go:build vm

package vm_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestScheduledSnapshots: each full hour podnas takes a snapshot, also when the clock was set, and they hold so much that
// the disk fills. A program that writes over its file again and again never hears of it: the oldest snapshots are deleted, and
// the kernel's client tries again what was put off. What stays is whole.
func TestScheduledSnapshots(t *testing.T) {
	nativeOnly(t, "go-nfs takes no snapshots")
	for _, disk := range []string{"xfs", "btrfs"} {
		t.Run(disk, func(t *testing.T) {
			if disk != "xfs" {
				notInShortRun(t, "the server's answers do not depend on the disk")
			}
			root, _ := loopDisk(t, disk, "")
			a := newAppliance(t, settings{root: root, quota: "server"})
			a.start()
			pv := a.volume("one", "60Mi")
			mnt, name := mount(t, pv), pv.Metadata.Name
			scheduled := func() []string {
				return strings.Fields(a.snapshot(t, "list", name, "-o", "name"))
			}
			command(t, os.Getenv("PODNAS"), "volume", "--root", a.root, "set", name, "--snapshot-reserve=0")

			const rounds = 8
			keep := 24
			for round := range rounds {
				before := scheduled()
				mustWrite(t, filepath.Join(mnt, "file"), filled(round))
				anHourLater(t)
				eventually(t, "the hour's snapshot is taken", func() bool {
					// The schedule is looked at when it is set, instead of after ten minutes, or after one when the disk had no room.
					keep = 49 - keep
					command(t, os.Getenv("PODNAS"), "volume", "--root", a.root, "set", name, fmt.Sprintf("--snapshots=hourly=%d", keep))
					now := scheduled()
					return len(now) > 0 && (len(before) == 0 || now[len(now)-1] != before[len(before)-1])
				})
			}
			left := scheduled()
			said := a.output()
			t.Logf("%d rounds, %d snapshots are left", rounds, len(left))
			if len(left) >= rounds || !bytes.Contains(said, []byte("snapshot: deleted the oldest scheduled one")) {
				t.Errorf("there are %q: none was deleted for room\n%s", left, said)
			}
			for i, snapshot := range left {
				got, err := os.ReadFile(filepath.Join(mnt, ".snapshots", snapshot, "file"))
				if want := filled(rounds - len(left) + i); err != nil || !bytes.Equal(got, want) {
					t.Errorf("snapshot %s has %d bytes, the first %q, %v; want %q", snapshot, len(got), got[:min(1, len(got))], err, want[:1])
				}
			}
		})
	}
}

// filled is what the program writes in a round: less than the volume's size, and of a disk of 300 MiB a sixth.
func filled(round int) []byte { return bytes.Repeat([]byte{byte('a' + round)}, 50<<20) }

// anHourLater sets the guest's clock. What measures time passing has another clock.
func anHourLater(t *testing.T) {
	t.Helper()
	later := syscall.NsecToTimeval(time.Now().Add(time.Hour).UnixNano())
	if err := syscall.Settimeofday(&later); err != nil {
		t.Fatal(err)
	}
}
