//go:build cluster

package cluster_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/podnas/podnas/internal/doctor"
	"github.com/podnas/podnas/provisioner/active"
)

// pair are the pods of two podnas that share a disk, without kubelets.
type pair struct {
	*tenant

	pods [2]*corev1.Pod
}

func newPair(t *testing.T) *pair {
	p := &pair{tenant: newTenant(t)}
	grantNamespace(t, p.name)
	eventually(t, time.Minute, "the namespace has its ServiceAccount", func() bool {
		_, err := cluster.client.CoreV1().ServiceAccounts(p.name).Get(t.Context(), "default", metav1.GetOptions{})
		return err == nil
	})
	for i := range p.pods {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: p.node(i)}}
		if _, err := cluster.client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cluster.client.CoreV1().Nodes().Delete(context.Background(), node.Name, metav1.DeleteOptions{})
		})
		now := metav1.Now()
		setNodeStatus(t, node.Name, corev1.NodeStatus{Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: now, LastTransitionTime: now,
		}}})
		p.pods[i] = p.pod(i)
	}
	return p
}

// node is the name of a pod's node, which no kubelet has.
func (p *pair) node(i int) string { return fmt.Sprintf("%s-%d", p.name, i) }

// pod makes one, which is ready, and for the API server stays so.
func (p *pair) pod(i int) *corev1.Pod {
	p.t.Helper()
	pod, err := cluster.client.CoreV1().Pods(p.name).Create(p.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("podnas-%d", i), Labels: map[string]string{"app.kubernetes.io/name": "podnas", active.RoleLabel: active.RoleStandby}},
		Spec: corev1.PodSpec{
			NodeName:   p.node(i),
			Containers: []corev1.Container{{Name: "podnas", Image: "podnas"}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		p.t.Fatal(err)
	}
	ip := fmt.Sprintf("192.0.2.1%d", i)
	setPodStatus(p.t, pod, corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}},
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
	})
	return pod
}

// config is of the podnas in a pod, with the rights that podnas has there.
func (p *pair) config(i int) active.Config {
	p.t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", cluster.kubeconfig)
	if err != nil {
		p.t.Fatal(err)
	}
	config.QPS = -1
	client, err := active.NewClient(config)
	if err != nil {
		p.t.Fatal(err)
	}
	return active.Config{
		Client: client, Namespace: p.name, Service: "podnas", Pod: p.pods[i].Name, UID: string(p.pods[i].UID),
		Log: slog.New(slog.NewTextHandler(p.t.Output(), nil)),
	}
}

// roles are those of the pods, in their order.
func (p *pair) roles() string {
	p.t.Helper()
	var roles []string
	for _, pod := range p.pods {
		got, err := cluster.client.CoreV1().Pods(p.name).Get(p.t.Context(), pod.Name, metav1.GetOptions{})
		if err != nil {
			p.t.Fatal(err)
		}
		roles = append(roles, got.Labels[active.RoleLabel])
	}
	return strings.Join(roles, " ")
}

// component gives podnas what deploy/components/ha does, in the tenant's namespace.
func (p *pair) component(file string) {
	p.t.Helper()
	text, err := os.ReadFile("../../deploy/components/ha/" + file)
	if err != nil {
		p.t.Fatal(err)
	}
	text = bytes.ReplaceAll(text, []byte("\n  namespace: podnas\n"), []byte("\n  namespace: "+p.name+"\n")) // and not that of the account
	if _, err := kubectl(p.t.Context(), text, "apply", "-f", "-"); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		if _, err := kubectl(context.Background(), text, "delete", "-f", "-"); err != nil {
			p.t.Error(err)
		}
	})
}

