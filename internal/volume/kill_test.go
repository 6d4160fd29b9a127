package volume

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/quota"
)

// kernel stands for project quotas, which outlive a process. A project is in use
// as long as a directory that was marked with it is there.
type kernel struct {
	mu     sync.Mutex
	limits map[uint32]quota.Limit
	marked map[uint32][]int // descriptors
	more   map[uint32]int64 // inodes of a project besides those
	// below is called, if set, when AssignTree has marked the directory and nothing
	// in it.
	below func(context.Context) error
}

func newKernel(t *testing.T) *kernel {
	k := &kernel{limits: map[uint32]quota.Limit{}, marked: map[uint32][]int{}, more: map[uint32]int64{}}
	t.Cleanup(func() {
		for _, fds := range k.marked {
			for _, fd := range fds {
				_ = unix.Close(fd)
			}
		}
	})
	return k
}

func (k *kernel) Assign(dir *os.File, id uint32) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for other, fds := range k.marked {
		k.marked[other] = slices.DeleteFunc(fds, func(fd int) bool {
			if !sameFile(fd, int(dir.Fd())) {
				return false
			}
			_ = unix.Close(fd)
			return true
		})
	}
	fd, err := unix.FcntlInt(dir.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err == nil {
		k.marked[id] = append(k.marked[id], fd)
	}
	return err
}

func (k *kernel) Assigned(dir *os.File, id uint32) (bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.ContainsFunc(k.marked[id], func(fd int) bool { return sameFile(fd, int(dir.Fd())) }), nil
}

func sameFile(a, b int) bool {
	var x, y unix.Stat_t
	return unix.Fstat(a, &x) == nil && unix.Fstat(b, &y) == nil && x.Dev == y.Dev && x.Ino == y.Ino
}

// AssignTree marks the directory and the files in it, as far as below allows.
func (k *kernel) AssignTree(ctx context.Context, dir *os.File, id uint32) (int, error) {
	if err := k.Assign(dir, id); err != nil {
		return 0, err
	}
	if k.below != nil {
		if err := k.below(ctx); err != nil {
			return 0, err
		}
	}
	names, err := os.ReadDir(dir.Name())
	if err != nil {
		return 0, err
	}
	for i, e := range names {
		f, err := os.Open(filepath.Join(dir.Name(), e.Name()))
		if err != nil {
			return i, err
		}
		u, err := k.Usage(id)
		if err == nil && (u.Limit.Bytes > 0 && u.Bytes >= u.Limit.Bytes || u.Limit.Inodes > 0 && u.Inodes >= u.Limit.Inodes) {
			err = unix.ENOSPC
		}
		if err == nil {
			err = k.Assign(f, id)
		}
		if err := errors.Join(err, f.Close()); err != nil {
			return i, err
		}
	}
	return len(names), nil
}

func (k *kernel) SetLimit(id uint32, limit quota.Limit) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.limits[id] = limit; limit == (quota.Limit{}) {
		delete(k.limits, id)
	}
	return nil
}

func (k *kernel) Usage(id uint32) (quota.Usage, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	u := quota.Usage{Limit: k.limits[id], Inodes: k.more[id]}
	for _, fd := range k.marked[id] {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err == nil && st.Nlink > 0 {
			u.Bytes, u.Inodes = u.Bytes+4096, u.Inodes+1
		}
	}
	return u, nil
}

func (k *kernel) Usages() (map[uint32]quota.Usage, error) {
	k.mu.Lock()
	ids := slices.Collect(maps.Keys(k.limits))
	ids = slices.AppendSeq(ids, maps.Keys(k.marked))
	k.mu.Unlock()
	usages := map[uint32]quota.Usage{}
	for _, id := range ids {
		u, err := k.Usage(id)
		if err != nil {
			return nil, err
		}
		usages[id] = u
	}
	return usages, nil
}

