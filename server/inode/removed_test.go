package inode_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/quota"
	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/server/space"
	"github.com/podnas/podnas/test/testdisk"
)

// manyExtents makes a file of so many extents.
func manyExtents(t *testing.T, name string, n int) {
	t.Helper()
	f, err := os.Create(name)
	mustDo(t, err)
	defer f.Close()
	block := make([]byte, 4096)
	for i := range int64(n) {
		_, err := f.WriteAt(block, 2*i*int64(len(block)))
		mustDo(t, err)
	}
	mustDo(t, f.Sync())
}

// While the kernel frees a file of many extents, which takes seconds, other calls change names in its directory, and a
// snapshot need not wait. The call that has removed it returns when the space is free.
func TestRemoveOfManyExtents(t *testing.T) {
	needNative(t)
	remove := func(dir *inode.File) error { return dir.Remove(actas.AsProcess(), "big") }
	cases := map[string]struct {
		account *space.Account
		before  func(o *inode.Opener, big []byte) error
		do      func(dir *inode.File) error
		gone    string // the name that is gone then
	}{
		"removed":                {do: remove, gone: "big"},
		"removed, and just used": {do: remove, gone: "big", before: opensToRead},
		"removed and counted":    {do: remove, gone: "big", account: space.NewAccount(quota.Limit{Bytes: 1 << 40})},
		"replaced":               {do: func(dir *inode.File) error { return renameIn(dir, "small", "big") }, gone: "small"},
	}
	testdisk.Ext4(t, func(t *testing.T, disk string) {
		for name, test := range cases {
			t.Run(name, func(t *testing.T) {
				dir, err := os.MkdirTemp(disk, "volume")
				mustDo(t, err)
				const extents = 40_000
				manyExtents(t, filepath.Join(dir, "big"), extents)
				put(t, "small", dir, "small")
				table := newTable(t)
				mustDo(t, table.Export(exports.Exported{ID: 7, Path: "/v", Dir: dir, Account: test.account}))
				o := openerOf(t, table)
				v, _ := table.ByID(7)
				root := o.Root(v)
				if test.account != nil {
					counted(t, v)
				}
				if test.before != nil {
					mustDo(t, test.before(o, handleOf(t, o, root, "big")))
				}
				free := freeBlocks(t, disk)
				began, done := time.Now(), make(chan time.Duration, 1)
				go func() {
					if err := inNames(t, o, root, test.do); err != nil {
						t.Error(err)
					}
					done <- time.Since(began)
				}()
				for gone := false; !gone; {
					_, err := os.Lstat(filepath.Join(dir, test.gone))
					gone = errors.Is(err, os.ErrNotExist)
				}
				since := time.Since(began)
				beside := 0
				for took := time.Duration(0); took == 0; {
					create(t, o, root, fmt.Sprint("beside", beside))
					release, err := v.Snapshots.Hold(t.Context())
					mustDo(t, err)
					release()
					beside++
					select {
					case took = <-done:
						t.Logf("the name is gone after %v; until the call ended, after %v, %d files were made", since, took, beside)
					default:
					}
				}
				if n := freeBlocks(t, disk) - free; n < extents*9/10 {
					t.Errorf("%d blocks of %d are free when the call returns", n, extents)
				}
				if few := 5; beside < few {
					t.Errorf("only %d files were made beside it while it was freed", beside)
				}
			})
		}
	})
}

// A file of many extents is removed while its size is set to 0, which takes as long as it has extents: the directory is not locked
// for all of that time.
func TestRemoveWhileTruncated(t *testing.T) {
	needNative(t)
	test := func(t *testing.T, disk string) {
		const extents = 10 * inode.ExtentsMost
		table := newTable(t)
		mustDo(t, table.Export(exports.Exported{ID: 7, Path: "/v", Dir: disk}))
		o := openerOf(t, table)
		v, _ := table.ByID(7)
		root := o.Root(v)
		const tries = 5 // this goroutine may come too late
		for range tries {
			manyExtents(t, filepath.Join(disk, "big"), extents)
			f, err := o.Open(netip.Addr{}, handleOf(t, o, root, "big"), inode.UseWrite)
			mustDo(t, err)
			size := func() int64 {
				a, err := f.Cached().Look()
				mustDo(t, err)
				return a.Size
			}
			was := size()
			done := make(chan error, 1)
			began := time.Now()
			go func() { done <- f.Truncate(actas.AsProcess(), 0) }()
			for size() == was && len(done) == 0 {
				time.Sleep(100 * time.Microsecond)
			}
			err = inNames(t, o, root, func(dir *inode.File) error { return dir.Remove(actas.AsProcess(), "big") })
			removed, left := time.Since(began), size()
			mustDo(t, errors.Join(err, <-done))
			if n := size(); n != 0 {
				t.Errorf("%d bytes stay", n)
			}
			f.Close()
			t.Logf("removed after %v, with %d bytes left; truncated after %v", removed, left, time.Since(began))
			if left > 0 {
				return
			}
		}
		t.Errorf("in %d tries it was removed only when the size was set", tries)
	}
	testdisk.Ext4(t, test)
	testdisk.XFS(t, test)
}

// opensToRead opens a file and closes it, and its descriptor stays in the cache.
func opensToRead(o *inode.Opener, handle []byte) error {
	f, err := o.Open(netip.Addr{}, handle, inode.UseRead)
	if err == nil {
		f.Close()
	}
	return err
}

func freeBlocks(t *testing.T, dir string) int {
	t.Helper()
	var st unix.Statfs_t
	mustDo(t, unix.Statfs(dir, &st))
	return int(st.Bfree)
}
