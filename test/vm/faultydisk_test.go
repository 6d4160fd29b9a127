//go:build vm

package vm_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/podnas/podnas/test/faultydisk"
)

// TestFaultyDisk: what a program on the mount was told is on the disk, by fsync, by a
// write to a file with O_SYNC or by rename, is there, though the disk failed meanwhile.
func TestFaultyDisk(t *testing.T) {
	for _, kind := range faultydisk.Kinds() {
		if !strings.Contains(kind.Name, " and its ") { // which fails there anyway
			t.Run("flakey "+kind.Name, func(t *testing.T) {
				xfsInShortRun(t, kind)
				faultyDisk(t, faultydisk.NewFlakey(t, kind))
			})
		}
		t.Run("thin "+kind.Name, func(t *testing.T) {
			xfsInShortRun(t, kind)
			faultyDisk(t, faultydisk.NewThin(t, kind))
		})
	}
}

func xfsInShortRun(t *testing.T, kind faultydisk.Kind) {
	t.Helper()
	if !strings.HasPrefix(kind.Name, "XFS") {
		notInShortRun(t, "TestSyncFails has all kinds, on this machine's own kernel")
	}
}

// TestFaultyDiskUnseen: the kernel fails to write back what a client has written and not
// committed, somebody on the server's side sees the error, and long after that the client's
// program asks for it to be on the disk.
func TestFaultyDiskUnseen(t *testing.T) {
	for _, kind := range faultydisk.Kinds() {
		if strings.Contains(kind.Name, " and its ") {
			continue
		}
		t.Run(kind.Name, func(t *testing.T) {
			disk := faultydisk.NewThin(t, kind)
			a := newAppliance(t, settings{root: disk.Dir})
			a.start()
			// So the client writes, and sends no COMMIT until it is asked to.
			a.class("eager", "Delete", "write=eager")
			a.claim("unseen", "eager", "32Mi")
			pv := a.provisioned("unseen")
			name, content := filepath.Join(a.dir(pv), "file"), contentOf(1)
			synced := false
			t.Run("program", func(t *testing.T) {
				f, err := os.Create(filepath.Join(mount(t, pv), "file"))
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				disk.Fail()
				if _, err := f.Write(content); err != nil {
					t.Fatal(err)
				}
				eventually(t, "the data at the server", func() bool {
					info, err := os.Stat(name)
					return err == nil && info.Size() == contentSize
				})
				other, err := os.OpenFile(name, os.O_WRONLY, 0)
				if err != nil {
					t.Fatal(err)
				}
				if err := errors.Join(other.Sync(), other.Close()); err == nil {
					t.Error("the disk did not fail")
				}
				disk.Mend()
				time.Sleep(10 * time.Second) // longer than a server keeps an idle file open
				synced = f.Sync() == nil
			})
			a.kill()
			disk.Cut()
			if got, err := os.ReadFile(name); synced && !bytes.Equal(got, content) {
				t.Errorf("fsync said that it is on the disk, where there are %d bytes of something else: %v", len(got), err)
			}
			t.Logf("fsync went well: %v", synced)
		})
	}
}

// faultyLoad is programs that write.
type faultyLoad struct {
	dir        string
	next       atomic.Int64
	ok, failed atomic.Int64

	mu   sync.Mutex
	told []func(dir string) error // to be on the disk
}

func faultyDisk(t *testing.T, disk *faultydisk.Disk) {
	t.Helper()
	a := newAppliance(t, settings{root: disk.Dir})
	a.start()
	pv := a.volume("faulty", "32Mi")
	l := &faultyLoad{}
	t.Run("programs", func(t *testing.T) { l.runAll(t, disk, mount(t, pv)) })
	a.kill()
	disk.Cut()
	for _, check := range l.told {
		if err := check(a.dir(pv)); disk.Kind.Loses(err) {
			t.Logf("told to be on the disk, and can't be read: %v", err)
		} else if err != nil {
			t.Error(err)
		}
	}
	t.Logf("%d were told that it failed, %d that it is on the disk", l.failed.Load(), len(l.told))
}

// runAll runs programs on a mount, while the disk fails and works again.
func (l *faultyLoad) runAll(t *testing.T, disk *faultydisk.Disk, mnt string) {
	t.Helper()
	l.dir = mnt
	stop := make(chan struct{})
	var programs sync.WaitGroup
	for n := range 6 {
		programs.Go(func() {
			for range 300 {
				select {
				case <-stop:
					return
				default:
				}
				l.run(n % 3)
			}
		})
	}
	for range 2 {
		ok := l.ok.Load()
		withinLimit(5*time.Second, func() bool { return l.ok.Load() >= ok+15 })
		disk.Fail()
		failed := l.failed.Load()
		withinLimit(5*time.Second, func() bool { return l.failed.Load() >= failed+10 })
		disk.Mend()
	}
	close(stop)
	programs.Wait()
}

