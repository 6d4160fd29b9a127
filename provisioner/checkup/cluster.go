package checkup

import (
	"context"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/podnas/podnas/internal/doctor"
	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/provisioner"
	"github.com/podnas/podnas/provisioner/active"
	"github.com/podnas/podnas/provisioner/controller"
)

// Cluster has what the checks in a cluster need. Client, Provisioner and
// Reconciler are required.
type Cluster struct {
	Client      kubernetes.Interface
	Provisioner *provisioner.Provisioner
	Reconciler  *controller.Reconciler
	// Namespace is podnas's own, Service the name of its Service; empty outside of
	// the cluster.
	Namespace, Service string
	// Check returns an error if the engine does not support a volume's options.
	Check func(volume.Options) error
	// Active tells the cluster that this podnas serves the disk that it shares with a standby; nil: it has the disk alone.
	Active *active.Active
}

// address checks the address that clients mount from.
func address(ctx context.Context, e provisioner.Endpoint) doctor.Result {
	a, err := e.Address(ctx)
	if err != nil {
		return doctor.Fail("do what the message says; until then podnas creates no volume, because nodes could not mount it", "%v", err)
	}
	return doctor.Good("clients mount from %s, port %d", a.IP, a.Port)
}

// compared returns the findings of the comparison of the disk with the cluster.
func (c *Cluster) compared() []doctor.Result {
	r := c.Reconciler.Report()
	switch {
	case r.StandsAside != "":
		return []doctor.Result{doctor.Fail("two podnas of one name would both answer every claim", "%s", r.StandsAside)}
	case r.Time.IsZero():
		return []doctor.Result{doctor.Warn("try again in a minute; if this persists, podnas's log says why it processes no claims",
			"the disk was not compared with the cluster yet")}
	case len(r.Findings) == 0:
		return []doctor.Result{doctor.Good("volumes and PersistentVolumes agree, as of %s", r.Time.UTC().Format("15:04:05 UTC"))}
	}
	return findings(r.Findings)
}

// grant is what a file of deploy/ grants, and what to do without it.
type grant struct {
	rights []controller.Right
	fix    string
}

// rights checks with the API server whether podnas has all the rights it needs.
func (c *Cluster) rights(ctx context.Context) []doctor.Result {
	wanted := []grant{{controller.Rights(), "apply the ClusterRole and the Role of this version: 'kubectl apply -f deploy/base/rbac.yaml'"}}
	if c.Active != nil {
		wanted = append(wanted, grant{active.Rights(), "apply the Role of deploy/components/ha: 'kubectl apply -f deploy/components/ha/rbac.yaml'"})
	}
	asked := 0
	var results []doctor.Result
	for _, from := range wanted {
		for _, right := range from.rights {
			if right.Own && c.Namespace == "" {
				continue // outside of the cluster podnas has no namespace, and needs no rights in it
			}
			for _, verb := range right.Verbs {
				allowed, err := c.may(ctx, right, verb)
				if err != nil {
					return append(results, doctor.Fail("make sure that podnas's pod can reach the API server", "can't query podnas's rights: %v", err))
				}
				asked++
				if !allowed {
					results = append(results, doctor.Fail(from.fix, "podnas may not %s %s: %s", verb, describe(right, c.Namespace), right.Without))
				}
			}
		}
	}
	if len(results) == 0 {
		return []doctor.Result{doctor.Good("podnas has all the rights that it needs: %d", asked)}
	}
	return results
}

// policy checks whether the policy of deploy/base/policy.yaml is in force.
func (c *Cluster) policy(ctx context.Context) doctor.Result {
	name := c.Provisioner.Name
	if err := controller.MayProvision(ctx, c.Client, name); err != nil {
		return doctor.Fail("apply the policy of this version, with the provisioner name of --provisioner in it: 'kubectl apply -f deploy/base/policy.yaml'", "%v", err)
	}
	switch wide, err := controller.MayMakeAny(ctx, c.Client, name); {
	case err != nil:
		return doctor.Warn("try again, and make sure that podnas's pod can reach the API server", "can't find out whether a policy restricts the PersistentVolumes that podnas may create: %v", err)
	case wide:
		return doctor.Warn("apply the policy, with the name of podnas's ServiceAccount in it: 'kubectl apply -f deploy/base/policy.yaml' (Kubernetes 1.30 or later)",
			"podnas may create PersistentVolumes of any kind, including hostPath: an attacker with control over podnas could get control over the nodes")
	}
	return doctor.Good("podnas may make NFS volumes of %s alone", name)
}

func describe(r controller.Right, namespace string) string {
	name := r.Resource
	if r.Group != "" {
		name += "." + r.Group
	}
	if r.Own {
		return name + " in namespace " + namespace
	}
	return name
}

func (c *Cluster) may(ctx context.Context, r controller.Right, verb string) (bool, error) {
	resource, sub, _ := strings.Cut(r.Resource, "/")
	attributes := &authorizationv1.ResourceAttributes{Group: r.Group, Resource: resource, Subresource: sub, Verb: verb}
	if r.Own {
		attributes.Namespace = c.Namespace
		if resource == "services" {
			attributes.Name = c.Service
		}
	}
	review, err := c.Client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: attributes},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("SelfSubjectAccessReview: %w", err)
	}
	return review.Status.Allowed, nil
}
