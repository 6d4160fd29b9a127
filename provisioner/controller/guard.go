package controller

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

	"github.com/podnas/podnas/provisioner"
)

// Timing of the guard's Leases.
const (
	guardDuration = 60 * time.Second // from the last renewal to the name being free
	guardPeriod   = 10 * time.Second
	// guardPause is the time between writing the Lease and listing the others again:
	// longer than another podnas's first Lease needs to reach the API server.
	guardPause = time.Second
)

// guard lets only one of several podnas with the same provisioner name provision
// claims, wherever in the cluster they run. It is for mistakes: two disks under
// one name would both answer every claim. (Two that share a name on purpose use
// leader election.)
//
// The active podnas holds a Lease in its own namespace that names the provisioner
// and the disk. Before it starts to work, and regularly afterwards, it lists the
// Leases of all namespaces; the oldest holder keeps the name. After a restart on
// the same disk, podnas finds its own Lease and continues at once. A Lease that
// was not renewed for guardDuration has expired.
type guard struct {
	client              kubernetes.Interface
	namespace           string // of this Lease
	provisioner         string
	identity            string // of the disk
	pod                 *pod
	says                func(problem string) // reports why this podnas stands aside, "" when it no longer does
	log                 *slog.Logger
	period, pause, hold time.Duration // guardPeriod, guardPause and guardDuration, except in tests
}

// provisionerAnnotation is on the guard's Leases; a label can't hold a slash.
const provisionerAnnotation = "podnas.io/provisioner"

// wait returns when this podnas may work. The error is the context's.
func (g *guard) wait(ctx context.Context) error {
	said := ""
	for {
		rival, fresh, err := g.renew(ctx)
		if err == nil && rival == nil && fresh {
			// Another podnas may have listed the Leases before this one existed.
			if err = sleep(ctx, g.pause); err == nil {
				rival, _, err = g.renew(ctx)
			}
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case apierrors.IsForbidden(err):
			// The right may be cut by hand. A guard against mistakes must not stop podnas.
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

// keep renews the Lease until ctx ends. If another podnas has held the name
// longer, it returns ErrLostLease.
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
		rival.Labels[provisioner.InstanceAnnotation], rival.Namespace, rival.Name, g.provisioner)
}

// renew renews this podnas's Lease, unless a valid Lease of another podnas is
// older: then it returns that one. fresh is whether this podnas's Lease is new.
func (g *guard) renew(ctx context.Context) (rival *coordinationv1.Lease, fresh bool, err error) {
	list, err := g.client.CoordinationV1().Leases(metav1.NamespaceAll).List(ctx, metav1.ListOptions{LabelSelector: provisioner.InstanceAnnotation})
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

// inForce reports whether a Lease is valid and for this provisioner's name. The
// clocks of the nodes must differ by much less than guardDuration, as in every
// cluster.
func (g *guard) inForce(lease *coordinationv1.Lease, now metav1.MicroTime) bool {
	return lease.Annotations[provisionerAnnotation] == g.provisioner && lease.Spec.AcquireTime != nil &&
		lease.Spec.RenewTime != nil && now.Sub(lease.Spec.RenewTime.Time) < g.hold
}

// before reports whether a has held the name longer than b.
func before(a, b *coordinationv1.Lease) bool {
	if !a.Spec.AcquireTime.Equal(b.Spec.AcquireTime) {
		return a.Spec.AcquireTime.Before(b.Spec.AcquireTime)
	}
	return a.Namespace+"/"+a.Name < b.Namespace+"/"+b.Name
}

func (g *guard) leaseName() string { return "podnas-" + g.identity }

// write creates or renews the Lease.
func (g *guard) write(ctx context.Context, mine *coordinationv1.Lease, fresh bool, now metav1.MicroTime) error {
	leases := g.client.CoordinationV1().Leases(g.namespace)
	first := mine == nil
	if first {
		mine = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: g.namespace, Name: g.leaseName()}}
	}
	if fresh {
		mine.Spec.AcquireTime = &now
	}
	metav1.SetMetaDataLabel(&mine.ObjectMeta, provisioner.InstanceAnnotation, g.identity)
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

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
