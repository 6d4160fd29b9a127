package volume

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/podnas/podnas/quota"
)

// slowKernel is a kernel whose answers about one project wait.
type slowKernel struct {
	*kernel
	project       uint32
	reached, hold chan struct{}
	fail          error // then
}

func (k slowKernel) Usage(id uint32) (quota.Usage, error) {
	if id != k.project {
		return k.kernel.Usage(id)
	}
	close(k.reached)
	<-k.hold
	return quota.Usage{}, k.fail
}

// brokenKernel is a kernel of a disk that is read-only as long as broken is set.
type brokenKernel struct {
	*kernel
	broken error
}

func (k *brokenKernel) Assign(dir *os.File, id uint32) error {
	if k.broken != nil {
		return k.broken
	}
	return k.kernel.Assign(dir, id)
}

func (k *brokenKernel) AssignTree(ctx context.Context, dir *os.File, id uint32) (int, error) {
	if k.broken != nil {
		return 0, k.broken
	}
	return k.kernel.AssignTree(ctx, dir, id)
}

func (k *brokenKernel) SetLimit(id uint32, limit quota.Limit) error {
	if k.broken != nil {
		return k.broken
	}
	return k.kernel.SetLimit(id, limit)
}

// What failed and could not be undone is undone by the next request for the volume, and not by a restart alone.
func TestUndoneLater(t *testing.T) {
	create := func(s *Store) error {
		_, err := s.Create(t.Context(), Spec{Name: "v", Size: 1 << 20})
		return err
	}
	adopt := func(s *Store) error {
		_, err := s.Adopt(t.Context(), Spec{Name: "v", Path: "there", Size: 1 << 20})
		return err
	}
	remove := func(s *Store) error { return s.Delete(t.Context(), "v") }
	for _, tt := range []struct {
		name       string
		first, now func(*Store) error
		want       error
	}{
		{"create, and again", create, create, nil},
		{"create, and adopt", create, adopt, nil},
		{"create, and delete", create, remove, ErrNotFound},
		{"adopt, and again", adopt, adopt, nil},
		{"adopt, and create", adopt, create, nil},
		{"adopt, and delete", adopt, remove, ErrNotFound},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root, k := t.TempDir(), newKernel(t)
			s, e := k.boot(t, root)
			defer s.Close()
			mustDo(t, os.Mkdir(filepath.Join(root, "there"), 0o755))
			writeInto(t, root, "there")
			broken := &brokenKernel{k, errors.New("the disk is read-only")}
			s.quota = broken
			if err := tt.first(s); !errors.Is(err, broken.broken) {
				t.Errorf("at first: %v", err)
			}
			if err := tt.now(s); !errors.Is(err, broken.broken) || !errors.Is(err, ErrBusy) {
				t.Errorf("while the disk is read-only: %v", err)
			}
			broken.broken = nil
			if err := tt.now(s); !errors.Is(err, tt.want) {
				t.Fatalf("after that: %v", err)
			}
			isKept(t, filepath.Join(root, "there"))
			want := 1
			if tt.want != nil {
				want = 0
			}
			if names := e.names(); len(names) != want || len(stateFiles(t, root)) != want {
				t.Errorf("served: %v, records: %v", names, stateFiles(t, root))
			}
			if space, err := s.Space(); err != nil || space.Promised != int64(want)<<20 {
				t.Errorf("promised: %d, %v", space.Promised, err)
			}
		})
	}
}

// While the kernel does not answer one Create, all others go on.
func TestKernelHangs(t *testing.T) {
	for _, tt := range []struct {
		name string
		fail error
	}{
		{"and answers", nil},
		{"and fails", errors.New("the disk is gone")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := newKernel(t)
			s, _ := k.boot(t, t.TempDir())
			defer s.Close()
			there := mustCreate(t, s, "there")
			slow := slowKernel{k, there.Project + 1, make(chan struct{}), make(chan struct{}), tt.fail}
			s.quota = slow
			type result struct {
				v   Volume
				err error
			}
			created := make(chan result)
			spec := Spec{Name: "slow", Size: 1 << 20}
			go func() {
				v, err := s.Create(t.Context(), spec)
				created <- result{v, err}
			}()
			<-slow.reached
			done := make(chan struct{})
			go func() {
				defer close(done)
				if n := len(s.List()) + len(s.Served()) + len(s.Unserved()) + len(s.Lost()); n != 2 {
					t.Errorf("%d volumes are listed", n)
				}
				_, err := s.Usage("there")
				_, space := s.Space()
				_, check := s.Check()
				if err := errors.Join(err, space, check); err != nil || s.GivesRoom(there.ID, 0) {
					t.Error(err)
				}
				if _, err := s.Create(t.Context(), Spec{Name: "other", Path: "slow/other", Size: 1 << 20}); !errors.Is(err, ErrExists) {
					t.Errorf("in the directory that is reserved: %v", err)
				}
				if other, err := s.Create(t.Context(), Spec{Name: "other", Size: 1 << 20}); err != nil || other.Project != slow.project+1 {
					t.Errorf("another volume: %+v, %v", other, err)
				}
			}()
			select {
			case <-done:
			case <-time.After(time.Minute):
				t.Error("what needs no answer of the kernel waits for it")
			}
			close(slow.hold)
			<-done
			got := <-created
			if !errors.Is(got.err, tt.fail) {
				t.Fatal(got.err)
			}
			if tt.fail == nil {
				if got.v.Project != slow.project {
					t.Errorf("its project is %d, want %d", got.v.Project, slow.project)
				}
				return
			}
			// Nothing is left of it.
			s.quota = k
			space, err := s.Space()
			if err != nil || space.Promised != 2<<20 {
				t.Errorf("promised: %d, %v", space.Promised, err)
			}
			if again, err := s.Create(t.Context(), spec); err != nil || again.Project == 0 {
				t.Errorf("again: %+v, %v", again, err)
			}
		})
	}
}
