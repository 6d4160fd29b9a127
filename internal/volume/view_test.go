package volume

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func viewOf(name string) Spec {
	return Spec{
		Name: name, Size: 1 << 20, Source: "v", SourceSnapshot: "a", View: true, OnDelete: ArchiveFiles, Overcommit: 1e-9,
		Schedule: Schedule{Daily: 1}, Claim: &Claim{Namespace: "ns", Name: "backup", UID: "1"},
	}
}

// withSnapshot opens a disk with the volume v and its snapshot a.
func withSnapshot(t *testing.T) (*Store, string) {
	t.Helper()
	root := t.TempDir()
	s, _ := openWith(t, root)
	mustCreate(t, s, "v")
	writeInto(t, root, "v")
	mustSnapshot(t, s, "v", "a")
	return s, root
}

func TestView(t *testing.T) {
	s, root := withSnapshot(t)
	before, err := s.Space()
	mustDo(t, err)
	view, err := s.Create(t.Context(), viewOf("view"))
	if err != nil || !view.View || !view.Options.ReadOnly || view.OnDelete != "" || !view.Schedule.IsZero() || view.Project != 0 {
		t.Fatalf("%+v, %v", view, err)
	}
	isKept(t, filepath.Join(root, view.Directory()))
	if _, err := os.Lstat(filepath.Join(root, "view")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it has a directory: %v", err)
	}
	if after, err := s.Space(); err != nil || after.Promised != before.Promised || after.InodesPromised != before.InodesPromised {
		t.Errorf("%+v is promised, before %+v, %v", after, before, err)
	}
	if again, err := s.Create(t.Context(), viewOf("view")); err != nil || again.ID != view.ID {
		t.Errorf("again: %+v, %v", again, err)
	}
	second, err := s.Create(t.Context(), viewOf("second"))
	if err != nil || second.ID == view.ID {
		t.Errorf("a second one: %+v, %v", second, err)
	}
	wrong := viewOf("view")
	wrong.View = false
	if _, err := s.Create(t.Context(), wrong); !errors.Is(err, ErrExists) {
		t.Errorf("a copy with its name: %v", err)
	}
	small := viewOf("small")
	small.Size--
	if _, err := s.Create(t.Context(), small); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "a volume that shows the snapshot a of volume v needs at least its size") {
		t.Errorf("a smaller one: %v", err)
	}
	a, err := s.GetSnapshot("v", "a")
	mustDo(t, err)
	if got := s.ViewsOf(&a); len(got) != 2 {
		t.Errorf("its views are %v", got)
	}

	// The snapshot stays, whatever happens to its volume, until both are gone.
	mustDo(t, s.Delete(t.Context(), "v"))
	mustDo(t, s.Close())
	s, _ = openWith(t, root)
	if v, err := s.Get("view"); err != nil || v.ID != view.ID || v.Directory() != view.Directory() {
		t.Errorf("after a restart: %+v, %v", v, err)
	}
	if f, err := s.Check(); err != nil || len(f) > 0 {
		t.Errorf("findings: %v, %v", f, err)
	}
	for _, name := range []string{"view", "second"} {
		err := s.DeleteSnapshot(t.Context(), "v", "a")
		var viewed *ViewedError
		if !errors.As(err, &viewed) || !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), "claim ns/backup") {
			t.Errorf("the snapshot is deleted: %v", err)
		}
		isKept(t, filepath.Join(root, view.Directory()))
		mustDo(t, s.Delete(t.Context(), name))
	}
	if kept, err := s.Kept(); err != nil || len(kept) > 0 {
		t.Errorf("kept: %v, %v", kept, err)
	}
	isKept(t, filepath.Join(root, view.Directory()))
	mustDo(t, s.DeleteSnapshot(t.Context(), "v", "a"))
}

