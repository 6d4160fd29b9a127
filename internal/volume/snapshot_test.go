package volume

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/podnas/podnas/test/testdisk"
)

// openWith opens a Store that takes snapshots, and is closed, at the latest, at the end of the test.
func openWith(t *testing.T, root string) (*Store, *copier) {
	t.Helper()
	c := &copier{root: root}
	s, err := Open(Config{Root: root, Exports: &exports{}, Snapshots: c, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // most tests have closed it
	return s, c
}

func mustSnapshot(t *testing.T, s *Store, volume, name string) Snapshot {
	t.Helper()
	taken, err := s.CreateSnapshot(t.Context(), volume, name)
	if err != nil {
		t.Fatal(err)
	}
	return taken
}

// snapshotNames returns VOLUME/NAME of all snapshots.
func snapshotNames(t *testing.T, s *Store, volume string) []string {
	t.Helper()
	list, err := s.Snapshots(volume)
	mustDo(t, err)
	var names []string
	for _, found := range list {
		names = append(names, found.Volume+"/"+found.Name)
	}
	return names
}

// belowSnapshots lists what is in the folder of snapshots, two levels deep.
func belowSnapshots(t *testing.T, root string) []string {
	t.Helper()
	var found []string
	for _, pattern := range []string{"*/*", "*/ready/*"} {
		matches, err := filepath.Glob(filepath.Join(root, snapshotsDir, pattern))
		mustDo(t, err)
		for _, m := range matches {
			found = append(found, filepath.Base(m))
		}
	}
	return found
}

// foundLast checks that the latest snapshot was told of the one before.
func (c *copier) foundLast(t *testing.T, want Snapshot, root string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last == nil || c.last.Tree != filepath.Join(root, want.tree()) || !c.last.Cut.Equal(want.Created) {
		t.Errorf("the earlier snapshot is %+v, want %+v", c.last, want)
		return
	}
	if b, err := os.ReadFile(c.last.Catalogue); err != nil || string(b) != want.Volume {
		t.Errorf("its catalogue: %q, %v", b, err)
	}
}

func TestSnapshots(t *testing.T) {
	testdisk.Each(t, func(t *testing.T, root string) {
		s, c := openWith(t, root)
		v := mustCreate(t, s, "v")
		writeInto(t, root, "v")
		if list, err := s.Snapshots("v"); err != nil || len(list) != 0 || list == nil {
			t.Errorf("before the first: %v, %v", list, err)
		}
		began := time.Now()
		first := mustSnapshot(t, s, "v", "first")
		if first.Volume != "v" || first.VolumeID != v.ID || first.Files != 1 || first.Bytes == 0 || first.Size != v.Size || first.VolumeDeleted ||
			first.Created.Before(began.Add(-time.Second)) || first.Completed.Before(first.Created.Truncate(time.Millisecond)) {
			t.Errorf("taken: %+v", first)
		}
		ready := filepath.Join(root, snapshotsOf(v.ID), snapshotReady)
		if c.shown["v"] != ready {
			t.Errorf("clients are shown %v", c.shown)
		}
		if info, err := os.Stat(ready); err != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("what clients are shown: %v, %v", info, err)
		}
		mustDo(t, os.WriteFile(filepath.Join(root, "v", "data"), []byte("changed"), 0o600))
		isKept(t, filepath.Join(ready, "first"))
		byDate := mustSnapshot(t, s, "v", "")
		c.foundLast(t, first, root)
		if _, err := time.Parse("2006-01-02-150405", byDate.Name); err != nil {
			t.Errorf("without a name: %v", err)
		}
		if got, err := s.GetSnapshot("v", "first"); err != nil || got.Created != first.Created {
			t.Errorf("%+v, %v", got, err)
		}
		if f, err := s.Check(); err != nil || len(f) != 0 {
			t.Errorf("findings: %v, %v", f, err)
		}
		mustDo(t, s.Close())

		s, c = openWith(t, root)
		if names := snapshotNames(t, s, "v"); !slices.Equal(names, []string{"v/first", "v/" + byDate.Name}) {
			t.Errorf("after a restart: %v", names)
		}
		if got, err := s.GetSnapshot("v", "first"); err != nil || !got.Created.Equal(first.Created) || got.Bytes != first.Bytes {
			t.Errorf("after a restart: %+v, %v", got, err)
		}
		if c.shown["v"] == "" {
			t.Error("clients are not shown them after a restart")
		}
		third := mustSnapshot(t, s, "v", "third")
		c.foundLast(t, byDate, root)
		mustDo(t, s.DeleteSnapshot(t.Context(), "v", third.Name))
		if _, err := os.Lstat(filepath.Join(root, third.Catalogue())); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the catalogue of a deleted snapshot: %v", err)
		}
		isKept(t, filepath.Join(root, first.tree()))
		mustDo(t, s.DeleteSnapshot(t.Context(), "v", "first"))
		if err := s.DeleteSnapshot(t.Context(), "v", "first"); !errors.Is(err, ErrNoSnapshot) {
			t.Errorf("deleted again: %v", err)
		}
		if names := snapshotNames(t, s, ""); !slices.Equal(names, []string{"v/" + byDate.Name}) {
			t.Errorf("after a deletion: %v", names)
		}
		eventually(t, "its files are gone", func() bool { return len(stateFiles(t, root)) == 1 })
		mustDo(t, s.Close())
	})
}

