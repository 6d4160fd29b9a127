package volume

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// mustKeep makes a volume with a text in it, and deletes it.
func mustKeep(t *testing.T, s *Store, root, name, text string, on OnDelete) {
	t.Helper()
	v, err := s.Create(t.Context(), Spec{Name: name, Size: 1 << 20, OnDelete: on})
	mustDo(t, err)
	mustDo(t, os.WriteFile(filepath.Join(root, v.Path, "data"), []byte(text), 0o600))
	mustDo(t, s.Delete(t.Context(), name))
	time.Sleep(2 * time.Millisecond) // the next one is deleted later
}

func hasText(t *testing.T, dir, want string) {
	t.Helper()
	if data, err := os.ReadFile(filepath.Join(dir, "data")); err != nil || string(data) != want {
		t.Errorf("data in %s: %q, %v, want %q", dir, data, err, want)
	}
}

// Of several volumes of a name that are kept, the one that was deleted last is restored or removed, as it is the one that is shown,
// also after a restart.
func TestLatestOfAName(t *testing.T) {
	root := t.TempDir()
	s, _ := open(t, root)
	names := []string{"a", "b", "c", "d", "e", "f"}
	for _, name := range names {
		for _, text := range []string{"first", "second", "third"} {
			mustKeep(t, s, root, name, text, ArchiveFiles)
		}
	}
	mustDo(t, s.Close())
	s, _ = open(t, root)
	for _, name := range names {
		mustDo(t, s.Discard(t.Context(), name))
		_, err := s.Adopt(t.Context(), Spec{Name: name})
		mustDo(t, err)
		hasText(t, filepath.Join(root, name), "second")
	}
}

func TestLatestIsRetained(t *testing.T) {
	root := t.TempDir()
	s, _ := open(t, root)
	mustKeep(t, s, root, "v", "first", ArchiveFiles)
	mustKeep(t, s, root, "v", "second", RetainFiles)
	mustDo(t, s.Discard(t.Context(), "v"))
	_, err := s.Adopt(t.Context(), Spec{Name: "v"})
	mustDo(t, err)
	hasText(t, filepath.Join(root, "v"), "first")
}

// isStillKept checks that there is one kept volume, and no other.
func isStillKept(t *testing.T, s *Store, state string) {
	t.Helper()
	if k, err := s.Kept(); err != nil || len(k) != 1 || k[0].State != state || k[0].Since.IsZero() || len(s.List()) != 0 {
		t.Errorf("kept: %+v, %v, and there are %v", k, err, s.List())
	}
}

// A directory that is in the place of an archived volume stays, and when it is moved away, the volume is adopted.
func TestAdoptWhereADirectoryIs(t *testing.T) {
	root := t.TempDir()
	s, _ := open(t, root)
	mustKeep(t, s, root, "v", "archived", ArchiveFiles)
	mustDo(t, os.Mkdir(filepath.Join(root, "v"), 0o755))
	mustDo(t, os.WriteFile(filepath.Join(root, "v", "data"), []byte("a stranger's"), 0o600))
	for range 2 {
		if _, err := s.Adopt(t.Context(), Spec{Name: "v"}); !errors.Is(err, ErrExists) {
			t.Errorf("over a directory: %v", err)
		}
		isStillKept(t, s, Archived)
		hasText(t, filepath.Join(root, "v"), "a stranger's")
	}
	k, err := s.Kept()
	mustDo(t, err)
	archive := filepath.Join(root, k[0].keptIn(archiveDir))
	mustDo(t, os.Rename(archive, archive+"-away"))
	if _, err := s.Adopt(t.Context(), Spec{Name: "v"}); !errors.Is(err, ErrExists) {
		t.Errorf("over a directory, when its own is missing: %v", err)
	}
	hasText(t, filepath.Join(root, "v"), "a stranger's")
	mustDo(t, os.Rename(filepath.Join(root, "v"), filepath.Join(root, "away")))
	if _, err := s.Adopt(t.Context(), Spec{Name: "v"}); !errors.Is(err, errMissing) {
		t.Errorf("when its own is missing: %v", err)
	}
	isStillKept(t, s, Archived)
	mustDo(t, os.Rename(archive+"-away", archive))
	_, err = s.Adopt(t.Context(), Spec{Name: "v"})
	mustDo(t, err)
	hasText(t, filepath.Join(root, "v"), "archived")
}

// A kept volume that can't be served stays what it is, also after a restart, and is adopted later.
func TestAdoptFails(t *testing.T) {
	for on, state := range map[OnDelete]string{ArchiveFiles: Archived, RetainFiles: Retained} {
		t.Run(state, func(t *testing.T) {
			root := t.TempDir()
			s, e := open(t, root)
			mustKeep(t, s, root, "v", "kept", on)
			for range 2 {
				e.fail = errors.New("no export today")
				if v, err := s.Adopt(t.Context(), Spec{Name: "v"}); err == nil {
					t.Errorf("adopted: %+v", v)
				}
				isStillKept(t, s, state)
			}
			mustDo(t, s.Close())
			s, e = open(t, root)
			isStillKept(t, s, state)
			if names := e.names(); len(names) != 0 {
				t.Errorf("exported: %v", names)
			}
			_, err := s.Adopt(t.Context(), Spec{Name: "v"})
			mustDo(t, err)
			hasText(t, filepath.Join(root, "v"), "kept")
		})
	}
}

// An archived volume that can't be moved back to the archive either, for the moment, is adopted when that works again.
func TestAdoptFailsOnABrokenDisk(t *testing.T) {
	root := t.TempDir()
	s, e := open(t, root)
	mustKeep(t, s, root, "v", "archived", ArchiveFiles)
	records := filepath.Join(root, volumesDir)
	e.fail = errors.New("no export today")
	s.step = func(done string) {
		if done == "record is ready" {
			mustDo(t, os.Rename(records, records+"-away"))
		}
	}
	if v, err := s.Adopt(t.Context(), Spec{Name: "v"}); err == nil {
		t.Errorf("adopted: %+v", v)
	}
	s.step = func(string) {}
	mustDo(t, os.Rename(records+"-away", records))
	_, err := s.Adopt(t.Context(), Spec{Name: "v"})
	mustDo(t, err)
	hasText(t, filepath.Join(root, "v"), "archived")
}

// Who adopts a kept volume can refuse it by what it is, before anything has changed, and change its manifest.
func TestRestoreOfAKeptVolume(t *testing.T) {
	for on, state := range map[OnDelete]string{ArchiveFiles: Archived, RetainFiles: Retained} {
		t.Run(state, func(t *testing.T) {
			root := t.TempDir()
			s, _ := open(t, root)
			mustKeep(t, s, root, "v", "kept", on)
			no := errors.New("not this one")
			refuse := func(v Volume) (json.RawMessage, error) {
				if v.Name != "v" || v.OnDelete != on {
					t.Errorf("asked about %+v", v)
				}
				return nil, no
			}
			if _, err := s.Adopt(t.Context(), Spec{Name: "v", Restore: refuse}); !errors.Is(err, no) {
				t.Errorf("refused: %v", err)
			}
			isStillKept(t, s, state)
			change := func(Volume) (json.RawMessage, error) { return json.RawMessage(`{"a":1}`), nil }
			v, err := s.Adopt(t.Context(), Spec{Name: "v", Manifest: json.RawMessage(`{"b":2}`), Restore: change})
			if err != nil || string(v.Manifest) != `{"a":1}` {
				t.Errorf("changed: %+v, %v", v, err)
			}
		})
	}
}