func TestViewsAreRefused(t *testing.T) {
	s, root := withSnapshot(t)
	mustDo(t, os.Mkdir(filepath.Join(root, "there"), 0o700))
	with := func(change func(*Spec)) Spec {
		spec := viewOf("view")
		change(&spec)
		return spec
	}
	for what, tt := range map[string]struct {
		spec Spec
		want error
	}{
		"smaller":           {with(func(s *Spec) { s.Size-- }), ErrInvalid},
		"of no snapshot":    {with(func(s *Spec) { s.SourceSnapshot = "none" }), ErrNoSnapshot},
		"of a volume":       {with(func(s *Spec) { s.SourceSnapshot = "" }), ErrInvalid},
		"outside":           {with(func(s *Spec) { s.SourceSnapshot = "../.." }), ErrNoSnapshot},
		"of no volume":      {with(func(s *Spec) { s.Source = "none" }), ErrNotFound},
		"over a directory":  {with(func(s *Spec) { s.Path = "there" }), ErrExists},
		"inside of another": {with(func(s *Spec) { s.Path = "v/view" }), ErrExists},
	} {
		if _, err := s.Create(t.Context(), tt.spec); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if list := s.List(); len(list) != 1 {
		t.Errorf("left: %v", list)
	}
	s.mu.Lock()
	s.snapshotLocked(s.records["v"].ID, "a").deleting = true
	s.mu.Unlock()
	if _, err := s.Create(t.Context(), viewOf("view")); !errors.Is(err, ErrBusy) {
		t.Errorf("of one that is being deleted: %v", err)
	}
}

// What a volume with files of its own can do, a view can't.
func TestViewCannot(t *testing.T) {
	s, root := withSnapshot(t)
	_, err := s.Create(t.Context(), viewOf("view"))
	mustDo(t, err)
	resize := func(size, bytesPerInode int64) error {
		_, err := s.Resize(t.Context(), "view", size, bytesPerInode)
		return err
	}
	_, snapshot := s.CreateSnapshot(t.Context(), "view", "b")
	_, restore := s.StartRestore(t.Context(), "view", "a", true)
	_, schedule := s.SetSchedule(t.Context(), "view", Schedule{Daily: 1})
	_, reserve := s.SetSnapshotReserve(t.Context(), "view", 20)
	_, adopt := s.Adopt(t.Context(), Spec{Name: "view", Size: 1 << 20})
	for what, tt := range map[string]struct{ err, want error }{
		"grow":             {resize(2<<20, 0), ErrView},
		"have more inodes": {resize(1<<20, 4096), ErrView},
		"shrink":           {resize(1<<19, 0), ErrShrink},
		"have a snapshot":  {snapshot, ErrView},
		"be restored":      {restore, ErrView},
		"have a schedule":  {schedule, ErrView},
		"have a reserve":   {reserve, ErrView},
		"be archived":      {s.Archive(t.Context(), "view"), ErrView},
		"be adopted":       {adopt, ErrExists},
	} {
		if !errors.Is(tt.err, tt.want) {
			t.Errorf("it can %s: %v", what, tt.err)
		}
	}
	if err := resize(1<<20, 0); err != nil {
		t.Errorf("its own size: %v", err)
	}
	if _, err := s.SetSchedule(t.Context(), "view", Schedule{}); err != nil {
		t.Errorf("no schedule: %v", err)
	}
	// Its copy is a volume of its own.
	made, err := created(t.Context(), s, Spec{Name: "copy", Size: 1 << 20, Source: "view"})
	if err != nil || made.View || made.Options.ReadOnly {
		t.Errorf("%+v, %v", made, err)
	}
	isKept(t, filepath.Join(root, "copy"))
	// It can have another claim, and is a view then, too.
	if v, err := s.Claim(t.Context(), "view", nil); err != nil || !v.View {
		t.Errorf("%+v, %v", v, err)
	}
	mustDo(t, s.Close())
	s, _ = openWith(t, root)
	if v, err := s.Get("view"); err != nil || v.SourceID == 0 {
		t.Errorf("%+v, %v", v, err)
	}
	err = s.DeleteSnapshot(t.Context(), "v", "a")
	if !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), "volume view shows") {
		t.Errorf("the snapshot is deleted: %v", err)
	}
}

