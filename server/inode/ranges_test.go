package inode_test

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/test/testdisk"
)

// rangesIn is a counted volume with files to copy between.
type rangesIn struct {
	*testing.T
	dir    string
	opener *inode.Opener
	volume *exports.Volume
	root   []byte
	files  [][]byte
}

const mib = 1 << 20

func newRangesIn(t *testing.T, disk string, limit int64) *rangesIn {
	t.Helper()
	dir := filepath.Join(disk, "v")
	mustDo(t, os.Mkdir(dir, 0o755))
	o, v, root := countedAt(t, dir, limit)
	counted(t, v)
	return &rangesIn{T: t, dir: dir, opener: o, volume: v, root: root}
}

// open opens a file for the test's own time, as a call does.
func (r *rangesIn) open(handle []byte) *inode.File {
	r.Helper()
	f, err := r.opener.Open(netip.Addr{}, handle, inode.UseWrite)
	mustDo(r.T, err)
	return f
}

// does opens a file, does something to it, and checks what is charged then.
func (r *rangesIn) does(handle []byte, do func(f *inode.File) error) error {
	r.Helper()
	f := r.open(handle)
	err := do(f)
	f.Close()
	r.isRight()
	return err
}

// isRight checks that what is charged is what the disk says, but for what XFS has allocated behind the end of a file.
// A disk may give blocks to a file's map later.
func (r *rangesIn) isRight() {
	r.Helper()
	used := r.volume.Account.Usage().Bytes
	want, _ := du(r.T, r.dir)
	ahead := int64(0)
	for _, f := range r.files {
		st := r.stat(f)
		ahead += max(0, int64(st.Used)-(st.Size+blockSize-1)&^(blockSize-1))
	}
	if used > want || used < want-ahead-8*blockSize {
		r.Errorf("%d bytes are charged, and %d are in use, of which %d are behind the ends of files", used, want, ahead)
	}
}

func (r *rangesIn) make(name string) []byte {
	r.Helper()
	handle := create(r.T, r.opener, r.root, name)
	r.files = append(r.files, handle)
	return handle
}

func (r *rangesIn) data(name string, n int) []byte {
	r.Helper()
	handle := r.make(name)
	mustDo(r.T, r.does(handle, func(f *inode.File) error {
		_, _, err := f.WriteAt(make([]byte, n), 0)
		return errors.Join(err, f.Sync(false)) // so that the blocks have their places
	}))
	return handle
}

// What ranges take and give back is charged, on each file system.
func TestRangesAreCharged(t *testing.T) {
	testdisk.Each(t, func(t *testing.T, disk string) {
		r := newRangesIn(t, disk, 1<<40)
		file := r.data("file", 4*mib)
		before := r.volume.Account.Usage().Bytes
		mustDo(t, r.does(file, func(f *inode.File) error { return f.Deallocate(actas.AsProcess(), mib, mib) }))
		if freed := before - r.volume.Account.Usage().Bytes; freed < mib-2*blockSize {
			t.Errorf("a hole of a MiB gives %d bytes back", freed)
		}
		mustDo(t, r.does(file, func(f *inode.File) error { return f.Allocate(actas.AsProcess(), 0, 8*mib) }))
		if more := r.volume.Account.Usage().Bytes - before; more < 4*mib-2*blockSize || more > 4*mib+aheadMax {
			t.Errorf("of 4 MiB 8 MiB were made, and %d bytes more are charged", more)
		}
		other := r.make("other")
		mustDo(t, r.does(other, func(f *inode.File) error {
			from := r.open(file)
			defer from.Close()
			n, err := f.CopyFrom(actas.AsProcess(), from, 0, 0, 4*mib)
			if err == nil && n != 4*mib {
				t.Errorf("%d bytes were copied", n)
			}
			return errors.Join(err, f.Sync(false))
		}))
		err := r.does(other, func(f *inode.File) error {
			from := r.open(file)
			defer from.Close()
			return f.CloneFrom(actas.AsProcess(), from, 0, 0, 0)
		})
		if errors.Is(err, unix.EOPNOTSUPP) {
			if !errors.Is(r.volume.Unable(exports.CanClone, err), unix.EOPNOTSUPP) {
				t.Error("it is said of one file what no file can")
			}
			return
		}
		mustDo(t, err)
		if err := r.volume.Unable(exports.CanClone, unix.EOPNOTSUPP); !errors.Is(err, unix.EINVAL) {
			t.Error("it is said of all files what one can't")
		}
	})
}

