package faultydisk_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/test/faultydisk"
)

// What file systems do when a sync fails, which docs/internals/durability.md tells. The disk works again
// before the second sync.
func TestAfterFailedSync(t *testing.T) {
	if faultydisk.OwnMounts(t) {
		return
	}
	size := 1 << 20
	old, written := bytes.Repeat([]byte("o"), size), bytes.Repeat([]byte("w"), size)
	for _, kind := range faultydisk.Kinds() {
		for _, tt := range []struct {
			name   string
			before []byte // what the file has
		}{{"new blocks", nil}, {"blocks that are there", old}} {
			t.Run(kind.Name+"/"+tt.name, func(t *testing.T) {
				disk := faultydisk.NewThin(t, kind)
				if tt.before != nil {
					disk = faultydisk.NewFlakey(t, kind)
				}
				name := filepath.Join(disk.Dir, "file")
				f, err := os.Create(name)
				must(t, err)
				defer f.Close()
				_, err = f.Write(tt.before)
				must(t, err)
				must(t, f.Sync())
				disk.Fail()
				_, err = f.WriteAt(written, 0)
				must(t, err)
				first := f.Sync()
				disk.Mend()
				second := f.Sync()
				cached, err := os.ReadFile(name)
				t.Logf("fsync: %v; again: %v; what is read: %s, %v", first, second, whatItIs(cached), err)
				if first == nil {
					t.Error("the disk did not fail")
				}
				// Of btrfs a transaction may have met the failure, too, and then it has ended.
				if second != nil && kind.Name != "btrfs" {
					t.Error("it is no longer as docs/internals/durability.md and server/durable/errseq.go say: the second is 0")
				}
				must(t, unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
				dropped, err := os.ReadFile(name)
				t.Logf("when it is no longer cached: %s, %v", whatItIs(dropped), err)
				must(t, f.Close())
				disk.Cut()
				after, err := os.ReadFile(name)
				t.Logf("when it is mounted again: %s, %v", whatItIs(after), err)
			})
		}
	}
}

func whatItIs(data []byte) string {
	switch {
	case len(data) == 0:
		return "empty"
	case data[0] == 'w' && bytes.Count(data, []byte("w")) == len(data):
		return "what was written"
	case data[0] == 'o' && bytes.Count(data, []byte("o")) == len(data):
		return "what was there before"
	case bytes.Count(data, []byte{0}) == len(data):
		return "zeros"
	}
	return "a mixture"
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