// What a view shows may be gone, or its record not be what podnas has written. Nothing is removed, and all else is served.
func TestDamagedViews(t *testing.T) {
	for _, tt := range []struct {
		name   string
		damage func(t *testing.T, root string, view Volume)
		state  string // of the view, in Unserved
		fix    string
	}{
		{"its snapshot's files are gone", func(t *testing.T, root string, view Volume) {
			mustDo(t, os.RemoveAll(filepath.Join(root, view.Directory())))
		}, NotServed, "bring the snapshot a of volume v back"},
		{"its snapshot's record is damaged", func(t *testing.T, root string, view Volume) {
			of := view.viewed()
			mustDo(t, os.WriteFile(filepath.Join(root, of.file()), []byte("{"), 0o600))
		}, NotServed, "bring the snapshot a of volume v back"},
		{"a file is in the place of its snapshot", func(t *testing.T, root string, view Volume) {
			mustDo(t, os.Rename(filepath.Join(root, view.Directory()), filepath.Join(root, "away")))
			mustDo(t, os.WriteFile(filepath.Join(root, view.Directory()), nil, 0o600))
		}, NotServed, "bring the snapshot a of volume v back"},
		{"half written", func(t *testing.T, root string, _ Volume) {
			file := filepath.Join(root, recordFile("view"))
			data, err := os.ReadFile(file)
			mustDo(t, err)
			mustDo(t, os.WriteFile(file, data[:len(data)/2], 0o600))
		}, Damaged, "move the record away"},
		{"writable", editView(func(o map[string]any) { o["options"] = map[string]any{} }), Damaged, "restore the record"},
		{"of a path", editView(func(o map[string]any) { o["sourceSnapshot"] = "../../.." }), Damaged, "restore the record"},
		{"of no volume", editView(func(o map[string]any) { delete(o, "sourceId") }), Damaged, "restore the record"},
		{"with a project", editView(func(o map[string]any) { o["project"] = 65599 }), Damaged, "restore the record"},
		{"in another state", editView(func(o map[string]any) { o["state"] = "copying" }), Damaged, "restore the record"},
		{"not said to be one", editView(func(o map[string]any) { delete(o, "view") }), Damaged, "restore the record"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, root := withSnapshot(t)
			view, err := s.Create(t.Context(), viewOf("view"))
			mustDo(t, err)
			mustDo(t, s.Close())
			tt.damage(t, root, view)
			s, _ = openWith(t, root)
			if served := s.Served(); len(served) != 1 || served[0].Name != "v" {
				t.Errorf("served: %v", served)
			}
			unserved := s.Unserved()
			if len(unserved) != 1 || unserved[0].Name != "view" || unserved[0].State != tt.state || !strings.Contains(unserved[0].Fix, tt.fix) {
				t.Errorf("not served: %+v", unserved)
			}
			findings, err := s.Check()
			if err != nil || !slices.ContainsFunc(findings, func(f Finding) bool { return strings.Contains(f.Path+f.Volume, "view") }) {
				t.Errorf("findings: %v, %v", findings, err)
			}
			if _, err := s.CreateSnapshot(t.Context(), "v", "a"); !errors.Is(err, ErrExists) {
				t.Errorf("another one is taken, which it would show: %v", err)
			}
			err = s.Delete(t.Context(), "view")
			if tt.state == Damaged != errors.Is(err, ErrRecord) || tt.state == NotServed && err != nil {
				t.Errorf("deleted: %v", err)
			}
			isKept(t, filepath.Join(root, "v"))
		})
	}
}

