package volume

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// A deletion whose sync fails is not acknowledged, by no call: after a crash the disk may have all as it was. When the disk works again,
// the next call finishes it.
func TestUnsyncedDeletion(t *testing.T) {
	const inTrash, inArchive, removed = "record is in the trash", "record is in the archive", "record is removed"
	for _, tt := range []struct{ scene, step, dir string }{
		{"delete", inTrash, volumesDir},
		{"delete", inTrash, trashDir},
		{"archive", inArchive, volumesDir},
		{"archive one whose files would be removed", inArchive, archiveDir},
		{"discard what was archived", inTrash, archiveDir},
		{"discard what was retained", inTrash, volumesDir},
		{"delete the view of a snapshot, and that", removed, volumesDir},
		{"delete a snapshot", "snapshot's record is removed", ""},
	} {
		t.Run(tt.scene+", "+filepath.Base(tt.dir), func(t *testing.T) {
			all := slices.Concat(scenes(), viewScenes())
			sc := all[slices.IndexFunc(all, func(sc scene) bool { return sc.name == tt.scene })]
			root, k := t.TempDir(), newKernel(t)
			s, _ := k.boot(t, root)
			makeVolume(Spec{Name: "bystander", Size: 1 << 20})(t, s, root)
			sc.prepare(t, s, root)
			dir := filepath.Join(root, tt.dir)
			if tt.dir == "" {
				a, err := s.GetSnapshot("v", "a")
				mustDo(t, err)
				dir = filepath.Dir(filepath.Join(root, (&snapshotRecord{Snapshot: a}).file()))
			}
			fails := false
			s.step = func(name string) {
				if name != tt.step || fails {
					return
				}
				fails = true
				mustDo(t, os.Rename(dir, dir+".away"))
				mustDo(t, os.WriteFile(dir, nil, 0o600)) // what can't be opened as a directory can't be synced
			}
			for _, call := range []string{"the first", "the second"} {
				if err := sc.do(t.Context(), s); err == nil || !fails {
					t.Errorf("%s call is acknowledged, or did not come to %q", call, tt.step)
				}
			}
			mustDo(t, os.Remove(dir))
			mustDo(t, os.Rename(dir+".away", dir))
			mustDo(t, sc.do(context.Background(), s))
			mustDo(t, s.Close())
			s, e := k.boot(t, root)
			defer func() { mustDo(t, s.Close()) }()
			inOrder(t, k, s, root)
			sc.after(t, s, e, root)
		})
	}
}

// Nothing but its deletion changes a volume whose deletion could not be synced: a record written now would contradict
// that in the trash.
func TestHalfDeleted(t *testing.T) {
	root := t.TempDir()
	s, e := open(t, root)
	mustCreate(t, s, "v")
	trash := filepath.Join(root, trashDir)
	s.step = func(name string) {
		if name == "record is in the trash" {
			mustDo(t, os.Rename(trash, trash+".away"))
		}
	}
	if err := s.Delete(t.Context(), "v"); err == nil {
		t.Error("deleted without a sync")
	}
	s.step = func(string) {}
	mustDo(t, os.Rename(trash+".away", trash))
	unserved := s.Unserved()
	if len(unserved) != 1 || unserved[0].State != NotServed || len(e.names()) != 0 {
		t.Errorf("not served: %+v, exported: %v", unserved, e.names())
	}
	for what, change := range map[string]func() error{
		"resized": func() error { _, err := s.Resize(t.Context(), "v", 2<<20, 0); return err },
		"claimed": func() error { return s.Release(t.Context(), "v") },
		"created": func() error { _, err := s.Create(t.Context(), Spec{Name: "v", Size: 1 << 20}); return err },
		"adopted": func() error { _, err := s.Adopt(t.Context(), Spec{Name: "v", Size: 1 << 20}); return err },
		"copied": func() error {
			_, err := s.Create(t.Context(), Spec{Name: "w", Size: 1 << 20, Source: "v"})
			return err
		},
	} {
		if err := change(); !errors.Is(err, ErrBusy) {
			t.Errorf("%s: %v, want ErrBusy", what, err)
		}
	}
	mustDo(t, s.Close())
	s, _ = open(t, root)
	if v := s.List(); len(v) != 0 || len(s.Unserved()) != 0 {
		t.Errorf("after a restart: %+v, %+v", v, s.Unserved())
	}
}
