package inode_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/server/locate"
)

// keptVolume is a disk with a volume of 2,000 files, whose index is kept.
type keptVolume struct {
	*testing.T

	disk, dir, file string // of the disk, the volume, and the kept index
}

const keptFiles = 2000

func newKeptVolume(t *testing.T) *keptVolume {
	t.Helper()
	disk := t.TempDir()
	k := &keptVolume{T: t, disk: disk, dir: filepath.Join(disk, "v"), file: filepath.Join(disk, ".podnas", "index", "7")}
	mustDo(t, os.MkdirAll(filepath.Join(disk, ".podnas"), 0o700))
	for n := range keptFiles {
		if n%100 == 0 {
			mustDo(t, os.MkdirAll(filepath.Join(k.dir, fmt.Sprint("d", n/100), "below"), 0o755))
		}
		put(t, fmt.Sprint(n), k.dir, k.path(n))
	}
	return k
}

func (*keptVolume) path(n int) string { return fmt.Sprintf("d%d/below/file%d", n/100, n) }

// keptProcess is a process that serves the volume.
type keptProcess struct {
	*inode.Opener

	t      *testing.T
	root   []byte
	x      *locate.Index
	volume *exports.Volume
	log    *bytes.Buffer
	mu     sync.Mutex // of log
	walk   chan struct{}
}

func (p *keptProcess) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.Write(b)
}

func (p *keptProcess) logged() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// begin begins a process, which does not walk before letWalk.
func (k *keptVolume) begin() *keptProcess {
	k.Helper()
	if err := locate.ProbeIndex(k.dir); err != nil {
		k.Skip(err)
	}
	p := &keptProcess{t: k.T, log: &bytes.Buffer{}, walk: make(chan struct{})}
	table := newTable(k.T)
	table.ByIndex, table.Indexes.Walks, table.Log = true, p.walk, slog.New(slog.NewTextHandler(p, nil))
	table.Indexes.Keep(filepath.Dir(k.file))
	mustDo(k.T, table.Export(exports.Exported{ID: 7, Path: "/v", Dir: k.dir}))
	p.Opener = inode.NewOpener(table, locate.NewKey(make([]byte, 32)), discard)
	v, _ := table.ByID(7)
	p.root = p.Root(v)
	p.volume, p.x = v, v.Files.Index()
	return p
}

// letWalk lets one walk begin, and waits until it has ended.
func (p *keptProcess) letWalk() {
	p.t.Helper()
	<-p.walk // the walk gives it back so
	p.walk <- struct{}{}
}

// walked has a walk of the process end, and the index written.
func (p *keptProcess) walked() {
	p.t.Helper()
	go p.letWalk()
	settled(p.t, p.x)
	p.volume.Files.Save()
}

// loaded waits until the kept index was loaded.
func (p *keptProcess) loaded() {
	p.t.Helper()
	comesTrue(p.t, "the kept index is loaded", func() bool { return strings.Contains(p.logged(), "loaded the index") })
}

// end ends the process as it is meant to end, or kills it.
func (p *keptProcess) end(killed bool) {
	p.t.Helper()
	if !killed {
		p.Table().LastIndexes()
	}
	p.Close()
	p.Table().Remove(7)
}

// made begins a process that has walked, and returns it with the handles of some files.
func (k *keptVolume) made() (p *keptProcess, handles map[int][]byte) {
	k.Helper()
	p = k.begin()
	p.walked()
	handles = map[int][]byte{}
	for n := 0; n < keptFiles; n += 333 {
		handles[n] = handleOf(k.T, p.Opener, p.root, k.path(n))
	}
	return p, handles
}

// finds fails unless a process finds files at once, without a walk.
func (p *keptProcess) finds(what string, handles map[int][]byte) {
	p.t.Helper()
	for n, h := range handles {
		f, err := p.Open(netip.Addr{}, h, inode.UseRead)
		if err != nil {
			p.t.Errorf("%s: file %d: %v", what, n, err)
			continue
		}
		b := make([]byte, 10)
		if got, err := f.ReadAt(b, 0); string(b[:got]) != fmt.Sprint(n) {
			p.t.Errorf("%s: file %d has %q, %v", what, n, b[:got], err)
		}
		f.Close()
	}
}

