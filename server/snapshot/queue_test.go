package snapshot_test

import (
	"math"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/podnas/podnas/server/snapshot"
	"github.com/podnas/podnas/test/leaks"
	"github.com/podnas/podnas/test/testdisk"
)

// While a snapshot is taken, little is held of each directory of the volume.
func TestManyDirectories(t *testing.T) {
	const dirs, most = 3000, 180
	v := newVolume(t, testdisk.OneXFS(t))
	for i := range dirs {
		mustDo(t, os.Mkdir(filepath.Join(v.dir, strconv.Itoa(i)+long), 0o755))
	}
	if x := v.Files.Index(); x != nil {
		x.WalkOnce()
	}
	before := leaks.LiveHeap()
	var p snapshot.Progress
	done := make(chan error, 1)
	go func() {
		_, err := v.take(&p)
		done <- err
	}()
	held := math.MaxInt // the least, from when all directories are known until they are in their places
	for tree := filepath.Join(v.work, "1", snapshot.Tree); held > dirs*most; time.Sleep(20 * time.Millisecond) {
		known := p.Files.Load() == dirs
		now := leaks.LiveHeap() - before
		if _, err := os.Stat(tree); err == nil || len(done) > 0 {
			t.Errorf("%d bytes for %d directories, want at most %d", held, dirs, dirs*most)
			break
		}
		if known {
			held = min(held, now)
		}
	}
	mustDo(t, <-done)
}
