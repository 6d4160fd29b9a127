package nfsv41_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/server/disk"
)

// An OPEN that makes a file and then can't be recorded leaves no file, so that it can be tried again.
func TestFailedOpenLeavesNothing(t *testing.T) {
	for _, user := range []uint32{0, 1000} {
		dir, tracking := t.TempDir(), filepath.Join(t.TempDir(), "clients")
		if err := disk.ProbeHandles(dir); err != nil {
			t.Skip(err)
		}
		mustDo(t, os.Chmod(dir, 0o777))
		cred := rpc.SysCred{UID: user, GID: user}
		c := &caller{TB: t, conn: serveWith(t, dir, tracking, false), cred: cred.Auth(), reply: make([]byte, 8<<10)}
		c.begin()
		root := c.lookup(operation{Num: nfs4.OpPutrootfh}, "volume")
		args := nfs4.OpenArgs{
			ShareAccess: nfs4.ShareAccessBoth, Owner: nfs4.StateOwner{Owner: []byte("owner")},
			Create: true, Mode: nfs4.Guarded, Name: []byte("file"),
		}
		open := c.compound("OPEN", true, putfh(root), operation{Num: nfs4.OpOpen, Args: &args})
		mustDo(t, os.RemoveAll(tracking))
		for range 2 {
			if _, status := c.try(open); status != nfs4.ErrServerFault {
				t.Errorf("user %d: %v", user, status)
			}
			if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
				t.Errorf("user %d: there is %v, %v", user, files, err)
			}
		}
	}
}
