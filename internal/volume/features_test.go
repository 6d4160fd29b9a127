package volume

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"github.com/podnas/podnas/quota"
)

func TestPaths(t *testing.T) {
	root := t.TempDir()
	s, _ := open(t, root)
	for i, tt := range []struct {
		path string
		want error
	}{
		{"team/app", nil},
		{"team/other", nil},
		{"team/app", ErrExists},
		{"team/app/below", ErrExists},
		{"team", ErrExists},
		{"a/b/c/d", nil},
		{"/absolute", ErrInvalid},
		{"../out", ErrInvalid},
		{"a/../b", ErrInvalid},
		{"a//b", ErrInvalid},
		{"a/", ErrInvalid},
		{".", ErrInvalid},
		{".podnas/x", ErrInvalid},
		{"a/.hidden", ErrInvalid},
		{"nul\x00", ErrInvalid},
		{"line\nfeed", ErrInvalid},
		{"not \xff UTF-8", ErrInvalid},
		{strings.Repeat("n", 256), ErrInvalid},
		{strings.Repeat("n/", 600) + "n", ErrInvalid},
		{"über/größe", nil},
	} {
		v, err := s.Create(t.Context(), Spec{Name: fmt.Sprint("v", i), Path: tt.path, Size: 1 << 20})
		if !errors.Is(err, tt.want) || tt.want == nil && v.Path != tt.path {
			t.Errorf("%q: %+v, %v, want %v", tt.path, v, err, tt.want)
		}
	}
	// What is above a volume goes with the last that is in it.
	mustDo(t, s.Delete(t.Context(), "v0"))
	if _, err := os.Stat(filepath.Join(root, "team")); err != nil {
		t.Errorf("above another volume: %v", err)
	}
	mustDo(t, s.Delete(t.Context(), "v1"))
	if _, err := os.Stat(filepath.Join(root, "team")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("above no volume: %v", err)
	}
	// No symbolic link leads into another volume.
	mustDo(t, os.Symlink("a/b/c/d", filepath.Join(root, "link")))
	if v, err := s.Create(t.Context(), Spec{Name: "through-link", Path: "link/v", Size: 1 << 20}); !errors.Is(err, ErrExists) {
		t.Errorf("through a link: %+v, %v", v, err)
	}
	mustDo(t, s.Close())
	s, e := open(t, root)
	if names := e.names(); len(names) != 2 || len(s.List()) != 2 {
		t.Errorf("after a restart %v are exported", names)
	}
}

func TestRootDirectory(t *testing.T) {
	root := t.TempDir()
	s, _ := open(t, root)
	if os.Getuid() != 0 {
		t.Skip("needs root, to give a directory to others")
	}
	for i, tt := range []struct {
		uid, gid, mode uint32
		want           os.FileMode
	}{
		{0, 0, 0, 0o777},
		{1000, 2000, 0o2770, os.ModeSetgid | 0o770},
		{0, 5, 0o1755, os.ModeSticky | 0o755},
	} {
		v, err := s.Create(t.Context(), Spec{Name: fmt.Sprint("v", i), Size: 1 << 20, UID: tt.uid, GID: tt.gid, Mode: tt.mode})
		mustDo(t, err)
		info, err := os.Stat(filepath.Join(root, v.Path))
		mustDo(t, err)
		st := info.Sys().(*syscall.Stat_t)
		if st.Uid != tt.uid || st.Gid != tt.gid || info.Mode() != os.ModeDir|tt.want {
			t.Errorf("%+v: %d:%d %v", tt, st.Uid, st.Gid, info.Mode())
		}
	}
}

// What a spec says is in the record after a restart.
func TestSpecIsKept(t *testing.T) {
	root := t.TempDir()
	s, _ := open(t, root)
	spec := Spec{
		Name: "v", Path: "p/v", Size: 1 << 20, OnDelete: RetainFiles, Manifest: []byte(`{"a":1}`),
		Options: Options{RootSquash: true, AnonUID: 7, ReadOnly: true, Clients: []netip.Prefix{netip.MustParsePrefix("2001:db8::/64")}},
	}
	made, err := s.Create(t.Context(), spec)
	mustDo(t, err)
	mustDo(t, s.Close())
	s, _ = open(t, root)
	v, err := s.Get("v")
	mustDo(t, err)
	if !reflect.DeepEqual(v.Options, spec.Options) || v.OnDelete != spec.OnDelete || v.Path != spec.Path || !strings.Contains(string(v.Manifest), `"a"`) || v.ID != made.ID {
		t.Errorf("%+v", v)
	}
}

