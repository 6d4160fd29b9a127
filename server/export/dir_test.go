package export

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/quota"
	"github.com/podnas/podnas/server/space"
)

// What an engine does by paths is counted like what one does by handles, also where the
// kernel gives no handles.
func TestDir(t *testing.T) {
	for name, limit := range map[string]int64{"counted": 1 << 30, "not counted": 0} {
		for _, finder := range []finder{kernelHandles{}, inodes{}} {
			t.Run(fmt.Sprintf("%s, %T", name, finder), func(t *testing.T) {
				table, dir := newTable(t), t.TempDir()
				var account *space.Account
				if limit > 0 {
					account = space.NewAccount(quota.Limit{Bytes: limit})
				}
				v, err := table.add(1, "/v", dir, Options{}, account)
				mustDo(t, err)
				if _, err := finder.identify(int(v.root.Fd()), nil); errors.Is(err, ErrNoFileID) {
					t.Skipf("the temporary directory's file system can't: %v", err)
				}
				v.finder = finder
				check := func(when string) {
					t.Helper()
					if account != nil {
						sound(t, v, dir, when)
					}
				}
				if account != nil {
					v.scan(discard)
				}
				useDir(t, openerOf(t, table), v, dir, check)
				left, err := os.ReadDir(dir)
				mustDo(t, err)
				if len(left) != 0 {
					t.Errorf("%v is left", left)
				}
				check("at the end")
			})
		}
	}
}

// useDir makes, changes and removes a file of each type.
func useDir(t *testing.T, o *Opener, v *Volume, dir string, check func(when string)) {
	t.Helper()
	d, err := o.OpenDir(v, ".")
	mustDo(t, err)
	defer d.Close()
	mustDo(t, errors.Join(d.Mkdir("sub", 0o750), d.Symlink("to", "link")))
	if to, err := d.Readlink("link"); to != "to" || err != nil {
		t.Errorf("Readlink: %q, %v", to, err)
	}
	f, err := d.OpenFile("file", os.O_RDWR|os.O_CREATE, 0o640)
	mustDo(t, err)
	data := bytes.Repeat([]byte("data"), 1<<20)
	n, err := f.Write(data)
	mustDo(t, errors.Join(err, f.Sync(), f.Close()))
	check("when it is written")
	if got, err := os.ReadFile(filepath.Join(dir, "file")); n != len(data) || err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes were written, %d read: %v", n, len(got), err)
	}
	then := time.Unix(1_000_000_000, 5000)
	mustDo(t, errors.Join(d.Chmod("file", 0o600), d.Chmod("link", 0o600), d.Chtimes("file", then, then), d.Chtimes("link", then, then)))
	mustDo(t, errors.Join(d.Lchown("file", os.Geteuid(), -1), d.Lchown("link", -1, os.Getegid())))
	for _, name := range []string{"file", "link"} {
		if a, err := d.Lstat(name); err != nil || !a.Mtime.Equal(then) || a.IsRegular() && a.Mode&0o7777 != 0o600 {
			t.Errorf("%s: %+v, %v", name, a, err)
		}
	}
	f, err = d.OpenFile("file", os.O_WRONLY|os.O_CREATE, 0)
	mustDo(t, err)
	mustDo(t, errors.Join(f.Truncate(5000), f.Close()))
	check("when it is cut")

	sub, err := o.OpenDir(v, "sub")
	mustDo(t, err)
	defer sub.Close()
	mustDo(t, d.Rename("file", sub, "moved"))
	mustDo(t, d.Rename("link", sub, "moved"))
	mustDo(t, sub.Sync())
	check("when it is replaced")
	if err := d.Remove("sub"); !errors.Is(err, unix.ENOTEMPTY) {
		t.Errorf("a directory with an entry is removed: %v", err)
	}
	var at *os.PathError
	if err := d.Mkdir("sub", 0o700); !errors.Is(err, os.ErrExist) || !errors.As(err, &at) || at.Path != "sub" {
		t.Errorf("made twice: %v", err)
	}
	mustDo(t, errors.Join(sub.Remove("moved"), d.Remove("sub"), d.Sync()))
}
