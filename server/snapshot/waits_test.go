package snapshot_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/snapshot"
	"github.com/podnas/podnas/test/testdisk"
)

// inPieces makes a file of so many extents.
func inPieces(t testing.TB, name string, pieces int) {
	t.Helper()
	const piece = 4096
	mustDo(t, os.WriteFile(name, make([]byte, 2*piece*pieces), 0o644))
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	mustDo(t, err)
	defer f.Close()
	mustDo(t, f.Sync())
	for i := range pieces {
		mustDo(t, unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(i)*2*piece, piece))
	}
}

// The longest wait of a change is told, with the file.
func TestLongestWait(t *testing.T) {
	testdisk.XFS(t, func(t *testing.T, on string) {
		v := newVolume(t, on)
		dir, err := v.mkdir(*v.Files.RootID(), "dir")
		mustDo(t, err)
		for i := range 500 {
			_, err := v.create(*v.Files.RootID(), fmt.Sprint(i))
			mustDo(t, err)
		}
		id, err := v.create(dir, "big")
		mustDo(t, err)
		inPieces(t, filepath.Join(v.dir, "dir/big"), 4000)
		var p snapshot.Progress
		written := make(chan error, 1)
		go func() {
			for p.Cut.Load() == 0 {
				time.Sleep(100 * time.Microsecond)
			}
			written <- v.write(id, "changed", 0)
		}()
		_, err = v.take(&p)
		mustDo(t, err)
		mustDo(t, <-written)
		if wait := time.Duration(p.Waited.Load()); wait < 10*time.Millisecond {
			t.Errorf("the longest wait was %v", wait)
		}
		if file := p.WaitedFor.Load(); file == nil || *file != "dir/big" {
			t.Errorf("for %v", file)
		}
	})
}
