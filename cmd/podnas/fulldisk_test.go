package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/test/testdisk"
)

// On a disk that clients fill without a pause: podnas ends, hands over and starts, its commands reach it, volumes are
// deleted in all ways, and a client of version 4.1 that is new is served.
func TestServesFullDisk(t *testing.T) {
	testdisk.OnlyCI(t)
	if os.Getuid() != 0 {
		t.Skip("the native engine needs root")
	}
	t.Parallel() // it mostly waits for the disk
	program, err := builtPodnas()
	mustDo(t, err)
	for _, what := range []string{"blocks", "inodes"} {
		t.Run(what, func(t *testing.T) {
			testdisk.Small(t, func(t *testing.T, disk string) {
				b := &damageBench{t: t, dir: t.TempDir(), program: program}
				mustDo(t, os.Mkdir(b.in("claims"), 0o755))
				mustDo(t, os.Symlink(disk, b.in("disk"))) // the folder of the disk may be a link
				t.Cleanup(func() {
					_ = b.cmd.Process.Kill()
					if t.Failed() {
						t.Log(b.log)
					}
				})
				start := func() {
					t.Helper()
					b.begin()
					if !b.ready() {
						t.Fatal(b.log)
					}
					waitUntil(t, "commands reach it", func() bool {
						_, _, err := podnas(t.Context(), "volume", "list", "--root="+disk)
						return err == nil
					})
				}
				start()
				for name, fate := range map[string]string{"filled": "delete", "deleted": "delete", "archived": "archive", "retained": "retain"} {
					b.command("volume", "create", name, "--size=1Mi", "--on-delete="+fate)
				}
				join(t, b.nfs, "one").lock("filled", "locked", 0, 10)
				waitUntil(t, "there is a reserve", func() bool {
					_, err := os.Stat(filepath.Join(disk, ".podnas/reserve/large-15"))
					return err == nil
				})
				testdisk.Fill(t, filepath.Join(disk, "filled"), what == "inodes")

				mustDo(t, b.end(syscall.SIGTERM))
				start()
				if log := b.log.String(); !strings.Contains(log, "clients go on with what they have") || strings.Contains(log, "without CHOWN") || strings.Contains(log, "without MKNOD") {
					t.Errorf("after a restart:\n%s", log)
				}
				_ = b.end(syscall.SIGKILL)
				start()

				reader := join(t, b.nfs, "new")
				reader.until(nfs4.OK,
					operation{Num: nfs4.OpPutrootfh, Res: &nfs4.StatusRes{}},
					operation{Num: nfs4.OpLookup, Args: &nfs4.NameArgs{Name: []byte("filled")}, Res: &nfs4.StatusRes{}},
					operation{Num: nfs4.OpOpen, Args: &nfs4.OpenArgs{ShareAccess: nfs4.ShareAccessRead, Owner: nfs4.StateOwner{Owner: []byte("owner")}, Name: []byte("locked")}, Res: &nfs4.OpenRes{}},
				)
				for _, name := range []string{"archived", "retained", "deleted"} {
					b.command("volume", "delete", "--force", "--yes", name)
				}
				if kept := b.command("volume", "list", "--all"); !strings.Contains(kept, "archived") || !strings.Contains(kept, "retained") || strings.Contains(kept, "deleted ") {
					t.Errorf("kept:\n%s", kept)
				}
				mustDo(t, b.end(syscall.SIGTERM))
			})
		})
	}
}

// until makes a call again while clients may reclaim what they had.
func (n *node4) until(want nfs4.Status, ops ...operation) {
	n.t.Helper()
	waitUntil(n.t, "the grace period is over", func() bool {
		status := n.do(ops...)
		if status != want && status != nfs4.ErrGrace {
			n.t.Fatal(status)
		}
		return status == want
	})
}
