package inode_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/test/testdisk"
)

// xattrsIn is a counted volume whose files get attributes.
type xattrsIn struct{ *rangesIn }

func newXattrsIn(t *testing.T, disk string, limit int64) *xattrsIn {
	t.Helper()
	r := newRangesIn(t, disk, limit)
	if !r.volume.HasXattrs() {
		t.Skip("there are no extended attributes of users here")
	}
	return &xattrsIn{r}
}

// does opens a file, as a call does, and does something to it.
func (x *xattrsIn) does(handle []byte, do func(f *inode.File) error) error {
	x.Helper()
	f, err := x.opener.Open(netip.Addr{}, handle, inode.UseAttr)
	mustDo(x.T, err)
	defer f.Close()
	return do(f)
}

func (x *xattrsIn) set(handle []byte, name string, n int) error {
	x.Helper()
	return x.does(handle, func(f *inode.File) error {
		return f.SetXattr(actas.AsProcess(), []byte(name), []byte(strings.Repeat("v", n)), 0)
	})
}

func (x *xattrsIn) remove(handle []byte, name string) error {
	x.Helper()
	return x.does(handle, func(f *inode.File) error { return f.RemoveXattr(actas.AsProcess(), []byte(name)) })
}

func (x *xattrsIn) used() int64 { return x.volume.Account.Usage().Bytes }

// What attributes take is charged, also where it is not in the blocks of files, or more than what XFS allocates ahead, and is
// given back when they are removed, or the file.
func TestXattrsAreCharged(t *testing.T) {
	testdisk.Each(t, func(t *testing.T, dir string) {
		x := newXattrsIn(t, dir, 1<<40)
		file, other := x.make("file"), x.make("other")
		before := x.used()
		const size = 800 // below what an ext4 with small blocks has for all of a file
		mustDo(t, x.set(file, "a", size))
		if more := x.used() - before; more < size || more > 16<<10 {
			t.Errorf("an attribute of %d bytes: %d are charged", size, more)
		}
		large, sum := 0, 0 // as many as the disk takes, 4 MiB
		for ; large < 256; large++ {
			if err := x.set(other, fmt.Sprint("large", large), 16000); err != nil {
				if !errors.Is(err, unix.ENOSPC) {
					t.Fatalf("attribute %d: %v", large, err)
				}
				break
			}
			sum += 16000
		}
		if more := x.used() - before; int(more) < sum {
			t.Errorf("attributes of %d bytes: %d are charged", sum, more)
		}
		t.Logf("%d bytes of %d attributes: %d are charged", sum, large, x.used()-before)
		for i := range large {
			mustDo(t, x.remove(other, fmt.Sprint("large", i)))
		}
		mustDo(t, x.remove(file, "a"))
		if more := x.used() - before; more > 64<<10 { // XFS keeps a block or more
			t.Errorf("after all were removed %d bytes more are charged", more)
		}
		// What a file takes that is looked at first when it is removed, is given back, whoever removes it.
		mustDo(t, os.WriteFile(filepath.Join(x.dir, "beside"), nil, 0o600))
		mustDo(t, unix.Setxattr(filepath.Join(x.dir, "beside"), disk.XattrUser+"a", make([]byte, size), 0))
		before = x.used()
		mustDo(t, x.set(other, "a", size))
		x.removed("other")
		x.removed("beside")
		if less := before - x.used(); less < 0 {
			t.Errorf("two files less, and %d bytes more", -less)
		}
	})
}

// A scan finds what calls have charged.
func TestXattrsAreScanned(t *testing.T) {
	testdisk.Each(t, func(t *testing.T, dir string) {
		x := newXattrsIn(t, dir, 1<<40)
		file := x.make("file")
		for i := range 64 {
			if err := x.set(file, fmt.Sprint("a", i), 8000); errors.Is(err, unix.ENOSPC) {
				break
			}
		}
		mustDo(t, x.set(file, "a0", 600))
		mustDo(t, x.set(x.root, "of the root", 100))
		used := x.used()
		_, v, _ := countedAt(t, x.dir, 1<<40)
		if again := counted(t, v).Bytes; again < used-16*blockSize || again > used+16*blockSize {
			t.Errorf("calls have charged %d bytes, a scan finds %d", used, again)
		}
	})
}

// Attributes are bounded by the volume's limit, and those that there are can be removed in a full volume.
func TestXattrsInFull(t *testing.T) {
	testdisk.Each(t, func(t *testing.T, dir string) {
		const limit = 2 * mib
		x := newXattrsIn(t, dir, limit)
		var files [][]byte
		full := false
		for i := 0; i < 4000 && !full; i++ {
			if len(files)*32 <= i {
				files = append(files, x.make(fmt.Sprint("f", len(files))))
			}
			err := x.set(files[len(files)-1], fmt.Sprint("a", i%32), 16000)
			switch {
			case errors.Is(err, unix.EDQUOT):
				full = true
			case errors.Is(err, unix.ENOSPC): // in the file, where the disk has little for one: a large file fills the volume
				_, err := write(t, x.opener, files[0], 0, limit)
				if !errors.Is(err, unix.EDQUOT) {
					t.Fatalf("the volume is not full: %v", err)
				}
				full = true
			case err != nil:
				t.Fatal(err)
			}
		}
		var err error
		for i := 0; i < 100 && err == nil; i++ { // there may be room for smaller ones
			err = x.set(files[0], fmt.Sprint("small", i), 800)
		}
		if !errors.Is(err, unix.EDQUOT) {
			t.Errorf("an attribute in a full volume: %v", err)
		}
		if used := x.used(); !full || used > limit+32*blockSize {
			t.Errorf("full %v, %d bytes are used of %d", full, used, limit)
		}
		if err := x.remove(files[0], "a0"); err != nil && !errors.Is(err, unix.ENODATA) {
			t.Errorf("an attribute is removed in a full volume: %v", err)
		}
	})
}

// A new inode with the number of one that had attributes has none.
func TestXattrsOfReused(t *testing.T) {
	testdisk.Each(t, func(t *testing.T, dir string) {
		x := newXattrsIn(t, dir, 1<<40)
		before := x.used()
		for range 20 {
			file := x.make("file")
			mustDo(t, x.set(file, "a", 600))
			x.removed("file")
		}
		if used := x.used(); used > before+8*blockSize {
			t.Errorf("%d bytes are charged, before %d", used, before)
		}
	})
}

// removed removes a name of the volume's root.
func (x *xattrsIn) removed(name string) {
	x.Helper()
	dir, err := x.opener.Open(netip.Addr{}, x.root, inode.UseNames)
	mustDo(x.T, err)
	defer dir.Close()
	defer inode.LockNames(dir, dir).Unlock()
	mustDo(x.T, dir.Remove(actas.AsProcess(), name))
}
