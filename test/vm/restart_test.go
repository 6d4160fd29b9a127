//go:build vm

package vm_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestRestart takes podnas away from under a client that writes, and brings it
// back: the client goes on by itself, with the handles it had.
func TestRestart(t *testing.T) {
	for _, end := range []struct {
		name string
		with func(*appliance)
	}{
		{"SIGTERM", (*appliance).stop},
		{"SIGKILL", (*appliance).kill},
	} {
		t.Run(end.name, func(t *testing.T) {
			a := serve(t)
			pv := a.volume("restart", "128Mi")
			mnt := mount(t, pv)

			// What the client holds over the restart: a file, a folder, a file
			// that has lost its name, and one in the middle of a long write.
			if err := os.MkdirAll(filepath.Join(mnt, "dir/sub"), 0o755); err != nil {
				t.Fatal(err)
			}
			before := data(1, 100_000)
			mustWrite(t, filepath.Join(mnt, "dir/sub/f"), before)
			file := open(t, filepath.Join(mnt, "dir/sub/f"))
			dir := open(t, filepath.Join(mnt, "dir"))
			mustWrite(t, filepath.Join(mnt, "nameless"), before)
			nameless := open(t, filepath.Join(mnt, "nameless"))
			if err := os.Remove(filepath.Join(mnt, "nameless")); err != nil {
				t.Fatal(err)
			}
			long := data(2, 64<<20)
			written := make(chan error, 1)
			go func() { written <- writeSlowly(filepath.Join(mnt, "long"), long) }()
			log := startLog(t, filepath.Join(mnt, "log"))
			log.grows(t, 20)

			a.prepare()
			end.with(a)
			time.Sleep(2 * time.Second)
			a.start()

			if again := a.provisioned("restart"); again.Metadata.Name != pv.Metadata.Name {
				t.Errorf("volume %s has become %s", pv.Metadata.Name, again.Metadata.Name)
			}
			log.grows(t, 20)
			n := log.stop(t)
			if err := <-written; err != nil {
				t.Errorf("the long write: %v", err)
			}
			dropCaches(t)
			checkLog(t, filepath.Join(mnt, "log"), n)
			checkLog(t, filepath.Join(a.dir(pv), "log"), n)
			holds(t, filepath.Join(mnt, "long"), long)
			holds(t, filepath.Join(a.dir(pv), "long"), long)

			for name, f := range map[string]*os.File{"file": file, "nameless": nameless} {
				got := make([]byte, len(before))
				if _, err := f.ReadAt(got, 0); err != nil || !bytes.Equal(got, before) {
					t.Errorf("the open %s can't be read as before: %v", name, err)
				}
			}
			if names, err := dir.Readdirnames(-1); err != nil || len(names) != 1 || names[0] != "sub" {
				t.Errorf("the open folder lists %q, %v", names, err)
			}
		})
	}
}

// writeSlowly writes b, as write does, but over some ten seconds.
func writeSlowly(name string, b []byte) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	for chunk := range slices.Chunk(b, len(b)/400) {
		if _, err := f.Write(chunk); err != nil {
			return errors.Join(err, f.Close())
		}
		time.Sleep(20 * time.Millisecond)
	}
	return errors.Join(f.Sync(), f.Close())
}

