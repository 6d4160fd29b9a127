package nfsv41_test

import (
	"encoding/binary"
	"testing"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/server/disk"
)

// An operation that ends in a panic ends one call: the session's only slot goes on, and the files of the
// operations before it are closed, or the volume's removal would wait for them.
func TestPanic(t *testing.T) {
	dir := t.TempDir()
	if err := disk.ProbeHandles(dir); err != nil {
		t.Skip(err)
	}
	cred := rpc.SysCred{}
	c := &caller{TB: t, conn: serve(t, dir, false), cred: cred.Auth(), reply: make([]byte, 8<<10)}
	c.begin()
	root := c.lookup(operation{Num: nfs4.OpPutrootfh}, "volume")
	access := operation{Num: nfs4.OpAccess, Args: &nfs4.AccessArgs{Access: nfs4.AccessRead}}
	good := c.compound("ACCESS", false, putfh(root), access)
	bad := c.compound("panic", true, putfh(root), access, operation{Num: nfs4.OpDelegpurge, Args: &nfs4.DelegpurgeArgs{}})
	c.do(good)
	for range 8 {
		const accepted = 5 * 4 // where the header has how the call was accepted
		if stat := rpc.AcceptStat(binary.BigEndian.Uint32(c.send(bad)[accepted:])); stat != rpc.SystemErr {
			t.Errorf("accepted with %v", stat)
		}
		c.do(good)
	}
}
