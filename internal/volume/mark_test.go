package volume

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/podnas/podnas/quota"
)

// copyPlainly puts a copy in the place of a directory, as a restore does: it is
// under no project. Where the first one is moved to, it is kept.
func copyPlainly(t *testing.T, dir, moved string) {
	t.Helper()
	mustDo(t, errors.Join(os.Rename(dir, moved), os.CopyFS(dir, os.DirFS(moved))))
}

// withProject opens a Store, makes a volume with some files under a project, and
// closes it.
func withProject(t *testing.T, k *kernel, root string, spec Spec) Volume {
	t.Helper()
	s, _ := k.boot(t, root)
	v, err := s.Create(t.Context(), spec)
	mustDo(t, err)
	writeInto(t, root, v.Path)
	mustDo(t, os.WriteFile(filepath.Join(root, v.Path, "more"), nil, 0o600))
	mustAssign(t, k, root, v)
	mustDo(t, s.Close())
	return v
}

// mustAssign does what the kernel does for files made in a marked directory.
func mustAssign(t *testing.T, k *kernel, root string, v Volume) {
	t.Helper()
	dir, err := os.Open(filepath.Join(root, v.Path))
	mustDo(t, err)
	mustDo(t, k.SetLimit(v.Project, quota.Limit{}))
	_, err = k.AssignTree(t.Context(), dir, v.Project)
	mustDo(t, errors.Join(err, dir.Close(), k.SetLimit(v.Project, v.limit())))
}

