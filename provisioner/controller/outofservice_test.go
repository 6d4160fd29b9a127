package controller

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/podnas/podnas/provisioner"
	"github.com/podnas/podnas/provisioner/internal/fixture"
)

// deadNode is a node that is out of service.
func deadNode(change func(*v1.Node)) *v1.Node {
	n := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node3", Labels: map[string]string{v1.LabelHostname: "host3"}},
		Spec: v1.NodeSpec{
			PodCIDRs: []string{"10.244.3.0/24", "fd00:3::/64"},
			Taints:   []v1.Taint{{Key: v1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: v1.TaintEffectNoExecute}},
		},
		Status: v1.NodeStatus{
			Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionUnknown}},
			Addresses: []v1.NodeAddress{
				{Type: v1.NodeHostName, Address: "10.0.0.9"},
				{Type: v1.NodeInternalIP, Address: "10.0.0.3"},
				{Type: v1.NodeInternalIP, Address: "fd00::3"},
				{Type: v1.NodeExternalIP, Address: "192.0.2.3"},
			},
		},
	}
	change(n)
	return n
}

// Only who is surely on a node that is surely off is not waited for.
func TestOutOfService(t *testing.T) {
	as := func(*v1.Node) {}
	from := func(host string, addresses ...string) (c AwaitedClient) {
		c.Owner, c.Host = "owner", host
		for _, a := range addresses {
			address, _ := netip.ParseAddr(a)
			c.Addresses = append(c.Addresses, address)
		}
		return c
	}
	for name, tt := range map[string]struct {
		node    func(*v1.Node)
		client  AwaitedClient
		excused bool
	}{
		"out of service":               {as, from("node3", "10.0.0.3"), true},
		"by the label of its host":     {as, from("host3", "10.0.0.3"), true},
		"with a domain":                {as, from("NODE3.example.org", "10.0.0.3"), true},
		"from two of its addresses":    {as, from("node3", "10.0.0.3", "fd00::3"), true},
		"IPv4 in IPv6":                 {as, from("node3", "::ffff:10.0.0.3"), true},
		"from its pods' network":       {as, from("node3", "10.244.3.0", "10.0.0.3"), true},
		"from another pods' network":   {as, from("node3", "10.244.4.0"), false},
		"a pod of the node":            {as, from("pod-0", "10.244.3.7"), false},
		"not ready":                    {func(n *v1.Node) { n.Status.Conditions[0].Status = v1.ConditionFalse }, from("node3", "10.0.0.3"), true},
		"without a condition":          {func(n *v1.Node) { n.Status.Conditions = nil }, from("node3", "10.0.0.3"), true},
		"ready":                        {func(n *v1.Node) { n.Status.Conditions[0].Status = v1.ConditionTrue }, from("node3", "10.0.0.3"), false},
		"merely not ready":             {func(n *v1.Node) { n.Spec.Taints[0].Key = v1.TaintNodeUnreachable }, from("node3", "10.0.0.3"), false},
		"without a taint":              {func(n *v1.Node) { n.Spec.Taints = nil }, from("node3", "10.0.0.3"), false},
		"an address that is no node's": {as, from("node3", "10.0.0.4"), false},
		"an address that is external":  {as, from("node3", "192.0.2.3"), false},
		"a host name that is an IP":    {as, from("node3", "10.0.0.9"), false},
		"an address of another, too":   {as, from("node3", "10.0.0.3", "10.0.0.4"), false},
		"an address that is not known": {as, from("node3", "10.0.0.3", ""), false},
		"without an address":           {as, from("node3"), false},
		"a pod, behind the node":       {as, from("pod-0", "10.0.0.3"), false},
		"another node, by a NodePort":  {as, from("node33", "10.0.0.3"), false},
		"a client that is not Linux":   {as, from("", "10.0.0.3"), false},
		"a node without names":         {func(n *v1.Node) { n.Labels = nil }, from("host3", "10.0.0.3"), false},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			o := &outOfService{client: fake.NewClientset(deadNode(tt.node)), log: slog.New(slog.DiscardHandler), grace: &Grace{
				Awaited: func() []AwaitedClient { return []AwaitedClient{tt.client} },
				Excuse:  func(owners ...string) { got = append(got, owners...) },
			}}
			if err := o.look(t.Context()); err != nil {
				t.Fatal(err)
			}
			if excused := slices.Equal(got, []string{"owner"}); excused != tt.excused || !excused && len(got) > 0 {
				t.Errorf("not waited for: %v", got)
			}
		})
	}
}

