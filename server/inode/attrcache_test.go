package inode_test

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/inode"
)

// As long as a change of a file is under way, what is remembered of it is not used, and what is
// read of it is not remembered: it may be from before.
func TestAttrsDuringChange(t *testing.T) {
	o, root, dir := openerAt(t)
	mustDo(t, os.WriteFile(filepath.Join(dir, "f"), nil, 0o600))
	top, err := o.Open(netip.Addr{}, root, inode.UseAttr)
	mustDo(t, err)
	defer top.Close()
	if !o.Remembers(top.Volume) {
		t.Skip("no attributes are remembered on this disk")
	}
	time.Sleep(2 * inode.TickMax)
	_, handle, err := top.Describe([]byte("f"), nil)
	mustDo(t, err)
	look := func() (remembered bool) {
		t.Helper()
		before := o.CacheCounts().Handles.Attrs
		f, err := o.Open(netip.Addr{}, handle, inode.UseAttr, inode.AtOnce, inode.Recent)
		if errors.Is(err, inode.ErrBlocks) { // it is not open yet
			f, err = o.Open(netip.Addr{}, handle, inode.UseAttr)
		}
		mustDo(t, err)
		f.Close()
		return o.CacheCounts().Handles.Attrs > before
	}
	look()
	look()
	if !look() {
		t.Fatal("not remembered")
	}
	f, err := o.Open(netip.Addr{}, handle, inode.UseAttr)
	mustDo(t, err)
	defer f.Close()
	mustDo(t, f.Changing(func() error {
		err := f.Changing(func() error {
			for _, when := range []string{"during two changes", "again"} {
				if look() {
					t.Error("remembered " + when)
				}
			}
			return nil
		})
		for _, when := range []string{"during one of them", "again"} {
			if look() {
				t.Error("remembered " + when)
			}
		}
		return err
	}))
	if look() {
		t.Error("remembered from before")
	}
	if !look() {
		t.Error("not remembered afterwards")
	}
}

// A directory in which names are looked up is not looked at each time, the root too, until a client changes
// it or its attributes are too old.
func TestOpenRecent(t *testing.T) {
	o, root, dir := openerAt(t)
	mustDo(t, os.Mkdir(filepath.Join(dir, "d"), 0o755))
	time.Sleep(2 * inode.TickMax)
	for name, handle := range map[string][]byte{"root": root, "another": handleOf(t, o, root, "d")} {
		at := dir
		if name != "root" {
			at = filepath.Join(dir, "d")
		}
		mode := func() uint32 {
			t.Helper()
			f, err := o.Open(netip.Addr{}, handle, inode.UseAttr, inode.Recent)
			mustDo(t, err)
			defer f.Close()
			if !o.Remembers(f.Volume) || !f.Volume.Files.HasBirths() {
				t.Skip("no attributes are remembered on this disk")
			}
			if _, err := f.Lookup([]byte("none")); err == nil {
				t.Error("a name that is not there was found")
			}
			return f.Attr.Mode & 0o777
		}
		mustDo(t, os.Chmod(at, 0o711))
		time.Sleep(inode.AttrsKept + 2*inode.TickMax)
		mode() // it is open now, and remembered
		mustDo(t, os.Chmod(at, 0o755))
		if got := mode(); got != 0o711 {
			t.Errorf("%s: mode %o: it was looked at again", name, got)
		}
		f, err := o.Open(netip.Addr{}, handle, inode.UseAttr)
		mustDo(t, err)
		mustDo(t, f.Chmod(actas.AsProcess(), 0o700))
		f.Close()
		if got := mode(); got != 0o700 {
			t.Errorf("%s: mode %o after a client's change", name, got)
		}
		time.Sleep(2 * inode.TickMax)
		mode()
		mustDo(t, os.Chmod(at, 0o755))
		time.Sleep(inode.AttrsKept)
		if got := mode(); got != 0o755 {
			t.Errorf("%s: mode %o a second after a change on the disk", name, got)
		}
	}
}