// Clients are told of a snapshot before it is in its place, and that one is gone when it is, and no other.
func TestShownSnapshots(t *testing.T) {
	root := t.TempDir()
	s, c := openWith(t, root)
	v := mustCreate(t, s, "v")
	var told []string
	c.showing = func(names string) {
		there, err := filepath.Glob(filepath.Join(root, snapshotsOf(v.ID), snapshotReady, "*"))
		mustDo(t, err)
		for i := range there {
			there[i] = filepath.Base(there[i])
		}
		told = append(told, fmt.Sprintf("%s (%s)", names, strings.Join(there, " ")))
	}
	want := func(what string, lines ...string) {
		t.Helper()
		if !slices.Equal(told, lines) {
			t.Errorf("%s: clients were told of %q, want %q", what, told, lines)
		}
		told = nil
	}
	mustSnapshot(t, s, "v", "a")
	want("the first", "a ()", "a (a)")
	mustSnapshot(t, s, "v", "b")
	want("the second", "a b (a)", "a b (a b)")
	c.middle = func(context.Context) error { return errMissing }
	if _, err := s.CreateSnapshot(t.Context(), "v", "c"); !errors.Is(err, errMissing) {
		t.Error(err)
	}
	want("one that fails")
	c.middle = nil
	mustDo(t, os.Mkdir(filepath.Join(root, snapshotsOf(v.ID), "c.catalogue"), 0o700)) // in the way of the last steps
	if _, err := s.CreateSnapshot(t.Context(), "v", "c"); err == nil {
		t.Error("a snapshot without its catalogue")
	}
	want("one that fails at last", "a b c (a b)", "a b (a b)")
	mustDo(t, s.DeleteSnapshot(t.Context(), "v", "a"))
	want("a deletion", "b (b)")
	mustDo(t, s.Close())

	s, c = openWith(t, root)
	if c.names != "b" {
		t.Errorf("after a restart, clients are told of %q", c.names)
	}
	mustDo(t, s.Delete(t.Context(), "v"))
	c.names = "not told"
	mustDo(t, s.DeleteSnapshot(t.Context(), "v", "b"))
	if c.names != "not told" {
		t.Errorf("clients of a deleted volume are told of %q", c.names)
	}
}

// A volume that was deleted and kept is, when it is adopted, no volume that is being deleted.
func TestSnapshotOfAdopted(t *testing.T) {
	s, _ := openWith(t, t.TempDir())
	for _, fate := range []OnDelete{RetainFiles, ArchiveFiles} {
		name := string(fate)
		_, err := s.Create(t.Context(), Spec{Name: name, Size: 1 << 20, OnDelete: fate})
		mustDo(t, err)
		mustDo(t, s.Delete(t.Context(), name))
		_, err = s.Adopt(t.Context(), Spec{Name: name})
		mustDo(t, err)
		mustSnapshot(t, s, name, "a")
	}
}

