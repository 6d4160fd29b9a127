package inode_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/test/testdisk"
)

// shown is a volume, with a folder of snapshots.
type shown struct {
	*testing.T
	*inode.Opener

	table      *exports.Table
	dir, ready string
}

func newShown(t *testing.T, byIndex bool) *shown {
	t.Helper()
	disk := t.TempDir()
	s := &shown{T: t, table: newTable(t), dir: filepath.Join(disk, "v"), ready: filepath.Join(disk, "ready")}
	if !byIndex {
		needNative(t)
	}
	s.table.ByIndex = byIndex
	s.table.Indexes.Keep(filepath.Join(disk, "index"))
	for _, d := range []string{s.dir, s.ready} {
		mustDo(t, os.Mkdir(d, 0o755))
	}
	mustDo(t, s.table.Export(exports.Exported{ID: 7, Path: "/v", Dir: s.dir}))
	s.Opener = openerOf(t, s.table)
	return s
}

// tree makes the files of a snapshot: a file, and one below a folder.
func (s *shown) tree(name string) {
	s.Helper()
	mustDo(s.T, os.MkdirAll(filepath.Join(s.ready, name, "folder"), 0o755))
	put(s.T, name, s.ready, name, "file")
	put(s.T, name, s.ready, name, "folder", "below")
}

// set has clients see these snapshots.
func (s *shown) set(names ...string) {
	s.Helper()
	var all []exports.Snapshot
	for i, name := range names {
		all = append(all, exports.Snapshot{Name: name, At: time.Unix(1, int64(i))})
	}
	mustDo(s.T, s.table.ShowSnapshots(7, s.ready, all))
}

func (s *shown) volume() *exports.Volume {
	v, _ := s.table.ByID(7)
	return v
}

// handle looks a path of the snapshots up, as clients do: name by name, with the handle that each name has.
func (s *shown) handle(names ...string) []byte {
	s.Helper()
	h := s.Root(s.volume().Shown())
	for _, name := range names {
		dir, err := s.Open(netip.Addr{}, h, inode.UseAttr)
		mustDo(s.T, err)
		_, h, err = dir.Describe([]byte(name), nil)
		dir.Close()
		mustDo(s.T, err)
	}
	return h
}

// status opens a handle, and returns the error.
func (s *shown) status(handle []byte, use inode.Use, how ...inode.How) error {
	f, err := patiently(func() (*inode.File, error) { return s.Open(netip.Addr{}, handle, use, how...) })
	if err == nil && f != nil {
		f.Close()
	}
	return err
}

// Each snapshot has handles of its own, which end when it does, also where another has the same file.
func TestHandlesOfSnapshots(t *testing.T) {
	for _, byIndex := range []bool{false, true} {
		t.Run(fmt.Sprintf("by index %v", byIndex), func(t *testing.T) {
			s := newShown(t, byIndex)
			s.tree("a")
			s.tree("b")
			mustDo(t, os.Link(filepath.Join(s.ready, "a/file"), filepath.Join(s.ready, "b/common")))
			s.set("a", "b")
			file, common := s.handle("a", "file"), s.handle("b", "common")
			if bytes.Equal(file, common) {
				t.Error("a file of two snapshots has one handle")
			}
			handles := [][]byte{s.handle("a"), s.handle("a", "folder"), s.handle("a", "folder", "below"), file}
			for _, h := range handles {
				mustDo(t, s.status(h, inode.UseAttr))
			}
			mustDo(t, s.status(file, inode.UseRead))
			mustDo(t, s.status(common, inode.UseRead))

			mustDo(t, os.Rename(filepath.Join(s.ready, "a"), filepath.Join(s.ready, "../trash")))
			s.set("b") // whose time is another one now, as if it had been taken again
			for _, h := range append(handles, common) {
				for _, err := range []error{s.status(h, inode.UseAttr), s.status(h, inode.UseRead), s.status(h, inode.UseAttr, inode.AtOnce)} {
					if !errors.Is(err, unix.ESTALE) {
						t.Errorf("%x of what is gone: %v", h, err)
					}
				}
			}
			mustDo(t, s.status(s.handle("b", "common"), inode.UseRead))
			if !s.table.HideSnapshots(7) || s.volume().Shown() != nil || s.table.HideSnapshots(7) {
				t.Error("they are not hidden once")
			}
			s.set("b")
			mustDo(t, s.status(s.handle("b", "common"), inode.UseRead))
		})
	}
}

// The index of a snapshot has what calls see, until one asks for a file that it does not have. It is counted, and not kept.
func TestIndexOfSnapshots(t *testing.T) {
	s := newShown(t, true)
	const many = 3000
	for _, name := range []string{"a", "b"} {
		s.tree(name)
		for n := range many {
			put(t, "", s.ready, name, "folder", fmt.Sprint(n))
		}
	}
	x := s.volume().Files.Index()
	settled(t, x)
	before := s.CacheCounts().Index.Names
	s.set("a", "b")
	h := s.handle("a", "folder", "7")
	if n := s.CacheCounts().Index.Names - before; n < 1 || n > 10 {
		t.Errorf("after a look, the index has %d more names", n)
	}
	if p := s.CacheCounts().Index.Partial; p != 0 {
		t.Errorf("%d indexes are incomplete", p)
	}
	// As after a restart: what a client has a handle of is in no index.
	mustDo(t, s.table.ShowSnapshots(7, s.ready, nil))
	s.set("a", "b")
	mustDo(t, s.status(h, inode.UseAttr))
	if n := s.CacheCounts().Index.Names - before; n < many || n > many+20 {
		t.Errorf("after a question, the index has %d more names, want those of one snapshot", n)
	}
	s.table.RestIndexes() // which was used
	mustDo(t, s.status(h, inode.UseAttr))
	s.table.RestIndexes()
	s.table.RestIndexes()
	if n := s.CacheCounts().Index.Names; n != before {
		t.Errorf("when nobody uses it, the index has %d names, and had %d", n, before)
	}
	forgetOpen(s.Opener)
	mustDo(t, s.status(h, inode.UseAttr))
	s.table.LastIndexes()
	kept, _ := filepath.Glob(filepath.Join(filepath.Dir(s.dir), "index", "*"))
	for _, file := range kept {
		if filepath.Base(file) != strconv.Itoa(7) {
			t.Errorf("%s is kept", file)
		}
	}
	s.table.HideSnapshots(7)
	if n := s.CacheCounts().Index.Names; n != before {
		t.Errorf("hidden, the index has %d names, and had %d", n, before)
	}
}