// An API server that does not answer, or says no, never shortens the wait. It is asked again, it is told of once, and nobody is asked when the grace period is over.
func TestNodesNotSeen(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", nil)
	client := AwaitedClient{Owner: "owner", Host: "node3", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.3")}}
	for name, tt := range map[string]struct {
		errs  []error // of each answer, then none
		lasts int     // how often the grace period is seen to last
		asked int
		says  string
		ends  bool // the clients are excused
	}{
		"it answers":       {nil, 2, 1, "does not wait for clients on a node", true},
		"no grace":         {nil, 0, 0, "", false},
		"away":             {[]error{errors.New("refused"), errors.New("refused"), errors.New("refused")}, 3, 3, "can't be looked at", false},
		"away, then there": {[]error{errors.New("refused"), context.DeadlineExceeded}, 9, 3, "can't be looked at", true},
		"forbidden":        {[]error{forbidden, forbidden}, 2, 2, "components/node-failure", false},
		"allowed later":    {[]error{forbidden, forbidden}, 9, 3, "components/node-failure", true},
	} {
		t.Run(name, func(t *testing.T) {
			api := fake.NewClientset(deadNode(func(*v1.Node) {}))
			asked := 0
			api.PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
				if asked++; asked <= len(tt.errs) {
					return true, nil, tt.errs[asked-1]
				}
				return false, nil, nil
			})
			ended := false
			var said bytes.Buffer
			o := &outOfService{client: api, period: time.Millisecond, log: slog.New(slog.NewTextHandler(&said, nil)), grace: &Grace{
				Lasts: func() bool {
					tt.lasts--
					return tt.lasts >= 0 && !ended
				},
				Awaited: func() []AwaitedClient { return []AwaitedClient{client} },
				Excuse:  func(...string) { ended = true },
			}}
			o.run(t.Context())
			if asked != tt.asked || ended != tt.ends || strings.Count(said.String(), "msg=") != min(1, len(tt.says))+min(1, len(tt.errs)*btoi(tt.ends)) || !strings.Contains(said.String(), tt.says) {
				t.Errorf("asked %d times, want %d; excused %t, want %t; it says %q", asked, tt.asked, ended, tt.ends, said.String())
			}
		})
	}
	(&outOfService{}).run(t.Context()) // where version 4 is not served
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Clients are not waited for though it is not known yet who provisions.
func TestExcusesWithoutTheGuard(t *testing.T) {
	store, _ := fixture.Store(t)
	client := fake.NewClientset(deadNode(func(*v1.Node) {}))
	client.PrependReactor("*", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewTimeoutError("the API server is busy", 0)
	})
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop()
	var excused []string
	err := Run(ctx, Config{
		Client: client, Workers: 1, GuardIn: "podnas", Log: slog.New(slog.DiscardHandler),
		Provisioner: &provisioner.Provisioner{Name: provisioner.DefaultName, Store: store, Endpoint: provisioner.StaticEndpoint{Port: 2049}, Log: slog.New(slog.DiscardHandler)},
		Grace: &Grace{
			Lasts: func() bool { return len(excused) == 0 },
			Awaited: func() []AwaitedClient {
				return []AwaitedClient{{Owner: "owner", Host: "node3", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.3")}}}
			},
			Excuse: func(owners ...string) {
				excused = owners
				stop()
			},
		},
	})
	if err != nil || !slices.Equal(excused, []string{"owner"}) {
		t.Errorf("excused %v: %v", excused, err)
	}
}
