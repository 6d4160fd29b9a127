package snapshot_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/server/snapshot"
	"github.com/podnas/podnas/test/testdisk"
)

// age is how long a test waits until a file may be linked.
const age = 2100 * time.Millisecond

// sameFile reports whether two names are of one file.
func sameFile(t *testing.T, a, b string) bool {
	t.Helper()
	one, err := os.Lstat(a)
	mustDo(t, err)
	other, err := os.Lstat(b)
	mustDo(t, err)
	return os.SameFile(one, other)
}

// withAttr opens a file of a volume, and calls do.
func (v *volume) withAttr(id disk.FileID, do func(f *inode.File) error) error {
	f, err := v.opener.OpenIn(v.Volume, id, inode.UseAttr)
	if err != nil {
		return err
	}
	defer f.Close()
	return do(f)
}

// change is what happens to a file between two snapshots.
type change struct {
	name   string
	linked bool // the second snapshot may have the file of the first
	do     func(v *volume, id disk.FileID, at string) error
}

func changes() []change {
	as := actas.AsProcess()
	root := func(v *volume) disk.FileID { return *v.Files.RootID() }
	return []change{
		{"nothing", true, func(*volume, disk.FileID, string) error { return nil }},
		{"it is read", true, func(_ *volume, _ disk.FileID, at string) error {
			_, err := os.ReadFile(at)
			return err
		}},
		{"it is renamed", false, func(v *volume, _ disk.FileID, _ string) error {
			return v.changeNames(root(v), root(v), func(in, to *inode.File) error {
				_, err := in.Rename(as, "f", to, "new name")
				return err
			})
		}},
		{"other data of the size, and the time set back", false, func(v *volume, id disk.FileID, at string) error {
			info, err := os.Stat(at)
			if err != nil {
				return err
			}
			if err := v.write(id, "CONTENT", 0); err != nil {
				return err
			}
			return v.withAttr(id, func(f *inode.File) error {
				return f.Chtimes(as, inode.SetTime{}, inode.SetTime{Set: true, Time: info.ModTime()})
			})
		}},
		{"the same data again", false, func(v *volume, id disk.FileID, _ string) error { return v.write(id, "content", 0) }},
		{"another mode", false, func(v *volume, id disk.FileID, _ string) error {
			return v.withAttr(id, func(f *inode.File) error { return f.Chmod(as, 0o600) })
		}},
		{"another owner", false, func(v *volume, id disk.FileID, _ string) error {
			return v.withAttr(id, func(f *inode.File) error { return f.Chown(as, 1234, 5678) })
		}},
		{"an extended attribute", false, func(v *volume, id disk.FileID, _ string) error {
			return v.withAttr(id, func(f *inode.File) error { return f.SetXattr(as, []byte("note"), []byte("x"), 0) })
		}},
		{"another name", false, func(v *volume, id disk.FileID, _ string) error {
			return v.changeNames(root(v), root(v), func(to, _ *inode.File) error {
				return v.withAttr(id, func(f *inode.File) error { return f.Link(as, to, "new name") })
			})
		}},
		{"shorter, and as long again", false, func(v *volume, id disk.FileID, _ string) error {
			f, err := v.opener.OpenIn(v.Volume, id, inode.UseWrite)
			if err != nil {
				return err
			}
			defer f.Close()
			if err := f.Truncate(as, 1); err != nil {
				return err
			}
			return f.Truncate(as, 7)
		}},
		{"removed, and made again", false, func(v *volume, _ disk.FileID, at string) error {
			info, err := os.Stat(at)
			if err != nil {
				return err
			}
			err = v.changeNames(root(v), root(v), func(in, _ *inode.File) error { return in.Remove(as, "f") })
			if err != nil {
				return err
			}
			id, err := v.create(root(v), "f")
			if err != nil {
				return err
			}
			if err := v.write(id, "another", 0); err != nil {
				return err
			}
			return os.Chtimes(at, info.ModTime(), info.ModTime())
		}},
		{"on the disk itself", false, func(_ *volume, _ disk.FileID, at string) error {
			return os.WriteFile(at, []byte("written"), 0o644)
		}},
	}
}