var snapshotted = flag.Int("snapshotted", 500, "files of each of the snapshots of TestIndexesOfManySnapshots")

// With a schedule there are many snapshots. What their indexes take is printed.
func TestIndexesOfManySnapshots(t *testing.T) {
	s := newShown(t, true)
	const each = 1000
	var names []string
	for n := range 35 {
		names = append(names, fmt.Sprint("s", n))
		for f := range *snapshotted {
			at := filepath.Join(fmt.Sprint("d", f/each), fmt.Sprint(f))
			to := filepath.Join(s.ready, names[n], at)
			if f%each == 0 {
				mustDo(t, os.MkdirAll(filepath.Dir(to), 0o755))
			}
			if n == 0 {
				put(t, "", to)
			} else { // as what has not changed
				mustDo(t, os.Link(filepath.Join(s.ready, names[0], at), to))
			}
		}
	}
	say := func(what string) int {
		k := s.CacheCounts().Index
		t.Logf("%s: %d names, %d KiB", what, k.Names, k.Bytes>>10)
		return k.Names
	}
	s.set(names...)
	if n := say("shown"); n != 0 {
		t.Errorf("there are %d names", n)
	}
	var handles [][]byte
	for _, name := range names {
		handles = append(handles, s.handle(name, "d0", "7"))
	}
	if n := say("a file of each was looked up"); n > 4*len(names) {
		t.Errorf("there are %d names", n)
	}
	mustDo(t, s.table.ShowSnapshots(7, s.ready, nil))
	s.set(names...)
	longest := time.Duration(0)
	for _, h := range handles {
		began := time.Now()
		mustDo(t, s.status(h, inode.UseAttr))
		longest = max(longest, time.Since(began))
	}
	say("a file of each was asked for by its handle")
	t.Logf("the longest wait was %v", longest)
	s.table.RestIndexes()
	s.table.RestIndexes()
	if n := say("nobody uses them"); n != 0 {
		t.Errorf("there are %d names", n)
	}
}

// Snapshots come and go while clients look.
func TestSnapshotsWhileTheyAreUsed(t *testing.T) {
	s := newShown(t, testdisk.ByIndex())
	s.tree("a")
	s.tree("b")
	s.set("a", "b")
	handles := [][]byte{s.handle("a", "file"), s.handle("b", "folder", "below")}
	var all sync.WaitGroup
	done := make(chan struct{})
	for _, h := range handles {
		for range 2 {
			all.Go(func() {
				for {
					select {
					case <-done:
						return
					default:
					}
					if err := s.status(h, inode.UseRead); err != nil && !errors.Is(err, unix.ESTALE) {
						t.Errorf("%x: %v", h, err)
						return
					}
				}
			})
		}
	}
	for range 200 {
		s.set("a")
		s.set("a", "b")
		s.set("b")
		s.table.HideSnapshots(7)
		s.set("a", "b")
	}
	close(done)
	all.Wait()
	for _, h := range handles {
		mustDo(t, s.status(h, inode.UseRead))
	}
}

// Touch moves the ctime and the change attribute, and nothing else.
func TestTouch(t *testing.T) {
	testdisk.Each(t, func(t *testing.T, disk string) {
		table := newTable(t)
		dir := filepath.Join(disk, "v")
		mustDo(t, os.Mkdir(dir, 0o2775))
		mustDo(t, os.Chmod(dir, 0o775|os.ModeSetgid))
		mustDo(t, table.Export(exports.Exported{ID: 7, Path: "/v", Dir: dir, Options: exports.Options{ReadOnly: true}}))
		v, _ := table.ByID(7)
		o := openerOf(t, table)
		handle := o.Root(v)
		look := func() (uint64, unix.Stat_t) {
			t.Helper()
			f, err := o.Open(netip.Addr{}, handle, inode.UseAttr, inode.Recent)
			mustDo(t, err)
			defer f.Close()
			change, _, err := f.Change(f.Attr)
			mustDo(t, err)
			var st unix.Stat_t
			mustDo(t, unix.Stat(dir, &st))
			return change, st
		}
		time.Sleep(200 * time.Millisecond) // until attributes are remembered
		look()
		was, before := look()
		for n := range 5 { // also twice within a tick of the kernel's clock
			mustDo(t, o.Touch(v))
			is, now := look()
			if is == was || n == 0 && now.Ctim == before.Ctim {
				t.Errorf("the change attribute is %d, and was %d; the ctime is %v, and was %v", is, was, now.Ctim, before.Ctim)
			}
			now.Ctim = before.Ctim
			if now != before {
				t.Errorf("it is %+v, and was %+v", now, before)
			}
			was = is
		}
	})
}
