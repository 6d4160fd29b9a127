package volume

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// exports records what a Store exports.
type exports struct {
	mu   sync.Mutex
	byID map[uint64]string
	fail error // of the next Export
}

func (e *exports) Export(v Volume) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.fail; err != nil {
		e.fail = nil
		return err
	}
	if e.byID == nil {
		e.byID = map[uint64]string{}
	}
	e.byID[v.ID] = v.Name
	return nil
}

func (e *exports) Check(Options) error { return nil }

func (e *exports) Unexport(v Volume) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.byID, v.ID)
}

func (e *exports) names() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var names []string
	for _, n := range e.byID {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// open opens a Store that is closed, at the latest, at the end of the test.
func open(t *testing.T, root string) (*Store, *exports) {
	t.Helper()
	e := &exports{}
	s, err := Open(Config{Root: root, Exports: e, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // most tests have closed it
	return s, e
}

func mustCreate(t *testing.T, s *Store, name string) Volume {
	t.Helper()
	v, err := s.Create(t.Context(), Spec{Name: name, Size: 1 << 20, Claim: &Claim{"ns", "claim-" + name, "uid"}})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// eventually waits for what the background does.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within 30 s", what)
		}
	}
}

// stateFiles lists what is in volumes/ and trash/.
func stateFiles(t *testing.T, root string) []string {
	t.Helper()
	var files []string
	for _, dir := range []string{volumesDir, trashDir} {
		entries, err := os.ReadDir(filepath.Join(root, dir))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			files = append(files, filepath.Base(dir)+"/"+e.Name())
		}
	}
	return files
}

func TestCreate(t *testing.T) {
	root := t.TempDir()
	s, e := open(t, root)
	v := mustCreate(t, s, "pvc-1")
	if v.ID == 0 || v.Path != "pvc-1" || v.Size != 1<<20 || v.Created.IsZero() || v.Claim.Name != "claim-pvc-1" {
		t.Errorf("created %+v", v)
	}
	info, err := os.Stat(filepath.Join(root, "pvc-1"))
	if err != nil || info.Mode() != os.ModeDir|0o777 {
		t.Errorf("directory: %v, %v, want mode 0777", info, err)
	}
	if info, err := os.Stat(filepath.Join(root, StateDir)); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("state directory: %v, %v, want mode 0700", info, err)
	}
	if info, err := os.Stat(filepath.Join(root, InstanceFile)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("instance file with the handle key: %v, %v, want mode 0600", info, err)
	}

	again, err := s.Create(t.Context(), Spec{Name: "pvc-1", Size: 1 << 20, Claim: v.Claim})
	if err != nil || again.ID != v.ID {
		t.Errorf("created again: %+v, %v, want the same volume", again, err)
	}
	if _, err := s.Create(t.Context(), Spec{Name: "pvc-1", Size: 2 << 20}); !errors.Is(err, ErrExists) {
		t.Errorf("created with another size: %v, want ErrExists", err)
	}
	if got := e.names(); !slices.Equal(got, []string{"pvc-1"}) {
		t.Errorf("exported: %v", got)
	}
}