// A file is linked if nothing of it has changed, and else cloned.
func TestOnlyWhatHasNotChangedIsLinked(t *testing.T) {
	testdisk.Sharing(t, func(t *testing.T, on string) {
		type running struct {
			change

			v     *volume
			id    disk.FileID
			first string
		}
		var all []running
		for i, c := range changes() {
			dir := filepath.Join(on, fmt.Sprint(i))
			mustDo(t, os.Mkdir(dir, 0o755))
			v := newVolume(t, dir)
			id, err := v.create(*v.Files.RootID(), "f")
			mustDo(t, err)
			mustDo(t, v.write(id, "content", 0))
			all = append(all, running{change: c, v: v, id: id})
		}
		time.Sleep(age)
		for i := range all {
			var err error
			all[i].first, err = all[i].v.take(new(snapshot.Progress))
			mustDo(t, err)
		}
		for _, r := range all {
			t.Run(r.name, func(t *testing.T) {
				was, err := describe(r.first)
				mustDo(t, err)
				mustDo(t, r.do(r.v, r.id, filepath.Join(r.v.dir, "f")))
				second, err := r.v.take(new(snapshot.Progress))
				mustDo(t, err)
				want, err := describe(r.v.dir)
				mustDo(t, err)
				got, err := describe(second)
				mustDo(t, err)
				if fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("the second has %q, and the volume %q", got, want)
				}
				name := "f"
				if _, err := os.Lstat(filepath.Join(second, name)); err != nil {
					name = "new name"
				}
				if linked := sameFile(t, filepath.Join(r.first, "f"), filepath.Join(second, name)); linked != r.linked {
					t.Errorf("linked: %v, want %v", linked, r.linked)
				}
				if now, err := describe(r.first); err != nil || fmt.Sprint(now) != fmt.Sprint(was) {
					t.Errorf("the first has %q, %v, and had %q", now, err, was)
				}
			})
		}
	})
}

// Files in very deep directories are cloned anew each time: to find each of these in the snapshot before takes time by its depth.
func TestDeepFilesAreCloned(t *testing.T) {
	t.Parallel()
	v := newVolume(t, testdisk.OneXFS(t))
	const levels, shallow = 120, 90
	at := ""
	var files []string
	for i := range levels {
		at = filepath.Join(at, "d")
		mustDo(t, os.Mkdir(filepath.Join(v.dir, at), 0o755))
		if i+1 == shallow || i+1 == levels {
			files = append(files, filepath.Join(at, "f"))
			mustDo(t, os.WriteFile(filepath.Join(v.dir, at, "f"), []byte("content"), 0o644))
		}
	}
	if x := v.Files.Index(); x != nil {
		x.WalkOnce()
	}
	time.Sleep(age)
	first, err := v.take(new(snapshot.Progress))
	mustDo(t, err)
	second, err := v.take(new(snapshot.Progress))
	mustDo(t, err)
	for i, linked := range []bool{true, false} {
		if sameFile(t, filepath.Join(first, files[i]), filepath.Join(second, files[i])) != linked {
			t.Errorf("linked %d directories deep: %v, want %v", strings.Count(files[i], "/"), !linked, linked)
		}
	}
	if lines := diff(t, v.last, &snapshot.Earlier{Tree: v.dir}, true); len(lines) > 0 {
		t.Errorf("the second differs from the volume: %q", lines)
	}
}