// A volume never takes more than its limit, and what does not fit changes nothing that is charged.
func TestRangesInFullVolume(t *testing.T) {
	const limit = 8 * mib
	testdisk.Each(t, func(t *testing.T, disk string) {
		r := newRangesIn(t, disk, limit)
		file, other, filler := r.data("file", 4*mib), r.make("other"), r.make("filler")
		atMost := func(what string) {
			t.Helper()
			// What XFS has allocated behind the end of a file is known afterwards.
			if used := r.volume.Account.Usage().Bytes; used > limit+aheadMax {
				t.Errorf("%s: %d bytes are used of %d", what, used, limit)
			}
		}
		allocate := func(offset, length int64) error {
			return r.does(file, func(f *inode.File) error { return f.Allocate(actas.AsProcess(), offset, length) })
		}
		for _, length := range []int64{limit, 1 << 40, 1<<62 - 1, 1<<63 - 1} {
			if err := allocate(0, length); !errors.Is(err, unix.EDQUOT) {
				t.Errorf("%d bytes of %d: %v", length, limit, err)
			}
		}
		if st := r.stat(file); st.Size != 4*mib {
			t.Errorf("the size is %d", st.Size)
		}
		mustDo(t, allocate(0, 7*mib)) // of which 4 MiB are there
		atMost("ALLOCATE")
		mustDo(t, allocate(mib, 2*mib)) // which are there
		// What was allocated can be written, though the volume is full.
		r.fill(filler)
		atMost("full")
		if n, err := write(t, r.opener, file, 5*mib, mib); n != mib || err != nil {
			t.Errorf("%d bytes of what was allocated were written: %v", n, err)
		}
		r.isRight()
		for _, n := range []int64{mib, 4 << 10} {
			err := r.does(other, func(f *inode.File) error {
				from := r.open(file)
				defer from.Close()
				_, err := f.CopyFrom(actas.AsProcess(), from, 0, 0, n)
				return err
			})
			if !errors.Is(err, unix.EDQUOT) {
				t.Errorf("a copy of %d bytes in a full volume: %v", n, err)
			}
		}
		mustDo(t, r.does(file, func(f *inode.File) error { return f.Deallocate(actas.AsProcess(), 0, 2*mib) }))
		mustDo(t, r.does(other, func(f *inode.File) error {
			from := r.open(file)
			defer from.Close()
			_, err := f.CopyFrom(actas.AsProcess(), from, 3*mib, 0, mib)
			return err
		}))
		atMost("COPY")
		// Over what it has itself, a file is copied also where there is no room.
		r.fill(filler)
		mustDo(t, r.does(other, func(f *inode.File) error {
			from := r.open(file)
			defer from.Close()
			_, err := f.CopyFrom(actas.AsProcess(), from, 2*mib, 0, mib)
			return err
		}))
		atMost("COPY over blocks")
	})
}

// A sparse file is shared with a volume that has room for its blocks, not for its size.
func TestCloneOfHoles(t *testing.T) {
	testdisk.Each(t, func(t *testing.T, disk string) {
		r := newRangesIn(t, disk, 4*mib)
		file, other := r.data("file", mib), r.make("other")
		mustDo(t, r.does(file, func(f *inode.File) error {
			_, _, err := f.WriteAt([]byte("end"), 64*mib)
			return errors.Join(err, f.Sync(false))
		}))
		err := r.does(other, func(f *inode.File) error {
			from := r.open(file)
			defer from.Close()
			return f.CloneFrom(actas.AsProcess(), from, 0, 0, 0)
		})
		if errors.Is(err, unix.EOPNOTSUPP) {
			t.Skip("the file system shares no blocks")
		}
		mustDo(t, err)
		if st := r.stat(other); st.Size != 64*mib+3 {
			t.Errorf("the size is %d", st.Size)
		}
	})
}

func (r *rangesIn) stat(handle []byte) disk.Attr {
	r.Helper()
	f := r.open(handle)
	defer f.Close()
	a, err := f.Stat()
	mustDo(r.T, err)
	return a
}

// fill writes to a file as long as there is room.
func (r *rangesIn) fill(handle []byte) {
	r.Helper()
	for n := 1; n > 0; {
		n, _ = write(r.T, r.opener, handle, r.stat(handle).Size, 64<<10)
	}
	r.isRight()
}