// boot opens a Store over a kernel.
func (k *kernel) boot(t *testing.T, root string) (*Store, *exports) {
	t.Helper()
	e := &exports{}
	s, err := newStore(Config{Root: root, Exports: e, Snapshots: &copier{root: root}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	s.quota = k
	if s, err = s.open(root); err != nil {
		t.Fatal(err)
	}
	return s, e
}

// scene is an operation that is killed between its steps.
type scene struct {
	name    string
	prepare func(t *testing.T, s *Store, root string)
	do      func(ctx context.Context, s *Store) error
	// after is what must be so once do was called again to its end.
	after func(t *testing.T, s *Store, e *exports, root string)
}

const kept = "what was written before"

func writeInto(t *testing.T, root, name string) {
	t.Helper()
	mustDo(t, os.WriteFile(filepath.Join(root, name, "data"), []byte(kept), 0o600))
}

func isKept(t *testing.T, dir string) {
	t.Helper()
	if data, err := os.ReadFile(filepath.Join(dir, "data")); err != nil || string(data) != kept {
		t.Errorf("data in %s: %q, %v", dir, data, err)
	}
}

func makeVolume(spec Spec) func(t *testing.T, s *Store, root string) {
	return func(t *testing.T, s *Store, root string) {
		t.Helper()
		v, err := s.Create(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		writeInto(t, root, v.Path)
	}
}

func deleteVolume(ctx context.Context, s *Store) error {
	err := s.Delete(ctx, "v")
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

func archiveVolume(ctx context.Context, s *Store) error {
	err := s.Archive(ctx, "v")
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

func isArchived(t *testing.T, s *Store, _ *exports, root string) {
	t.Helper()
	k, err := s.Kept()
	if err != nil || len(k) != 1 || k[0].State != Archived || k[0].Since.IsZero() {
		t.Fatalf("%+v, %v", k, err)
	}
	isKept(t, filepath.Join(root, k[0].keptIn(archiveDir)))
}

func discard(ctx context.Context, s *Store) error {
	err := s.Discard(ctx, "v")
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

func gone(t *testing.T, s *Store, e *exports, root string) {
	t.Helper()
	eventually(t, "the trash is empty", func() bool { return len(stateFiles(t, root)) == 1 }) // the bystander
	if _, err := os.Lstat(filepath.Join(root, "v")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory is left: %v", err)
	}
	if names := e.names(); len(names) != 1 {
		t.Errorf("exported: %v", names)
	}
}

func scenes() []scene {
	small := Spec{Name: "v", Size: 1 << 20}
	with := func(change func(*Spec)) Spec {
		spec := small
		change(&spec)
		return spec
	}
	served := func(path string) func(t *testing.T, s *Store, e *exports, root string) {
		return func(t *testing.T, s *Store, e *exports, root string) {
			t.Helper()
			v, err := s.Get("v")
			if err != nil || v.Path != path || len(e.names()) != 2 {
				t.Errorf("%+v, %v, exported %v", v, err, e.names())
			}
			u, err := s.Usage("v")
			if err != nil || u.Limit != v.limit() || v.Inodes == 0 {
				t.Errorf("limit %+v, %v, want %+v", u.Limit, err, v.limit())
			}
		}
	}
	servedWithData := func(path string) func(t *testing.T, s *Store, e *exports, root string) {
		return func(t *testing.T, s *Store, e *exports, root string) {
			t.Helper()
			served(path)(t, s, e, root)
			isKept(t, filepath.Join(root, path))
		}
	}
	nothing := func(*testing.T, *Store, string) {}
	adopt := func(ctx context.Context, s *Store) error {
		_, err := s.Adopt(ctx, small)
		if errors.Is(err, ErrExists) {
			if _, found := s.Get("v"); found == nil {
				return nil
			}
		}
		return err
	}
	return []scene{
		{"create", nothing, func(ctx context.Context, s *Store) error {
			_, err := s.Create(ctx, small)
			return err
		}, served("v")},
		{"create below directories", nothing, func(ctx context.Context, s *Store) error {
			_, err := s.Create(ctx, with(func(s *Spec) { s.Path = "a/b/v" }))
			return err
		}, served("a/b/v")},
		{"resize", makeVolume(small), func(ctx context.Context, s *Store) error {
			_, err := s.Resize(ctx, "v", 64<<20, 0)
			return err
		}, func(t *testing.T, s *Store, e *exports, root string) {
			servedWithData("v")(t, s, e, root)
			if v, _ := s.Get("v"); v.Size != 64<<20 || v.Inodes <= 1024 {
				t.Errorf("%+v", v)
			}
		}},
		{"delete", makeVolume(small), deleteVolume, gone},
		{"archive", makeVolume(with(func(s *Spec) { s.OnDelete = ArchiveFiles })), deleteVolume, isArchived},
		{"archive one whose files would be removed", makeVolume(small), archiveVolume, isArchived},
		{"retain", makeVolume(with(func(s *Spec) { s.OnDelete = RetainFiles })), deleteVolume, func(t *testing.T, s *Store, e *exports, root string) {
			k, err := s.Kept()
			if err != nil || len(k) != 1 || k[0].State != Retained || len(e.names()) != 1 {
				t.Fatalf("%+v, %v, exported %v", k, err, e.names())
			}
			isKept(t, filepath.Join(root, "v"))
		}},
		{"discard what was archived", func(t *testing.T, s *Store, root string) {
			makeVolume(with(func(s *Spec) { s.OnDelete = ArchiveFiles }))(t, s, root)
			mustDo(t, s.Delete(t.Context(), "v"))
		}, discard, gone},
		{"discard what was retained", func(t *testing.T, s *Store, root string) {
			makeVolume(with(func(s *Spec) { s.OnDelete = RetainFiles }))(t, s, root)
			mustDo(t, s.Delete(t.Context(), "v"))
		}, discard, gone},
		{"adopt what was archived", func(t *testing.T, s *Store, root string) {
			makeVolume(with(func(s *Spec) { s.OnDelete = ArchiveFiles }))(t, s, root)
			mustDo(t, s.Delete(t.Context(), "v"))
		}, adopt, servedWithData("v")},
		{"adopt what was retained", func(t *testing.T, s *Store, root string) {
			makeVolume(with(func(s *Spec) { s.OnDelete = RetainFiles }))(t, s, root)
			mustDo(t, s.Delete(t.Context(), "v"))
		}, adopt, servedWithData("v")},
		{"adopt a directory", func(t *testing.T, _ *Store, root string) {
			mustDo(t, os.Mkdir(filepath.Join(root, "v"), 0o755))
			writeInto(t, root, "v")
		}, adopt, servedWithData("v")},
		{"adopt a directory of many files", func(t *testing.T, s *Store, root string) {
			mustDo(t, os.Mkdir(filepath.Join(root, "v"), 0o755))
			writeInto(t, root, "v")
			s.quota.(*kernel).below = tooManyAtOnce
		}, func(ctx context.Context, s *Store) error {
			s.adoptAtOnce = time.Millisecond
			if err := adopt(ctx, s); err != nil {
				return err
			}
			for s.beingMarked("v") && s.background.Err() == nil {
				time.Sleep(time.Millisecond)
			}
			return s.background.Err()
		}, servedWithData("v")},
		{"copy", func(t *testing.T, s *Store, root string) {
			makeVolume(Spec{Name: "source", Size: 1 << 20})(t, s, root)
		}, func(ctx context.Context, s *Store) error {
			for {
				_, err := s.Create(ctx, with(func(s *Spec) { s.Source = "source" }))
				var copying *CopyingError
				if !errors.As(err, &copying) {
					return err
				}
				if s.background.Err() != nil {
					return err // killed
				}
				time.Sleep(time.Millisecond)
			}
		}, func(t *testing.T, s *Store, e *exports, root string) {
			isKept(t, filepath.Join(root, "v"))
			isKept(t, filepath.Join(root, "source"))
			if names := e.names(); len(names) != 3 {
				t.Errorf("exported: %v", names)
			}
		}},
		{"take a snapshot", makeVolume(small), takeSnapshot, func(t *testing.T, s *Store, e *exports, root string) {
			servedWithData("v")(t, s, e, root)
			a, err := s.GetSnapshot("v", "a")
			if err != nil || a.Files != 1 {
				t.Fatalf("%+v, %v", a, err)
			}
			isKept(t, filepath.Join(root, a.tree()))
			if _, err := os.Lstat(filepath.Join(root, a.Catalogue())); err != nil {
				t.Error(err)
			}
		}},
		{"restore", func(t *testing.T, s *Store, root string) {
			makeVolume(small)(t, s, root)
			mustDo(t, takeSnapshot(t.Context(), s))
			mustDo(t, os.WriteFile(filepath.Join(root, "v", "data"), []byte("what came later"), 0o600))
			mustDo(t, os.WriteFile(filepath.Join(root, "v", "more"), nil, 0o600))
		}, restoreVolume, func(t *testing.T, s *Store, e *exports, root string) {
			servedWithData("v")(t, s, e, root)
			if to, safety := recordedRestore(t, root); to != "" || safety != "" {
				t.Errorf("it is still being restored to %q", to)
			}
			if _, err := os.Lstat(filepath.Join(root, "v", "more")); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("what the snapshot does not have is there: %v", err)
			}
			safe := false
			list, err := s.Snapshots("v")
			for _, found := range list {
				later, err := os.ReadFile(filepath.Join(root, found.tree(), "data"))
				safe = safe || err == nil && string(later) == "what came later"
			}
			if !safe {
				t.Errorf("no snapshot has what there was before: %+v, %v", list, err)
			}
		}},
		{"delete a snapshot", func(t *testing.T, s *Store, root string) {
			makeVolume(small)(t, s, root)
			mustDo(t, takeSnapshot(t.Context(), s))
		}, func(ctx context.Context, s *Store) error {
			err := s.DeleteSnapshot(ctx, "v", "a")
			if errors.Is(err, ErrNoSnapshot) {
				return nil
			}
			return err
		}, func(t *testing.T, s *Store, e *exports, root string) {
			servedWithData("v")(t, s, e, root)
			if list, err := s.Snapshots(""); err != nil || len(list) != 0 {
				t.Errorf("left: %v, %v", list, err)
			}
			eventually(t, "the trash is empty", func() bool { return len(stateFiles(t, root)) == 2 })
		}},
		{"copy a snapshot of a volume that is gone", func(t *testing.T, s *Store, root string) {
			makeVolume(Spec{Name: "source", Size: 1 << 20})(t, s, root)
			mustSnapshot(t, s, "source", "a")
			mustDo(t, s.Delete(t.Context(), "source"))
			eventually(t, "the trash is empty", func() bool { // and who empties it is at rest
				s.mu.Lock()
				defer s.mu.Unlock()
				return len(s.trashed)+len(s.trashedTrees) == 0
			})
		}, func(ctx context.Context, s *Store) error {
			for {
				_, err := s.Create(ctx, with(func(s *Spec) { s.Source, s.SourceSnapshot = "source", "a" }))
				var copying *CopyingError
				if !errors.As(err, &copying) || s.background.Err() != nil {
					return err
				}
				time.Sleep(time.Millisecond)
			}
		}, func(t *testing.T, s *Store, e *exports, root string) {
			servedWithData("v")(t, s, e, root)
			a, err := s.GetSnapshot("source", "a")
			mustDo(t, err)
			isKept(t, filepath.Join(root, a.tree()))
		}},
	}
}

// takeSnapshot takes one unless it is there.
func takeSnapshot(ctx context.Context, s *Store) error {
	_, err := s.CreateSnapshot(ctx, "v", "a")
	if errors.Is(err, ErrExists) {
		if _, found := s.GetSnapshot("v", "a"); found == nil {
			return nil
		}
	}
	return err
}

// restoreVolume restores its snapshot, after what an earlier process has begun.
func restoreVolume(ctx context.Context, s *Store) error {
	s.ResumeRestores()
	if err := awaitRestore(s); err != nil && !errors.Is(err, ErrNoRestore) {
		return err
	}
	if _, err := s.StartRestore(ctx, "v", "a", false); err != nil {
		return err
	}
	return awaitRestore(s)
}

// awaitRestore waits for a restore, or the end of the Store.
func awaitRestore(s *Store) error {
	for {
		switch r, err := s.GetRestore("v"); {
		case err != nil || r.Done:
			return err
		case s.background.Err() != nil:
			return s.background.Err()
		}
		time.Sleep(time.Millisecond)
	}
}

// TestKilledAtEveryStep: whichever step was the last, the next start leaves all
// in order, and the operation can be done again.
func TestKilledAtEveryStep(t *testing.T) {
	for _, sc := range slices.Concat(scenes(), viewScenes()) {
		t.Run(sc.name, func(t *testing.T) {
			for step := 1; ; step++ {
				if last := killAt(t, sc, step); last {
					if step < 2 {
						t.Error("has no steps")
					}
					return
				}
				if t.Failed() {
					t.Fatalf("killed after step %d", step)
				}
			}
		})
	}
}

// killAt kills an operation after a step. It is true if there are fewer.
func killAt(t *testing.T, sc scene, step int) (last bool) {
	t.Helper()
	root, k := t.TempDir(), newKernel(t)
	s, _ := k.boot(t, root)
	makeVolume(Spec{Name: "bystander", Size: 1 << 20})(t, s, root)
	sc.prepare(t, s, root)

	var mu sync.Mutex
	done, killed, name := 0, false, ""
	s.step = func(what string) {
		mu.Lock()
		defer mu.Unlock()
		if done++; done >= step {
			if !killed {
				name = what
			}
			killed = true
			s.stop()
			runtime.Goexit() // no way back: what would be undone stays
		}
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := sc.do(context.Background(), s); err != nil {
			mu.Lock()
			defer mu.Unlock()
			if !killed {
				t.Errorf("%s: %v", sc.name, err)
			}
		}
	}()
	<-ended
	mustDo(t, s.Close())
	s, e := k.boot(t, root)
	defer func() { mustDo(t, s.Close()) }()
	isKept(t, filepath.Join(root, "bystander"))
	inOrder(t, k, s, root)
	if err := sc.do(t.Context(), s); err != nil {
		t.Errorf("again, after %q: %v", name, err)
	}
	sc.after(t, s, e, root)
	inOrder(t, k, s, root)
	isKept(t, filepath.Join(root, "bystander"))
	return !killed
}

// inOrder checks what must hold at any time: a record for each directory, a
// project for one volume alone, a limit for no project without a record.
func inOrder(t *testing.T, k *kernel, s *Store, root string) {
	t.Helper()
	findings, err := s.Check()
	if err != nil {
		t.Error(err)
	}
	for _, f := range findings {
		switch {
		case strings.Contains(f.Fix, "adopt") && f.Path == "v": // it has no record yet
		case strings.Contains(f.Problem, "being assigned to its project"): // it is adopted, and the start goes on
		default:
			t.Errorf("found: %v", f)
		}
	}
	owners := map[uint32]string{}
	mustDo(t, filepath.WalkDir(filepath.Join(root, StateDir), func(p string, d fs.DirEntry, err error) error {
		if errors.Is(err, os.ErrNotExist) {
			return nil // the trash is being emptied
		}
		if err == nil && p == filepath.Join(root, snapshotsDir) {
			return fs.SkipDir
		}
		if err != nil || !strings.HasSuffix(p, ".json") || strings.HasSuffix(p, "instance.json") {
			return err
		}
		data, err := os.ReadFile(p)
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		var r record
		if err := json.Unmarshal(data, &r); err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
		if other, twice := owners[r.Project]; twice {
			t.Errorf("%s and %s have one project, %d", other, p, r.Project)
		}
		owners[r.Project] = p
		return nil
	}))
	k.mu.Lock()
	defer k.mu.Unlock()
	for id := range k.limits {
		if owners[id] == "" {
			t.Errorf("project %d is nobody's and has a limit", id)
		}
	}
}