// What changes right after it was captured, with a time that may be the same, is in the next snapshot as it is then.
func TestChangedWithinATick(t *testing.T) {
	testdisk.Sharing(t, func(t *testing.T, on string) {
		v := newVolume(t, on)
		var ids []disk.FileID
		const files = 200
		for i := range files {
			id, err := v.create(*v.Files.RootID(), fmt.Sprint(i))
			mustDo(t, err)
			ids = append(ids, id)
		}
		for round := range 5 {
			for _, id := range ids {
				mustDo(t, v.write(id, fmt.Sprint("a", round), 0))
			}
			_, err := v.take(new(snapshot.Progress))
			mustDo(t, err)
			for _, id := range ids {
				mustDo(t, v.write(id, fmt.Sprint("b", round), 0))
			}
			tree, err := v.take(new(snapshot.Progress))
			mustDo(t, err)
			for i := range files {
				got, err := os.ReadFile(filepath.Join(tree, fmt.Sprint(i)))
				if want := fmt.Sprint("b", round); err != nil || string(got) != want {
					t.Fatalf("round %d, file %d: %q, %v, want %q", round, i, got, err, want)
				}
			}
		}
	})
}

// A file with several names is one file in each snapshot, also after one of these was removed.
func TestLinkedWithSeveralNames(t *testing.T) {
	testdisk.Sharing(t, func(t *testing.T, on string) {
		v := newVolume(t, on)
		mustDo(t, os.WriteFile(filepath.Join(v.dir, "a"), []byte("content"), 0o644))
		mustDo(t, os.Mkdir(filepath.Join(v.dir, "d"), 0o755))
		mustDo(t, os.Link(filepath.Join(v.dir, "a"), filepath.Join(v.dir, "d", "b")))
		mustDo(t, os.Symlink("a", filepath.Join(v.dir, "s")))
		if x := v.Files.Index(); x != nil {
			x.WalkOnce()
		}
		time.Sleep(age)
		want, err := describe(v.dir)
		mustDo(t, err)
		var trees []string
		for range 4 {
			var p snapshot.Progress
			tree, err := v.take(&p)
			mustDo(t, err)
			got, err := describe(tree)
			if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("it has %q, %v, want %q", got, err, want)
			}
			if n := p.Bytes.Load(); n != 4096 && n != 7 {
				t.Errorf("it counts %d bytes", n)
			}
			trees = append(trees, tree)
		}
		for _, name := range []string{"a", "s", "d/b"} {
			if !sameFile(t, filepath.Join(trees[0], name), filepath.Join(trees[3], name)) {
				t.Errorf("%s: the first and the last have two files", name)
			}
		}
		for _, gone := range []int{1, 0, 3} {
			mustDo(t, os.RemoveAll(trees[gone]))
			if got, err := describe(trees[2]); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("without snapshot %d the third has %q, %v, want %q", gone, got, err, want)
			}
		}
	})
}

