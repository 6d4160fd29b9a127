package inode_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/quota"
	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/server/locate"
	"github.com/podnas/podnas/server/space"
)

// restarted exports a directory whose count can't begin before begin is called, as at a
// start with many volumes.
func restarted(t *testing.T, dir, marks string, limit quota.Limit) (o *inode.Opener, v *exports.Volume, root []byte, begin func()) {
	t.Helper()
	needNative(t)
	table := newTable(t)
	table.KeepMarks(marks)
	mustDo(t, table.Export(exports.Exported{ID: 9, Path: "/other", Dir: t.TempDir(), Account: space.NewAccount(limit)}))
	for range cap(table.Scans) {
		table.Scans <- struct{}{}
	}
	mustDo(t, table.Export(exports.Exported{ID: 1, Path: "/v", Dir: dir, Account: space.NewAccount(limit)}))
	o = inode.NewOpener(table, locate.NewKey(make([]byte, 32)), discard)
	v, _ = table.ByID(1)
	root = o.Root(v)
	begun := false
	begin = func() {
		begun = true
		for range cap(table.Scans) {
			<-table.Scans
		}
	}
	t.Cleanup(func() {
		if !begun {
			begin()
		}
		o.Close()
	})
	return o, v, root, begin
}

// usage is what a mark says.
type usage struct{ Bytes, Inodes int64 }

// readMark reads the mark of a volume.
func readMark(path string) (n usage, err error) {
	b, err := os.ReadFile(path)
	if err == nil {
		_, err = fmt.Sscanf(string(b), "%020d %020d\n", &n.Bytes, &n.Inodes)
	}
	return n, err
}

func usedBy(v *exports.Volume) usage {
	u := v.Account.Usage()
	return usage{u.Bytes, u.Inodes}
}

// fill writes to new files until an error that is not the kernel's, and tells how much.
func fill(t *testing.T, o *inode.Opener, root []byte, prefix string) (int64, error) {
	t.Helper()
	dir, err := o.Open(netip.Addr{}, root, inode.UseNames)
	mustDo(t, err)
	defer dir.Close()
	total := int64(0)
	for i := 0; ; i++ {
		f, err := dir.Create(actas.AsProcess(), fmt.Sprint(prefix, i), 0o644, false)
		_, _ = dir.Stat()
		if err != nil {
			return total, err
		}
		handle := f.Handle()
		f.Close()
		n, err := write(t, o, handle, 0, 100_000)
		total += int64(n)
		if err != nil {
			return total, err
		}
	}
}

// TestLimitHoldsWhileCounted: what was there at the last end is known before it is
// counted, so the limit holds from the start on, and what is free can be written.
func TestLimitHoldsWhileCounted(t *testing.T) {
	const limit = 32 << 20
	onEachDisk(t, func(t *testing.T, dir string) {
		marks := filepath.Join(t.TempDir(), "marks")
		first, v, root, begin := restarted(t, dir, marks, quota.Limit{Bytes: limit, Inodes: 2000})
		begin()
		counted(t, v)
		big := create(t, first, root, "big")
		_, err := write(t, first, big, 0, limit/2)
		mustDo(t, err)
		o := first
		for _, end := range []string{"an orderly end", "a kill"} {
			o.CloseCached()
			if end == "an orderly end" {
				v.Account.LastMark()
			}
			used, _ := du(t, dir)
			o, v, root, begin = restarted(t, dir, marks, quota.Limit{Bytes: limit, Inodes: 2000})
			if st, err := v.Statfs(); err != nil || st.Free > uint64(limit-used) || st.Free < uint64(limit-used)/2 {
				t.Errorf("after %s: %d bytes are told to be free of %d, of which %d are used: %v", end, st.Free, limit, used, err)
			}
			wrote, err := fill(t, o, root, end)
			if !errors.Is(err, unix.EAGAIN) {
				t.Errorf("after %s: %v while the volume is counted, and not known to be full", end, err)
			}
			if wrote < limit/4 && end == "an orderly end" || wrote > limit-used {
				t.Errorf("after %s: %d bytes were written where %d are free", end, wrote, limit-used)
			}
			below(t, dir, limit, 1<<20)
			// What is removed makes room, though nobody has counted it.
			top, err := o.Open(netip.Addr{}, root, inode.UseNames)
			mustDo(t, err)
			if end == "an orderly end" {
				mustDo(t, top.Remove(actas.AsProcess(), "big"))
			}
			top.Close()
			again, err := fill(t, o, root, end+" again ")
			if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EDQUOT) || end == "an orderly end" && again < limit/4 {
				t.Errorf("after %s: %d bytes more, then %v", end, again, err)
			}
			below(t, dir, limit, 1<<20)
			begin()
			counted(t, v)
			if _, err := fill(t, o, root, end+" at last "); !errors.Is(err, unix.EDQUOT) {
				t.Errorf("after %s: %v of a volume that is known to be full", end, err)
			}
			sound(t, v, dir, "after "+end)
			below(t, dir, limit, 1<<20)
			names, err := filepath.Glob(filepath.Join(dir, end+"*"))
			mustDo(t, err)
			top, err = o.Open(netip.Addr{}, root, inode.UseNames)
			mustDo(t, err)
			for _, name := range names[:len(names)/2] {
				mustDo(t, top.Remove(actas.AsProcess(), filepath.Base(name)))
			}
			_, _ = top.Stat()
			top.Close()
			v.Account.FollowMark()
		}
	})
}

