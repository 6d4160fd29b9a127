package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// holdCopies keeps copies from their end until the returned function is called.
func holdCopies(s *Store) (reached <-chan struct{}, letGo func()) {
	at, hold := make(chan struct{}), make(chan struct{})
	var once sync.Once
	s.step = func(done string) {
		if done == "files are copied" {
			once.Do(func() { close(at) })
			<-hold
		}
	}
	return at, func() { close(hold) }
}

func created(ctx context.Context, s *Store, spec Spec) (Volume, error) {
	for {
		v, err := s.Create(ctx, spec)
		var copying *CopyingError
		if !errors.As(err, &copying) {
			return v, err
		}
		time.Sleep(time.Millisecond)
	}
}

func TestCopyOfAVolume(t *testing.T) {
	root := t.TempDir()
	s, e := open(t, root)
	mustCreate(t, s, "source")
	for i := range 50 {
		mustDo(t, os.WriteFile(filepath.Join(root, "source", fmt.Sprint(i)), []byte(fmt.Sprint(i)), 0o640))
	}
	spec := Spec{Name: "copy", Size: 2 << 20, Source: "source"}
	for what, tt := range map[string]struct {
		spec Spec
		want error
	}{
		"smaller":    {Spec{Name: "copy", Size: 1<<20 - 1, Source: "source"}, ErrInvalid},
		"of nothing": {Spec{Name: "copy", Size: 1 << 20, Source: "none"}, ErrNotFound},
	} {
		if _, err := s.Create(t.Context(), tt.spec); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v", what, err)
		}
	}

	reached, letGo := holdCopies(s)
	var copying *CopyingError
	if _, err := s.Create(t.Context(), spec); !errors.As(err, &copying) {
		t.Fatalf("at first: %v", err)
	}
	<-reached
	if _, err := s.Create(t.Context(), spec); !errors.As(err, &copying) || copying.Files != 50 || copying.Source != "source" {
		t.Errorf("its progress: %v", err)
	}
	if err := s.Delete(t.Context(), "source"); !errors.Is(err, ErrBusy) {
		t.Errorf("the source is deleted: %v", err)
	}
	if _, err := s.Get("copy"); !errors.Is(err, ErrNotFound) || len(e.names()) != 1 {
		t.Errorf("half a copy is served: %v, %v", err, e.names())
	}
	letGo()
	if v, err := created(t.Context(), s, spec); err != nil || v.Source != "source" {
		t.Errorf("at the end: %+v, %v", v, err)
	}
	for i := range 50 {
		if data, err := os.ReadFile(filepath.Join(root, "copy", fmt.Sprint(i))); err != nil || string(data) != fmt.Sprint(i) {
			t.Errorf("%d: %q, %v", i, data, err)
		}
	}
	mustDo(t, s.Delete(t.Context(), "source"))
	if names := e.names(); len(names) != 1 || names[0] != "copy" {
		t.Errorf("exported: %v", names)
	}
}