func closed() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// TestActiveLabel: the Service leads to the active podnas alone, also when another pod is ready and had the label.
func TestActiveLabel(t *testing.T) {
	p := newPair(t)
	ctx := t.Context()
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "podnas"}, Spec: corev1.ServiceSpec{
		Selector: map[string]string{"app.kubernetes.io/name": "podnas", active.RoleLabel: active.RoleActive},
		Ports:    []corev1.ServicePort{{Name: "nfs", Port: 2049, TargetPort: intstr.FromInt32(2049)}},
	}}
	if _, err := cluster.client.CoreV1().Services(p.name).Create(ctx, service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	leadsTo := func(want string) bool {
		list, err := cluster.client.DiscoveryV1().EndpointSlices(p.name).List(ctx, metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=podnas"})
		if err != nil {
			t.Fatal(err)
		}
		var addresses []string
		for i := range list.Items {
			for _, e := range list.Items[i].Endpoints {
				if *e.Conditions.Ready {
					addresses = append(addresses, e.Addresses...)
				}
			}
		}
		return strings.Join(addresses, " ") == want
	}

	first := active.NewActive(p.config(0))
	lives, dies := context.WithCancel(ctx)
	defer dies()
	ended := make(chan struct{})
	go func() {
		first.Run(lives, closed())
		close(ended)
	}()
	lacks := func(r doctor.Result) bool {
		return r.Status == doctor.Failed && strings.Contains(r.Says, "components/ha")
	}
	eventually(t, 20*time.Second, "it is found that a right is missing", func() bool { return slices.ContainsFunc(first.Findings(), lacks) })
	if p.roles() != "standby standby" {
		t.Fatalf("without the right the pods are %s", p.roles())
	}
	p.component("rbac.yaml")
	eventually(t, 20*time.Second, "the Service leads to the first", func() bool { return p.roles() == "active standby" && leadsTo("192.0.2.10") })
	eventually(t, 20*time.Second, "there is a standby", first.HasStandby)

	// The first one's node dies. Its pod is ready, as it is for 40 seconds and more.
	dies()
	<-ended
	second := active.NewActive(p.config(1))
	serves := make(chan struct{})
	go second.Run(ctx, serves)
	time.Sleep(3 * time.Second)
	if p.roles() != "active standby" {
		t.Fatalf("before the second serves the pods are %s", p.roles())
	}
	began := time.Now()
	close(serves)
	eventually(t, 20*time.Second, "the Service leads to the second", func() bool { return leadsTo("192.0.2.11") })
	t.Logf("the Service led to the next %v after that served", time.Since(began).Round(10*time.Millisecond))

	// Meanwhile the first was only stopped: it goes on, and has its label again, until its disk tells it.
	lives, dies = context.WithCancel(ctx)
	defer dies()
	ended = make(chan struct{})
	again := active.NewActive(p.config(0))
	go func() {
		again.Run(lives, closed())
		close(ended)
	}()
	eventually(t, 20*time.Second, "both believe to be active", func() bool { return p.roles() == "active standby" })
	dies()
	<-ended
	eventually(t, 10*time.Second, "the second one's label is back", func() bool { return p.roles() == "standby active" })

	// A pod of the same name is another one.
	now := int64(0)
	if err := cluster.client.CoreV1().Pods(p.name).Delete(ctx, "podnas-0", metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		t.Fatal(err)
	}
	old := p.config(0)
	p.pods[0] = p.pod(0)
	of := active.NewActive(old)
	short, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	of.Run(short, closed())
	if p.roles() != "standby active" {
		t.Errorf("a podnas that has no pod any more made the roles %s", p.roles())
	}
}

// TestActivePolicy: of pods podnas may change the one label.
func TestActivePolicy(t *testing.T) {
	p := newPair(t)
	p.component("rbac.yaml")
	p.component("policy.yaml")
	pods := asClient(t, podnasNamespace, podnasName).CoreV1().Pods(p.name)
	patch := func(body string) string {
		if _, err := pods.Patch(t.Context(), "podnas-0", types.StrategicMergePatchType, []byte(body), metav1.PatchOptions{}); err != nil {
			return err.Error()
		}
		return "done"
	}
	tries := 0
	eventually(t, 20*time.Second, "the policy is in force", func() bool {
		tries++ // what changes nothing is let through
		return strings.Contains(patch(fmt.Sprintf(`{"spec": {"containers": [{"name": "podnas", "image": "other%d"}]}}`, tries)), "podnas.io/role of a pod alone")
	})
	for body, want := range map[string]string{
		`{"metadata": {"labels": {"podnas.io/role": "active"}}}`:                                       "done",
		`{"metadata": {"labels": {"podnas.io/role": "master"}}}`:                                       "active or standby",
		`{"metadata": {"labels": {"podnas.io/role": null}}}`:                                           "alone",
		`{"metadata": {"labels": {"app.kubernetes.io/name": "other"}}}`:                                "alone",
		`{"metadata": {"labels": {"app.kubernetes.io/name": null}}}`:                                   "alone",
		`{"metadata": {"labels": {"more": "x"}}}`:                                                      "alone",
		`{"metadata": {"annotations": {"more": "x"}}}`:                                                 "alone",
		`{"metadata": {"finalizers": ["podnas.io/x"]}}`:                                                "alone",
		`{"metadata": {"labels": {"podnas.io/role": "active"}}, "spec": {"activeDeadlineSeconds": 1}}`: "alone",
	} {
		if got := patch(body); !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", body, got, want)
		}
	}
	if out, err := kubectl(t.Context(), nil, "-n", p.name, "annotate", "pod", "podnas-0", "a=b"); err != nil {
		t.Errorf("others may not either: %s (%v)", out, err)
	}
}

// TestStandbyWatches: an API server that hangs, or goes on just now, says nothing about the active podnas. The death of that does.
func TestStandbyWatches(t *testing.T) {
	const enough = 7 * time.Second // what a standby acts on
	p := newPair(t)
	p.component("rbac.yaml")
	ctx := t.Context()
	lives, dies := context.WithCancel(ctx)
	defer dies()
	go active.NewActive(p.config(0)).Run(lives, closed())
	standby := active.NewStandby(p.config(1))
	go standby.Run(ctx)
	most := time.Duration(0)
	watch := func(long time.Duration, until func() bool) {
		t.Helper()
		for began := time.Now(); time.Since(began) < long && !until(); time.Sleep(20 * time.Millisecond) {
			most = max(most, standby.Silent())
		}
	}
	never := func() bool { return false }
	watch(8*time.Second, never)
	t.Logf("while the API server works: silent for %v at most", most)
	if most >= 4*time.Second {
		t.Fatal("that is too long for one that renews each 2 seconds")
	}
	goOn, err := cluster.plane.HangAPIServer()
	if err != nil {
		t.Fatal(err)
	}
	watch(15*time.Second, never)
	if err := goOn(); err != nil {
		t.Fatal(err)
	}
	watch(10*time.Second, never)
	t.Logf("while it hangs for 15 s, and after it: silent for %v at most", most)
	if most >= enough {
		t.Fatal("the standby takes an active podnas for dead")
	}
	began := time.Now()
	dies()
	watch(30*time.Second, func() bool { return standby.Silent() >= enough })
	t.Logf("after the death of the active one that was known after %v", time.Since(began).Round(10*time.Millisecond))
	if standby.Silent() < enough {
		t.Errorf("silent for %v", standby.Silent())
	}
}
