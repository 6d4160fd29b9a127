package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/podnas/podnas/quota"
)

// A restore keeps what there was, tells how it ends, and is refused where it would harm somebody.
func TestRestore(t *testing.T) {
	root := t.TempDir()
	s, server := openWith(t, root)
	makeVolume(Spec{Name: "v", Size: 1 << 20})(t, s, root)
	mustSnapshot(t, s, "v", "a")
	if _, err := s.StartRestore(t.Context(), "v", "b", false); !errors.Is(err, ErrNoSnapshot) {
		t.Errorf("a snapshot that is not there: %v", err)
	}
	if _, err := s.StartRestore(t.Context(), "w", "a", false); !errors.Is(err, ErrNotFound) {
		t.Errorf("a volume that is not there: %v", err)
	}
	if _, err := s.GetRestore("v"); !errors.Is(err, ErrNoRestore) {
		t.Errorf("the end of none: %v", err)
	}
	server.open = 3
	var open *OpenFilesError
	if _, err := s.StartRestore(t.Context(), "v", "a", false); !errors.As(err, &open) || open.Files != 3 || !errors.Is(err, ErrBusy) {
		t.Errorf("with open files: %v", err)
	}

	inside, goOn := make(chan struct{}), make(chan struct{})
	server.restored = func(ctx context.Context) error {
		close(inside)
		select {
		case <-goOn:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	_, err := s.StartRestore(t.Context(), "v", "a", true)
	mustDo(t, err)
	<-inside
	going, err := s.GetRestore("v")
	if err != nil || going.Done || !strings.HasPrefix(going.Safety, "before-restore-") {
		t.Errorf("under way: %+v, %v", going, err)
	}
	for what, err := range map[string]error{
		"another restore":         second(s.StartRestore(t.Context(), "v", "a", true)),
		"a snapshot":              second(s.CreateSnapshot(t.Context(), "v", "c")),
		"deletion of its source":  s.DeleteSnapshot(t.Context(), "v", "a"),
		"what a safe one returns": second(s.GetSnapshot("v", going.Safety)),
	} {
		if want := ErrBusy; what != "what a safe one returns" && !errors.Is(err, want) || what == "what a safe one returns" && err != nil {
			t.Errorf("%s meanwhile: %v", what, err)
		}
	}
	close(goOn)
	mustDo(t, awaitRestore(s))
	if r, err := s.GetRestore("v"); err != nil || !r.Done {
		t.Errorf("its end, for the second time: %+v, %v", r, err)
	}
	if server.isHeld("v") {
		t.Error("clients wait afterwards")
	}
	s.mu.Lock()
	s.restorings[s.records["v"].ID].endedAt = time.Now().Add(-outcomeKept - time.Second)
	s.mu.Unlock()
	if _, err := s.GetRestore("v"); !errors.Is(err, ErrNoRestore) {
		t.Errorf("its end, much later: %v", err)
	}
}

// restoring is what the record of a volume says.
func recordedRestore(t *testing.T, root string) (to, safety string) {
	t.Helper()
	var r record
	disk, err := os.OpenRoot(root)
	mustDo(t, err)
	defer disk.Close()
	mustDo(t, readJSON(disk, recordFile("v"), &r))
	return r.Restoring, r.RestoreSafety
}

// After a restore that has failed clients wait, who asks is told what to do, and the next one goes on: with the safety snapshot of the
// first one, because nothing has changed since.
func TestHalfRestored(t *testing.T) {
	broken := errors.New("the disk is broken")
	half := func(t *testing.T) (*Store, *copier, string, Restore) {
		t.Helper()
		root := t.TempDir()
		s, server := openWith(t, root)
		makeVolume(Spec{Name: "v", Size: 1 << 20})(t, s, root)
		mustSnapshot(t, s, "v", "a")
		mustSnapshot(t, s, "v", "b")
		server.restored = func(context.Context) error { return broken }
		for range 3 {
			_, err := s.StartRestore(t.Context(), "v", "a", false)
			mustDo(t, err)
			err = awaitRestore(s)
			if !errors.Is(err, broken) || !strings.Contains(err.Error(), "a part of what it was") || !strings.Contains(err.Error(), "podnas snapshot restore v a") {
				t.Fatalf("it fails: %v", err)
			}
		}
		if !server.isHeld("v") {
			t.Fatal("clients go on in a half restored volume")
		}
		r, err := s.GetRestore("v")
		to, safety := recordedRestore(t, root)
		names := snapshotNames(t, s, "v")
		if !errors.Is(err, broken) || to != "a" || safety != r.Safety || len(names) != 3 || names[2] != "v/"+safety {
			t.Fatalf("%+v, %v; recorded %q and %q; there are %v", r, err, to, safety, names)
		}
		return s, server, root, r
	}
	goesOn := func(t *testing.T, s *Store, server *copier, root string) {
		t.Helper()
		if to, safety := recordedRestore(t, root); to != "" || safety != "" || server.isHeld("v") {
			t.Errorf("it is still being restored to %q, with %q; clients wait: %v", to, safety, server.isHeld("v"))
		}
		if f, err := s.Check(); err != nil || len(f) != 0 {
			t.Errorf("findings: %v, %v", f, err)
		}
		mustSnapshot(t, s, "v", "afterwards")
	}
	t.Run("meanwhile", func(t *testing.T) {
		s, _, _, r := half(t)
		for what, err := range map[string]error{
			"a snapshot":             second(s.CreateSnapshot(t.Context(), "v", "c")),
			"a copy":                 second(s.Create(t.Context(), Spec{Name: "copy", Size: 1 << 20, Source: "v"})),
			"deletion of its source": s.DeleteSnapshot(t.Context(), "v", "a"),
			"deletion of the safety": s.DeleteSnapshot(t.Context(), "v", r.Safety),
		} {
			if !errors.Is(err, ErrBusy) {
				t.Errorf("%s: %v", what, err)
			}
		}
		f, err := s.Check()
		if err != nil || len(f) != 1 || f[0].Volume != "v" || !strings.Contains(f[0].String(), "podnas snapshot restore v a") {
			t.Errorf("findings: %v, %v", f, err)
		}
		mustDo(t, s.DeleteSnapshot(t.Context(), "v", "b"))
		mustDo(t, s.Delete(t.Context(), "v"))
	})
	for _, to := range []string{"a", "b", ""} {
		t.Run("restored again to "+to, func(t *testing.T) {
			s, server, root, r := half(t)
			server.restored = nil
			if to == "" {
				to = r.Safety
			}
			server.open = 3 // by programs that wait
			_, err := s.StartRestore(t.Context(), "v", to, false)
			mustDo(t, err)
			mustDo(t, awaitRestore(s))
			if names := snapshotNames(t, s, "v"); len(names) != 3 {
				t.Errorf("there are %v", names)
			}
			goesOn(t, s, server, root)
		})
	}
	t.Run("given up", func(t *testing.T) {
		s, server, root, _ := half(t)
		for _, name := range []string{"b", "none"} {
			if _, err := s.GiveUpRestore(t.Context(), "v", name); !errors.Is(err, ErrNoRestore) {
				t.Errorf("the restore to %s: %v", name, err)
			}
		}
		_, err := s.GiveUpRestore(t.Context(), "v", "a")
		mustDo(t, err)
		goesOn(t, s, server, root)
		if _, err := s.GiveUpRestore(t.Context(), "v", "a"); !errors.Is(err, ErrNoRestore) {
			t.Errorf("once more: %v", err)
		}
		if _, err := s.GetRestore("v"); !errors.Is(err, errGivenUp) {
			t.Errorf("its end: %v", err)
		}
	})
	t.Run("podnas restarted", func(t *testing.T) {
		s, _, root, r := half(t)
		mustDo(t, s.Close())
		s, server := openWith(t, root)
		server.restored = func(context.Context) error { return broken }
		s.ResumeRestores()
		if err := awaitRestore(s); !errors.Is(err, broken) || !strings.Contains(err.Error(), r.Safety) || !server.isHeld("v") {
			t.Errorf("it fails again: %v; clients wait: %v", err, server.isHeld("v"))
		}
		mustDo(t, s.Close())
		s, server = openWith(t, root)
		s.ResumeRestores()
		mustDo(t, awaitRestore(s))
		goesOn(t, s, server, root)
	})
	t.Run("not served", func(t *testing.T) {
		s, _, root, r := half(t)
		mustDo(t, s.Close())
		away := filepath.Join(root, "v-away")
		mustDo(t, os.Rename(filepath.Join(root, "v"), away))
		s, _ = openWith(t, root)
		s.ResumeRestores()
		for what, name := range map[string]string{"its source": "a", "the safety": r.Safety} {
			if err := s.DeleteSnapshot(t.Context(), "v", name); !errors.Is(err, ErrBusy) {
				t.Errorf("deletion of %s: %v", what, err)
			}
		}
		mustDo(t, s.DeleteSnapshot(t.Context(), "v", "b"))
		mustDo(t, s.Close())
		mustDo(t, os.Rename(away, filepath.Join(root, "v")))
		s, server := openWith(t, root)
		s.ResumeRestores()
		mustDo(t, awaitRestore(s))
		goesOn(t, s, server, root)
	})
	t.Run("its deletion fails", func(t *testing.T) {
		s, server, root, _ := half(t)
		server.restored = nil
		trash := filepath.Join(root, trashDir) // where its record can't go now
		mustDo(t, os.Rename(trash, trash+"-away"))
		mustDo(t, os.WriteFile(trash, nil, 0o600))
		if err := s.Delete(t.Context(), "v"); err == nil {
			t.Fatal("it is deleted")
		}
		mustDo(t, errors.Join(os.Remove(trash), os.Rename(trash+"-away", trash)))
		mustDo(t, awaitRestore(s))
		goesOn(t, s, server, root)
	})
	t.Run("archived and adopted", func(t *testing.T) {
		s, _, root, _ := half(t)
		mustDo(t, s.Archive(t.Context(), "v"))
		_, err := s.Adopt(t.Context(), Spec{Name: "v", Size: 1 << 20})
		mustDo(t, err)
		if to, safety := recordedRestore(t, root); to != "" || safety != "" {
			t.Errorf("the next start would restore it to %q", to)
		}
	})
}

// whileRestored returns a store whose volume v is being restored to its snapshot a, until that is ended.
func whileRestored(t *testing.T) (s *Store, server *copier, root string) {
	t.Helper()
	root = t.TempDir()
	s, server = openWith(t, root)
	makeVolume(Spec{Name: "v", Size: 1 << 20})(t, s, root)
	mustSnapshot(t, s, "v", "a")
	inside := make(chan struct{})
	server.restored = func(ctx context.Context) error {
		close(inside)
		<-ctx.Done()
		return ctx.Err()
	}
	_, err := s.StartRestore(t.Context(), "v", "a", false)
	mustDo(t, err)
	<-inside
	return s, server, root
}

// One that is under way can be given up, too.
func TestRestoreGivenUp(t *testing.T) {
	s, server, root := whileRestored(t)
	_, err := s.GiveUpRestore(t.Context(), "v", "a")
	mustDo(t, err)
	if to, _ := recordedRestore(t, root); to != "" || server.isHeld("v") {
		t.Errorf("it is restored to %q; clients wait: %v", to, server.isHeld("v"))
	}
}

// A file that is opened when nobody waits yet is seen, and then nothing has changed.
func TestOpenedBeforeHold(t *testing.T) {
	root := t.TempDir()
	s, server := openWith(t, root)
	makeVolume(Spec{Name: "v", Size: 1 << 20})(t, s, root)
	mustSnapshot(t, s, "v", "a")
	server.opens = 1
	server.restored = func(context.Context) error {
		t.Error("it is restored")
		return nil
	}
	_, err := s.StartRestore(t.Context(), "v", "a", false)
	mustDo(t, err)
	var open *OpenFilesError
	if err := awaitRestore(s); !errors.As(err, &open) {
		t.Errorf("its end: %v", err)
	}
	if names := snapshotNames(t, s, "v"); len(names) != 1 || server.isHeld("v") {
		t.Errorf("there are %v; clients wait: %v", names, server.isHeld("v"))
	}
}

// A snapshot that can't be restored, as is known before anything has changed, leaves the volume as it was, but not one that is half
// restored already.
func TestRestoreRefusedBeforeChanges(t *testing.T) {
	root := t.TempDir()
	s, server := openWith(t, root)
	makeVolume(Spec{Name: "v", Size: 1 << 20})(t, s, root)
	mustSnapshot(t, s, "v", "a")
	restore := func(fails error) error {
		server.restored = func(context.Context) error { return fmt.Errorf("read snapshot a: %w", fails) }
		_, err := s.StartRestore(t.Context(), "v", "a", false)
		mustDo(t, err)
		if err = awaitRestore(s); !errors.Is(err, fails) {
			t.Fatalf("its end: %v", err)
		}
		return err
	}
	if err := restore(errBefore); !strings.Contains(err.Error(), "nothing has changed") {
		t.Error(err)
	}
	to, safety := recordedRestore(t, root)
	if names := snapshotNames(t, s, "v"); to != "" || safety != "" || len(names) != 1 || server.isHeld("v") {
		t.Errorf("it is restored to %q, with %q; there are %v; clients wait: %v", to, safety, names, server.isHeld("v"))
	}
	_ = restore(errors.New("the disk is broken"))
	if err := restore(errBefore); !strings.Contains(err.Error(), "a part of what it was") || !server.isHeld("v") {
		t.Errorf("%v; clients wait: %v", err, server.isHeld("v"))
	}
}

// What is resized while it is restored has its new limit afterwards.
func TestResizedWhileRestored(t *testing.T) {
	root, k := t.TempDir(), newKernel(t)
	s, _ := k.boot(t, root)
	defer func() { mustDo(t, s.Close()) }()
	makeVolume(Spec{Name: "v", Size: 1 << 20})(t, s, root)
	mustSnapshot(t, s, "v", "a")
	limits := func() (v Volume, kernel, shown quota.Limit) {
		v, err := s.Get("v")
		mustDo(t, err)
		u, err := k.Usage(v.Project)
		mustDo(t, err)
		told, err := s.Usage("v")
		mustDo(t, err)
		return v, u.Limit, told.Limit
	}
	inside, goOn := make(chan struct{}), make(chan struct{})
	s.snapshotter.(*copier).restored = func(context.Context) error {
		close(inside)
		<-goOn
		return nil
	}
	_, err := s.StartRestore(t.Context(), "v", "a", false)
	mustDo(t, err)
	<-inside
	_, err = s.Resize(t.Context(), "v", 8<<20, 0)
	mustDo(t, err)
	if v, kernel, shown := limits(); kernel.Bytes < lifted || kernel.Inodes != 0 || shown != v.limit() {
		t.Errorf("meanwhile the limit is %+v, and %+v is told", kernel, shown)
	}
	if f, err := s.Check(); err != nil || len(f) != 0 {
		t.Errorf("findings: %v, %v", f, err)
	}
	close(goOn)
	mustDo(t, awaitRestore(s))
	if v, kernel, shown := limits(); kernel != v.limit() || shown != kernel || v.Size != 8<<20 {
		t.Errorf("afterwards the limit is %+v, and %+v is told, of %+v", kernel, shown, v)
	}
}

func second[T any](_ T, err error) error { return err }

// The deletion of a volume ends its restore.
func TestDeletedWhileRestored(t *testing.T) {
	s, _, _ := whileRestored(t)
	mustDo(t, s.Delete(t.Context(), "v"))
}
