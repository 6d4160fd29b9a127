package active

import (
	"context"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/podnas/podnas/internal/idle"
)

// longestGap is the longest time between two looks of which it is known that the API server worked between them.
const longestGap = renewPeriod + time.Second

// Standby watches the Lease of the active podnas.
//
// What it counts is the time in which the Lease could have been renewed and was not, by this process's own clock: each look in it was
// answered, and so was a write of a Lease of its own, since an API server whose storage is full or slow may still be read. And it
// counts only from a renewal that it has seen: after each look that failed, or came late, the active podnas has to be heard again. So
// an API server that was away, and one that has come back just now, are no proof of anything; nor is a time in which this process was
// stopped, nor that a podnas that has taken the disk over has not written the Lease yet.
type Standby struct {
	Config

	mu sync.Mutex // nothing is called while it is held
	// +checklocks:mu
	known, heard bool // there is seen, and it is a renewal
	// +checklocks:mu
	seen coordinationv1.LeaseSpec
	// since and last are when seen was there first and last, if known.
	// +checklocks:mu
	since time.Time
	// +checklocks:mu
	last time.Time

	own    *coordinationv1.Lease // as it was written last, or nil
	looked time.Time             // the end of the last look
	failed bool                  // the last look
}

// NewStandby returns a Standby that knows nothing until it runs.
func NewStandby(cfg Config) *Standby { return &Standby{Config: cfg} }

// Silent returns for how long the Lease has not been renewed although it could have been; 0 if that is not known.
func (s *Standby) Silent() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.known || !s.heard {
		return 0
	}
	return max(0, s.last.Sub(s.since))
}

// Run watches until ctx ends.
func (s *Standby) Run(ctx context.Context) {
	for {
		s.look(ctx)
		select {
		case <-ctx.Done():
			return
		case <-time.After(idle.UntilTick(time.Now(), renewPeriod)):
		}
	}
}

func (s *Standby) look(ctx context.Context) {
	before := time.Now()
	lease, err := s.answers(ctx)
	after := time.Now()
	// By both clocks: one of them stands still while the machine is suspended, the other may be set.
	stopped := gap(s.looked, before) > longestGap || gap(before, after) > longestGap
	s.looked = after
	if ctx.Err() != nil {
		return
	}
	s.tell(err)

	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil || lease == nil:
		s.known, s.heard = false, false
	case !s.known || stopped || !equality.Semantic.DeepEqual(lease.Spec, s.seen):
		s.heard = s.known && !stopped
		s.known, s.seen, s.since, s.last = true, lease.Spec, after, after
	default:
		s.last = before
	}
}

// gap is the time between two moments, by the clock that says more.
func gap(from, to time.Time) time.Duration {
	wall := to.Round(0).Sub(from.Round(0))
	return max(to.Sub(from), wall, -wall)
}

// answers returns the Lease, or nil if there is none, and an error unless the API server answers and can be written to.
func (s *Standby) answers(ctx context.Context) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	lease, err := s.Client.lease(ctx, s.Namespace, s.leaseName())
	if err != nil || lease == nil || !s.isSeen(&lease.Spec) {
		return lease, err
	}
	return lease, s.write(ctx)
}

// isSeen reports whether nothing has changed since the last look.
func (s *Standby) isSeen(spec *coordinationv1.LeaseSpec) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known && equality.Semantic.DeepEqual(*spec, s.seen)
}

// write writes a Lease that nobody else does.
func (s *Standby) write(ctx context.Context) (err error) {
	name := s.Pod + "-standby"
	if s.own == nil {
		if s.own, err = s.Client.lease(ctx, s.Namespace, name); err != nil {
			return err
		}
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name}}
	if s.own != nil {
		lease = s.own.DeepCopy()
	}
	now, holder := metav1.NowMicro(), s.Pod+"_"+s.UID
	lease.Spec.HolderIdentity, lease.Spec.RenewTime = &holder, &now
	s.own, err = s.Client.write(ctx, lease, s.own == nil) // nil with an error: it is read again
	return err
}

// tell logs each change of whether the API server helps.
func (s *Standby) tell(err error) {
	switch was := s.failed; {
	case err != nil && !was:
		s.Log.Warn("standby: the API server can't be asked whether the active podnas lives, so the disk alone is", "err", explain(err))
	case err == nil && was:
		s.Log.Info("standby: the API server says again whether the active podnas lives")
	}
	s.failed = err != nil
}