// A file that a client has made, and whose name nobody has looked up, is remembered when it is looked at
// again.
func TestLookAtNew(t *testing.T) {
	o, root, _ := openerAt(t)
	top, err := o.Open(netip.Addr{}, root, inode.UseNames)
	mustDo(t, err)
	defer top.Close()
	if !o.Remembers(top.Volume) || !top.Volume.Files.HasBirths() {
		t.Skip("no attributes are remembered on this disk")
	}
	names := inode.LockNames(top, top)
	made, err := top.Create(actas.AsProcess(), "new", 0o640, false)
	mustDo(t, err)
	names.Unlock()
	handle := made.Handle()
	made.Close()
	time.Sleep(2 * inode.TickMax)
	look := func() (mode uint32, remembered bool) {
		t.Helper()
		before := o.CacheCounts().Handles.Attrs
		f, err := o.Open(netip.Addr{}, handle, inode.UseAttr, inode.AtOnce, inode.Recent)
		mustDo(t, err)
		defer f.Close()
		return f.Attr.Mode & 0o777, o.CacheCounts().Handles.Attrs > before
	}
	if _, remembered := look(); remembered {
		t.Error("remembered before anybody had looked")
	}
	if mode, remembered := look(); !remembered || mode != 0o640 {
		t.Errorf("mode %o, remembered %v", mode, remembered)
	}
	f, err := o.Open(netip.Addr{}, handle, inode.UseAttr)
	mustDo(t, err)
	mustDo(t, f.Chmod(actas.AsProcess(), 0o600))
	f.Close()
	if mode, remembered := look(); remembered || mode != 0o600 {
		t.Errorf("after a change: mode %o, remembered %v", mode, remembered)
	}
}

// The attributes of a file that is read again and again are remembered, until it changes, or has more
// than they say.
func TestRecent(t *testing.T) {
	o, root, dir := openerAt(t)
	path := filepath.Join(dir, "f")
	mustDo(t, os.WriteFile(path, make([]byte, 100), 0o600))
	changed := time.Now().Add(-time.Hour)
	mustDo(t, os.Chtimes(path, time.Now().Add(-time.Minute), changed))
	time.Sleep(2 * inode.TickMax)
	handle := handleOf(t, o, root, "f")
	v := o.Table().Volumes()[0]
	if !o.Remembers(v) || !v.Files.HasBirths() {
		t.Skip("no attributes are remembered on this disk")
	}
	// The ctime is later than the atime, which the first READ sets: as on a disk on which it never does.
	v.FS.NoAtime = true
	look := func(end int64) (size int64, remembered bool) {
		t.Helper()
		f, err := o.Open(netip.Addr{}, handle, inode.UseRead)
		mustDo(t, err)
		defer f.Close()
		before := o.CacheCounts().Handles.Attrs
		a, err := f.Recent(end)
		mustDo(t, err)
		return a.Size, o.CacheCounts().Handles.Attrs > before && a.Size >= end
	}
	look(100)
	look(100)
	if size, remembered := look(100); size != 100 || !remembered {
		t.Errorf("size %d, remembered %v", size, remembered)
	}
	mustDo(t, os.Truncate(path, 200)) // on the disk: only what READ has found tells of it
	if size, _ := look(100); size != 100 {
		t.Errorf("size %d at once after a change on the disk: it was looked at again", size)
	}
	if size, _ := look(150); size != 200 {
		t.Errorf("size %d after a READ up to 150", size)
	}
	f, err := o.Open(netip.Addr{}, handle, inode.UseWrite)
	mustDo(t, err)
	mustDo(t, f.Truncate(actas.AsProcess(), 300))
	f.Close()
	if size, remembered := look(100); size != 300 || remembered {
		t.Errorf("after a client's change: size %d, remembered %v", size, remembered)
	}
	time.Sleep(inode.AttrsKept)
	mustDo(t, os.Truncate(path, 400))
	time.Sleep(inode.AttrsKept)
	if size, _ := look(100); size != 400 {
		t.Errorf("size %d a second after a change on the disk", size)
	}
}

// A READ leaves the atime alone where the kernel does, mount(8).
func TestKeepsAtime(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	for name, tt := range map[string]struct {
		FS                  disk.FS
		atime, mtime, ctime time.Time
		want                bool
	}{
		"relatime":                 {disk.FS{RelAtime: true}, ago(time.Minute), ago(time.Hour), ago(time.Hour), true},
		"relatime, never read":     {disk.FS{RelAtime: true}, ago(time.Hour), ago(time.Hour), ago(time.Hour), false},
		"relatime, data changed":   {disk.FS{RelAtime: true}, ago(time.Hour), ago(time.Minute), ago(2 * time.Hour), false},
		"relatime, mode changed":   {disk.FS{RelAtime: true}, ago(time.Hour), ago(2 * time.Hour), ago(time.Minute), false},
		"relatime, read yesterday": {disk.FS{RelAtime: true}, ago(24 * time.Hour), ago(50 * time.Hour), ago(50 * time.Hour), false},
		"relatime, read just now":  {disk.FS{RelAtime: true}, ago(time.Second), ago(time.Hour), ago(time.Hour), false},
		"noatime":                  {disk.FS{NoAtime: true}, ago(50 * time.Hour), ago(time.Hour), ago(time.Hour), true},
		"strictatime":              {disk.FS{}, ago(time.Minute), ago(time.Hour), ago(time.Hour), false},
	} {
		a := disk.Attr{Atime: tt.atime, Mtime: tt.mtime, Ctime: tt.ctime}
		if got := inode.KeepsAtime(&tt.FS, &a, now.UnixNano()); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