func TestOvercommit(t *testing.T) {
	s, err := Open(Config{Root: t.TempDir(), Exports: &exports{}, Overcommit: 0.5, Log: slog.New(slog.DiscardHandler)})
	mustDo(t, err)
	t.Cleanup(func() { _ = s.Close() })
	space, err := s.Space()
	mustDo(t, err)
	size := min(space.Free, space.Size/10)
	made := 0
	for err == nil && made < 20 {
		_, err = s.Create(t.Context(), Spec{Name: fmt.Sprint("v", made), Size: size})
		made++
	}
	var noSpace *NoSpaceError
	if !errors.As(err, &noSpace) || noSpace.Requested != size || noSpace.Capacity != space.Size || noSpace.Promised > space.Size/2 || noSpace.Promised+size <= space.Size/2 {
		t.Errorf("after %d volumes: %v", made, err)
	}
	if _, err := s.Create(t.Context(), Spec{Name: "more", Size: size, Overcommit: 10}); err != nil {
		t.Errorf("with an overcommit of its own: %v", err)
	}
	if _, err := s.Resize(t.Context(), "v0", size+1<<20, 0); !errors.As(err, &noSpace) {
		t.Errorf("a raise past what may be promised: %v", err)
	}
}

func TestResize(t *testing.T) {
	root := t.TempDir()
	k := newKernel(t)
	s, _ := k.boot(t, root)
	defer func() { mustDo(t, s.Close()) }()
	v := mustCreate(t, s, "v")
	var noSpace *NoSpaceError
	for _, tt := range []struct {
		size int64
		ok   func(error) bool
	}{
		{1 << 20, func(err error) bool { return err == nil }},
		{3 << 20, func(err error) bool { return err == nil }},
		{2 << 20, func(err error) bool { return errors.Is(err, ErrShrink) }},
		{1 << 60, func(err error) bool { return errors.As(err, &noSpace) }},
	} {
		if _, err := s.Resize(t.Context(), "v", tt.size, 0); !tt.ok(err) {
			t.Errorf("%d: %v", tt.size, err)
		}
	}
	if got, _ := s.Get("v"); got.Size != 3<<20 || k.limits[v.Project].Bytes != 3<<20 {
		t.Errorf("size %d, limit %d", got.Size, k.limits[v.Project])
	}
	if _, err := s.Resize(t.Context(), "none", 1, 0); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	// A limit that another hand has changed is found, and put right at the next
	// start.
	mustDo(t, k.SetLimit(v.Project, quota.Limit{Bytes: 5 << 20}))
	if f, err := s.Check(); err != nil || len(f) != 1 || f[0].Volume != "v" {
		t.Errorf("findings %v, %v", f, err)
	}
	mustDo(t, s.Close())
	s, _ = k.boot(t, root)
	if k.limits[v.Project].Bytes != 3<<20 {
		t.Errorf("the limit is %d after a restart", k.limits[v.Project])
	}
}

func TestAdoptRefuses(t *testing.T) {
	root := t.TempDir()
	s, _ := open(t, root)
	mustCreate(t, s, "v")
	mustDo(t, os.WriteFile(filepath.Join(root, "file"), nil, 0o600))
	mustDo(t, os.Symlink("v", filepath.Join(root, "link")))
	mustDo(t, os.Mkdir(filepath.Join(root, "dir"), 0o755))
	for _, tt := range []struct {
		spec Spec
		want error
	}{
		{Spec{Name: "v", Size: 1}, ErrExists},
		{Spec{Name: "file", Size: 1}, ErrExists},
		{Spec{Name: "link", Size: 1}, ErrExists},
		{Spec{Name: "missing", Size: 1}, os.ErrNotExist},
		{Spec{Name: "other", Path: "v", Size: 1}, ErrExists},
		{Spec{Name: "dir"}, ErrInvalid}, // no size
	} {
		if v, err := s.Adopt(t.Context(), tt.spec); !errors.Is(err, tt.want) {
			t.Errorf("%+v: %+v, %v, want %v", tt.spec, v, err, tt.want)
		}
	}
	if f, err := s.Check(); err != nil || len(f) != 1 || f[0].Path != "dir" {
		t.Errorf("findings: %v, %v", f, err)
	}
	if _, err := s.Adopt(t.Context(), Spec{Name: "d", Path: "dir", Size: 1 << 20}); err != nil {
		t.Error(err)
	}
	if f, err := s.Check(); err != nil || len(f) != 0 {
		t.Errorf("findings: %v, %v", f, err)
	}
}