// TestInodeLimitHoldsWhileCounted is the same of inodes.
func TestInodeLimitHoldsWhileCounted(t *testing.T) {
	const most = 500
	dir, marks := t.TempDir(), filepath.Join(t.TempDir(), "marks")
	o, v, root, begin := restarted(t, dir, marks, quota.Limit{Bytes: 1 << 30, Inodes: most})
	begin()
	counted(t, v)
	for i := range most / 2 {
		create(t, o, root, fmt.Sprint(i))
	}
	v.Account.LastMark()
	o, v, root, begin = restarted(t, dir, marks, quota.Limit{Bytes: 1 << 30, Inodes: most})
	made, err := makeMany(t, o, v)
	if !errors.Is(err, unix.EAGAIN) || made != most/2-1 {
		t.Errorf("%d files were made beside %d while there may be %d: %v", made, most/2+1, most, err)
	}
	begin()
	counted(t, v)
	if made, err := makeMany(t, o, v); !errors.Is(err, unix.EDQUOT) || made != 0 {
		t.Errorf("%d more: %v", made, err)
	}
	_ = root
}

// makeMany makes directories until one is refused.
func makeMany(t *testing.T, o *inode.Opener, v *exports.Volume) (int, error) {
	t.Helper()
	top, err := o.OpenIn(v, disk.FileID{}, inode.UseNames)
	mustDo(t, err)
	defer top.Close()
	for made := 0; ; made++ {
		d, err := top.Mkdir(actas.AsProcess(), fmt.Sprintf("m%d-%d", time.Now().UnixNano(), made), 0o755)
		if err != nil {
			return made, err
		}
		d.Close()
	}
}

// TestUnknownUse: where nothing is known of a volume, as at the first start, an eighth of
// its size is let in until it is counted; who can't be asked to try again waits for that.
func TestUnknownUse(t *testing.T) {
	const limit = 16 << 20
	for name, damage := range map[string]func(marks string){
		"no mark":        func(string) {},
		"nothing kept":   nil,
		"a damaged mark": func(marks string) { mustDo(t, os.WriteFile(filepath.Join(marks, "1"), []byte("12 twelve\n"), 0o600)) },
		"too much": func(marks string) {
			mustDo(t, os.WriteFile(filepath.Join(marks, "1"), []byte("9223372036854775807 9223372036854775807\n"), 0o600))
		},
		"a negative mark": func(marks string) { mustDo(t, os.WriteFile(filepath.Join(marks, "1"), []byte("-5 1\n"), 0o600)) },
	} {
		t.Run(name, func(t *testing.T) {
			dir, marks := t.TempDir(), ""
			if damage != nil {
				marks = t.TempDir()
				damage(marks)
			}
			mustDo(t, os.WriteFile(filepath.Join(dir, "before"), make([]byte, limit/2), 0o600))
			o, v, root, begin := restarted(t, dir, marks, quota.Limit{Bytes: limit})
			waits := create(t, o, root, "waits")
			if wrote, err := fill(t, o, root, "new"); !errors.Is(err, unix.EAGAIN) || wrote > limit/8 || wrote < limit/16 {
				t.Errorf("%d bytes are let in: %v", wrote, err)
			}
			done := make(chan error)
			go func() {
				_, err := write(t, o, waits, 0, limit/8)
				for errors.Is(err, unix.EAGAIN) {
					time.Sleep(time.Millisecond)
					_, err = write(t, o, waits, 0, limit/8)
				}
				done <- err
			}()
			select {
			case err := <-done:
				t.Errorf("before the volume is counted: %v", err)
			case <-time.After(50 * time.Millisecond):
			}
			begin()
			mustDo(t, <-done)
			counted(t, v)
			sound(t, v, dir, "when it is counted")
			if marks != "" {
				eventually(t, func() bool {
					kept, err := readMark(filepath.Join(marks, "1"))
					return err == nil && kept.Bytes >= v.Account.Usage().Bytes
				}, "the use is kept")
			}
		})
	}
}

