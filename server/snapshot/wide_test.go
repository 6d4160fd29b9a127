package snapshot_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/snapshot"
	"github.com/podnas/podnas/test/leaks"
	"github.com/podnas/podnas/test/testdisk"
)

// heapWhile returns how much more memory is in use while do runs.
func heapWhile(do func()) (most int) {
	before := leaks.LiveHeap()
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	for {
		select {
		case <-done:
			return most
		case <-time.After(50 * time.Millisecond):
			most = max(most, leaks.LiveHeap()-before)
		}
	}
}

// A snapshot of a directory takes no more memory than a part of them, however many a client makes: hard links of a file take
// nothing but these.
func TestWideDirectory(t *testing.T) {
	testdisk.OnlyCI(t)
	const names, most = 60000, 28 << 20
	v := newVolume(t, testdisk.OneXFS(t))
	var files []string // several, as one with so many names is never linked
	for i := range 4 {
		files = append(files, filepath.Join(v.dir, fmt.Sprint("f", i)))
		mustDo(t, os.WriteFile(files[i], nil, 0o644))
	}
	mustDo(t, os.MkdirAll(filepath.Join(v.dir, "d", "below"), 0o755))
	mustDo(t, os.WriteFile(filepath.Join(v.dir, "d", "below", "f"), nil, 0o644))
	d, err := os.Open(filepath.Join(v.dir, "d"))
	mustDo(t, err)
	defer d.Close()
	tail := strings.Repeat("n", 245)
	for i := range names {
		mustDo(t, unix.Linkat(unix.AT_FDCWD, files[i%len(files)], int(d.Fd()), fmt.Sprintf("%06d", i)+tail, 0))
	}
	if x := v.Files.Index(); x != nil {
		x.WalkOnce()
	}
	time.Sleep(age)
	for _, linked := range []int64{0, 5} { // those by their names beside the directory, and the one below
		var p snapshot.Progress
		took := heapWhile(func() { _, err = v.take(&p) })
		mustDo(t, err)
		if took > most {
			t.Errorf("%d bytes for %d names, want at most %d", took, names, most)
		}
		if got := p.Linked.Load(); got != linked {
			t.Errorf("it has %d files of the earlier one, want %d", got, linked)
		}
		t.Logf("%d bytes for each of %d names", took/names, names)
	}
}
