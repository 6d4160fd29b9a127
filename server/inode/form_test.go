package inode_test

import (
	"bytes"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/quota"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/server/locate"
	"github.com/podnas/podnas/server/space"
)

// formed is a process that serves a volume with handles of a form.
func formed(t *testing.T, dir string, form locate.Form, byIndex bool) (*inode.Opener, *exports.Volume) {
	t.Helper()
	table := newTable(t)
	table.ByIndex = byIndex
	mustDo(t, table.Export(exports.Exported{ID: 1, Path: "/v", Dir: dir, Form: form, Account: space.NewAccount(quota.Limit{Bytes: 1 << 40})}))
	v, _ := table.ByID(1)
	counted(t, v)
	return openerOf(t, table), v
}

// What a volume's files are called by their handles depends on its form alone, and each way to find files finds what has
// such a handle, and nothing by one of another form.
func TestForms(t *testing.T) {
	onEachDisk(t, func(t *testing.T, dir string) {
		mustDo(t, os.MkdirAll(filepath.Join(dir, "d"), 0o755))
		put(t, "data", dir, "d", "file")
		mustDo(t, os.Symlink("target", filepath.Join(dir, "d", "link")))
		mustDo(t, unix.Mkfifo(filepath.Join(dir, "d", "fifo"), 0o644))
		all := map[locate.Form]map[string][]byte{}
		for _, form := range []locate.Form{locate.FormKernel, locate.FormInode} {
			all[form] = map[string][]byte{}
			for _, byIndex := range []bool{false, true, false} {
				o, v := formed(t, dir, form, byIndex)
				if v.Files.IsByIndex() != (byIndex || form == locate.FormInode) {
					t.Errorf("%s: files are found by the index: %t", form, v.Files.IsByIndex())
				}
				root := o.Root(v)
				for _, name := range []string{"d", "d/file", "d/link", "d/fifo"} {
					h := handleOf(t, o, root, name)
					if had := all[form][name]; had != nil && !bytes.Equal(had, h) {
						t.Errorf("%s by index %t: %s had the handle %x, and has %x", form, byIndex, name, had, h)
					}
					all[form][name] = h
				}
				for of, handles := range all {
					for name, h := range handles {
						f, err := patiently(func() (*inode.File, error) { return o.Open(netip.Addr{}, h, inode.UseAttr) })
						if err == nil {
							f.Close()
						}
						var want error
						if !bytes.Equal(h, all[form][name]) { // of a disk without times of birth they are the same
							want = unix.ESTALE
						}
						if !errors.Is(err, want) {
							t.Errorf("%s by index %t: the handle of %s of form %s: %v, want %v", form, byIndex, name, of, err, want)
						}
					}
				}
				if got, err := contentOf(o, all[form]["d/file"]); got != "data" || err != nil {
					t.Errorf("%s by index %t: %q, %v", form, byIndex, got, err)
				}
			}
		}
		// Another file that has the inode's number is not taken for it.
		mustDo(t, os.Remove(filepath.Join(dir, "d", "file")))
		for n := range 20 {
			put(t, "other", dir, "d", "file"+string(rune('a'+n)))
		}
		for form := range all {
			for _, byIndex := range []bool{false, true} {
				o, _ := formed(t, dir, form, byIndex)
				for of, handles := range all {
					_, err := patiently(func() (*inode.File, error) { return o.Open(netip.Addr{}, handles["d/file"], inode.UseAttr) })
					if !errors.Is(err, unix.ESTALE) {
						t.Errorf("%s by index %t: a removed file, by form %s: %v", form, byIndex, of, err)
					}
				}
			}
		}
	})
}

// A new volume has the kernel's handles if this process may open files by them; one whose record has no form has them anyway.
func TestFormsOfVolumes(t *testing.T) {
	onEachDisk(t, func(t *testing.T, dir string) {
		for byIndex, want := range map[bool]locate.Form{false: locate.FormKernel, true: locate.FormInode} {
			if fresh, earlier, err := locate.Forms(dir, byIndex); err != nil || fresh != want || earlier != locate.FormKernel {
				t.Errorf("by index %t: %s, %s, %v", byIndex, fresh, earlier, err)
			}
		}
	})
}

// A form that this podnas does not know is refused, and leaves nothing behind.
func TestUnknownForm(t *testing.T) {
	table := newTable(t)
	if err := table.Export(exports.Exported{ID: 1, Path: "/v", Dir: t.TempDir(), Form: "newer"}); err == nil {
		t.Error("a volume of an unknown form is exported")
	}
	if _, ok := table.ByID(1); ok {
		t.Error("and is in the table")
	}
}
