//go:build vm

// Package large_test does with the native engine what is too much for the guest
// of the suite around it, where a system call takes ten times as long: 100,000
// files, which are the entries of one directory, served with 1,024 descriptors.
// It runs on the machine itself, in a temporary directory, and calls the server
// from the wire.
package large_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/podnas/podnas/nfs/nfs3"
)

const (
	files  = 100_000
	nofile = 1024
)

// TestHundredThousandFiles makes and writes 100,000 files of one directory, reads
// them again, and lists the directory while other names come and go in it.
func TestHundredThousandFiles(t *testing.T) {
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: nofile, Max: nofile}); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "volume")
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	descriptors, goroutines := openDescriptors(t), runtime.NumGoroutine()
	addr, stop := serve(t, dir)
	callers, closeAll := dial(t, addr, 8)
	first := callers[0]
	made, err := first.Mkdir(t.Context(), first.root, "d", nfs3.Sattr{})
	if err != nil || made.Status != nfs3.OK {
		t.Fatal(made.Status, err)
	}
	d, handles, idle := made.Object, make([]nfs3.FH, files), openDescriptors(t)

	each(t, "made and written", callers, func(c caller, i int) error {
		var made nfs3.CreateRes
		for { // a slow disk makes a server ask to wait
			var err error
			made, err = c.Create(t.Context(), nfs3.CreateArgs{Where: nfs3.DirOpArgs{Dir: d, Name: []byte(name(i))}, Mode: nfs3.Guarded})
			if err == nil && made.Status == nfs3.ErrJukebox {
				time.Sleep(100 * time.Millisecond)
				continue
			}
			if err != nil || made.Status != nfs3.OK {
				return fmt.Errorf("CREATE: %v, %v", made.Status, err)
			}
			break
		}
		handles[i] = made.Object
		written, err := c.Write(t.Context(), made.Object, 0, nfs3.Unstable, content(i))
		if err != nil || written.Status != nfs3.OK || int(written.Count) != len(content(i)) {
			return fmt.Errorf("WRITE: %v, %d bytes, %v", written.Status, written.Count, err)
		}
		return nil
	})
	each(t, "read", callers, func(c caller, i int) error {
		read, err := c.Read(t.Context(), handles[i], 0, 100)
		if err != nil || read.Status != nfs3.OK || !bytes.Equal(read.Data, content(i)) {
			return fmt.Errorf("READ: %v, %q, %v", read.Status, read.Data, err)
		}
		return nil
	})
	t.Run("READDIR", func(t *testing.T) { listWhile(t, callers, d, readdir) })
	t.Run("READDIRPLUS", func(t *testing.T) { listWhile(t, callers, d, readdirplus) })
	onDisk(t, filepath.Join(dir, "d"))

	comesDown(t, "descriptors, with what was idle closed", idle, openDescriptors)
	closeAll()
	stop()
	comesDown(t, "descriptors", descriptors, openDescriptors)
	comesDown(t, "goroutines", goroutines, func(*testing.T) int { return runtime.NumGoroutine() })
}

func name(i int) string    { return fmt.Sprint("stays-", i) }
func content(i int) []byte { return fmt.Append(nil, "this is file ", i) }

// each does something with every file, several at a time, and watches how many
// descriptors are open.
func each(t *testing.T, what string, callers []caller, do func(c caller, i int) error) {
	t.Helper()
	var next, most atomic.Int64
	var workers sync.WaitGroup
	begin := time.Now()
	for _, c := range callers {
		workers.Go(func() {
			for {
				i := int(next.Add(1) - 1)
				if i >= files || t.Failed() {
					return
				}
				if err := do(c, i); err != nil {
					t.Errorf("%s: %v", name(i), err)
				}
				if i%500 == 0 {
					most.Store(max(most.Load(), int64(openDescriptors(t)))) // roughly
				}
			}
		})
	}
	workers.Wait()
	if t.Failed() {
		t.FailNow()
	}
	t.Logf("%d files %s in %.0f s, with %d descriptors at most", files, what, time.Since(begin).Seconds(), most.Load())
}

// onDisk checks some of the files where they are.
func onDisk(t *testing.T, dir string) {
	t.Helper()
	for i := 0; i < files; i += 97 {
		if b, err := os.ReadFile(filepath.Join(dir, name(i))); err != nil || !bytes.Equal(b, content(i)) {
			t.Errorf("on the disk %s holds %q, %v", name(i), b, err)
		}
	}
}

func openDescriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Error(err)
	}
	return len(entries)
}

// comesDown waits until there are no more of something than there were before.
func comesDown(t *testing.T, what string, before int, now func(*testing.T) int) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); now(t) > before; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Errorf("%s: %d, %d before", what, now(t), before)
			return
		}
	}
}
