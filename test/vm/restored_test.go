//go:build vm

package vm_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestRestoredWithoutProjects: a disk, or a volume, that comes back from a backup by
// cp -a, tar or rsync has lost its projects. It is served, and keeps its size again.
func TestRestoredWithoutProjects(t *testing.T) {
	nativeOnly(t, "the engine has no part in it")
	for _, tt := range []struct {
		name string
		// restore brings back what is in root, and returns where.
		restore func(t *testing.T, root, dir string) string
	}{
		{"a volume in its place", func(t *testing.T, root, dir string) string {
			command(t, "cp", "-a", dir, dir+".copy")
			command(t, "rm", "-r", dir)
			command(t, "mv", dir+".copy", dir)
			return root
		}},
		{"a volume beside what it replaces", func(t *testing.T, root, dir string) string {
			old := filepath.Join(filepath.Dir(root), "old-"+filepath.Base(dir))
			command(t, "mv", dir, old)
			command(t, "cp", "-a", old, dir)
			return root
		}},
		{"the disk", func(t *testing.T, root, _ string) string {
			fresh, _ := loopXFS(t, "prjquota")
			command(t, "cp", "-a", root+"/.", fresh)
			return fresh
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			const limit = 32 << 20
			a := newAppliance(t, settings{quota: "kernel"})
			a.start()
			pv := a.volume("restored", "32Mi")
			keep := data(1, 8<<20)
			fill(t, a.dir(pv), keep)
			a.stop()
			if a.root = tt.restore(t, a.root, a.dir(pv)); project(t, a.dir(pv)) != 0 {
				t.Fatal("the copy is under a project: this tests nothing")
			}
			b := newAppliance(t, settings{root: a.root, quota: "kernel"})
			b.start()
			mnt := mount(t, pv)
			holds(t, filepath.Join(mnt, "keep"), keep)
			mustWrite(t, filepath.Join(mnt, "meanwhile"), keep[:1<<20])

			eventually(t, "df shows the volume's size, and what is used of it", func() bool {
				total, available := size(t, mnt)
				used := total - available
				return total == limit && used >= 9<<20 && used <= 11<<20
			})
			if said := b.output(); !bytes.Contains(said, []byte("not all files are assigned to its project")) {
				t.Errorf("the log says nothing of it:\n%s", said)
			}
			under(t, b.dir(pv))
			if err := write(filepath.Join(mnt, "big"), data(2, limit)); !noSpace(err) {
				t.Errorf("32 MiB more into a volume of 32 MiB: %v", err)
			}
			if err := os.Remove(filepath.Join(mnt, "big")); err != nil {
				t.Error(err)
			}
			// In one project all can be renamed, also what can't be marked.
			for _, name := range []string{"dir 7/link", "dir 7/fifo", "dir 7/file"} {
				from, to := filepath.Join(mnt, name), filepath.Join(mnt, "moved")
				if err := os.Rename(from, to); err != nil {
					t.Error(err)
				}
				if err := os.Rename(to, from); err != nil {
					t.Error(err)
				}
			}
			if left, err := filepath.Glob(filepath.Join(b.dir(pv), ".podnas*")); err != nil || len(left) > 0 {
				t.Errorf("left are %v, %v", left, err)
			}
			out, _ := run(t, "doctor", "--root="+b.root)
			if bytes.Contains([]byte(out), []byte("assigned to its project")) {
				t.Errorf("podnas doctor still tells of it:\n%s", out)
			}

			// At the next start there is nothing to be done.
			b.stop()
			before := len(b.output())
			b.start()
			if said := b.output()[before:]; bytes.Contains(said, []byte("project")) && bytes.Contains(said, []byte("not all files are assigned")) {
				t.Errorf("once more:\n%s", said)
			}
			if total, _ := size(t, mnt); total != limit {
				t.Errorf("after a restart df shows a size of %d", total)
			}
		})
	}
}

// fill makes files of all sorts.
func fill(t *testing.T, dir string, keep []byte) {
	t.Helper()
	mustWrite(t, filepath.Join(dir, "keep"), keep)
	for i := range 20 {
		below := filepath.Join(dir, fmt.Sprint("dir ", i))
		if err := os.Mkdir(below, 0o755); err != nil {
			t.Fatal(err)
		}
		mustWrite(t, filepath.Join(below, "file"), []byte("content"))
		if err := os.Symlink("file", filepath.Join(below, "link")); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mkfifo(filepath.Join(below, "fifo"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// under checks that all that can be asked is under one project.
func under(t *testing.T, dir string) {
	t.Helper()
	id := project(t, dir)
	if id == 0 {
		t.Error("the volume is under no project")
	}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err == nil && (d.IsDir() || d.Type().IsRegular()) && project(t, p) != id {
			t.Errorf("%s is under project %d, not %d", p, project(t, p), id)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
