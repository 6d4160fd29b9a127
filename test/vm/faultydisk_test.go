//go:build vm

package vm_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
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

// faultyLoad is what a process told whose programs write, see faultyMain. It has the files of a mount open, not this process, which
// could start no other one while they wait for an answer: that closes them.
type faultyLoad struct {
	mu     sync.Mutex
	told   []onDisk
	failed int
}

// onDisk is what a program was told is on the disk.
type onDisk struct {
	name   string
	offset int64
	n      int64 // which content
}

func faultyDisk(t *testing.T, disk *faultydisk.Disk) {
	t.Helper()
	a := newAppliance(t, settings{root: disk.Dir})
	a.start()
	pv := a.volume("faulty", "32Mi")
	l := &faultyLoad{}
	t.Run("programs", func(t *testing.T) {
		end := l.start(t, mount(t, pv))
		for range 2 {
			ok, _ := l.counts()
			withinLimit(5*time.Second, func() bool { now, _ := l.counts(); return now >= ok+15 })
			disk.Fail()
			_, failed := l.counts()
			withinLimit(5*time.Second, func() bool { _, now := l.counts(); return now >= failed+10 })
			disk.Mend()
		}
		a.kill()
		disk.Cut()
		l.check(t, disk.Kind, a.dir(pv))
		a.start()
		end() // of those, too, that waited for an answer from a disk that was lost
		l.check(t, disk.Kind, a.dir(pv))
	})
	ok, failed := l.counts()
	t.Logf("%d were told that it failed, %d that it is on the disk", failed, ok)
}

// start starts the process. end ends its programs, when they have their answers.
func (l *faultyLoad) start(t *testing.T, mnt string) (end func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "FAULTY_LOAD="+mnt)
	cmd.Stderr = os.Stderr
	stop, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	says, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	said := make(chan struct{})
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		select {
		case <-said: // so that its mount can be unmounted
		case <-time.After(10 * time.Second):
		}
	})
	go func() {
		defer close(said)
		for lines := bufio.NewScanner(says); lines.Scan(); {
			var d onDisk
			_, err := fmt.Sscan(lines.Text(), &d.name, &d.offset, &d.n)
			l.mu.Lock()
			if err == nil {
				l.told = append(l.told, d)
			} else {
				l.failed++
			}
			l.mu.Unlock()
		}
	}()
	return func() {
		stop.Close()
		select {
		case <-said:
		case <-time.After(2 * time.Minute):
			t.Fatalf("programs get no answers: %s", stuckStacks())
		}
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
}

func (l *faultyLoad) counts() (ok, failed int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.told), l.failed
}

// check looks for what programs were told is on the disk.
func (l *faultyLoad) check(t *testing.T, kind faultydisk.Kind, dir string) {
	t.Helper()
	l.mu.Lock()
	told := l.told
	l.mu.Unlock()
	for _, d := range told {
		if err := d.check(dir); kind.Loses(err) {
			t.Logf("told to be on the disk, and can't be read: %v", err)
		} else if err != nil {
			t.Error(err)
		}
	}
}

func (d *onDisk) check(dir string) error {
	f, err := os.Open(filepath.Join(dir, d.name))
	if err != nil {
		return err
	}
	defer f.Close()
	got := make([]byte, contentSize)
	if _, err := f.ReadAt(got, d.offset); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if !bytes.Equal(got, contentOf(d.n)) {
		return fmt.Errorf("%s at %d is not what was written", d.name, d.offset)
	}
	return nil
}

// withinLimit waits for something that may not come: a disk that failed may be of no use until
// it is mounted again.
func withinLimit(limit time.Duration, done func() bool) {
	for deadline := time.Now().Add(limit); !done() && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
}

// faultyMain is the process of a faultyLoad. It prints a line for each file that it has written.
func faultyMain(dir string) {
	stop := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(stop)
	}()
	var programs sync.WaitGroup
	var next atomic.Int64
	for n := range 6 {
		programs.Go(func() {
			for range 300 {
				select {
				case <-stop:
					return
				default:
				}
				d := onDisk{n: next.Add(1)}
				if err := d.write(dir, n%3); err != nil {
					fmt.Println("failed")
					time.Sleep(10 * time.Millisecond)
				} else {
					fmt.Println(d.name, d.offset, d.n)
				}
			}
		})
	}
	programs.Wait()
}

// write is a program that makes something be on the disk.
func (d *onDisk) write(dir string, kind int) error {
	flags := os.O_CREATE | os.O_WRONLY
	d.name = fmt.Sprint("file-", d.n)
	switch kind {
	case 1: // one file of many programs
		d.name, d.offset = "shared", d.n*contentSize
	case 2:
		flags |= os.O_SYNC
	}
	f, err := os.OpenFile(filepath.Join(dir, d.name), flags, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(contentOf(d.n), d.offset)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil || kind != 2 {
		return err
	}
	before := d.name
	d.name = "moved-" + before
	return os.Rename(filepath.Join(dir, before), filepath.Join(dir, d.name))
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