func TestCreateRefused(t *testing.T) {
	root := t.TempDir()
	s, e := open(t, root)
	if err := os.WriteFile(filepath.Join(root, "file"), []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(root, "dir"), 0o700); err != nil {
		t.Fatal(err)
	}
	before := stateFiles(t, root)

	for _, tt := range []struct {
		name string
		size int64
		want error
	}{
		{"", 1, ErrInvalid},
		{".podnas", 1, ErrInvalid},
		{"..", 1, ErrInvalid},
		{"a/b", 1, ErrInvalid},
		{"../outside", 1, ErrInvalid},
		{"UPPER", 1, ErrInvalid},
		{"nul\x00", 1, ErrInvalid},
		{"line\n", 1, ErrInvalid},
		{strings.Repeat("a", 251), 1, ErrInvalid}, // its record's name has 256 bytes
		{strings.Repeat("a", 254), 1, ErrInvalid},
		{"zero", 0, ErrInvalid},
		{"negative", -1, ErrInvalid},
		{"file", 1, ErrExists},
		{"dir", 1, ErrExists},
	} {
		if v, err := s.Create(t.Context(), Spec{Name: tt.name, Size: tt.size}); !errors.Is(err, tt.want) {
			t.Errorf("Create(%q, %d) = %+v, %v, want %v", tt.name, tt.size, v, err, tt.want)
		}
	}
	var noSpace *NoSpaceError
	if _, err := s.Create(t.Context(), Spec{Name: "huge", Size: math.MaxInt64}); !errors.As(err, &noSpace) {
		t.Fatalf("larger than the disk: %v, want a NoSpaceError", err)
	}
	for _, number := range []string{FormatSize(noSpace.Requested), FormatSize(noSpace.Free)} {
		if !strings.Contains(noSpace.Error(), number) {
			t.Errorf("%q does not name %s", noSpace, number)
		}
	}
	if got := stateFiles(t, root); !slices.Equal(got, before) || len(e.names()) != 0 || len(s.List()) != 0 {
		t.Errorf("left behind: %v, exported %v, listed %v", got, e.names(), s.List())
	}
	if data, err := os.ReadFile(filepath.Join(root, "file")); string(data) != "kept" {
		t.Errorf("a file in the way: %q, %v", data, err)
	}
}

func TestCreateUndone(t *testing.T) {
	root := t.TempDir()
	s, e := open(t, root)
	e.fail = errors.New("no export today")
	if _, err := s.Create(t.Context(), Spec{Name: "pvc-1", Size: 1}); !errors.Is(err, e.fail) && !strings.Contains(err.Error(), "no export today") {
		t.Errorf("%v, want the exporter's error", err)
	}
	if files := stateFiles(t, root); len(files) != 0 {
		t.Errorf("left behind: %v", files)
	}
	if _, err := os.Lstat(filepath.Join(root, "pvc-1")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("directory: %v, want it gone", err)
	}
	mustCreate(t, s, "pvc-1")
}