func TestSnapshotsAreRefused(t *testing.T) {
	root := t.TempDir()
	s, c := openWith(t, root)
	mustCreate(t, s, "v")
	_, err := s.Create(t.Context(), Spec{Name: "kept", Size: 1 << 20, OnDelete: RetainFiles})
	mustDo(t, err)
	mustDo(t, s.Delete(t.Context(), "kept"))
	mustSnapshot(t, s, "v", "there")
	s.mu.Lock()
	s.records["unserved"] = &record{State: ready, Volume: Volume{Name: "unserved", ID: 1}, unserved: errMissing}
	s.records["copied"] = &record{State: copyingState, Volume: Volume{Name: "copied", ID: 2, Source: "v"}}
	s.records["going"] = &record{State: ready, Volume: Volume{Name: "going", ID: 3}, deleting: true}
	s.records["marked"] = &record{State: ready, Volume: Volume{Name: "marked", ID: 4}}
	s.markings["marked"] = &marking{}
	s.mu.Unlock()
	for _, tt := range []struct {
		volume, name string
		want         error
		text         string
	}{
		{"v", "there", ErrExists, "snapshot there of volume v"},
		{"none", "a", ErrNotFound, "none"},
		{"kept", "a", ErrNotFound, "adopt kept"},
		{"unserved", "a", ErrBusy, "directory is missing"},
		{"copied", "a", ErrBusy, "copied from volume v"},
		{"going", "a", ErrBusy, "being deleted"},
		{"marked", "a", ErrBusy, "project"},
		{"v", "..", ErrSnapshotName, `".."`},
		{"v", ".", ErrSnapshotName, ""},
		{"v", "a/b", ErrSnapshotName, "a/b"},
		{"v", "/etc", ErrSnapshotName, ""},
		{"v", ".hidden", ErrSnapshotName, ""},
		{"v", "Upper", ErrSnapshotName, "lower case"},
		{"v", "a b", ErrSnapshotName, ""},
		{"v", "a\n", ErrSnapshotName, ""},
		{"v", "ä", ErrSnapshotName, ""},
		{"v", strings.Repeat("a", 300), ErrSnapshotName, "300 bytes"},
		{"v", strings.Repeat("a", 64), ErrSnapshotName, "64 bytes"},
	} {
		if _, err := s.CreateSnapshot(t.Context(), tt.volume, tt.name); !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.text) {
			t.Errorf("%s %q: %v, want %v with %q", tt.volume, tt.name, err, tt.want, tt.text)
		}
	}
	mustSnapshot(t, s, "v", strings.Repeat("a", 63))
	c.refuse = errors.New("ext4 can't share blocks")
	if _, err := s.CreateSnapshot(t.Context(), "v", "b"); !errors.Is(err, ErrUnsupported) || !errors.Is(err, c.refuse) {
		t.Errorf("on a disk that can't: %v", err)
	}
	s.snapshotter = nil
	if _, err := s.CreateSnapshot(t.Context(), "v", "b"); !errors.Is(err, ErrUnsupported) {
		t.Errorf("without a snapshotter: %v", err)
	}
	for _, tt := range []struct {
		volume, name string
		want         error
	}{{"v", "none", ErrNoSnapshot}, {"none", "there", ErrNotFound}, {"v", "../../volumes/v", ErrNoSnapshot}} {
		if _, err := s.GetSnapshot(tt.volume, tt.name); !errors.Is(err, tt.want) {
			t.Errorf("get %s %s: %v", tt.volume, tt.name, err)
		}
		if err := s.DeleteSnapshot(t.Context(), tt.volume, tt.name); !errors.Is(err, tt.want) {
			t.Errorf("delete %s %s: %v", tt.volume, tt.name, err)
		}
	}
	if _, err := s.Snapshots("none"); !errors.Is(err, ErrNotFound) {
		t.Errorf("those of no volume: %v", err)
	}
}

