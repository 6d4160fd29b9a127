package inode_test

import (
	"net/netip"
	"testing"

	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/server/inode"
)

// What a user may do takes a thread that acts as a user.
func TestNoThread(t *testing.T) {
	o, root, _ := openerAt(t)
	dir, err := o.Open(netip.Addr{}, root, inode.UseAttr)
	mustDo(t, err)
	defer dir.Close()
	defer func() {
		if recover() == nil {
			t.Error("the zero Thread may do it")
		}
	}()
	_ = dir.Access(actas.Thread{}, inode.MayRead)
}
