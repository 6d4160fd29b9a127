package inode_test

import (
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/server/locate"
	"github.com/podnas/podnas/test/testdisk"
)

// The only user may use files whose modes do not let it, as owners may who have made them.
func TestOwnFilesWhateverTheirModes(t *testing.T) {
	if os.Getuid() == 0 {
		testdisk.Child(t, testdisk.User{ID: testdisk.Nobody, Keeps: []uintptr{unix.CAP_DAC_READ_SEARCH}}, "^"+t.Name()+"$")
		return
	}
	if err := disk.ProbeHandles(t.TempDir()); err != nil {
		t.Skip(err)
	}
	table, v, dir := volumeAt(t)
	table.Only, table.Modes = actas.TryRights(dir).Only, filepath.Join(t.TempDir(), "modes")
	o := inode.NewOpener(table, locate.NewKey(make([]byte, 32)), slog.New(slog.DiscardHandler))
	defer o.Close()
	root := o.Root(v)
	file, sub := filepath.Join(dir, "file"), filepath.Join(dir, "sub")
	mustDo(t, os.WriteFile(file, []byte("content"), 0o600))
	mustDo(t, os.Mkdir(sub, 0o700))
	for _, mode := range []os.FileMode{0, 0o200, 0o400, 0o070} {
		mustDo(t, os.Chmod(file, mode))
		for _, use := range []inode.Use{inode.UseWrite, inode.UseRead} {
			f, err := o.Open(netip.Addr{}, handleOf(t, o, root, "file"), use)
			if err != nil {
				t.Errorf("mode %o, use %d: %v", mode, use, err)
				continue
			}
			f.Close()
			o.CloseCached()
			if info, err := os.Stat(file); err != nil || info.Mode() != mode {
				t.Errorf("mode %o is %v, %v afterwards", mode, info.Mode(), err)
			}
		}
	}
	mustDo(t, os.Chmod(sub, 0o300))
	d, err := o.Open(netip.Addr{}, handleOf(t, o, root, "sub"), inode.UseNames)
	mustDo(t, err)
	d.Close()
	mustDo(t, os.Chmod(sub, 0o700))
	// A file of another owner stays closed.
	shadow, err := unix.Open("/etc/shadow", unix.O_PATH, 0)
	if err == nil {
		defer unix.Close(shadow)
		if _, err := o.OpenOwn(v, disk.FileID{}, shadow, inode.UseRead); !errors.Is(err, unix.EACCES) {
			t.Errorf("another's file: %v", err)
		}
	}
}