// TestKeptIndex: the next process finds files before it has walked, those that were new or renamed since
// the last walk, too, and after a kill the others.
func TestKeptIndex(t *testing.T) {
	k := newKeptVolume(t)
	p, handles := k.made()
	p.finds("at first", handles)
	inDir(t, p.Opener, p.root, func(d *inode.File) error { return renameIn(d, "d3", "renamed") })
	var made *inode.File
	inDir(t, p.Opener, p.root, func(d *inode.File) (err error) {
		made, err = d.Create(actas.AsProcess(), "new", 0o644, false)
		return err
	})
	handles[9999] = bytes.Clone(made.Handle())
	made.Close()
	put(t, "9999", k.dir, "new")
	p.end(false)

	p = k.begin()
	p.loaded()
	p.finds("after a restart", handles)
	p.end(true)
	p = k.begin()
	p.loaded()
	p.finds("after it was killed before its walk", handles)
	p.walked()
	p.finds("after a walk", handles)
	if n := strings.Count(p.logged(), "WARN"); n > 0 {
		t.Errorf("%d warnings: %s", n, p.logged())
	}
	p.end(true)
	p = k.begin()
	p.loaded()
	p.finds("after it was killed", handles)
	p.end(false)
}

// TestKeptIndexStale: what was done directly on the disk while no process ran. No file is said to be gone,
// and none to be there, but by a walk.
func TestKeptIndexStale(t *testing.T) {
	k := newKeptVolume(t)
	p, handles := k.made()
	p.end(false)
	at := func(n int) string { return filepath.Join(k.dir, k.path(n)) }
	mustDo(t, os.Rename(at(0), at(0)+" renamed"))
	mustDo(t, os.Rename(at(333), filepath.Join(k.dir, "elsewhere")))
	mustDo(t, os.Remove(at(666)))
	mustDo(t, os.Rename(at(1000), at(999)))                                            // 999 is replaced
	mustDo(t, os.Rename(filepath.Join(k.dir, "d13"), filepath.Join(k.dir, "d16/d13"))) // of 1332

	p = k.begin()
	p.loaded()
	open := func(n int) error {
		f, err := p.Open(netip.Addr{}, handles[n], inode.UseAttr)
		if err == nil {
			f.Close()
		}
		return err
	}
	if err := open(0); err != nil {
		t.Errorf("a file with another name in its directory: %v", err)
	}
	for _, n := range []int{333, 666, 999, 1332} {
		if err := open(n); !errors.Is(err, unix.EAGAIN) {
			t.Errorf("file %d before a walk: %v", n, err)
		}
	}
	stop := make(chan struct{})
	var walks sync.WaitGroup
	walks.Go(func() {
		for {
			select {
			case <-p.walk:
				p.walk <- struct{}{}
			case <-stop:
				return
			}
		}
	})
	for _, n := range []int{666, 999} {
		if got, err := contentOf(p.Opener, handles[n]); !errors.Is(err, unix.ESTALE) {
			t.Errorf("file %d, which was removed: %q, %v", n, got, err)
		}
	}
	for _, n := range []int{0, 333, 1332, 1665} {
		if got, err := contentOf(p.Opener, handles[n]); got != fmt.Sprint(n) || err != nil {
			t.Errorf("file %d: %q, %v", n, got, err)
		}
	}
	close(stop)
	walks.Wait()
	p.end(false)
}

// TestKeptIndexOfNoUse: a file that can't be used is replaced, with one line in the log.
func TestKeptIndexOfNoUse(t *testing.T) {
	k := newKeptVolume(t)
	p, handles := k.made()
	p.end(false)
	good, err := os.ReadFile(k.file)
	mustDo(t, err)
	later := bytes.Clone(good)
	later[len("podnas-index")+3]++
	foreign := bytes.Clone(good)
	foreign[len("podnas-index")+4]++
	damaged := bytes.Clone(good)
	damaged[len(good)/2]++
	for what, b := range map[string][]byte{
		"empty": nil, "damaged": damaged, "cut off": good[:len(good)-10], "of another volume": foreign, "of a later version": later, "no index": []byte(strings.Repeat("no index", 1000)),
	} {
		mustDo(t, os.WriteFile(k.file, b, 0o600))
		p := k.begin()
		comesTrue(t, what+": it is said", func() bool { return strings.Contains(p.logged(), "can't be used") })
		p.walked()
		p.finds(what, handles)
		if n := strings.Count(p.logged(), "WARN"); n != 1 {
			t.Errorf("%s: %d warnings: %s", what, n, p.logged())
		}
		p.end(false)
		p = k.begin()
		p.loaded()
		p.finds(what+", with the next", handles)
		p.end(true)
	}
}