func TestReopen(t *testing.T) {
	root := t.TempDir()
	s, _ := open(t, root)
	v := mustCreate(t, s, "pvc-1")
	identity, key := s.Identity(), string(s.HandleKey())
	if len(key) != 32 {
		t.Errorf("handle key of %d bytes", len(key))
	}
	if _, err := Open(Config{Root: root, Exports: &exports{}, Log: slog.New(slog.DiscardHandler)}); !errors.Is(err, ErrInUse) {
		t.Errorf("opened twice: %v, want ErrInUse", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	s, e := open(t, root)
	got, err := s.Get("pvc-1")
	if err != nil || got.ID != v.ID || *got.Claim != *v.Claim || !got.Created.Equal(v.Created) {
		t.Errorf("after a restart: %+v, %v, want %+v", got, err, v)
	}
	if s.Identity() != identity || string(s.HandleKey()) != key {
		t.Error("the identity or the key changed over a restart")
	}
	if got := e.names(); !slices.Equal(got, []string{"pvc-1"}) {
		t.Errorf("exported: %v", got)
	}
}

// Every state that a crash can leave on the disk, made by hand.
func TestOpenAfterCrash(t *testing.T) {
	for _, tt := range []struct {
		name    string
		prepare func(t *testing.T, root string, v Volume)
		exists  bool // the volume, with its file
		keeps   bool // its directory though it is no volume any more
	}{
		{"creating, no directory", func(t *testing.T, root string, v Volume) {
			mustWriteRecord(t, root, volumesDir+"/pvc-1.json", record{State: creating, Volume: v})
			mustDo(t, os.RemoveAll(filepath.Join(root, "pvc-1")))
		}, false, false},
		{"creating, empty directory", func(t *testing.T, root string, v Volume) {
			mustWriteRecord(t, root, volumesDir+"/pvc-1.json", record{State: creating, Volume: v})
			mustDo(t, os.Remove(filepath.Join(root, "pvc-1", "data")))
		}, false, false},
		{"ready", func(*testing.T, string, Volume) {}, true, false},
		{"ready, half of the next record", func(t *testing.T, root string, _ Volume) {
			mustDo(t, os.WriteFile(filepath.Join(root, volumesDir, "pvc-1.json.tmp"), []byte(`{"sta`), 0o600))
		}, true, false},
		{"deleted, directory not moved", func(t *testing.T, root string, v Volume) {
			mustDo(t, os.Rename(filepath.Join(root, volumesDir, "pvc-1.json"), filepath.Join(root, trashDir, v.keptName()+".json")))
		}, false, false},
		{"deleted, directory moved", func(t *testing.T, root string, v Volume) {
			mustDo(t, os.Rename(filepath.Join(root, volumesDir, "pvc-1.json"), filepath.Join(root, trashDir, v.keptName()+".json")))
			mustDo(t, os.Rename(filepath.Join(root, "pvc-1"), filepath.Join(root, trashDir, v.keptName())))
		}, false, false},
		{"deleted, files removed", func(t *testing.T, root string, v Volume) {
			mustDo(t, os.Rename(filepath.Join(root, volumesDir, "pvc-1.json"), filepath.Join(root, trashDir, v.keptName()+".json")))
			mustDo(t, os.RemoveAll(filepath.Join(root, "pvc-1")))
		}, false, false},
		{"record damaged", func(t *testing.T, root string, _ Volume) {
			mustDo(t, os.WriteFile(filepath.Join(root, volumesDir, "pvc-1.json"), []byte("not JSON"), 0o600))
		}, false, true},
		{"record points outside", func(t *testing.T, root string, v Volume) {
			v.Path = "../elsewhere"
			mustWriteRecord(t, root, volumesDir+"/pvc-1.json", record{State: ready, Volume: v})
		}, false, true},
		{"record under another name", func(t *testing.T, root string, _ Volume) {
			mustDo(t, os.Rename(filepath.Join(root, volumesDir, "pvc-1.json"), filepath.Join(root, volumesDir, "other.json")))
		}, false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			s, _ := open(t, root)
			v := mustCreate(t, s, "pvc-1")
			other := mustCreate(t, s, "other-volume")
			mustDo(t, os.WriteFile(filepath.Join(root, "pvc-1", "data"), []byte("data"), 0o600))
			mustDo(t, s.Close())
			tt.prepare(t, root, v)

			s, e := open(t, root)
			_, err := s.Get("pvc-1")
			if tt.exists != (err == nil) {
				t.Errorf("Get: %v", err)
			}
			if _, err := s.Get(other.Name); err != nil || !slices.Contains(e.names(), other.Name) {
				t.Errorf("the other volume: %v, exported %v", err, e.names())
			}
			data := filepath.Join(root, "pvc-1", "data")
			switch {
			case tt.exists:
				if _, err := os.Stat(data); err != nil || !slices.Contains(e.names(), "pvc-1") {
					t.Errorf("data: %v, exported %v", err, e.names())
				}
			case tt.keeps:
				if _, err := os.Stat(data); err != nil {
					t.Errorf("data of a volume that can't be known: %v", err)
				}
			default:
				eventually(t, "nothing left", func() bool {
					_, err := os.Lstat(filepath.Join(root, "pvc-1"))
					return errors.Is(err, os.ErrNotExist) && len(stateFiles(t, root)) == 1
				})
			}
		})
	}
}

func mustDo(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// mustWriteRecord writes a record of the disk at root, if it names no other.
func mustWriteRecord(t *testing.T, root, file string, r record) {
	t.Helper()
	if r.Disk == "" {
		identity, err := IdentityOf(root)
		mustDo(t, err)
		r.Disk = identity
	}
	dir, err := os.OpenRoot(root)
	mustDo(t, err)
	defer dir.Close()
	mustDo(t, writeJSON(dir, nil, file, r))
}

func TestMissingDirectoryIsNotServed(t *testing.T) {
	root := t.TempDir()
	s, _ := open(t, root)
	mustCreate(t, s, "gone")
	mustCreate(t, s, "link")
	mustDo(t, s.Close())
	mustDo(t, os.Remove(filepath.Join(root, "gone")))
	mustDo(t, os.Remove(filepath.Join(root, "link")))
	mustDo(t, os.Symlink("/etc", filepath.Join(root, "link")))

	s, e := open(t, root)
	if got := e.names(); len(got) != 0 {
		t.Errorf("exported: %v", got)
	}
	for _, name := range []string{"gone", "link"} {
		mustDo(t, s.Delete(t.Context(), name))
	}
	eventually(t, "trash is empty", func() bool { return len(stateFiles(t, root)) == 0 })
	if _, err := os.Stat("/etc/passwd"); err != nil {
		t.Fatal("what a symbolic link pointed to was removed")
	}
}

func TestRelease(t *testing.T) {
	root := t.TempDir()
	s, _ := open(t, root)
	mustCreate(t, s, "pvc-1")
	mustDo(t, s.Release(t.Context(), "pvc-1"))
	mustDo(t, s.Release(t.Context(), "pvc-1"))
	if err := s.Release(t.Context(), "pvc-2"); !errors.Is(err, ErrNotFound) {
		t.Errorf("release of nothing: %v", err)
	}
	mustDo(t, s.Close())
	s, e := open(t, root)
	if v, err := s.Get("pvc-1"); err != nil || v.Claim != nil || len(e.names()) != 1 {
		t.Errorf("released: %+v, %v, exported %v", v, err, e.names())
	}
}

// Many at once, of which some are the same: what the controller's workers do.
func TestConcurrent(t *testing.T) {
	root := t.TempDir()
	s, e := open(t, root)
	var group sync.WaitGroup
	for i := range 60 {
		group.Go(func() {
			name := fmt.Sprintf("pvc-%d", i%20)
			if _, err := s.Create(context.Background(), Spec{Name: name, Size: 1}); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if len(s.List()) != 20 || len(e.names()) != 20 {
		t.Errorf("%d volumes, %d exports", len(s.List()), len(e.names()))
	}
	for _, v := range s.List() {
		for range 2 {
			group.Go(func() {
				if err := s.Delete(context.Background(), v.Name); err != nil && !errors.Is(err, ErrNotFound) {
					t.Error(err)
				}
			})
		}
	}
	group.Wait()
	eventually(t, "trash is empty", func() bool { return len(stateFiles(t, root)) == 0 })
	entries, err := os.ReadDir(root)
	if err != nil || len(entries) != 1 || len(e.names()) != 0 {
		t.Errorf("left: %v, %v, exported %v", entries, err, e.names())
	}
}

func TestFree(t *testing.T) {
	s, _ := open(t, t.TempDir())
	if space, err := s.Space(); err != nil || space.Free <= 0 {
		t.Errorf("%+v, %v", space, err)
	}
}

func TestFormatSize(t *testing.T) {
	for bytes, want := range map[int64]string{
		0: "0", 1: "1", 1023: "1023", 1024: "1Ki", 1536: "1.5Ki", 100 << 20: "100Mi",
		10 << 30: "10Gi", 500 << 40: "500Ti", 85_000_000_000: "79.2Gi", math.MaxInt64: "8Ei",
	} {
		if got := FormatSize(bytes); got != want {
			t.Errorf("FormatSize(%d) = %s, want %s", bytes, got, want)
		}
	}
}

func TestFormatNames(t *testing.T) {
	names := []string{"a", "b", "c", "d", "e", "f"}
	for n, want := range []string{"", "a", "a, b", "a, b, c", "a, b, c, d", "a, b, c, d, e", "a, b, c, d, e, ..."} {
		if got := FormatNames(names[:n]); got != want {
			t.Errorf("%d names: %q, want %q", n, got, want)
		}
	}
	if names[5] != "f" {
		t.Errorf("it has changed the names: %q", names)
	}
}

// The longest name is one that a file system still takes for the record; of a longer one the text says what is wrong.
func TestLongestName(t *testing.T) {
	root := t.TempDir()
	s, _ := open(t, root)
	defer func() { mustDo(t, s.Close()) }()
	name := strings.Repeat("n", 250)
	mustCreate(t, s, name)
	if _, err := s.Create(t.Context(), Spec{Name: name + "n", Size: 1 << 20}); err == nil || !strings.Contains(err.Error(), "has 251 bytes, and the maximum is 250") {
		t.Errorf("of 251 bytes: %v", err)
	}
	mustDo(t, s.Delete(t.Context(), name))
}