// A directory has taken its space already: it may be adopted with a size that is not
// free any more, but not with one that the disk can't have.
func TestAdoptOnAFullDisk(t *testing.T) {
	root := t.TempDir()
	s, _ := open(t, root)
	defer func() { mustDo(t, s.Close()) }()
	mustDo(t, os.Mkdir(filepath.Join(root, "dir"), 0o755))
	space, err := s.Space()
	mustDo(t, err)
	free, capacity := space.Free, space.Size
	if capacity-free < 2<<20 {
		t.Skipf("all of the disk is free: %d of %d bytes", free, capacity)
	}
	if _, err := s.Adopt(t.Context(), Spec{Name: "dir", Size: capacity + 1}); !errors.Is(err, ErrInvalid) {
		t.Errorf("larger than the disk: %v", err)
	}
	if _, err := s.Adopt(t.Context(), Spec{Name: "dir", Size: capacity}); err != nil {
		t.Errorf("as large as the disk: %v", err)
	}
}

// What is kept takes its name and path until it is adopted or moved away.
func TestKeptVolumes(t *testing.T) {
	root := t.TempDir()
	s, _ := open(t, root)
	for name, on := range map[string]OnDelete{"retained": RetainFiles, "archived": ArchiveFiles} {
		_, err := s.Create(t.Context(), Spec{Name: name, Size: 1 << 20, OnDelete: on})
		mustDo(t, err)
		writeInto(t, root, name)
		mustDo(t, s.Delete(t.Context(), name))
		if err := s.Delete(t.Context(), name); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s, deleted again: %v", name, err)
		}
	}
	mustDo(t, s.Close())
	s, e := open(t, root)
	if k, err := s.Kept(); err != nil || len(k) != 2 || len(e.names()) != 0 {
		t.Fatalf("%+v, %v, exported %v", k, err, e.names())
	}
	if _, err := s.Create(t.Context(), Spec{Name: "retained", Size: 1 << 20}); !errors.Is(err, ErrExists) {
		t.Errorf("the name of what is retained: %v", err)
	}
	mustCreate(t, s, "archived")
	if _, err := s.Adopt(t.Context(), Spec{Name: "archived"}); !errors.Is(err, ErrExists) {
		t.Errorf("adopted over a volume: %v", err)
	}
	mustDo(t, s.Delete(t.Context(), "archived"))
	for _, name := range []string{"archived", "retained"} {
		if v, err := s.Adopt(t.Context(), Spec{Name: name, Size: 2 << 20, Claim: &Claim{Name: "new"}}); err != nil || v.Size != 2<<20 || v.Claim.Name != "new" {
			t.Errorf("%s: %+v, %v", name, v, err)
		}
		isKept(t, filepath.Join(root, name))
	}
}