// One snapshot of a volume is taken at a time, and what ends it leaves nothing of it.
func TestSnapshotUnderWay(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(t *testing.T, s *Store, cancel context.CancelFunc)
		want error // of CreateSnapshot
	}{
		{"completed", nil, nil},
		{"given up", func(_ *testing.T, _ *Store, cancel context.CancelFunc) { cancel() }, context.Canceled},
		{"deleted", func(t *testing.T, s *Store, _ context.CancelFunc) {
			t.Helper()
			mustDo(t, s.DeleteSnapshot(t.Context(), "v", "a"))
		}, ErrNoSnapshot},
		{"podnas ended", func(_ *testing.T, s *Store, _ context.CancelFunc) { s.stop() }, context.Canceled},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			s, c := openWith(t, root)
			mustCreate(t, s, "v")
			mustCreate(t, s, "other")
			writeInto(t, root, "v")
			reached, letGo := c.hold()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error, 1)
			go func() {
				_, err := s.CreateSnapshot(ctx, "v", "a")
				ended <- err
			}()
			<-reached
			if _, err := s.CreateSnapshot(t.Context(), "v", "b"); !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), "snapshot a is being taken") {
				t.Errorf("another one: %v", err)
			}
			var going *TakingError
			if _, err := s.GetSnapshot("v", "a"); !errors.As(err, &going) || going.Created.IsZero() || going.Name != "a" {
				t.Errorf("get: %v", err)
			}
			if list := s.SnapshotsUnderWay(); len(list) != 1 || list[0].Volume != "v" || list[0].Began.IsZero() {
				t.Errorf("under way: %v", list)
			}
			if names := snapshotNames(t, s, ""); len(names) != 0 {
				t.Errorf("listed: %v", names)
			}
			if f, err := s.Check(); err != nil || len(f) != 0 {
				t.Errorf("findings: %v, %v", f, err)
			}
			if tt.end == nil {
				letGo()
			} else {
				tt.end(t, s, cancel)
			}
			if err := <-ended; !errors.Is(err, tt.want) {
				t.Errorf("ended: %v, want %v", err, tt.want)
			}
			if list := s.SnapshotsUnderWay(); len(list) != 0 {
				t.Errorf("still under way: %v", list)
			}
			mustDo(t, s.Close())
			s, _ = openWith(t, root)
			names := snapshotNames(t, s, "")
			if tt.want == nil && !slices.Equal(names, []string{"v/a"}) || tt.want != nil && len(names) > 0 {
				t.Errorf("after a restart: %v", names)
			}
			if left := belowSnapshots(t, root); tt.want != nil && slices.ContainsFunc(left, func(name string) bool { return name != snapshotReady }) {
				t.Errorf("left: %v", left)
			}
			eventually(t, "the trash is empty", func() bool {
				return !slices.ContainsFunc(stateFiles(t, root), func(name string) bool { return strings.HasPrefix(name, "trash/") })
			})
		})
	}
}

// A taking that nobody waits for tells its end to who asks: an error for some minutes.
func TestStartSnapshot(t *testing.T) {
	root := t.TempDir()
	s, c := openWith(t, root)
	mustCreate(t, s, "v")
	fault := errors.New("the disk is full")
	c.middle = func(context.Context) error { return fault }
	begun, err := s.StartSnapshot(t.Context(), "v", "a")
	if err != nil || begun.Name != "a" || begun.Volume != "v" {
		t.Fatalf("%+v, %v", begun, err)
	}
	eventually(t, "it fails", func() bool { return len(s.SnapshotsUnderWay()) == 0 })
	for range 2 {
		if _, err := s.GetSnapshot("v", "a"); !errors.Is(err, fault) {
			t.Errorf("its error: %v", err)
		}
	}
	s.ForgetFailure("v", "a")
	if _, err := s.GetSnapshot("v", "a"); !errors.Is(err, ErrNoSnapshot) {
		t.Errorf("forgotten: %v", err)
	}
	_, err = s.StartSnapshot(t.Context(), "v", "a")
	mustDo(t, err)
	eventually(t, "it fails", func() bool { return len(s.SnapshotsUnderWay()) == 0 })
	s.mu.Lock()
	s.takings[s.records["v"].ID].endedAt = time.Now().Add(-outcomeKept - time.Second)
	s.mu.Unlock()
	if _, err := s.GetSnapshot("v", "a"); !errors.Is(err, ErrNoSnapshot) {
		t.Errorf("much later: %v", err)
	}
	c.middle = nil
	_, err = s.StartSnapshot(t.Context(), "v", "a")
	mustDo(t, err)
	eventually(t, "it is complete", func() bool {
		_, err := s.GetSnapshot("v", "a")
		return err == nil
	})
}

