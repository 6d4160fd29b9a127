//go:build vm

package vm_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/test/faultydisk"
)

// TestCutAtAnyFlush: the power may be cut at any flush of the disk, and all that was acknowledged
// before is there: what was synced, names, directories, volumes and their limits, and which
// clients have state; podnas starts on it and serves it, which is tried of each third. dm-log-writes
// keeps what was written, in order, with a mark for each acknowledgement. CUTS is how many flushes
// and marks are tried, and SEED which.
func TestCutAtAnyFlush(t *testing.T) {
	cuts := 12
	if s := os.Getenv("CUTS"); s != "" {
		var err error
		if cuts, err = strconv.Atoi(s); err != nil {
			t.Fatalf("CUTS: %v", err)
		}
	}
	l := newLoggedDisk(t)
	var pv persistentVolume
	t.Run("load", func(t *testing.T) { pv = l.load(t) })
	if t.Failed() {
		return
	}
	if err := unix.Unmount(l.dir, 0); err != nil {
		t.Fatal(err)
	}
	log, err := os.Open(l.log)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	entries, err := faultydisk.ReadLog(log)
	if err != nil {
		t.Fatal(err)
	}
	var points []int // the entries that are the last before a cut
	flushes, marks := 0, 0
	for i, e := range entries {
		switch {
		case e.Mark != "":
			marks++
		case e.Flush:
			flushes++
		default:
			continue
		}
		points = append(points, i)
	}
	t.Logf("%d writes, flushes and marks; %d flushes, %d marks of %d acknowledgements", len(entries), flushes, marks, len(l.acks))
	if marks != len(l.acks) || flushes < 50 {
		t.Fatal("the log lacks some")
	}
	random := rand.New(rand.NewPCG(seedOf(t), 0))
	random.Shuffle(len(points), func(i, j int) { points[i], points[j] = points[j], points[i] })
	points = points[:min(cuts, len(points))]
	slices.Sort(points)
	disk, err := os.OpenFile(l.before, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer disk.Close()
	next := 0
	for i, point := range points {
		for ; next <= point; next++ {
			if err := entries[next].Replay(log, disk); err != nil {
				t.Fatal(err)
			}
		}
		acked := 0
		for _, e := range entries[:next] {
			if e.Mark != "" {
				acked++
			}
		}
		t.Run(fmt.Sprint("entry ", point), func(t *testing.T) { l.check(t, pv, l.acks[:acked], i%3 == 2) })
	}
}

// loggedDisk is an XFS whose writes are kept by dm-log-writes.
type loggedDisk struct {
	dir    string // where it is mounted
	name   string // of the device
	log    string // the file with the log
	before string // the disk as it was at first

	mu   sync.Mutex
	acks []ack // in the order of their marks
}

// ack is what a client was told.
type ack struct {
	of    string                // of one thing only the last is checked
	check func(d cutDisk) error // that it is so, or that what may have come next is
}

// cutDisk is the disk after a cut.
type cutDisk struct {
	dir    string // where it is mounted
	device string
}

func newLoggedDisk(t *testing.T) *loggedDisk {
	t.Helper()
	dir, err := os.MkdirTemp(xfs, "logged-")
	if err != nil {
		t.Fatal(err)
	}
	l := &loggedDisk{dir: t.TempDir(), name: fmt.Sprint("podnas-log-", os.Getpid()), log: filepath.Join(dir, "log"), before: filepath.Join(dir, "before")}
	disk := filepath.Join(dir, "disk")
	for name, size := range map[string]int64{disk: 320 << 20, l.log: 1 << 30} {
		if err := errors.Join(os.WriteFile(name, nil, 0o600), os.Truncate(name, size)); err != nil {
			t.Fatal(err)
		}
	}
	command(t, "mkfs.xfs", "-q", disk)
	command(t, "cp", "--reflink=always", disk, l.before)
	for _, module := range []string{"loop", "dm-mod", "dm-log-writes"} {
		command(t, "modprobe", module)
	}
	var devices []string
	for _, image := range []string{disk, l.log} {
		device := strings.TrimSpace(command(t, "losetup", "--find", "--show", image))
		t.Cleanup(func() { command(t, "losetup", "--detach", device) })
		devices = append(devices, device)
	}
	command(t, "dmsetup", "create", l.name, "--table", fmt.Sprintf("0 %d log-writes %s %s", 320<<20/512, devices[0], devices[1]))
	t.Cleanup(func() { command(t, "dmsetup", "remove", l.name) })
	command(t, "dmsetup", "mknodes", l.name)
	mountDisk(t, "/dev/mapper/"+l.name, l.dir, "xfs", "prjquota")
	t.Cleanup(func() {
		if err := unix.Unmount(l.dir, 0); err != nil && !errors.Is(err, unix.EINVAL) {
			t.Error(err)
		}
	})
	return l
}

// ack says that something was acknowledged.
func (l *loggedDisk) ack(of string, check func(d cutDisk) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acks = append(l.acks, ack{of, check})
	return l.mark("ack")
}

// mark puts a mark into the log, by the system call of dmsetup message: a program that is started
// closes the files that it got from this process, and so syncs what is under way.
func (l *loggedDisk) mark(text string) error {
	control, err := os.OpenFile("/dev/mapper/control", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer control.Close()
	// struct dm_ioctl and struct dm_target_msg of linux/dm-ioctl.h.
	const size, targetMsg = 312, 0xc138fd0e
	b := make([]byte, size+8+len("mark ")+len(text)+1)
	order := binary.NativeEndian
	order.PutUint32(b, 4) // the version
	order.PutUint32(b[12:], uint32(len(b)))
	order.PutUint32(b[16:], size)
	copy(b[48:], l.name)
	copy(b[size+8:], "mark "+text)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, control.Fd(), targetMsg, uintptr(unsafe.Pointer(&b[0]))); errno != 0 {
		return fmt.Errorf("mark: %w", errno)
	}
	return nil
}

// load has clients of both versions change a volume, and makes and expands others.
func (l *loggedDisk) load(t *testing.T) persistentVolume {
	t.Helper()
	a := newAppliance(t, settings{root: l.dir, listen: ":20490"})
	a.start()
	pv := a.volume("flushed", "64Mi")
	l.must(t, l.ack("volume flushed", volumeIs(pv, 64<<20)))
	nodes := []*node{newNode(t, 1, pv), newNode(t, 2, pv)}
	dirs := []string{nodes[0].mnt, nodes[1].mnt, mountWith(t, pv, version3Options())}

	const during = 6 * time.Second
	until := time.Now().Add(during)
	var all sync.WaitGroup
	each := func(step func(n int) error) {
		all.Go(func() {
			for n := 0; time.Now().Before(until); n++ {
				if err := step(n); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	opened := func(name string, flags int) *os.File {
		f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|flags, 0o644)
		l.must(t, err)
		t.Cleanup(func() { f.Close() })
		return f
	}
	base := pv.Metadata.Name
	for i, dir := range dirs {
		each(func(n int) error { return l.file(dir, base, fmt.Sprintf("%d-%d", i, n), n) })
		records := opened(filepath.Join(dir, fmt.Sprint("records-", i)), os.O_APPEND)
		if i < len(nodes) {
			l.must(t, l.ack(fmt.Sprint("client ", i), clientsAre(i+1)))
		}
		each(func(n int) error { return l.record(records, base, n) })
		block := opened(filepath.Join(dir, fmt.Sprint("block-", i)), unix.O_DSYNC)
		each(func(n int) error { return l.overwrite(block, base, n) })
	}
	a.manifest("class-growing", fmt.Sprintf(class, "growing", "Delete")+"allowVolumeExpansion: true\n")
	for n := 0; time.Now().Before(until); n++ {
		name := fmt.Sprint("claim-", n)
		a.claim(name, "growing", "16Mi")
		made := a.provisioned(name)
		l.must(t, l.ack("volume "+name, volumeIs(made, 16<<20, 24<<20)))
		a.claim(name, "growing", "24Mi")
		eventually(t, "a larger volume", func() bool { return a.provisioned(name).Spec.Capacity["storage"] == "24Mi" })
		l.must(t, l.ack("volume "+name, volumeGrew(made, 16<<20, 24<<20)))
	}
	all.Wait()
	for i := range nodes { // they leave
		l.must(t, l.ack(fmt.Sprint("client ", i), func(cutDisk) error { return nil }))
	}
	return pv
}

func (l *loggedDisk) must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// file makes a file in a directory of its own, renames it, and removes every third.
func (l *loggedDisk) file(dir, base, name string, n int) error {
	content := data(byte(n), 1000+n*37_777%200_000)
	of := "file " + name
	is := func(d cutDisk, names ...string) error {
		var there []string
		for _, name := range names {
			got, err := os.ReadFile(filepath.Join(d.dir, base, name))
			if err == nil && !bytes.Equal(got, content) {
				return fmt.Errorf("%s is not what was synced: %d bytes, %d were", name, len(got), len(content))
			}
			if err == nil {
				there = append(there, name)
			} else if !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		if len(there) != 1 {
			return fmt.Errorf("of %q are there %q", names, there)
		}
		return nil
	}
	first, second := filepath.Join("d-"+name, "new"), "moved-"+name
	if err := os.Mkdir(filepath.Join(dir, "d-"+name), 0o755); err != nil {
		return err
	}
	if err := l.ack("directory "+name, func(d cutDisk) error {
		_, err := os.Lstat(filepath.Join(d.dir, base, "d-"+name))
		return err
	}); err != nil {
		return err
	}
	if err := write(filepath.Join(dir, first), content); err != nil {
		return err
	}
	if err := l.ack(of, func(d cutDisk) error { return is(d, first, second) }); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(dir, first), filepath.Join(dir, second)); err != nil {
		return err
	}
	removed := n%3 == 0
	if err := l.ack(of, func(d cutDisk) error {
		_, err := os.Lstat(filepath.Join(d.dir, base, first))
		if err == nil {
			return fmt.Errorf("%s was renamed, and is there", first)
		}
		if _, err := os.Lstat(filepath.Join(d.dir, base, second)); removed && errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return is(d, second)
	}); err != nil || !removed {
		return err
	}
	if err := os.Remove(filepath.Join(dir, second)); err != nil {
		return err
	}
	return l.ack(of, func(d cutDisk) error {
		if _, err := os.Lstat(filepath.Join(d.dir, base, second)); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s was removed: %w", second, err)
		}
		return nil
	})
}

// record appends to a log and syncs it.
func (l *loggedDisk) record(f *os.File, base string, n int) error {
	_, err := f.Write(record(int64(n)))
	if err := errors.Join(err, f.Sync()); err != nil {
		return err
	}
	name := filepath.Join(base, filepath.Base(f.Name()))
	return l.ack(name, func(d cutDisk) error {
		b, err := os.ReadFile(filepath.Join(d.dir, name))
		if err != nil {
			return err
		}
		for i := range n + 1 {
			if len(b) < (i+1)*recordSize || !bytes.Equal(b[i*recordSize:(i+1)*recordSize], record(int64(i))) {
				return fmt.Errorf("of %s record %d is not there; %d were synced", name, i, n+1)
			}
		}
		return nil
	})
}

// overwrite writes the same block again, by a write that syncs.
func (l *loggedDisk) overwrite(f *os.File, base string, n int) error {
	if _, err := f.WriteAt(record(int64(n)), 0); err != nil {
		return err
	}
	name := filepath.Join(base, filepath.Base(f.Name()))
	return l.ack(name, func(d cutDisk) error {
		b, err := os.ReadFile(filepath.Join(d.dir, name))
		if err == nil && !bytes.Equal(b, record(int64(n))) && !bytes.Equal(b, record(int64(n+1))) {
			err = fmt.Errorf("%s is neither %d, which was synced, nor the next", name, n)
		}
		return err
	})
}

// volumeIs checks that a volume is there, with one of these sizes as its limit.
func volumeIs(pv persistentVolume, sizes ...uint64) func(d cutDisk) error {
	return func(d cutDisk) error {
		id, err := projectOf(filepath.Join(d.dir, pv.Metadata.Name))
		if err != nil {
			return err
		}
		limit, _, err := limitAndUseOn(d.device, id)
		if err == nil && !slices.Contains(sizes, limit) {
			err = fmt.Errorf("%s has a limit of %d bytes, want one of %v", pv.Metadata.Name, limit, sizes)
		}
		return err
	}
}

// volumeGrew checks that the record of a volume, by which podnas sets the limit when it starts, has the
// new size. The limit itself may be the one from before.
func volumeGrew(pv persistentVolume, before, size uint64) func(d cutDisk) error {
	limit := volumeIs(pv, before, size)
	return func(d cutDisk) error {
		var record struct{ Size uint64 }
		text, err := os.ReadFile(filepath.Join(d.dir, ".podnas/volumes", pv.Metadata.Name+".json"))
		if err == nil {
			err = json.Unmarshal(text, &record)
		}
		if err == nil && record.Size != size {
			err = fmt.Errorf("the record of %s has %d bytes, want %d", pv.Metadata.Name, record.Size, size)
		}
		return errors.Join(err, limit(d))
	}
}

// clientsAre checks that so many clients at least are known to have state.
func clientsAre(n int) func(d cutDisk) error {
	return func(d cutDisk) error {
		files, err := filepath.Glob(filepath.Join(d.dir, trackingFiles))
		if err == nil && len(files) < n {
			err = fmt.Errorf("%d clients are known to have state, want %d", len(files), n)
		}
		return err
	}
}

const trackingFiles = ".podnas/clients/*.json"

// check checks what a disk has after a cut, and that podnas serves it.
func (l *loggedDisk) check(t *testing.T, pv persistentVolume, acks []ack, serves bool) {
	t.Helper()
	image, dir := l.before+"-cut", t.TempDir()
	command(t, "cp", "--reflink=always", l.before, image)
	device := strings.TrimSpace(command(t, "losetup", "--find", "--show", image))
	t.Cleanup(func() {
		command(t, "losetup", "--detach", device)
		if err := os.Remove(image); err != nil {
			t.Error(err)
		}
	})
	mountDisk(t, device, dir, "xfs", "prjquota")
	t.Cleanup(func() { unmount(t, dir) })
	last := map[string]ack{}
	for _, a := range acks {
		last[a.of] = a
	}
	for of, a := range last {
		if err := a.check(cutDisk{dir, device}); err != nil {
			t.Errorf("%s: %v", of, err)
		}
	}
	t.Logf("%d acknowledgements, of %d things", len(acks), len(last))
	if _, ok := last["volume flushed"]; !ok || !serves {
		return
	}
	had := clientsAre(1)(cutDisk{dir, device}) == nil
	a := newAppliance(t, settings{root: dir})
	a.start()
	entries, err := os.ReadDir(mount(t, pv))
	if err != nil {
		t.Error(err)
	}
	local, err := os.ReadDir(a.dir(pv))
	if err != nil || len(entries) != len(local) {
		t.Errorf("the volume has %d names, %d on its mount: %v", len(local), len(entries), err)
	}
	if had && !bytes.Contains(a.output(), []byte("may reclaim")) {
		t.Errorf("clients that had files open can't reclaim them; podnas says\n%s", a.output())
	}
}
