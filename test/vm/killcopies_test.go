//go:build vm

package vm_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestKillUnderCopies kills podnas while it shares all blocks of a file, copies the file, and makes a hole of one, for a
// program on a mount with version 4.2. The program meets no error, and what it asked for is done once podnas is back.
func TestKillUnderCopies(t *testing.T) {
	nativeOnly(t, "go-nfs serves version 3 alone")
	a := serve(t)
	pv := a.volume("copies", "1Gi")
	const extents = 9000 // three steps of a CLONE
	want := manyExtents(t, filepath.Join(a.dir(pv), "from"), extents)
	mnt := mountWith(t, pv, version42Options())
	rounds := 10
	if short() {
		rounds = 2
	}
	for round := range rounds {
		source := mustOpen(t, filepath.Join(mnt, "from"), os.O_RDONLY)
		clone := mustOpen(t, filepath.Join(mnt, fmt.Sprint("clone-", round)), os.O_RDWR|os.O_CREATE)
		copied := mustOpen(t, filepath.Join(mnt, fmt.Sprint("copy-", round)), os.O_RDWR|os.O_CREATE)
		for _, call := range []struct {
			name  string
			file  *os.File
			makes []byte
			do    func() error
		}{
			{"FICLONE", clone, want, func() error { return unix.IoctlFileClone(int(clone.Fd()), int(source.Fd())) }},
			{"copy_file_range", copied, want, func() error { return copyRange(copied, source, len(want)) }},
			{"fallocate", clone, make([]byte, len(want)), func() error {
				return unix.Fallocate(int(clone.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, int64(len(want)))
			}},
		} {
			a.prepare()
			done := make(chan error, 1)
			go func() { done <- call.do() }()
			time.Sleep(rand.N(200 * time.Millisecond))
			a.kill()
			a.start()
			within(t, 2*time.Minute, call.name, func() error { return <-done })
			dropCaches(t)
			for _, dir := range []string{mnt, a.dir(pv)} {
				holds(t, filepath.Join(dir, filepath.Base(call.file.Name())), call.makes)
			}
		}
		for _, f := range []*os.File{source, clone, copied} {
			f.Close()
		}
	}
}

// manyExtents makes a file in which every other block is a hole, and returns its content.
func manyExtents(t *testing.T, name string, extents int) []byte {
	t.Helper()
	const block = 4096
	f := mustOpen(t, name, os.O_WRONLY|os.O_CREATE)
	defer f.Close()
	content := data(1, 2*extents*block)
	for at := 0; at < len(content); at += 2 * block {
		clear(content[at : at+block])
		if _, err := f.WriteAt(content[at+block:at+2*block], int64(at+block)); err != nil {
			t.Fatal(err)
		}
	}
	return content
}

func mustOpen(t *testing.T, name string, flags int) *os.File {
	t.Helper()
	f, err := os.OpenFile(name, flags, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// copyRange copies n bytes by copy_file_range(2).
func copyRange(to, from *os.File, n int) error {
	for in, out := int64(0), int64(0); in < int64(n); {
		if done, err := unix.CopyFileRange(int(from.Fd()), &in, int(to.Fd()), &out, n-int(in), 0); err != nil {
			return err
		} else if done == 0 {
			return io.ErrUnexpectedEOF
		}
	}
	return nil
}