// A deleted volume keeps its snapshots, and a new one of its name has others.
func TestSnapshotsOfADeletedVolume(t *testing.T) {
	root := t.TempDir()
	s, _ := openWith(t, root)
	old := mustCreate(t, s, "v")
	writeInto(t, root, "v")
	mustSnapshot(t, s, "v", "a")
	mustDo(t, s.Delete(t.Context(), "v"))
	if found, err := s.GetSnapshot("v", "a"); err != nil || !found.VolumeDeleted || found.VolumeID != old.ID {
		t.Errorf("%+v, %v", found, err)
	}
	mustDo(t, s.Close())
	s, _ = openWith(t, root)
	isKept(t, filepath.Join(root, snapshotsOf(old.ID), snapshotReady, "a"))
	_, err := created(t.Context(), s, Spec{Name: "restored", Size: 1 << 20, Source: "v", SourceSnapshot: "a"})
	mustDo(t, err)
	isKept(t, filepath.Join(root, "restored"))

	fresh := mustCreate(t, s, "v")
	mustSnapshot(t, s, "v", "a")
	if found, err := s.GetSnapshot("v", "a"); err != nil || found.VolumeDeleted || found.VolumeID != fresh.ID {
		t.Errorf("of two: %+v, %v", found, err)
	}
	if names := snapshotNames(t, s, "v"); len(names) != 2 {
		t.Errorf("of two: %v", names)
	}
	byID := filepath.Base(snapshotsOf(old.ID))
	if found, err := s.GetSnapshot(byID, "a"); err != nil || found.VolumeID != old.ID {
		t.Errorf("by the ID: %+v, %v", found, err)
	}
	mustDo(t, s.DeleteSnapshot(t.Context(), byID, "a"))
	if _, err := os.Stat(filepath.Join(root, snapshotsOf(old.ID))); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its folder: %v", err)
	}
	if found, err := s.GetSnapshot("v", "a"); err != nil || found.VolumeID != fresh.ID {
		t.Errorf("of one: %+v, %v", found, err)
	}
}

