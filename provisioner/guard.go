package provisioner

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Timing of the guard's Leases.
const (
	guardDuration = 60 * time.Second // from the last renewal to the name being free
	guardPeriod   = 10 * time.Second
	// guardPause is between writing the Lease and looking once more: longer than
	// the way of another's first Lease to the API server takes.
	guardPause = time.Second
)

// guard sees to it that of several podnas with one provisioner name only one
// works, wherever in the cluster they are. It is for mistakes: two disks under
// one name would both answer every claim. (Two that are meant to take turns use
// leader election.)
//
// Who works has a Lease, in its own namespace, that names the provisioner and
// the disk. Before it works, and while it does, it lists the Leases of all
// namespaces; whoever holds the name longest keeps it. A restart on the same disk
// finds its own Lease and goes on at once. One that has not been renewed for
// guardDuration counts no more.
type guard struct {
	client              kubernetes.Interface
	namespace           string // of this Lease
	provisioner         string
	identity            string // of the disk
	pod                 *pod
	says                func(problem string) // tells that this one stands aside, "" when no more
	log                 *slog.Logger
	period, pause, hold time.Duration // guardPeriod, guardPause, guardDuration but in tests
}

// provisionerAnnotation is on the guard's Leases; a label can't hold a slash.
const provisionerAnnotation = "podnas.io/provisioner"

// wait returns when this podnas may work. The error is the context's.
func (g *guard) wait(ctx context.Context) error {
	said := ""
	for {
		rival, fresh, err := g.renew(ctx)
		if err == nil && rival == nil && fresh {
			// Another may have looked before this Lease was there.
			if err = sleep(ctx, g.pause); err == nil {
				rival, _, err = g.renew(ctx)
			}
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case apierrors.IsForbidden(err):
			// An older deploy/; a guard against mistakes must not stop the work.
			g.log.Warn("controller: no permission to check whether another podnas has the same provisioner name; apply the ClusterRole of this version", "err", err)
			return nil
		case err != nil:
			g.log.Warn("controller: can't check whether another podnas has the same provisioner name", "err", err)
		case rival == nil:
			g.says("")
			return nil
		default:
			if problem := g.describe(rival); problem != said {
				said = problem
				g.log.Error("controller: this podnas stands aside: it creates and deletes no volumes", "reason", problem)
				g.pod.warn("StandsAside", problem)
				g.says(problem)
			}
		}
		if err := sleep(ctx, g.period); err != nil {
			return err
		}
	}
}

// keep renews the Lease until ctx ends or another turns out to have the name for
// longer; the error is then ErrLostLease.
func (g *guard) keep(ctx context.Context) error {
	for sleep(ctx, g.period) == nil {
		rival, _, err := g.renew(ctx)
		if err != nil && ctx.Err() == nil {
			g.log.Warn("controller: can't renew the Lease for the provisioner name", "err", err)
		}
		if rival != nil {
			problem := g.describe(rival)
			g.pod.warn("StandsAside", problem)
			return fmt.Errorf("%w: %s", ErrLostLease, problem)
		}
	}
	return nil
}

// describe says what is wrong and what to do.
func (g *guard) describe(rival *coordinationv1.Lease) string {
	return fmt.Sprintf("another podnas, with the disk %s, in namespace %s (Lease %s), has the same provisioner name %s: give one of them another name with --provisioner, or remove it",
		rival.Labels[InstanceAnnotation], rival.Namespace, rival.Name, g.provisioner)
}

// renew renews this podnas's Lease, unless another's is in force that goes
// before; that one is then returned. It tells whether the Lease is a new one.
func (g *guard) renew(ctx context.Context) (rival *coordinationv1.Lease, fresh bool, err error) {
	list, err := g.client.CoordinationV1().Leases(metav1.NamespaceAll).List(ctx, metav1.ListOptions{LabelSelector: InstanceAnnotation})
	if err != nil {
		return nil, false, fmt.Errorf("list Leases: %w", err)
	}
	now := metav1.NowMicro()
	var mine *coordinationv1.Lease
	var others []*coordinationv1.Lease
	for i := range list.Items {
		switch lease := &list.Items[i]; {
		case lease.Namespace == g.namespace && lease.Name == g.leaseName():
			mine = lease
		case g.inForce(lease, now):
			others = append(others, lease)
		}
	}
	fresh = mine == nil || !g.inForce(mine, now)
	for _, other := range others {
		if fresh || before(other, mine) {
			return other, false, nil
		}
	}
	return nil, fresh, g.write(ctx, mine, fresh, now)
}

// inForce tells whether a Lease holds the provisioner's name. The clocks of the
// nodes must agree to well within guardDuration, as a cluster's do.
func (g *guard) inForce(lease *coordinationv1.Lease, now metav1.MicroTime) bool {
	return lease.Annotations[provisionerAnnotation] == g.provisioner && lease.Spec.AcquireTime != nil &&
		lease.Spec.RenewTime != nil && now.Sub(lease.Spec.RenewTime.Time) < g.hold
}

// before tells whether a has held the name longer than b.
func before(a, b *coordinationv1.Lease) bool {
	if !a.Spec.AcquireTime.Equal(b.Spec.AcquireTime) {
		return a.Spec.AcquireTime.Before(b.Spec.AcquireTime)
	}
	return a.Namespace+"/"+a.Name < b.Namespace+"/"+b.Name
}

func (g *guard) leaseName() string { return "podnas-" + g.identity }

// write makes the Lease, or renews the one there is.
func (g *guard) write(ctx context.Context, mine *coordinationv1.Lease, fresh bool, now metav1.MicroTime) error {
	leases := g.client.CoordinationV1().Leases(g.namespace)
	first := mine == nil
	if first {
		mine = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: g.namespace, Name: g.leaseName()}}
	}
	if fresh {
		mine.Spec.AcquireTime = &now
	}
	metav1.SetMetaDataLabel(&mine.ObjectMeta, InstanceAnnotation, g.identity)
	metav1.SetMetaDataAnnotation(&mine.ObjectMeta, provisionerAnnotation, g.provisioner)
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	seconds := int32(g.hold.Seconds())
	mine.Spec.HolderIdentity, mine.Spec.RenewTime, mine.Spec.LeaseDurationSeconds = &host, &now, &seconds
	if first {
		_, err = leases.Create(ctx, mine, metav1.CreateOptions{})
	} else {
		_, err = leases.Update(ctx, mine, metav1.UpdateOptions{})
	}
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("another podnas with a copy of this disk writes the same Lease %s/%s: %w", g.namespace, g.leaseName(), err)
	}
	if err != nil {
		return fmt.Errorf("write Lease %s/%s: %w", g.namespace, g.leaseName(), err)
	}
	return nil
}

// sleep waits, unless ctx ends before.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
