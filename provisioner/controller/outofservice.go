package controller

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/pager"
)

// outOfServicePeriod is the time between two looks at the nodes. The first is after one, in which most clients come.
const outOfServicePeriod = 2 * time.Second

// AwaitedClient is a client of version 4 for which the server waits after a crash, before others can open or lock anything.
type AwaitedClient struct {
	Owner     string
	Host      string       // host name of its node; empty: not known
	Addresses []netip.Addr // from which it came; one is invalid if it is not known
}

// Grace is what the server waits for after a crash.
type Grace struct {
	Lasts   func() bool
	Awaited func() []AwaitedClient
	// Excuse has the server not wait for clients, by their owners.
	Excuse func(owners ...string)
}

// outOfService has the server not wait for clients whose nodes are out of service.
//
// A node is out of service if it has the taint of that name, which says that somebody knows it to be off, and is not Ready. A
// client is on it if it has the node's host name, and has come from the node's InternalIP or its pods' addresses alone: traffic of
// others can have that address, as of a NodePort, and host names are anybody's choice. Whoever is not surely on such a node is waited
// for, and so are all while the API server does not answer. A node that is gone is no proof that its machine is off.
type outOfService struct {
	client kubernetes.Interface
	grace  *Grace // nil: there is nothing to wait for
	period time.Duration
	log    *slog.Logger
}

// run looks at the nodes while the server waits for somebody, until ctx ends.
func (o *outOfService) run(ctx context.Context) {
	if o.grace == nil {
		return
	}
	told := false
	for o.grace.Lasts() && sleep(ctx, o.period) == nil {
		err := o.look(ctx)
		switch {
		case err == nil || told || ctx.Err() != nil:
			continue
		case apierrors.IsForbidden(err):
			o.log.Info("controller: podnas may not see nodes, so after a crash of podnas it waits for clients on nodes that are out of service, too: deploy/components/node-failure grants it")
		default:
			o.log.Warn("controller: the nodes can't be looked at, so podnas waits for all clients that had files open", "err", err)
		}
		told = true
	}
}

// look excuses the clients whose nodes are out of service.
func (o *outOfService) look(ctx context.Context) error {
	nodes, err := o.nodes(ctx)
	if err != nil || len(nodes) == 0 {
		return err
	}
	var owners []string
	on := map[string]int{} // how many, by node
	for _, c := range o.grace.Awaited() {
		if i := slices.IndexFunc(nodes, c.isOn); i >= 0 {
			owners = append(owners, c.Owner)
			on[nodes[i].Name]++
		}
	}
	if len(owners) > 0 {
		o.grace.Excuse(owners...)
	}
	for node, clients := range on {
		o.log.Info("controller: podnas does not wait for clients on a node that is out of service", "node", node, "clients", clients)
	}
	return nil
}

// nodes returns those that are out of service.
func (o *outOfService) nodes(ctx context.Context) (out []*v1.Node, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	err = pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return o.client.CoreV1().Nodes().List(ctx, options)
	}).EachListItem(ctx, metav1.ListOptions{}, func(item runtime.Object) error {
		if node, ok := item.(*v1.Node); ok && isOutOfService(node) {
			out = append(out, node)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	return out, nil
}

// isOutOfService reports whether somebody has said that a node is off, and nothing speaks against it.
func isOutOfService(node *v1.Node) bool {
	if !slices.ContainsFunc(node.Spec.Taints, func(t v1.Taint) bool { return t.Key == v1.TaintNodeOutOfService }) {
		return false
	}
	return !slices.ContainsFunc(node.Status.Conditions, func(c v1.NodeCondition) bool {
		return c.Type == v1.NodeReady && c.Status == v1.ConditionTrue
	})
}

// isOn reports whether a client is surely on a node.
func (c *AwaitedClient) isOn(node *v1.Node) bool {
	if !sameHost(c.Host, node.Name) && !sameHost(c.Host, node.Labels[v1.LabelHostname]) {
		return false
	}
	return len(c.Addresses) > 0 && !slices.ContainsFunc(c.Addresses, func(address netip.Addr) bool { return !isOf(address.Unmap(), node) })
}

// isOf reports whether an address is the node's own in the cluster, or in its range of the pod network: with some network plugins a
// node's mounts come from the first one of that.
func isOf(address netip.Addr, node *v1.Node) bool {
	return slices.ContainsFunc(node.Status.Addresses, func(of v1.NodeAddress) bool {
		ip, err := netip.ParseAddr(of.Address)
		return err == nil && of.Type == v1.NodeInternalIP && ip.Unmap() == address
	}) || slices.ContainsFunc(node.Spec.PodCIDRs, func(of string) bool {
		pods, err := netip.ParsePrefix(of)
		return err == nil && pods.Contains(address)
	})
}

// sameHost compares two host names, of which either may lack its domain.
func sameHost(a, b string) bool {
	a, b = strings.ToLower(a), strings.ToLower(b)
	return a != "" && b != "" && (a == b || strings.HasPrefix(a, b+".") || strings.HasPrefix(b, a+"."))
}
