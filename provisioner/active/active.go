// Package active tells a cluster which of the podnas that share one disk serves it.
//
// The disk decides who that is, by its reservations. This package never does: an API server that is away, or that says something
// wrong, stops nobody from serving. It is for those who look for the active podnas, and it lets a standby notice a death.
//
//   - [Active] runs beside the server in the active podnas. It renews the Lease SERVICE-active, and has the label podnas.io/role=active
//     on its own pod alone, by which the Service selects (labels.go). Readiness can't lead the Service, since a dead node's pod stays
//     ready for 40 to 50 seconds.
//   - [Standby] runs in a podnas that waits for the disk. It knows for how long the Lease has not been renewed although it could have
//     been (standby.go).
//
// Neither uses client-go's typed clients, see client.go.
package active

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/podnas/podnas/internal/idle"
)

const (
	// renewPeriod is the time between two renewals of the Lease, and between two looks of a standby at it.
	renewPeriod = 2 * time.Second
	// callTimeout is for what is done in one period: two in a row can fail before a standby counts 7 seconds.
	callTimeout = 1500 * time.Millisecond
	// staleAfter is what the Lease says of itself, for people: a standby knows it by its own clock.
	staleAfter = 7 * time.Second
	// labelPeriod is the time between two looks at the pods, when they were right the last time.
	labelPeriod = 10 * time.Second
)

// Config is what both need.
type Config struct {
	Client    *Client
	Namespace string // podnas's own
	Service   string // its name begins that of the Lease
	Pod, UID  string // this pod
	// Fresh, if not nil, reports whether the disk is known to be this podnas's. While it is not, an Active takes nothing from another.
	Fresh func() bool
	Log   *slog.Logger
}

func (c *Config) leaseName() string { return c.Service + "-active" }

// Active is the podnas that serves.
type Active struct {
	Config

	lease  *coordinationv1.Lease // as it was written last, or nil
	looked time.Time             // when the pods were looked at, and were right; zero: they were not

	mu sync.Mutex // nothing is called while it is held
	// +checklocks:mu
	state state
}

// state is what is known of the rest of the cluster.
type state struct {
	renewErr error // of the last renewal
	labelErr error // of the last look at the pods
	served   bool  // the pods have been right once
	look
	since time.Time // since when standby is what it is, or since when podnas is active and that is not known
	// unreadySince is since when each look has found this podnas's own pod unready.
	unreadySince time.Time
}

// NewActive returns an Active that does nothing until it runs.
func NewActive(cfg Config) *Active { return &Active{Config: cfg} }

// Run renews the Lease until ctx ends. From when serves is closed the Service is led here, too.
func (a *Active) Run(ctx context.Context, serves <-chan struct{}) {
	a.mu.Lock()
	a.state.since = time.Now()
	a.mu.Unlock()
	for leads := false; ; {
		taken, err := a.renew(ctx)
		if ctx.Err() != nil {
			return
		}
		a.toldLease(err)
		// Another one that believes to be active may have changed the labels.
		if leads && err == nil && a.fresh() && (taken || time.Since(a.looked) >= labelPeriod) {
			found, err := a.label(ctx)
			if ctx.Err() != nil {
				return
			}
			a.toldLabels(found, err)
		}
		select {
		case <-ctx.Done():
			return
		case <-serves:
			leads, serves = true, nil
		case <-time.After(idle.UntilTick(time.Now(), renewPeriod)):
		}
	}
}

// fresh is Config.Fresh.
func (a *Active) fresh() bool { return a.Fresh == nil || a.Fresh() }

// errOthers is the error of an Active that may have lost its disk without knowing.
var errOthers = errors.New("another podnas says that it serves, and the disk has not answered this one for some seconds")

// renew renews the Lease, and takes it from whoever has it. taken is whether it was another's.
func (a *Active) renew(ctx context.Context) (taken bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if !a.fresh() {
		a.lease = nil // whose it is has to be read
	}
	for range 2 {
		if a.lease == nil {
			if a.lease, err = a.Client.lease(ctx, a.Namespace, a.leaseName()); err != nil {
				return false, err
			}
		}
		var lease *coordinationv1.Lease
		lease, taken = a.next()
		if taken && !a.fresh() {
			return false, errOthers
		}
		a.lease, err = a.Client.write(ctx, lease, a.lease == nil)
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) && !apierrors.IsNotFound(err) {
			break
		}
		a.lease = nil // somebody has written or deleted it
	}
	return taken && err == nil, err
}

// next is the Lease as it is to be written.
func (a *Active) next() (lease *coordinationv1.Lease, taken bool) {
	now, seconds := metav1.NowMicro(), int32(staleAfter.Seconds())
	if a.lease == nil {
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: a.Namespace, Name: a.leaseName()}}
	} else {
		lease = a.lease.DeepCopy()
	}
	holder := a.Pod + "_" + a.UID
	if was := lease.Spec.HolderIdentity; was == nil || *was != holder {
		transitions := int32(1)
		if n := lease.Spec.LeaseTransitions; n != nil {
			transitions += *n
		}
		taken, lease.Spec.AcquireTime, lease.Spec.LeaseTransitions = true, &now, &transitions
	}
	lease.Spec.HolderIdentity, lease.Spec.RenewTime, lease.Spec.LeaseDurationSeconds = &holder, &now, &seconds
	return lease, taken
}

// toldLease keeps the result of a renewal, and logs each change.
func (a *Active) toldLease(err error) {
	a.mu.Lock()
	before := a.state.renewErr
	a.state.renewErr = err
	a.mu.Unlock()
	switch {
	case err != nil && before == nil:
		a.Log.Warn("active: the Lease can't be renewed, by which others know that this podnas serves; it serves on", "lease", a.Namespace+"/"+a.leaseName(), "err", err)
	case err == nil && before != nil:
		a.Log.Info("active: the Lease is renewed again", "lease", a.Namespace+"/"+a.leaseName())
	}
}

// toldLabels does the same for a look at the pods.
func (a *Active) toldLabels(found look, err error) {
	now := time.Now()
	a.mu.Lock()
	before := a.state
	after := state{renewErr: before.renewErr, labelErr: err, served: before.served || err == nil, look: found, since: before.since, unreadySince: now}
	if before.unready != "" {
		after.unreadySince = before.unreadySince
	}
	if err != nil { // nothing new is known of the others
		after.look = look{standby: before.standby, waits: before.waits}
	} else if after.standby != before.standby || !before.served {
		after.since = now
	}
	a.state = after
	a.mu.Unlock()

	a.looked = time.Time{}
	if err == nil {
		a.looked = now
	}
	switch {
	case err != nil && before.labelErr == nil:
		a.Log.Error("active: the Service may not lead to this pod: its label can't be set, or taken from others; it is tried again", "label", RoleLabel, "err", explain(err))
	case err == nil && (before.labelErr != nil || !before.served):
		a.Log.Info("active: the Service leads to this pod", "pod", a.Pod)
	}
	if err != nil || after.standby == before.standby && before.served {
		return
	}
	if found.standby == "" {
		a.Log.Warn("active: there is no standby", "why", found.waits)
	} else {
		a.Log.Info("active: there is a standby", "pod", found.standby)
	}
}

// explain adds to an error of the API server what to do.
func explain(err error) error {
	if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
		return fmt.Errorf("podnas lacks a right that deploy/components/ha has: %w", err)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("the API server has not answered within %s: %w", callTimeout, err)
	}
	return err
}
