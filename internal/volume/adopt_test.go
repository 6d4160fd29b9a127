package volume

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/podnas/podnas/quota"
)

// adoptable makes a Store over a kernel, and a directory of two files.
func adoptable(t *testing.T) (root string, k *kernel, s *Store) {
	t.Helper()
	root, k = t.TempDir(), newKernel(t)
	s, _ = k.boot(t, root)
	mustDo(t, os.Mkdir(filepath.Join(root, "v"), 0o755))
	writeInto(t, root, "v")
	mustDo(t, os.WriteFile(filepath.Join(root, "v", "more"), nil, 0o600))
	return root, k, s
}

// tooManyAtOnce is a kernel's below with which an AssignTree that has a deadline comes to no end.
func tooManyAtOnce(ctx context.Context) error {
	if _, ok := ctx.Deadline(); ok {
		<-ctx.Done()
	}
	return ctx.Err()
}

// A directory whose files can't be assigned in time is served, and they are assigned by and by, whoever waits for the answer.
func TestAdoptManyFiles(t *testing.T) {
	for _, tt := range []struct {
		name string
		wait time.Duration // of the request
		size int64
	}{
		{"in time", time.Minute, 1 << 20},
		{"the request has waited before", time.Millisecond, 1 << 20},
		{"they take more than the size", time.Minute, 4096},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root, k, s := adoptable(t)
			defer func() { mustDo(t, s.Close()) }()
			s.adoptAtOnce = 50 * time.Millisecond
			reached, letGo := k.held()
			ctx, cancel := context.WithTimeout(t.Context(), tt.wait)
			defer cancel()
			v, err := s.Adopt(ctx, Spec{Name: "v", Size: tt.size})
			if err != nil || v.Size != tt.size {
				t.Fatalf("%+v, %v", v, err)
			}
			for range 2 { // in time, and in the background
				<-reached
			}
			if marking := s.Marking(); len(marking) != 1 || marking["v"] != nil {
				t.Errorf("being marked: %v", marking)
			}
			usages, err := s.Usages(s.List())
			if u := usages["v"]; err != nil || !u.Partial || u.Inodes != 1 || u.Limit.Bytes != tt.size {
				t.Errorf("meanwhile %+v, %v", u, err)
			}
			if f, err := s.Check(); err != nil || len(f) != 1 || !f[0].Notice || !strings.Contains(f[0].Problem, "being assigned to its project, 1 so far") {
				t.Errorf("found %v, %v", f, err)
			}
			if _, err := s.Adopt(t.Context(), Spec{Name: "v", Size: tt.size}); !errors.Is(err, ErrExists) {
				t.Errorf("again: %v", err)
			}
			letGo()
			eventually(t, "it is done", func() bool { return len(s.Marking()) == 0 })
			if v := allMarked(t, k, s, "v"); v.Inodes == 0 {
				t.Errorf("%+v", v)
			}
			isKept(t, filepath.Join(root, "v"))
			if f, err := s.Check(); err != nil || len(f) != 0 {
				t.Errorf("found %v, %v", f, err)
			}
		})
	}
}

// What is refused, interrupted or fails in time leaves no volume and no limit.
func TestAdoptUndone(t *testing.T) {
	for _, tt := range []struct {
		name  string
		size  int64
		below func(context.Context) error
		want  error
	}{
		{"they take more than the size", 4096, nil, ErrInvalid},
		{"interrupted", 1 << 20, tooManyAtOnce, context.Canceled},
		{"a bad sector", 1 << 20, func(context.Context) error { return os.ErrInvalid }, os.ErrInvalid},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root, k, s := adoptable(t)
			defer func() { mustDo(t, s.Close()) }()
			k.below = tt.below
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if tt.name == "interrupted" {
				time.AfterFunc(20*time.Millisecond, cancel)
			}
			if v, err := s.Adopt(ctx, Spec{Name: "v", Size: tt.size}); !errors.Is(err, tt.want) {
				t.Errorf("%+v, %v, want %v", v, err, tt.want)
			}
			if limits := k.limits; len(s.List())+len(limits) != 0 || len(stateFiles(t, root)) != 0 {
				t.Errorf("%v, limits %v, files %v", s.List(), limits, stateFiles(t, root))
			}
			k.below = nil
			if _, err := s.Adopt(t.Context(), Spec{Name: "v", Size: 1 << 20}); err != nil {
				t.Errorf("again: %v", err)
			}
			isKept(t, filepath.Join(root, "v"))
		})
	}
}

// A volume that is deleted while its files are assigned leaves nothing behind, and one whose size is raised has that in the end.
func TestChangedWhileAdopted(t *testing.T) {
	root, k, s := adoptable(t)
	defer func() { mustDo(t, s.Close()) }()
	s.adoptAtOnce = time.Millisecond
	_, letGo := k.held()
	defer letGo()
	v, err := s.Adopt(t.Context(), Spec{Name: "v", Size: 1 << 20, OnDelete: RetainFiles})
	mustDo(t, err)
	_, err = s.Resize(t.Context(), "v", 2<<20, 0)
	mustDo(t, err)
	if u, err := k.Usage(v.Project); err != nil || u.Limit != (quota.Limit{}) {
		t.Errorf("raised meanwhile: %+v, %v", u, err)
	}
	mustDo(t, s.Delete(t.Context(), "v"))
	if len(s.Marking()) != 0 || len(k.limits) != 0 {
		t.Errorf("deleted: %v, limits %v", s.Marking(), k.limits)
	}
	isKept(t, filepath.Join(root, "v"))
}
