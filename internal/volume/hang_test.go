package volume

import (
	"errors"
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