// Where nothing is known of the earlier snapshot for certain, or it is not what it was, files are cloned.
func TestEarlierSnapshotIsDamaged(t *testing.T) {
	cases := []struct {
		name   string
		linked int64
		do     func(t *testing.T, last *snapshot.Earlier)
	}{
		{"it is whole", 10, func(*testing.T, *snapshot.Earlier) {}},
		{"no catalogue", 0, func(t *testing.T, last *snapshot.Earlier) { mustDo(t, os.Remove(last.Catalogue)) }},
		{"an empty one", 0, func(t *testing.T, last *snapshot.Earlier) { mustDo(t, os.Truncate(last.Catalogue, 0)) }},
		{"half of it", 0, func(t *testing.T, last *snapshot.Earlier) { mustDo(t, os.Truncate(last.Catalogue, 150)) }},
		{"a bit of it", 0, func(t *testing.T, last *snapshot.Earlier) {
			b, err := os.ReadFile(last.Catalogue)
			mustDo(t, err)
			at := bytes.Index(b, []byte("f3")) // in the only block with files
			b[at] ^= 1
			mustDo(t, os.WriteFile(last.Catalogue, b, 0o600))
		}},
		{"that of another moment", 0, func(_ *testing.T, last *snapshot.Earlier) { last.Cut = last.Cut.Add(-1) }},
		{"of a later moment: the clock went back", 0, func(_ *testing.T, last *snapshot.Earlier) { last.Cut = last.Cut.Add(time.Hour) }},
		{"no files", 0, func(t *testing.T, last *snapshot.Earlier) { mustDo(t, os.RemoveAll(last.Tree)) }},
		{"no directory", 0, func(t *testing.T, last *snapshot.Earlier) { mustDo(t, os.RemoveAll(filepath.Join(last.Tree, "d"))) }},
		{"a file less", 9, func(t *testing.T, last *snapshot.Earlier) { mustDo(t, os.Remove(filepath.Join(last.Tree, "d/f3"))) }},
		{"a file that was changed in it", 9, func(t *testing.T, last *snapshot.Earlier) {
			mustDo(t, os.WriteFile(filepath.Join(last.Tree, "d/f3"), []byte("Content"), 0o644))
		}},
		{"a link in the place of its directory", 0, func(t *testing.T, last *snapshot.Earlier) {
			mustDo(t, os.Rename(filepath.Join(last.Tree, "d"), last.Tree+"-d"))
			mustDo(t, os.Symlink(last.Tree+"-d", filepath.Join(last.Tree, "d")))
		}},
	}
	testdisk.Sharing(t, func(t *testing.T, on string) {
		v := newVolume(t, on)
		dir, err := v.mkdir(*v.Files.RootID(), "d")
		mustDo(t, err)
		for i := range 10 {
			id, err := v.create(dir, fmt.Sprint("f", i))
			mustDo(t, err)
			mustDo(t, v.write(id, "content", 0))
		}
		time.Sleep(age)
		want, err := describe(v.dir)
		mustDo(t, err)
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				v.last = nil
				_, err := v.take(new(snapshot.Progress))
				mustDo(t, err)
				c.do(t, v.last)
				var p snapshot.Progress
				tree, err := v.take(&p)
				mustDo(t, err)
				if got, err := describe(tree); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("it has %q, %v, want %q", got, err, want)
				}
				if n := p.Linked.Load(); n != c.linked {
					t.Errorf("it has %d files of the earlier one, want %d", n, c.linked)
				}
			})
		}
	})
}

// A clone does not come to have more names than btrfs gives a file: the file is cloned anew in time.
func TestManySnapshotsOfManyNames(t *testing.T) {
	testdisk.OnlyCI(t)
	t.Parallel()
	testdisk.Sharing(t, func(t *testing.T, on string) {
		v := newVolume(t, on)
		if v.Files.FS.Type != unix.BTRFS_SUPER_MAGIC {
			return // XFS has 2,147,483,647
		}
		const names = 20
		mustDo(t, os.WriteFile(filepath.Join(v.dir, "0"), []byte("content"), 0o644))
		for i := 1; i < names; i++ {
			mustDo(t, os.Link(filepath.Join(v.dir, "0"), filepath.Join(v.dir, fmt.Sprint(i))))
		}
		time.Sleep(age)
		first, err := v.take(new(snapshot.Progress))
		mustDo(t, err)
		others := filepath.Join(on, "others") // as many names as further snapshots would give it
		mustDo(t, os.Mkdir(others, 0o755))
		for i := range 65_535 - names - 10 {
			mustDo(t, os.Link(filepath.Join(first, "0"), filepath.Join(others, fmt.Sprint(i))))
		}
		for i, linked := range []bool{false, true} {
			last := v.last.Tree
			got, err := v.take(new(snapshot.Progress))
			mustDo(t, err)
			if sameFile(t, filepath.Join(last, "0"), filepath.Join(got, "0")) != linked {
				t.Errorf("snapshot %d: linked is not %v", i+2, linked)
			}
			if !sameFile(t, filepath.Join(got, "0"), filepath.Join(got, fmt.Sprint(names-1))) {
				t.Errorf("snapshot %d: two names are two files", i+2)
			}
		}
	})
}