func TestVolumeFromASnapshot(t *testing.T) {
	root := t.TempDir()
	s, _ := openWith(t, root)
	mustCreate(t, s, "v")
	writeInto(t, root, "v")
	mustSnapshot(t, s, "v", "a")
	mustDo(t, os.Remove(filepath.Join(root, "v", "data")))
	for what, tt := range map[string]struct {
		spec Spec
		want error
	}{
		"smaller":          {Spec{Name: "copy", Size: 1<<20 - 1, Source: "v", SourceSnapshot: "a"}, ErrInvalid},
		"of no snapshot":   {Spec{Name: "copy", Size: 1 << 20, Source: "v", SourceSnapshot: "none"}, ErrNoSnapshot},
		"of no volume":     {Spec{Name: "copy", Size: 1 << 20, Source: "none", SourceSnapshot: "a"}, ErrNotFound},
		"without a volume": {Spec{Name: "copy", Size: 1 << 20, SourceSnapshot: "a"}, ErrInvalid},
		"outside":          {Spec{Name: "copy", Size: 1 << 20, Source: "v", SourceSnapshot: "../.."}, ErrNoSnapshot},
	} {
		if _, err := s.Create(t.Context(), tt.spec); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v", what, err)
		}
	}
	spec := Spec{Name: "copy", Size: 2 << 20, Source: "v", SourceSnapshot: "a"}
	reached, letGo := holdCopies(s)
	var copying *CopyingError
	if _, err := s.Create(t.Context(), spec); !errors.As(err, &copying) || copying.Of() != "snapshot a of volume v" {
		t.Fatalf("at first: %v", err)
	}
	<-reached
	if err := s.DeleteSnapshot(t.Context(), "v", "a"); !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), "copied to copy") {
		t.Errorf("the snapshot is deleted: %v", err)
	}
	// The volume is not its source.
	mustDo(t, s.Delete(t.Context(), "v"))
	go func() {
		time.Sleep(10 * time.Millisecond)
		letGo()
	}()
	mustDo(t, s.Close()) // as if podnas was ended: the next one goes on
	s, _ = openWith(t, root)
	made, err := created(t.Context(), s, spec)
	if err != nil || made.Source != "v" || made.SourceSnapshot != "a" || made.Size != 2<<20 {
		t.Errorf("%+v, %v", made, err)
	}
	isKept(t, filepath.Join(root, "copy"))
	if _, err := s.Create(t.Context(), Spec{Name: "copy", Size: 2 << 20, Source: "v"}); !errors.Is(err, ErrExists) {
		t.Errorf("of the volume itself: %v", err)
	}
	mustDo(t, s.DeleteSnapshot(t.Context(), "v", "a"))
	if again, err := s.Create(t.Context(), spec); err != nil || again.ID != made.ID {
		t.Errorf("when its snapshot is gone: %+v, %v", again, err)
	}
	isKept(t, filepath.Join(root, "copy"))
}

// Whatever a volume's root allows, its snapshots come and go.
func TestSnapshotOfALockedDirectory(t *testing.T) {
	root := t.TempDir()
	s, _ := openWith(t, root)
	mustCreate(t, s, "v")
	writeInto(t, root, "v")
	mustDo(t, os.Chmod(filepath.Join(root, "v"), 0o555))
	a := mustSnapshot(t, s, "v", "a")
	if info, err := os.Stat(filepath.Join(root, a.tree())); err != nil || info.Mode().Perm() != 0o555 {
		t.Errorf("its mode: %v, %v", info, err)
	}
	mustDo(t, s.DeleteSnapshot(t.Context(), "v", "a"))
	eventually(t, "its files are gone", func() bool { return len(stateFiles(t, root)) == 1 })
}

// On a full disk snapshots can be deleted, which is a way out.
func TestSnapshotsOnAFullDisk(t *testing.T) {
	for _, what := range []string{"blocks", "inodes"} {
		t.Run(what, func(t *testing.T) {
			testdisk.Small(t, func(t *testing.T, root string) {
				s, _ := openWith(t, root)
				mustCreate(t, s, "v")
				writeInto(t, root, "v")
				for _, name := range []string{"a", "b", "c"} {
					mustSnapshot(t, s, "v", name)
				}
				_, err := s.Create(t.Context(), Spec{Name: "filled", Size: 1 << 20})
				mustDo(t, err)
				eventually(t, "there is a reserve", func() bool {
					_, err := os.Stat(filepath.Join(root, ReserveDir, "large-15"))
					return err == nil
				})
				time.Sleep(100 * time.Millisecond) // it is synced
				testdisk.Fill(t, filepath.Join(root, "filled"), what == "inodes")
				if _, err := s.CreateSnapshot(t.Context(), "v", "d"); err == nil && what == "blocks" {
					t.Log("there was room for another one")
				}
				for _, name := range []string{"a", "b", "c"} {
					mustDo(t, s.DeleteSnapshot(t.Context(), "v", name))
				}
				mustDo(t, s.Close())
				s, _ = openWith(t, root)
				if names := snapshotNames(t, s, ""); len(names) > 1 {
					t.Errorf("left: %v", names)
				}
				mustDo(t, s.Close())
			})
		})
	}
}
