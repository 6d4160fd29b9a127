package inode_test

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/podnas/podnas/quota"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/server/locate"
	"github.com/podnas/podnas/server/space"
)

// uncounted exports a directory with an account whose scan has not begun.
func uncounted(t *testing.T, dir string) (*inode.Opener, *exports.Volume, *inode.File) {
	t.Helper()
	needNative(t)
	table := newTable(t)
	v, err := table.Add(exports.Exported{ID: 1, Path: "/v", Dir: dir, Account: space.NewAccount(quota.Limit{Bytes: 1 << 40})})
	mustDo(t, err)
	o := inode.NewOpener(table, locate.NewKey(make([]byte, 32)), slog.New(slog.DiscardHandler))
	handle := o.Root(v)
	root, err := o.Open(netip.Addr{}, handle, inode.UseNames)
	mustDo(t, err)
	t.Cleanup(func() {
		root.Close()
		o.Close()
	})
	return o, v, root
}

// What clients move while a volume is counted is counted where it is, and the account
// learns of directories.
func TestMovedByHandleWhileCounted(t *testing.T) {
	dir := t.TempDir()
	mustDo(t, os.MkdirAll(filepath.Join(dir, "from", "sub"), 0o755))
	mustDo(t, os.Mkdir(filepath.Join(dir, "to"), 0o755))
	mustDo(t, os.WriteFile(filepath.Join(dir, "from", "file"), make([]byte, 5000), 0o600))
	o, v, root := uncounted(t, dir)
	from, to := dirAt(t, o, root, "from"), dirAt(t, o, root, "to")
	defer from.Close()
	defer to.Close()
	before := v.Account.Usage().Inodes
	mustDo(t, rename(from, "file", to, "file"))
	if n := v.Account.Usage().Inodes; n != before+1 {
		t.Errorf("%d inodes are counted after a file was moved, %d before", n, before)
	}
	if v.Account.Held().Again {
		t.Error("for a file all is counted once more")
	}
	mustDo(t, rename(from, "sub", to, "sub"))
	if !v.Account.Held().Again {
		t.Error("a directory was moved, and nothing would look for it")
	}
}

// Volumes take turns to be counted; one that waits can be removed.
func TestScansTakeTurns(t *testing.T) {
	table := newTable(t)
	add := func(id uint64) *exports.Volume {
		dir := t.TempDir()
		mustDo(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600)) // an empty volume does not wait
		mustDo(t, table.Export(exports.Exported{ID: id, Path: fmt.Sprint("/", id), Dir: dir, Account: space.NewAccount(quota.Limit{Bytes: 1 << 30})}))
		v, _ := table.ByID(id)
		return v
	}
	counted(t, add(1))
	for range cap(table.Scans) {
		table.Scans <- struct{}{}
	}
	waits, removed := add(2), add(3)
	table.Remove(3)
	time.Sleep(50 * time.Millisecond)
	if !waits.Account.Usage().Partial {
		t.Error("it was counted while as many as may be were")
	}
	<-table.Scans
	counted(t, waits)
	if !removed.Account.Usage().Partial {
		t.Error("a volume that was removed was counted")
	}
}