// A copy that nobody wants any more ends, and leaves nothing.
func TestDeleteOfACopyUnderWay(t *testing.T) {
	root := t.TempDir()
	s, _ := open(t, root)
	mustCreate(t, s, "source")
	reached, letGo := holdCopies(s)
	var copying *CopyingError
	if _, err := s.Create(t.Context(), Spec{Name: "copy", Size: 1 << 20, Source: "source", OnDelete: RetainFiles}); !errors.As(err, &copying) {
		t.Fatal(err)
	}
	<-reached
	if err := s.Archive(t.Context(), "copy"); !errors.Is(err, ErrBusy) {
		t.Errorf("half a copy is archived: %v", err)
	}
	deleted := make(chan error)
	go func() { deleted <- s.Delete(context.Background(), "copy") }()
	select {
	case err := <-deleted:
		t.Errorf("deleted while it is written to: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	letGo()
	mustDo(t, <-deleted)
	eventually(t, "nothing is left of the copy", func() bool {
		_, err := os.Lstat(filepath.Join(root, "copy"))
		return errors.Is(err, os.ErrNotExist) && len(stateFiles(t, root)) == 1
	})
	mustDo(t, s.Delete(t.Context(), "source"))
}

// What goes wrong is told to who asks next, and then it can be tried again.
func TestCopyThatFails(t *testing.T) {
	root := t.TempDir()
	s, e := open(t, root)
	mustCreate(t, s, "source")
	e.fail = errors.New("no export today")
	spec := Spec{Name: "copy", Size: 1 << 20, Source: "source"}
	if _, err := created(t.Context(), s, spec); !errors.Is(err, e.fail) && (err == nil || err.Error() == "") {
		t.Errorf("%v", err)
	}
	if v, err := created(t.Context(), s, spec); err != nil || v.Name != "copy" {
		t.Errorf("again: %+v, %v", v, err)
	}
}

// A Delete that comes while a copy that has failed puts its volume into the trash puts it there no second time.
func TestDeleteWhileCopyFails(t *testing.T) {
	root := t.TempDir()
	s, e := open(t, root)
	mustCreate(t, s, "source")
	for i := range 1000 { // the emptier is to be at work when Delete goes on
		mustDo(t, os.WriteFile(filepath.Join(root, "source", fmt.Sprint(i)), nil, 0o640))
	}
	e.fail = errors.New("no export today")
	reached, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	s.step = func(done string) {
		if done == "record is in the trash" {
			once.Do(func() {
				close(reached)
				<-goOn
			})
		}
	}
	var copying *CopyingError
	spec := Spec{Name: "copy", Size: 1 << 20, Source: "source"}
	if _, err := s.Create(t.Context(), spec); !errors.As(err, &copying) {
		t.Fatal(err)
	}
	<-reached
	deleted := make(chan error)
	go func() { deleted <- s.Delete(context.Background(), "copy") }()
	time.Sleep(20 * time.Millisecond) // so that it waits by now
	close(goOn)
	if err := <-deleted; err != nil && !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	eventually(t, "the trash is empty", func() bool {
		trash, err := s.Trash()
		return err == nil && trash.Volumes == 0
	})
	if v, err := created(t.Context(), s, spec); err != nil || v.Name != "copy" {
		t.Errorf("again: %+v, %v", v, err)
	}
}

// A copy that a restart interrupts goes on.
func TestCopyGoesOnAfterRestart(t *testing.T) {
	root := t.TempDir()
	s, _ := open(t, root)
	mustCreate(t, s, "source")
	writeInto(t, root, "source")
	reached, letGo := holdCopies(s)
	spec := Spec{Name: "copy", Size: 1 << 20, Source: "source"}
	_, _ = s.Create(t.Context(), spec)
	<-reached
	s.stop()
	letGo()
	mustDo(t, s.Close())
	s, _ = open(t, root)
	eventually(t, "it is a volume", func() bool {
		_, err := s.Get("copy")
		return err == nil
	})
	isKept(t, filepath.Join(root, "copy"))
}

// A volume that is being copied is not restored, also while the copy waits for others.
func TestRestoreOfASource(t *testing.T) {
	root := t.TempDir()
	s, _ := openWith(t, root)
	mustCreate(t, s, "v")
	writeInto(t, root, "v")
	mustSnapshot(t, s, "v", "a")
	reached, letGo := holdCopies(s)
	copies := []string{"first", "second", "waits"}
	for _, name := range copies {
		if _, err := s.Create(t.Context(), Spec{Name: name, Size: 1 << 20, Source: "v"}); !errors.As(err, new(*CopyingError)) {
			t.Fatal(err)
		}
	}
	<-reached
	if _, err := s.StartRestore(t.Context(), "v", "a", true); !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), "being copied") {
		t.Errorf("meanwhile: %v", err)
	}
	letGo()
	for _, name := range copies {
		_, err := created(t.Context(), s, Spec{Name: name, Size: 1 << 20, Source: "v"})
		mustDo(t, err)
	}
	_, err := s.StartRestore(t.Context(), "v", "a", true)
	mustDo(t, err)
	mustDo(t, awaitRestore(s))
}

// A copy does not go on at the start of podnas while its source has a part of a snapshot.
func TestCopyOfHalfRestored(t *testing.T) {
	root := t.TempDir()
	s, server := openWith(t, root)
	mustCreate(t, s, "v")
	mustSnapshot(t, s, "v", "a")
	_, err := created(t.Context(), s, Spec{Name: "copy", Size: 1 << 20, Source: "v"})
	mustDo(t, err)
	server.restored = func(context.Context) error { return errors.New("the disk is broken") }
	_, err = s.StartRestore(t.Context(), "v", "a", false)
	mustDo(t, err)
	if err := awaitRestore(s); err == nil {
		t.Fatal("it is restored")
	}
	s.mu.Lock()
	r := *s.records["copy"]
	s.mu.Unlock()
	mustDo(t, s.Close())
	r.State = copyingState
	s, _ = openWith(t, root) // to write the record
	mustDo(t, s.write(&r))
	mustDo(t, s.Close())
	s, _ = openWith(t, root)
	if u := s.Unserved(); len(u) != 1 || u[0].Name != "copy" || !strings.Contains(u[0].Problem, "is being restored to its snapshot a") {
		t.Errorf("not served: %+v", u)
	}
}