// A mark is never less than what is used, nor much more, whatever comes and goes. Blocks
// that the file system adds for itself are in no reservation: FollowMark follows them.
func TestMarkFollows(t *testing.T) {
	const limit = 64 << 20
	dir, marks := t.TempDir(), filepath.Join(t.TempDir(), "marks")
	o, v, root, begin := restarted(t, dir, marks, quota.Limit{Bytes: limit})
	begin()
	counted(t, v)
	file := create(t, o, root, "file")
	check := func(when string, unreserved int64) {
		t.Helper()
		used := v.Account.Usage()
		kept, err := readMark(filepath.Join(marks, "1"))
		mustDo(t, err)
		if over := kept.Bytes - used.Bytes; over < -unreserved || over > 3*limit/16 || kept.Inodes < used.Inodes {
			t.Errorf("%s: the mark is %+v, used are %+v", when, kept, used)
		}
	}
	for i := range int64(60) {
		_, err := write(t, o, file, i<<20, 1<<20)
		mustDo(t, err)
		check("while it grows", 2*blockSize)
		v.Account.FollowMark()
		check("when it was followed", 0)
	}
	f, err := o.Open(netip.Addr{}, file, inode.UseWrite)
	mustDo(t, err)
	mustDo(t, f.Truncate(actas.AsProcess(), 1<<20))
	f.Close()
	v.Account.FollowMark()
	check("after it was cut", 0)
	v.Account.LastMark()
	if kept, err := readMark(filepath.Join(marks, "1")); err != nil || kept != usedBy(v) {
		t.Errorf("at the end the mark is %+v, used are %+v: %v", kept, usedBy(v), err)
	}
	// Where it can't be kept, nothing is refused for that.
	mustDo(t, os.RemoveAll(marks))
	mustDo(t, os.WriteFile(marks, nil, 0o600))
	if n, err := write(t, o, file, 0, 40<<20); err != nil {
		t.Errorf("%d bytes, then: %v", n, err)
	}
	if _, err := write(t, o, file, 40<<20, limit); !errors.Is(err, unix.EDQUOT) {
		t.Errorf("past the limit: %v", err)
	}
}

// TestNotCredited: what somebody puts on the disk by hand is not in the count, so nobody
// is credited with it when it goes; when a client uses it, it is counted.
func TestNotCredited(t *testing.T) {
	const limit = 8 << 20
	onEachDisk(t, func(t *testing.T, dir string) {
		o, v, root := countedAt(t, dir, limit)
		before := counted(t, v)
		put := func(name string) {
			mustDo(t, os.WriteFile(filepath.Join(dir, name), make([]byte, 4<<20), 0o644))
		}
		top, err := o.Open(netip.Addr{}, root, inode.UseNames)
		mustDo(t, err)
		defer top.Close()
		for i := range 4 {
			put("removed")
			mustDo(t, top.Remove(actas.AsProcess(), "removed"))
			put("over")
			create(t, o, root, fmt.Sprint("new", i))
			mustDo(t, renameIn(top, fmt.Sprint("new", i), "over"))
			mustDo(t, top.Remove(actas.AsProcess(), "over"))
			mustDo(t, os.Mkdir(filepath.Join(dir, "d"), 0o755))
			mustDo(t, top.Rmdir(actas.AsProcess(), "d"))
			_, _ = top.Stat()
		}
		if u := v.Account.Usage(); u.Inodes != before.Inodes || u.Bytes < before.Bytes || u.Bytes > before.Bytes+2*blockSize {
			t.Errorf("%+v, and before files were put there and removed %+v", u, before)
		}
		sound(t, v, dir, "after all")
		put("used")
		f, err := top.Lookup([]byte("used"))
		mustDo(t, err)
		defer f.Close()
		if _, err := write(t, o, f.Handle(), 4<<20, 4096); err != nil {
			t.Error(err)
		}
		sound(t, v, dir, "when a client has used it")
		if _, err := write(t, o, f.Handle(), 5<<20, 4<<20); !errors.Is(err, unix.EDQUOT) {
			t.Errorf("past the limit: %v", err)
		}
	})
}

func eventually(t *testing.T, done func() bool, what string) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not so after 30 s: %s", what)
		}
	}
}
