package inode_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/test/testdisk"
)

// A file of more extents than one system call changes is shared and emptied like any other, and what can't be shared
// is refused before anything changes.
func TestManyExtents(t *testing.T) {
	testdisk.Each(t, func(t *testing.T, disk string) {
		const block, extents = 4096, inode.ExtentsMost + inode.ExtentsMost/4
		r := newRangesIn(t, disk, 1<<40)
		file, other := r.make("file"), r.data("other", 2*block)
		size := int64(0)
		content := make([]byte, 2*extents*block)
		mustDo(t, r.does(file, func(f *inode.File) error {
			for i := range int64(extents) {
				b := content[2*i*block:][:block]
				for j := range b {
					b[j] = byte(i) | 1
				}
				if _, _, err := f.WriteAt(b, 2*i*block); err != nil {
					return err
				}
				if i%1000 == 0 {
					mustDo(t, f.Sync(false))
				}
				size = (2*i+1)*block + 100
			}
			return errors.Join(f.Truncate(actas.AsProcess(), uint64(size)), f.Sync(false))
		}))
		content = content[:size]
		mustDo(t, r.does(file, func(f *inode.File) error {
			if n := f.FewExtents(0, size); n >= size || n%(64<<10) != 0 {
				t.Errorf("%d of %d bytes at once", n, size)
			}
			return nil
		}))
		clone := func(fromOffset, offset, length int64) error {
			return r.does(other, func(f *inode.File) error {
				from := r.open(file)
				defer from.Close()
				return f.CloneFrom(actas.AsProcess(), from, fromOffset, offset, length)
			})
		}
		began := time.Now()
		err := clone(0, 0, 0)
		if errors.Is(err, unix.EOPNOTSUPP) {
			t.Skip("the file system shares no blocks")
		}
		mustDo(t, err)
		t.Logf("%v for each extent", time.Since(began)/extents)
		r.holds(other, content)
		after := append(bytes.Clone(content), make([]byte, 10*block)...)
		mustDo(t, r.does(other, func(f *inode.File) error { return f.Truncate(actas.AsProcess(), uint64(len(after))) }))
		for name, is := range map[string][3]int64{
			"no whole blocks, and not to the end": {0, 0, size - 200},
			"more than there is":                  {0, 0, size + block},
			"its end into the other's midst":      {0, 0, size},
			"from no block":                       {1, 0, size - 1},
			"to no block":                         {0, 1, size},
			"past all offsets":                    {0, 1<<63 - block, size},
		} {
			if err := clone(is[0], is[1], is[2]); !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EFBIG) {
				t.Errorf("%s: %v", name, err)
			}
			r.holds(other, after)
		}
		if err := r.does(file, func(f *inode.File) error {
			return f.CloneFrom(actas.AsProcess(), f, 0, 2*block, size-size%block-2*block)
		}); !errors.Is(err, unix.EINVAL) {
			t.Errorf("over itself: %v", err)
		}
		r.holds(file, content)
		mustDo(t, r.does(other, func(f *inode.File) error { return f.Deallocate(actas.AsProcess(), 100, size) }))
		clear(after[100 : 100+size])
		r.holds(other, after)
		if st := r.stat(other); st.Used > 1<<20 {
			t.Errorf("%d bytes stay", st.Used)
		}
	})
}

// holds checks what a file has.
func (r *rangesIn) holds(handle, want []byte) {
	r.Helper()
	f := r.open(handle)
	defer f.Close()
	got := make([]byte, len(want)+1)
	n, err := f.ReadAt(got, 0)
	mustDo(r.T, err)
	if !bytes.Equal(got[:n], want) {
		r.Errorf("it has %d bytes that are not the %d wanted", n, len(want))
	}
}