// TestKeptIndexFails: where nothing can be written, that is said once, and changes nothing else.
func TestKeptIndexFails(t *testing.T) {
	k := newKeptVolume(t)
	state := filepath.Dir(filepath.Dir(k.file))
	mustDo(t, os.Remove(state))
	put(t, "no directory", state)
	p := k.begin()
	go p.letWalk()
	settled(t, p.x)
	comesTrue(t, "it is said", func() bool { return strings.Contains(p.logged(), "can't be kept") })
	h := handleOf(t, p.Opener, p.root, k.path(5))
	inDir(t, p.Opener, p.root, func(d *inode.File) error { return renameIn(d, "d3", "renamed") })
	p.Table().SaveIndexes()
	p.end(false)
	if n := strings.Count(p.logged(), "can't be kept"); n != 1 {
		t.Errorf("it is said %d times: %s", n, p.logged())
	}
	mustDo(t, errors.Join(os.Remove(state), os.Mkdir(state, 0o700)))
	p = k.begin()
	p.walked()
	p.finds("later", map[int][]byte{5: h})
	p.end(false)
}

// TestKeptIndexOtherDisks: on a full disk and on one that can't be written to, the index is not kept, and the
// volume is served as ever; what was kept before stays of use.
func TestKeptIndexOtherDisks(t *testing.T) {
	k := newKeptVolume(t)
	at := filepath.Dir(filepath.Dir(k.file))
	mount := func(flags uintptr, options string) {
		t.Helper()
		if err := unix.Mount("tmpfs", at, "tmpfs", flags, options); err != nil {
			t.Skipf("nothing can be mounted here: %v", err)
		}
	}
	mount(0, "size=64k")
	t.Cleanup(func() { mustDo(t, unix.Unmount(at, unix.MNT_DETACH)) })
	fails := func(what string) {
		t.Helper()
		p := k.begin()
		go p.letWalk()
		settled(t, p.x)
		h := handleOf(t, p.Opener, p.root, k.path(5))
		inDir(t, p.Opener, p.root, func(d *inode.File) error { return renameIn(d, "d3", what) })
		inDir(t, p.Opener, p.root, func(d *inode.File) error { return renameIn(d, what, "d3") })
		comesTrue(t, what+": it is said", func() bool {
			p.volume.Files.Save()
			return strings.Contains(p.logged(), "can't be kept")
		})
		p.finds(what, map[int][]byte{5: h})
		p.end(false)
		if n := strings.Count(p.logged(), "WARN"); n != 1 {
			t.Errorf("%s: %d warnings: %s", what, n, p.logged())
		}
	}
	fails("full")
	if files, err := os.ReadDir(filepath.Dir(k.file)); err != nil || len(files) > 0 {
		t.Errorf("on a full disk: %v, %v", files, err)
	}
	mount(unix.MS_REMOUNT, "size=8m")
	p, handles := k.made()
	p.end(false)
	mount(unix.MS_REMOUNT|unix.MS_RDONLY, "")
	fails("read-only")
	p = k.begin()
	p.loaded()
	p.finds("on a disk that is read-only", handles)
	p.end(false)
}

// TestKeptIndexGoes: it goes with its volume, and where the kernel's handles are used there is none.
func TestKeptIndexGoes(t *testing.T) {
	k := newKeptVolume(t)
	p, _ := k.made()
	p.end(false)
	if a, err := os.Stat(k.file); err != nil || a.Mode() != 0o600 {
		t.Fatalf("%v, %v", a, err)
	}
	mustDo(t, p.Table().Indexes.Forget(7))
	mustDo(t, p.Table().Indexes.Forget(7))
	table := newTable(t)
	table.ByIndex = false
	table.Indexes.Keep(filepath.Dir(k.file))
	mustDo(t, table.Export(exports.Exported{ID: 7, Path: "/v", Dir: k.dir}))
	v, _ := table.ByID(7)
	if v.Files.Index() != nil {
		t.Error("there is an index in memory")
	}
	v.Files.Save()
	table.LastIndexes()
	if files, err := os.ReadDir(filepath.Dir(k.file)); err != nil || len(files) > 0 {
		t.Errorf("%v, %v", files, err)
	}
}