// The path of a volume that was deleted may be another's when its files go at
// last, however often podnas starts meanwhile.
func TestPathIsUsedAgain(t *testing.T) {
	for _, left := range []string{"directory in the trash", "directory gone", "empty directory in the trash"} {
		t.Run(left, func(t *testing.T) {
			root := t.TempDir()
			s, _ := open(t, root)
			old, err := s.Create(t.Context(), Spec{Name: "old", Path: "ns/data", Size: 1 << 20})
			mustDo(t, err)
			mustDo(t, s.Delete(t.Context(), "old"))
			eventually(t, "its files are gone", func() bool { return len(stateFiles(t, root)) == 0 })
			_, err = s.Create(t.Context(), Spec{Name: "new", Path: "ns/data", Size: 1 << 20})
			mustDo(t, err)
			writeInto(t, root, "ns/data")
			mustDo(t, s.Close())

			// As a kill would have left it.
			mustWriteRecord(t, root, old.keptIn(trashDir)+".json", record{State: ready, Volume: old})
			if left != "directory gone" {
				mustDo(t, os.Mkdir(filepath.Join(root, old.keptIn(trashDir)), 0o700))
			}
			if left == "directory in the trash" {
				mustDo(t, os.WriteFile(filepath.Join(root, old.keptIn(trashDir), "file"), nil, 0o600))
			}
			s, e := open(t, root)
			eventually(t, "the trash is empty", func() bool { return len(stateFiles(t, root)) == 1 })
			isKept(t, filepath.Join(root, "ns/data"))
			if names := e.names(); len(names) != 1 {
				t.Errorf("exported: %v", names)
			}
			mustDo(t, s.Close())
		})
	}
}

// Records of the version that had no more than these fields.
func TestOldRecords(t *testing.T) {
	root := t.TempDir()
	s, _ := open(t, root)
	mustDo(t, s.Close())
	mustDo(t, os.Mkdir(filepath.Join(root, "pvc-old"), 0o777))
	mustDo(t, os.WriteFile(filepath.Join(root, volumesDir, "pvc-old.json"), []byte(`{
  "state": "ready", "id": "77", "name": "pvc-old", "path": "pvc-old", "size": 1048576,
  "claim": {"namespace": "ns", "name": "c", "uid": "u"}, "created": "2026-11-20T10:00:00Z"
}`), 0o600))
	s, e := open(t, root)
	if v, err := s.Get("pvc-old"); err != nil || v.ID != 77 || len(e.names()) != 1 {
		t.Errorf("%+v, %v, exported %v", v, err, e.names())
	}
}

// A damaged record's volume is never written over.
func TestDamagedRecordIsKept(t *testing.T) {
	root := t.TempDir()
	s, _ := open(t, root)
	_, err := s.Create(t.Context(), Spec{Name: "v", Path: "a/v", Size: 1 << 20})
	mustDo(t, err)
	mustDo(t, s.Close())
	file := filepath.Join(root, volumesDir, "v.json")
	mustDo(t, os.WriteFile(file, []byte("{"), 0o600))
	s, _ = open(t, root)
	if v, err := s.Create(t.Context(), Spec{Name: "v", Path: "b/v", Size: 1 << 20}); !errors.Is(err, ErrExists) {
		t.Errorf("%+v, %v", v, err)
	}
	if data, err := os.ReadFile(file); err != nil || string(data) != "{" {
		t.Errorf("the record: %q, %v", data, err)
	}
	if f, err := s.Check(); err != nil || len(f) != 2 { // the record, and the directory that it would name
		t.Errorf("findings: %v, %v", f, err)
	}
}

// A volume keeps the form of its handles, whatever the next process would choose. What has none gets that of earlier ones.
func TestHandlesOfVolumes(t *testing.T) {
	root := t.TempDir()
	process := func(fresh, earlier string) *Store {
		t.Helper()
		s, err := Open(Config{Root: root, Exports: &exports{}, Log: slog.New(slog.DiscardHandler), Handles: fresh, EarlierHandles: earlier})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	wants := func(s *Store, name, form string) {
		t.Helper()
		v, err := s.Get(name)
		if err != nil || v.Handles != form {
			t.Errorf("%s has handles of the form %q, %v, want %q", name, v.Handles, err, form)
		}
	}
	s := process("", "")
	mustCreate(t, s, "old")
	if _, err := s.Create(t.Context(), Spec{Name: "away", Size: 1 << 20, OnDelete: RetainFiles}); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(t.Context(), "away"); err != nil {
		t.Fatal(err)
	}
	wants(s, "old", "")
	for n, forms := range [][2]string{{"inode", "kernel"}, {"kernel", "inode"}, {"", ""}} {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = process(forms[0], forms[1])
		if n == 0 {
			mustCreate(t, s, "new")
			if _, err := s.Adopt(t.Context(), Spec{Name: "away"}); err != nil {
				t.Fatal(err)
			}
		}
		wants(s, "old", "kernel")
		wants(s, "away", "kernel")
		wants(s, "new", "inode")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