// withinLimit waits for something that may not come: a disk that failed may be of no use until
// it is mounted again.
func withinLimit(limit time.Duration, done func() bool) {
	for deadline := time.Now().Add(limit); !done() && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
}

// run is a program that makes something be on the disk.
func (l *faultyLoad) run(kind int) {
	n := l.next.Add(1)
	name, offset, flags := fmt.Sprint("file-", n), int64(0), os.O_CREATE|os.O_WRONLY
	switch kind {
	case 1: // one file of many programs
		name, offset = "shared", n*contentSize
	case 2:
		flags |= os.O_SYNC
	}
	err := l.write(name, offset, flags, n)
	if kind == 2 && err == nil {
		err = os.Rename(filepath.Join(l.dir, name), filepath.Join(l.dir, "moved-"+name))
		if err == nil {
			name = "moved-" + name
		}
	}
	if err != nil {
		l.failed.Add(1)
		time.Sleep(10 * time.Millisecond)
		return
	}
	l.ok.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told = append(l.told, func(dir string) error {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		defer f.Close()
		got := make([]byte, contentSize)
		if _, err := f.ReadAt(got, offset); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if !bytes.Equal(got, contentOf(n)) {
			return fmt.Errorf("%s at %d is not what was written", name, offset)
		}
		return nil
	})
}

func (l *faultyLoad) write(name string, offset int64, flags int, n int64) error {
	f, err := os.OpenFile(filepath.Join(l.dir, name), flags, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(contentOf(n), offset)
	return errors.Join(err, f.Sync(), f.Close())
}

const contentSize = 20 << 10

func contentOf(n int64) []byte {
	return bytes.Repeat(fmt.Appendf(nil, "%15d\n", n), contentSize/16)
}

// TestFaultyDiskTwoNodes: who syncs while the disk fails is told so, and another node, which has
// written and not yet synced, learns from the write verifier that it must send that again: its sync
// after the failure means that it is on the disk. Nobody is told of a failure twice.
func TestFaultyDiskTwoNodes(t *testing.T) {
	for _, kind := range faultydisk.Kinds() {
		if strings.Contains(kind.Name, " and its ") {
			continue
		}
		t.Run(kind.Name, func(t *testing.T) {
			xfsInShortRun(t, kind)
			disk := faultydisk.NewThin(t, kind)
			a := newAppliance(t, settings{root: disk.Dir, listen: ":20490"})
			a.start()
			a.class("eager", "Delete", "write=eager") // written, and not committed until it is synced
			a.claim("two", "eager", "32Mi")
			pv := a.provisioned("two")
			before, after := contentOf(1), contentOf(2)
			t.Run("nodes", func(t *testing.T) {
				nodes := [2]*node{newNode(t, 1, pv), newNode(t, 2, pv)}
				innocent, fails := nodes[0].open(t, "innocent", os.O_RDWR|os.O_CREATE), nodes[1].open(t, "fails", os.O_RDWR|os.O_CREATE)
				if err := errors.Join(innocent.Sync(), fails.Sync()); err != nil {
					t.Fatal(err)
				}
				if _, err := innocent.Write(before); err != nil {
					t.Fatal(err)
				}
				eventually(t, "the data at the server", func() bool {
					info, err := os.Stat(filepath.Join(a.dir(pv), "innocent"))
					return err == nil && info.Size() == contentSize
				})
				sent := writesOf(t, nodes[0].mnt)
				disk.Fail()
				_, err := fails.Write(before)
				if err := errors.Join(err, fails.Sync()); !errors.Is(err, syscall.EIO) && !noSpace(err) {
					t.Errorf("a sync while the disk fails: %v", err)
				}
				disk.Mend()
				if err := innocent.Sync(); err != nil {
					t.Errorf("a sync of what was written before the disk failed: %v", err)
				}
				if again := writesOf(t, nodes[0].mnt); again <= sent {
					t.Errorf("%d WRITEs by then, and %d after the sync: nothing was sent again", sent, again)
				}
				_, err = fails.WriteAt(after, 0)
				if err := errors.Join(err, fails.Sync()); err != nil {
					t.Errorf("a sync of what was written after the disk had failed: %v", err)
				}
			})
			a.kill()
			disk.Cut()
			holds(t, filepath.Join(a.dir(pv), "innocent"), before)
			holds(t, filepath.Join(a.dir(pv), "fails"), after)
		})
	}
}

// writesOf counts the WRITEs that a mount has sent.
func writesOf(t *testing.T, mnt string) (n int) {
	t.Helper()
	stats, err := os.ReadFile("/proc/self/mountstats")
	if err != nil {
		t.Fatal(err)
	}
	_, of, _ := strings.Cut(string(stats), " mounted on "+mnt+" ")
	_, of, found := strings.Cut(of, " WRITE: ")
	if _, err := fmt.Sscan(of, &n); err != nil || !found {
		t.Fatalf("no WRITEs of %s in /proc/self/mountstats: %v", mnt, err)
	}
	return n
}