// TestPowerCut: what fsync has answered for is there after the disk lost
// everything that had not reached it.
func TestPowerCut(t *testing.T) {
	root, dev := loopXFS(t, "prjquota")
	a := newAppliance(t, settings{root: root})
	a.start()
	pv := a.volume("power", "64Mi")
	mnt := mount(t, pv)
	b := data(1, 10<<20)
	mustWrite(t, filepath.Join(mnt, "synced"), b)
	log := startLog(t, filepath.Join(mnt, "log"))
	log.grows(t, 50)

	a.prepare()
	acked := log.acked.Load()
	cutPower(t, root)
	a.kill()
	if err := unix.Unmount(root, 0); err != nil {
		t.Fatal(err)
	}
	mountDisk(t, dev, root, "xfs", "prjquota")
	checkLog(t, filepath.Join(a.dir(pv), "log"), acked)
	a.start()

	if again := a.provisioned("power"); again.Metadata.Name != pv.Metadata.Name {
		t.Errorf("volume %s has become %s", pv.Metadata.Name, again.Metadata.Name)
	}
	// The writer may have met the dead disk before podnas was killed; either it
	// got that error, or it goes on.
	if err := log.end(t); err != nil && !errors.Is(err, unix.EIO) {
		t.Errorf("the writer: %v", err)
	}
	dropCaches(t)
	holds(t, filepath.Join(mnt, "synced"), b)
	holds(t, filepath.Join(a.dir(pv), "synced"), b)
	b = data(2, 1<<20)
	mustWrite(t, filepath.Join(mnt, "after"), b)
	holds(t, filepath.Join(a.dir(pv), "after"), b)
}

// cutPower shuts an XFS down without writing its log or its data
// (XFS_IOC_GOINGDOWN with XFS_FSOP_GOING_FLAGS_NOLOGFLUSH).
func cutPower(t *testing.T, dir string) {
	t.Helper()
	const (
		xfsIocGoingdown = 0x8004587d
		noLogFlush      = uint32(2)
	)
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	flags := noLogFlush
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), xfsIocGoingdown, uintptr(unsafe.Pointer(&flags))); errno != 0 {
		t.Fatalf("XFS_IOC_GOINGDOWN: %v", errno)
	}
}

// open opens a file or folder for the rest of the test.
func open(t *testing.T, name string) *os.File {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// syncedLog is a file that grows by numbered records, each synced before the
// next, as a database's log does.
type syncedLog struct {
	acked atomic.Int64 // records that fsync has answered for
	quit  chan struct{}
	ended chan error
}

const recordSize = 4096

func record(n int64) []byte {
	b := bytes.Repeat([]byte{byte(n)}, recordSize)
	binary.BigEndian.PutUint64(b, uint64(n))
	return b
}

func startLog(t *testing.T, name string) *syncedLog {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	l := &syncedLog{quit: make(chan struct{}), ended: make(chan error, 1)}
	go func() {
		l.ended <- func() error {
			for n := int64(0); ; n++ {
				select {
				case <-l.quit:
					return f.Close()
				default:
				}
				if _, err := f.Write(record(n)); err != nil {
					return errors.Join(err, f.Close())
				}
				if err := f.Sync(); err != nil {
					return errors.Join(err, f.Close())
				}
				l.acked.Add(1)
			}
		}()
	}()
	return l
}

// grows waits until the log has n more records.
func (l *syncedLog) grows(t *testing.T, n int64) {
	t.Helper()
	n += l.acked.Load()
	eventually(t, "the log grows", func() bool { return l.acked.Load() >= n })
}

// end ends the writer and returns its error.
func (l *syncedLog) end(t *testing.T) error {
	t.Helper()
	close(l.quit)
	select {
	case err := <-l.ended:
		return err
	case <-time.After(60 * time.Second):
		t.Fatal("the writer hangs")
		return nil
	}
}

// stop ends the writer, which must have met no error, and returns the number of
// records.
func (l *syncedLog) stop(t *testing.T) int64 {
	t.Helper()
	if err := l.end(t); err != nil {
		t.Errorf("the writer: %v", err)
	}
	return l.acked.Load()
}

// checkLog checks that the file has at least n records, each as it was written.
func checkLog(t *testing.T, name string, n int64) {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Error(err)
		return
	}
	if int64(len(b)) < n*recordSize {
		t.Errorf("%s has %d bytes, want the %d records that fsync answered for", name, len(b), n)
		return
	}
	for i := range n {
		if !bytes.Equal(b[i*recordSize:(i+1)*recordSize], record(i)) {
			t.Errorf("%s: record %d of %d is not what was written", name, i, n)
			return
		}
	}
}
