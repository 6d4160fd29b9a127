package volume

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A restore keeps what there was, tells how it ends once, and is refused where it would harm somebody.
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
	if _, err := s.GetRestore("v"); !errors.Is(err, ErrNoSnapshot) {
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
	if _, err := s.GetRestore("v"); !errors.Is(err, ErrNoSnapshot) {
		t.Errorf("its end, for the second time: %v", err)
	}

	broken := errors.New("the disk is broken")
	server.restored = func(context.Context) error { return broken }
	_, err = s.StartRestore(t.Context(), "v", "a", true)
	mustDo(t, err)
	if err := awaitRestore(s); !errors.Is(err, broken) {
		t.Errorf("one that fails: %v", err)
	}
	data, err := os.ReadFile(filepath.Join(root, recordFile("v")))
	if err != nil || strings.Contains(string(data), "restoring") {
		t.Errorf("a restore that has failed would be tried again: %s, %v", data, err)
	}
}

func second[T any](_ T, err error) error { return err }

// The deletion of a volume ends its restore.
func TestDeletedWhileRestored(t *testing.T) {
	root := t.TempDir()
	s, server := openWith(t, root)
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
	mustDo(t, s.Delete(t.Context(), "v"))
}
