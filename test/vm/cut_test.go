//go:build vm

package vm_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestGuestPowerCut cuts the power of the guest that serves, at random moments
// under load, and boots another on its disk. The client here, in a guest of its
// own, meets no error and goes on by itself; what it was told is stable is there,
// and so are the names, as it was told they are.
func TestGuestPowerCut(t *testing.T) {
	// In so many directories that they are synced together.
	const synced, dirs, names, files = 100, 5, 100, 5
	cuts := 3
	if short() {
		cuts = 1
	}
	shared := os.Getenv("SERVING_GUEST")
	if shared == "" {
		t.Fatal("no SERVING_GUEST in the environment: this test is run by test/vm/cut.sh")
	}
	guests := &appliance{t: t, claims: filepath.Join(shared, "claims")}
	var pv persistentVolume
	eventually(t, "the serving guest has made the volume", func() (ok bool) {
		pv, ok = guests.find("cut")
		return ok
	})
	mnt := mount(t, pv)
	log := startLog(t, filepath.Join(mnt, "log"))
	files42 := mnt
	if version4() {
		files42 = mountWith(t, pv, version42Options())
	}
	large := startFiles(filepath.Join(files42, "file-"))
	for cut := range cuts {
		var churns []*churn
		for dir := range dirs {
			churns = append(churns, startChurn(t, filepath.Join(mnt, fmt.Sprint(cut, "-", dir))))
		}
		log.grows(t, synced+rand.Int64N(20))
		for _, c := range churns {
			c.grows(t, names/dirs+rand.IntN(20))
		}
		large.grows(t, files)
		order(t, shared, "cut")
		// Nothing answers now.
		records, written, steps := log.acked.Load(), large.acked.Load(), 0
		var want []map[string]bool
		for _, c := range churns {
			c.stop() // the operation under way is done by the next server
			want = append(want, c.expect())
			steps += len(want[len(want)-1])
		}
		order(t, shared, "boot")
		begin := time.Now()
		log.grows(t, 1)
		t.Logf("cut %d: the client goes on after %.0f s; %d records, %d files, %d names are checked", cut, time.Since(begin).Seconds(), records, written, steps)
		for _, c := range churns {
			if err := c.end(t); err != nil {
				t.Error(err)
			}
		}
		dropCaches(t)
		checkLog(t, filepath.Join(mnt, "log"), records)
		large.check(t, written)
		for i, c := range churns {
			check(t, c.dir, want[i])
		}
	}
	checkLog(t, filepath.Join(mnt, "log"), log.stop(t))
	large.check(t, large.stop(t))
}

// order has cut.sh do something with the serving guest, and waits until it is
// done.
func order(t *testing.T, shared, what string) {
	t.Helper()
	name := filepath.Join(shared, "order")
	if err := errors.Join(os.WriteFile(name+".new", []byte(what), 0o644), os.Rename(name+".new", name)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the order to "+what+" is carried out", func() bool {
		_, err := os.Stat(name)
		return errors.Is(err, fs.ErrNotExist)
	})
}

// largeFiles are files of more than one WRITE, so that a COMMIT makes them stable,
// made one after the other.
type largeFiles struct {
	prefix string
	acked  atomic.Int64 // files that fsync has answered for
	quit   chan struct{}
	ended  chan error
}

func largeFile(n int64) []byte {
	b := data(byte(n), 1_200_000+int(n*7919%1_000_000))
	if n%4 == 3 {
		clear(b[largeHole[0]:largeHole[1]])
	}
	return b
}

var largeHole = [2]int{300_000, 700_001}

// writeLarge writes one of largeFiles. By version 4.2 some are shared or copied from another, or get a hole. What shares and
// makes holes is on the disk when it returns.
func writeLarge(name string, n int64) (err error) {
	if n%4 == 0 {
		return write(name, largeFile(n))
	}
	b := largeFile(n)
	if n%4 == 3 {
		b = data(byte(n), len(b))
	}
	base := name + ".base"
	if n%4 == 3 {
		base = name
	}
	if err := write(base, b); err != nil {
		return err
	}
	from, err := os.OpenFile(base, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer from.Close()
	if n%4 == 3 {
		hole := [2]int64{int64(largeHole[0]), int64(largeHole[1])}
		err := unix.Fallocate(int(from.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, hole[0], hole[1]-hole[0])
		if errors.Is(err, unix.EOPNOTSUPP) {
			return write(name, largeFile(n))
		}
		return err
	}
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if n%4 == 1 {
		err = unix.IoctlFileClone(int(f.Fd()), int(from.Fd()))
	}
	if n%4 == 2 || errors.Is(err, unix.EOPNOTSUPP) {
		if _, err = io.Copy(f, from); err == nil { // which is copy_file_range(2)
			err = f.Sync()
		}
	}
	return errors.Join(err, os.Remove(base))
}

func startFiles(prefix string) *largeFiles {
	l := &largeFiles{prefix: prefix, quit: make(chan struct{}), ended: make(chan error, 1)}
	go func() {
		l.ended <- func() error {
			for n := int64(0); ; n++ {
				select {
				case <-l.quit:
					return nil
				default:
				}
				if err := writeLarge(fmt.Sprint(prefix, n), n); err != nil {
					return err
				}
				l.acked.Add(1)
				time.Sleep(200 * time.Millisecond) // or they fill the volume
			}
		}()
	}()
	return l
}

// grows waits until there are n more files.
func (l *largeFiles) grows(t *testing.T, n int64) {
	t.Helper()
	n += l.acked.Load()
	eventually(t, "files are written", func() bool { return l.acked.Load() >= n })
}

// stop ends the writer, which must have met no error, and returns the number of
// files.
func (l *largeFiles) stop(t *testing.T) int64 {
	t.Helper()
	close(l.quit)
	select {
	case err := <-l.ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(60 * time.Second):
		t.Fatal("the writer of large files hangs")
	}
	return l.acked.Load()
}

// check checks that the first n files hold what was written.
func (l *largeFiles) check(t *testing.T, n int64) {
	t.Helper()
	for i := range n {
		holds(t, fmt.Sprint(l.prefix, i), largeFile(i))
	}
}