// editView changes the record of a view without a checksum, as a person may do it.
func editView(change func(map[string]any)) func(*testing.T, string, Volume) {
	return func(t *testing.T, root string, _ Volume) {
		t.Helper()
		file := filepath.Join(root, recordFile("view"))
		data, err := os.ReadFile(file)
		mustDo(t, err)
		var o map[string]any
		mustDo(t, json.Unmarshal(data, &o))
		delete(o, checksumField)
		change(o)
		data, err = json.Marshal(o)
		mustDo(t, err)
		mustDo(t, os.WriteFile(file, data, 0o600))
	}
}

// A podnas that knows no views refuses the record, as it knows no such state.
func TestViewIsNoVolumeOfAnOlderPodnas(t *testing.T) {
	s, root := withSnapshot(t)
	_, err := s.Create(t.Context(), viewOf("view"))
	mustDo(t, err)
	data, err := os.ReadFile(filepath.Join(root, recordFile("view")))
	mustDo(t, err)
	var written struct{ State string }
	mustDo(t, json.Unmarshal(data, &written))
	if known := []state{creating, copyingState, adopting, ready, retained, archived}; written.State != "view" || slices.Contains(known, state(written.State)) {
		t.Errorf("the state is %q", written.State)
	}
}

// Neither a schedule nor a full disk takes what a view shows.
func TestScheduledSnapshotWithAView(t *testing.T) {
	s, _ := withSnapshot(t)
	s.mu.Lock()
	r := s.snapshotLocked(s.records["v"].ID, "a")
	r.Scheduled = []string{"hourly"}
	s.mu.Unlock()
	if !s.hasRoomToGive() || len(s.oldestScheduled()) != 1 {
		t.Error("there is no scheduled snapshot")
	}
	_, err := s.Create(t.Context(), viewOf("view"))
	mustDo(t, err)
	eventually(t, "the folder in which it was taken is removed", func() bool { return !s.emptiesTrees() })
	if s.hasRoomToGive() || len(s.oldestScheduled()) != 0 {
		t.Error("the snapshot would go for room")
	}
	s.deleteScheduled(t.Context(), []*snapshotRecord{r}, "this test says so")
	if _, err := s.GetSnapshot("v", "a"); err != nil {
		t.Error(err)
	}
}

// viewScenes are those of TestKilledAtEveryStep.
func viewScenes() []scene {
	return []scene{
		{"view a snapshot", snapshotOfSource, createView, func(t *testing.T, s *Store, e *exports, root string) {
			v, err := s.Get("v")
			if err != nil || !v.View || len(e.names()) != 3 {
				t.Errorf("%+v, %v, exported %v", v, err, e.names())
			}
			isKept(t, filepath.Join(root, v.Directory()))
			if err := s.DeleteSnapshot(t.Context(), "source", "a"); !errors.Is(err, ErrBusy) {
				t.Errorf("the snapshot is deleted: %v", err)
			}
		}},
		{"delete the view of a snapshot, and that", func(t *testing.T, s *Store, root string) {
			snapshotOfSource(t, s, root)
			mustDo(t, createView(t.Context(), s))
		}, func(ctx context.Context, s *Store) error {
			if err := deleteVolume(ctx, s); err != nil {
				return err
			}
			err := s.DeleteSnapshot(ctx, "source", "a")
			if errors.Is(err, ErrNoSnapshot) {
				return nil
			}
			return err
		}, func(t *testing.T, s *Store, e *exports, root string) {
			isKept(t, filepath.Join(root, "source"))
			if names := e.names(); len(names) != 2 {
				t.Errorf("exported: %v", names)
			}
			eventually(t, "the trash is empty", func() bool { return len(stateFiles(t, root)) == 2 })
		}},
	}
}

func snapshotOfSource(t *testing.T, s *Store, root string) {
	t.Helper()
	makeVolume(Spec{Name: "source", Size: 1 << 20})(t, s, root)
	mustSnapshot(t, s, "source", "a")
}

func createView(ctx context.Context, s *Store) error {
	_, err := s.Create(ctx, Spec{Name: "v", Size: 1 << 20, Source: "source", SourceSnapshot: "a", View: true})
	return err
}
