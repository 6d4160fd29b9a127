package volume

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What clients can leave in a volume, and more.
func TestDeleteAnything(t *testing.T) {
	outside := t.TempDir()
	kept := filepath.Join(outside, "kept")
	mustDo(t, os.WriteFile(kept, []byte("kept"), 0o600))

	root := t.TempDir()
	s, e := open(t, root)
	v := mustCreate(t, s, "pvc-1")
	dir := filepath.Join(root, "pvc-1")

	// Deeper than PATH_MAX, so made from descriptor to descriptor.
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	mustDo(t, err)
	for range 300 {
		name := strings.Repeat("d", 200)
		mustDo(t, unix.Mkdirat(fd, name, 0o755))
		next, err := unix.Openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		mustDo(t, errors.Join(err, unix.Close(fd)))
		fd = next
	}
	mustDo(t, unix.Close(fd))
	for i := range 1000 {
		mustDo(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("file-%d", i)), nil, 0o600))
	}
	mustDo(t, os.WriteFile(filepath.Join(dir, "not UTF-8 \xff\xfe"), nil, 0o600))
	mustDo(t, os.WriteFile(filepath.Join(dir, strings.Repeat("n", 255)), nil, 0o600))
	mustDo(t, os.Symlink(outside, filepath.Join(dir, "link-to-directory")))
	mustDo(t, os.Symlink(kept, filepath.Join(dir, "link-to-file")))
	mustDo(t, unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600))
	// The names that the emptier itself uses.
	mustDo(t, os.MkdirAll(filepath.Join(dir, "podnas-1", "podnas-1", "podnas-2"), 0o755))
	mustDo(t, os.MkdirAll(filepath.Join(dir, "locked", "below", "further"), 0o755))
	mustDo(t, os.Chmod(filepath.Join(dir, "locked", "below"), 0))
	mustDo(t, os.Chmod(filepath.Join(dir, "locked"), 0))
	mustDo(t, os.Chmod(dir, 0))
	open, err := os.Open(root)
	mustDo(t, err)
	defer open.Close()

	mustDo(t, s.Delete(t.Context(), "pvc-1"))
	if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) || len(e.names()) != 0 {
		t.Errorf("when Delete returned: directory %v, exports %v", err, e.names())
	}
	if err := s.Delete(t.Context(), "pvc-1"); !errors.Is(err, ErrNotFound) {
		t.Errorf("deleted again: %v, want ErrNotFound", err)
	}
	// The name is free at once, whatever is still in the trash.
	if again := mustCreate(t, s, "pvc-1"); again.ID == v.ID {
		t.Error("a number was given twice")
	}
	eventually(t, "trash is empty", func() bool { return len(stateFiles(t, root)) == 1 })
	if data, err := os.ReadFile(kept); string(data) != "kept" {
		t.Errorf("outside of the volume: %q, %v", data, err)
	}
}

// Emptying stops with the Store and goes on with the next.
func TestTrashGoesOnAfterRestart(t *testing.T) {
	root := t.TempDir()
	s, _ := open(t, root)
	mustCreate(t, s, "pvc-1")
	for i := range 3000 { // at 100 per 20 ms more than the Store has time for
		mustDo(t, os.WriteFile(filepath.Join(root, "pvc-1", fmt.Sprint(i)), nil, 0o600))
	}
	mustDo(t, s.Delete(t.Context(), "pvc-1"))
	mustDo(t, s.Close())
	left := stateFiles(t, root)
	if len(left) != 2 {
		t.Fatalf("after Close: %v, want the record and the files in the trash", left)
	}
	open(t, root)
	eventually(t, "trash is empty", func() bool { return len(stateFiles(t, root)) == 0 })
}

// A volume whose directory is from after its deletion, as the clock was set back in between, is removed. A directory that
// somebody else has made in its place is not.
func TestTrashAfterClockWasSetBack(t *testing.T) {
	for _, tt := range []struct {
		name    string
		created time.Duration // as the record has it, from now on
		deleted time.Duration
		removed bool
	}{
		{"set back between creation and deletion", 0, -time.Hour, true},
		{"made anew after the deletion", -2 * time.Hour, -time.Hour, false},
		{"made anew an hour before the clock was set back", -2 * time.Hour, -3 * time.Hour, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			s, _ := open(t, root)
			mustCreate(t, s, "v")
			writeInto(t, root, "v")
			s.mu.Lock()
			gone := *s.records["v"]
			s.mu.Unlock()
			s.exports.Unexport(gone.Volume)
			now := time.Now().UTC().Truncate(time.Second)
			gone.Created, gone.Deleted = now.Add(tt.created), now.Add(tt.deleted)
			mustDo(t, s.trash(&gone))
			eventually(t, "the trash is empty", func() bool {
				trash, err := s.Trash()
				return err == nil && trash.Volumes == 0
			})
			if _, err := os.Stat(filepath.Join(root, "v")); (err != nil) != tt.removed {
				t.Errorf("the directory: %v", err)
			}
		})
	}
}

// The path of a deleted volume whose directory can't be moved to the trash is no other volume's until it can.
func TestTrashInPlace(t *testing.T) {
	root := t.TempDir()
	s, _ := open(t, root)
	again := Spec{Name: "again", Path: "d/v", Size: 1 << 20}
	makeVolume(Spec{Name: "v", Path: "d/v", Size: 1 << 20})(t, s, root)
	d, aside := filepath.Join(root, "d"), filepath.Join(root, "aside")
	mustDo(t, os.Rename(d, aside))
	mustDo(t, os.WriteFile(d, nil, 0o600))
	mustDo(t, s.Delete(t.Context(), "v"))
	if _, err := s.Create(t.Context(), again); !errors.Is(err, ErrExists) || !strings.Contains(err.Error(), "volume v has d/v") {
		t.Errorf("while it is in its place: %v", err)
	}
	eventually(t, "its removal has failed", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return !s.trashed[0].retry.IsZero()
	})
	mustDo(t, errors.Join(os.Remove(d), os.Rename(aside, d)))
	s.mu.Lock()
	s.trashed[0].retry = time.Time{}
	s.mu.Unlock()
	s.volumesEmptier.wakeUp()
	eventually(t, "trash is empty", func() bool { return len(stateFiles(t, root)) == 0 })
	_, err := s.Create(t.Context(), again)
	mustDo(t, err)
}

// The files of a deleted snapshot, whose room clients wait for, are removed beside those of a deleted volume, which may take hours.
func TestTrashOfSnapshotsBesideVolumes(t *testing.T) {
	root := t.TempDir()
	s, _ := openWith(t, root)
	makeVolume(Spec{Name: "v", Size: 1 << 20})(t, s, root)
	mustCreate(t, s, "deleted")
	mustSnapshot(t, s, "v", "a")
	reached, letGo := heldAt(s, "limit is lifted")
	defer letGo()
	mustDo(t, s.Delete(t.Context(), "deleted"))
	<-reached
	mustDo(t, s.DeleteSnapshot(t.Context(), "v", "a"))
	eventually(t, "the snapshot's files are removed", func() bool { return !s.emptiesTrees() })
	left, err := os.ReadDir(filepath.Join(root, trashDir))
	for _, e := range left {
		if strings.HasPrefix(e.Name(), treePrefix) {
			t.Errorf("left: %s", e.Name())
		}
	}
	if trash, _ := s.Trash(); err != nil || trash.Volumes != 1 {
		t.Errorf("volumes in the trash: %+v, %v", trash, err)
	}
}
