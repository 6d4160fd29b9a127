package inode_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/quota"
	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/server/space"
	"github.com/podnas/podnas/test/testdisk"
)

// On an overlay a file may have the number of a directory, also of one above it. Both are found, before
// and after the file is renamed and removed, and are counted.
func TestOverlayNumbers(t *testing.T) {
	dir := filepath.Join(testdisk.Overlay(t), "volume")
	mustDo(t, os.Mkdir(dir, 0o755))
	table := newTable(t)
	table.ByIndex = true
	mustDo(t, table.Export(exports.Exported{ID: 1, Path: "/v", Dir: dir, Account: space.NewAccount(quota.Limit{Bytes: 1 << 30})}))
	o := openerOf(t, table)
	v, _ := table.ByID(1)
	root := o.Root(v)
	counted(t, v)
	mustDo(t, os.Mkdir(filepath.Join(dir, "below"), 0o755))
	below := handleOf(t, o, root, "below")
	put(t, "sibling", dir, "below", "sibling")
	sibling := handleOf(t, o, root, "below/sibling")
	numbers := map[uint64]string{numberOf(t, dir): "the root", numberOf(t, dir, "below"): "the directory"}

	found := func(what string, handle []byte, want string) {
		t.Helper()
		for range 2 {
			if got, err := contentOf(o, handle); got != want || err != nil {
				t.Errorf("%s: %q, %v; want %q", what, got, err, want)
			}
			forgetOpen(o)
		}
	}
	for n := range 1000 {
		name := fmt.Sprint(n)
		err := inNames(t, o, below, func(d *inode.File) error {
			f, err := d.Create(actas.AsProcess(), name, 0o644, false)
			if err == nil {
				f.Close()
			}
			return err
		})
		mustDo(t, err)
		of, same := numbers[numberOf(t, dir, "below", name)]
		if !same {
			continue
		}
		delete(numbers, numberOf(t, dir, "below", name))
		handle := handleOf(t, o, root, "below/"+name)
		put(t, of, dir, "below", name)
		found("with the number of "+of, handle, of)
		mustDo(t, inNames(t, o, below, func(d *inode.File) error { return renameIn(d, name, "renamed") }))
		found("renamed", handle, of)
		found("beside it", sibling, "sibling")
		mustDo(t, inNames(t, o, below, func(d *inode.File) error { return d.Remove(actas.AsProcess(), "renamed") }))
		found("when it was removed", sibling, "sibling")
		if _, err := contentOf(o, handle); err == nil {
			t.Error("it is found after it was removed")
		}
	}
	if len(numbers) > 0 {
		t.Errorf("no file had the number of %v", numbers)
	}
	if _, inodes := du(t, dir); v.Account.Usage().Inodes != inodes {
		t.Errorf("%d inodes are counted, there are %d", v.Account.Usage().Inodes, inodes)
	}
}

func numberOf(t *testing.T, path ...string) uint64 {
	t.Helper()
	var st unix.Stat_t
	mustDo(t, unix.Lstat(filepath.Join(path...), &st))
	return st.Ino
}