// held keeps AssignTree between the directory and what is in it, until it is let
// go or its context ends.
func (k *kernel) held() (reached <-chan struct{}, letGo func()) {
	at, hold := make(chan struct{}, 10), make(chan struct{})
	k.below = func(ctx context.Context) error {
		at <- struct{}{}
		select {
		case <-hold:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return at, func() { close(hold) }
}

// allMarked waits until a volume is under its project with all its files, and its
// limit holds.
func allMarked(t *testing.T, k *kernel, s *Store, name string) Volume {
	t.Helper()
	v, err := s.Get(name)
	mustDo(t, err)
	eventually(t, "the volume has its limit", func() bool {
		u, err := k.Usage(v.Project)
		return err == nil && u.Limit == v.limit()
	})
	if u, err := k.Usage(v.Project); err != nil || u.Inodes != 3 {
		t.Errorf("under the project: %+v, %v, want the directory and 2 files", u, err)
	}
	return v
}

// After a restore by tar, rsync or cp a volume is served at once, its files come
// under its project meanwhile, and then its size holds.
func TestRestoredWithoutProjects(t *testing.T) {
	for _, tt := range []struct {
		name    string
		restore func(t *testing.T, k *kernel, dir string) *kernel
		another bool // project
	}{
		{"in its place", func(t *testing.T, k *kernel, dir string) *kernel {
			moved := filepath.Join(t.TempDir(), "old")
			copyPlainly(t, dir, moved)
			mustDo(t, os.RemoveAll(moved))
			return k
		}, false},
		{"on a fresh disk", func(t *testing.T, _ *kernel, dir string) *kernel {
			copyPlainly(t, dir, filepath.Join(t.TempDir(), "old"))
			return newKernel(t)
		}, false},
		{"beside what it replaces", func(t *testing.T, k *kernel, dir string) *kernel {
			copyPlainly(t, dir, filepath.Join(t.TempDir(), "old"))
			return k
		}, true},
		{"nothing, but its limit is gone", func(t *testing.T, k *kernel, _ string) *kernel {
			k.limits = map[uint32]quota.Limit{}
			return k
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root, k := t.TempDir(), newKernel(t)
			before := withProject(t, k, root, Spec{Name: "v", Size: 8192}) // less than its files
			k = tt.restore(t, k, filepath.Join(root, "v"))
			reached, letGo := k.held()
			s, e := k.boot(t, root)
			defer func() { mustDo(t, s.Close()) }()
			<-reached
			v, err := s.Get("v")
			if err != nil || len(e.names()) != 1 || v.Project != before.Project != tt.another {
				t.Errorf("while its files are marked: %+v, %v, exported %v, had project %d", v, err, e.names(), before.Project)
			}
			findings, err := s.Check()
			if err != nil || len(findings) != 1 || !strings.Contains(findings[0].Problem, "being assigned to its project") {
				t.Errorf("found %v, %v", findings, err)
			}
			if _, err := s.Resize(t.Context(), "v", 1<<20, 0); err != nil {
				t.Error(err)
			}
			if u, err := k.Usage(v.Project); err != nil || u.Limit != (quota.Limit{}) {
				t.Errorf("raised while its files are marked: %+v, %v, want no limit yet", u, err)
			}
			letGo()
			if allMarked(t, k, s, "v"); tt.another {
				if u, err := k.Usage(before.Project); err != nil || u.Limit.Bytes != 8192 || u.Inodes != 3 {
					t.Errorf("what it replaces: %+v, %v, want it as it was", u, err)
				}
			}
			isKept(t, filepath.Join(root, "v"))
			eventually(t, "nothing is found", func() bool {
				findings, err := s.Check()
				return err == nil && len(findings) == 0
			})
			if _, err := s.Resize(t.Context(), "v", 2<<20, 0); err != nil {
				t.Error(err)
			}
			allMarked(t, k, s, "v")
		})
	}
}

// Whichever step of it was the last, the next start goes on.
func TestKilledWhileMarking(t *testing.T) {
	for _, beside := range []bool{false, true} {
		t.Run(fmt.Sprintf("the old directory is kept %v", beside), func(t *testing.T) {
			for step := 1; ; step++ {
				root, k := t.TempDir(), newKernel(t)
				withProject(t, k, root, Spec{Name: "v", Size: 1 << 20})
				moved := filepath.Join(t.TempDir(), "old")
				if copyPlainly(t, filepath.Join(root, "v"), moved); !beside {
					mustDo(t, os.RemoveAll(moved))
				}
				s, err := newStore(Config{Root: root, Exports: &exports{}, Log: slog.New(slog.DiscardHandler)})
				mustDo(t, err)
				s.quota = k
				var done, killed atomic.Int32
				s.step = func(string) {
					if done.Add(1) >= int32(step) {
						killed.Store(1)
						s.stop()
						runtime.Goexit()
					}
				}
				k.below = func(context.Context) error {
					s.step("directory is marked")
					return nil
				}
				opened := make(chan struct{})
				go func() {
					defer close(opened)
					if s, err := s.open(root); err != nil {
						t.Errorf("open: %v, %v", s, err)
					}
				}()
				<-opened
				if killed.Load() == 0 {
					eventually(t, "it is killed or done", func() bool { return killed.Load() == 1 || !s.beingMarked("v") })
				}
				mustDo(t, s.Close())
				k.below = nil
				s, _ = k.boot(t, root)
				allMarked(t, k, s, "v")
				isKept(t, filepath.Join(root, "v"))
				mustDo(t, s.Close())
				if t.Failed() {
					t.Fatalf("killed after step %d", step)
				}
				if killed.Load() == 0 {
					if step < 5 {
						t.Errorf("has %d steps", step-1)
					}
					return
				}
			}
		})
	}
}

// A volume that is deleted meanwhile leaves no limit behind; one that is kept goes
// on when it is adopted.
func TestDeletedWhileMarking(t *testing.T) {
	for _, onDelete := range []OnDelete{DeleteFiles, ArchiveFiles, RetainFiles} {
		t.Run(string(onDelete), func(t *testing.T) {
			root, k := t.TempDir(), newKernel(t)
			withProject(t, k, root, Spec{Name: "v", Size: 1 << 20, OnDelete: onDelete})
			copyPlainly(t, filepath.Join(root, "v"), filepath.Join(t.TempDir(), "old"))
			k = newKernel(t) // a fresh disk
			reached, letGo := k.held()
			s, _ := k.boot(t, root)
			defer func() { mustDo(t, s.Close()) }()
			<-reached

			// A deletion that comes to nothing changes nothing.
			blocked := filepath.Join(root, recordFile("v"))
			mustDo(t, errors.Join(os.Rename(blocked, blocked+".moved"), os.Mkdir(blocked, 0o700)))
			if err := s.Delete(t.Context(), "v"); err == nil {
				t.Fatal("deleted without a record of that")
			}
			<-reached
			mustDo(t, errors.Join(os.Remove(blocked), os.Rename(blocked+".moved", blocked), s.Delete(t.Context(), "v")))
			if findings, err := s.Check(); err != nil || len(findings) != 0 {
				t.Errorf("found %v, %v", findings, err)
			}
			letGo()
			if onDelete == DeleteFiles {
				eventually(t, "the trash is empty", func() bool { return len(stateFiles(t, root)) == 0 })
			}
			k.mu.Lock()
			if len(k.limits) != 0 {
				t.Errorf("limits are left: %v", k.limits)
			}
			k.mu.Unlock()
			if onDelete == DeleteFiles {
				return
			}
			if _, err := s.Adopt(t.Context(), Spec{Name: "v"}); err != nil {
				t.Fatal(err)
			}
			allMarked(t, k, s, "v")
			isKept(t, filepath.Join(root, "v"))
		})
	}
}

// What goes wrong is told, and the volume is served.
func TestMarkingFails(t *testing.T) {
	root, k := t.TempDir(), newKernel(t)
	withProject(t, k, root, Spec{Name: "v", Size: 1 << 20})
	copyPlainly(t, filepath.Join(root, "v"), filepath.Join(t.TempDir(), "old"))
	k.below = func(context.Context) error { return errors.New("a bad sector") }
	s, e := k.boot(t, root)
	eventually(t, "the reason is told", func() bool {
		findings, err := s.Check()
		return err == nil && len(findings) == 1 && strings.Contains(findings[0].Problem, "a bad sector")
	})
	if names := e.names(); len(names) != 1 {
		t.Errorf("exported: %v", names)
	}
	mustDo(t, s.Close()) // does not wait for the next try
}

// A copy under way is made anew where its directory is under no project: the same
// boot would go on with what is there.
func TestCopyRestoredWithoutProjects(t *testing.T) {
	root, k := t.TempDir(), newKernel(t)
	withProject(t, k, root, Spec{Name: "source", Size: 1 << 20})
	s, _ := k.boot(t, root)
	reached := make(chan struct{})
	s.step = func(done string) {
		if done == "files are copied" {
			s.stop()
			close(reached)
			runtime.Goexit()
		}
	}
	_, err := s.Create(t.Context(), Spec{Name: "copy", Size: 1 << 20, Source: "source"})
	var copying *CopyingError
	if !errors.As(err, &copying) {
		t.Fatal(err)
	}
	<-reached
	mustDo(t, s.Close())
	dir := filepath.Join(root, "copy")
	moved := filepath.Join(t.TempDir(), "old")
	copyPlainly(t, dir, moved)
	mustDo(t, os.RemoveAll(moved))
	s, _ = k.boot(t, root)
	defer func() { mustDo(t, s.Close()) }()
	eventually(t, "it is a volume", func() bool {
		_, err := s.Get("copy")
		return err == nil
	})
	v, err := s.Get("copy")
	mustDo(t, err)
	isKept(t, dir)
	assigned, err := s.assigned(&record{Volume: v})
	u, usageErr := k.Usage(v.Project)
	if mustDo(t, errors.Join(err, usageErr)); !assigned || u != (quota.Usage{Bytes: 4096, Inodes: 1, Limit: v.limit()}) {
		t.Errorf("its directory is under its project: %v, with %+v; want what was there gone", assigned, u)
	}
}

// A copy waits until its source's files are under their project: there is a
// directory of podnas's own in it until then. So it is after a restart too, with a
// name that comes before its source's.
func TestCopyOfWhatIsMarked(t *testing.T) {
	root, k := t.TempDir(), newKernel(t)
	withProject(t, k, root, Spec{Name: "v", Size: 1 << 20})
	copyPlainly(t, filepath.Join(root, "v"), filepath.Join(t.TempDir(), "old"))
	reached, _ := k.held()
	s, _ := k.boot(t, root)
	<-reached
	spec := Spec{Name: "a-copy", Size: 1 << 20, Source: "v"}
	waits := func() {
		t.Helper()
		for range 20 {
			var copying *CopyingError
			if _, err := s.Create(t.Context(), spec); !errors.As(err, &copying) || copying.Files != 0 {
				t.Fatalf("while its source is marked: %v", err)
			}
			time.Sleep(2 * time.Millisecond)
		}
	}
	waits()
	mustDo(t, s.Close())

	reached, letGo := k.held()
	s, _ = k.boot(t, root)
	defer func() { mustDo(t, s.Close()) }()
	<-reached
	waits()
	letGo()
	if _, err := created(t.Context(), s, spec); err != nil {
		t.Error(err)
	}
	isKept(t, filepath.Join(root, "a-copy"))
	allMarked(t, k, s, "v")
}
