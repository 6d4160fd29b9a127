package failover

import (
	"context"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/podnas/podnas/provisioner/active"
)

// state is what there is before anything is done.
type state struct {
	node   *v1.Node  // nil: it is not in the cluster any more, and podnas's pod is still of it
	heard  string    // what is known of the node's life
	last   time.Time // when the node was heard last; zero: never
	pod    *v1.Pod   // on the node; nil: somebody has deleted it
	serves *v1.Pod   // a pod on another node, or nil
	disk   string    // what keeps the old node from its disk
	taint  *v1.Taint // which this call has set; nil: none
	begun  bool      // a failover from the node was begun before, and its pod is deleted
}

// look finds the node, podnas's pod there and its disk, and refuses what would do harm or no good.
func (f *Failover) look(ctx context.Context) (*state, error) {
	set, err := f.Client.AppsV1().StatefulSets(f.Namespace).Get(ctx, f.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, f.errNoSet()
	case err != nil:
		return nil, f.denied("look at StatefulSet "+f.Name, "get statefulsets", err)
	case set.Spec.Replicas != nil && *set.Spec.Replicas == 0:
		return nil, &RefusedError{fmt.Sprintf("StatefulSet %s is scaled to 0: podnas is meant to be away", f.Name), fmt.Sprintf("kubectl -n %s scale statefulset/%s --replicas=1", f.Namespace, f.Name)}
	}
	f.number = 1
	if _, f.shared = set.Spec.Template.Labels[active.RoleLabel]; f.shared && set.Spec.Replicas != nil {
		f.number = int(*set.Spec.Replicas)
	}
	pods, err := f.pods(ctx)
	if err != nil {
		return nil, err
	}
	pod := pods.of(f.Node)
	node, err := f.Client.CoreV1().Nodes().Get(ctx, f.Node, metav1.GetOptions{})
	switch {
	case err == nil:
	case !apierrors.IsNotFound(err):
		return nil, f.denied("look at node "+f.Node, "get nodes", err)
	case pod == nil || pod.Spec.NodeName != f.Node:
		return nil, &RefusedError{fmt.Sprintf("there is no node %s", f.Node), f.whereIs(pods, pod)}
	default:
		node = nil
	}
	s := &state{node: node, heard: "which is no node of the cluster any more"}
	if node != nil {
		if s.last, err = LastHeard(ctx, f.Client, node); err != nil {
			return nil, err
		}
	}
	if pod == nil || pod.Spec.NodeName != f.Node {
		return f.withoutPod(ctx, s, pods, pod)
	}
	s.pod, s.serves = pod, pods.serves
	f.was = pod.UID
	if node != nil {
		if s.heard, err = f.dead(s, pod); err != nil {
			return nil, err
		}
	}
	if s.disk, err = f.diskOf(ctx, pod); err == nil && node != nil {
		err = f.staysAway(set, node)
	}
	return s, err
}

// withoutPod goes on with look if the node, which is there, has no pod of podnas.
func (f *Failover) withoutPod(ctx context.Context, s *state, pods *pods, pod *v1.Pod) (*state, error) {
	where := pod
	if len(pods.lost) > 0 {
		where = pods.lost[0]
	}
	refused := &RefusedError{fmt.Sprintf("podnas %s/%s does not run on %s", f.Namespace, f.Name, f.Node), f.whereIs(pods, where)}
	switch {
	case taintOf(s.node) != nil && (pods.serves != nil || len(pods.lost) == 0): // else podnas ran on another node since, which is dead now
		s.begun = true
		return s, nil
	case nodeReady(s.node) || pod == nil || pods.serves != nil || len(pods.lost) > 0:
		return nil, refused
	}
	// Somebody has deleted its pod there, by force, and the next one may wait for the disk.
	held, err := f.holds(ctx, s.node, pod)
	switch {
	case err != nil:
		return nil, err
	case !held:
		return nil, refused
	}
	if s.heard, err = f.dead(s, pod); err != nil {
		return nil, err
	}
	s.disk, err = f.diskOf(ctx, pod)
	return s, err
}

// pods are podnas's pods, as one look finds them.
type pods struct {
	there  []*v1.Pod
	lost   []*v1.Pod // on other nodes, which are known to be gone or not Ready
	serves *v1.Pod   // on another node; nil: none
}

// pods returns the pods that are there.
func (f *Failover) pods(ctx context.Context) (*pods, error) {
	p := &pods{}
	for i := range f.number {
		name := fmt.Sprintf("%s-%d", f.Name, i)
		pod, err := f.Client.CoreV1().Pods(f.Namespace).Get(ctx, name, metav1.GetOptions{})
		switch {
		case err == nil:
			p.there = append(p.there, pod)
		case !apierrors.IsNotFound(err):
			return nil, f.denied("look at pod "+name, "get pods", err)
		}
	}
	for _, pod := range p.there {
		switch {
		case pod.Spec.NodeName == f.Node:
		case f.isLost(ctx, pod):
			p.lost = append(p.lost, pod)
		case p.serves == nil && isReady(pod) && (!f.shared || pod.Labels[active.RoleLabel] == active.RoleActive):
			p.serves = pod
		}
	}
	return p, nil
}

// of returns the pod on the node, else the one that serves, else any, or nil.
func (p *pods) of(node string) *v1.Pod {
	for _, pod := range p.there {
		if pod.Spec.NodeName == node {
			return pod
		}
	}
	if p.serves != nil || len(p.there) == 0 {
		return p.serves
	}
	return p.there[0]
}

// isLost reports whether the node of a pod is known to be gone or not Ready. A dead node's pods are said to be ready for a moment more.
func (f *Failover) isLost(ctx context.Context, pod *v1.Pod) bool {
	if pod.Spec.NodeName == "" {
		return false
	}
	node, err := f.Client.CoreV1().Nodes().Get(ctx, pod.Spec.NodeName, metav1.GetOptions{})
	return apierrors.IsNotFound(err) || err == nil && !nodeReady(node)
}

// deadToo says so of the node of a pod that is lost.
func (f *Failover) deadToo(pod *v1.Pod) string {
	node := pod.Spec.NodeName
	return fmt.Sprintf("it is on %s, which is not Ready. If that is the dead one: %s", node, f.failover(node))
}

// whereIs says where podnas runs, by one of its pods or nil.
func (f *Failover) whereIs(pods *pods, pod *v1.Pod) string {
	doctor := fmt.Sprintf("'%s' says why", f.doctor())
	switch {
	case pod == nil:
		return "podnas has no pod: " + doctor
	case pod.Spec.NodeName == "":
		return "its pod waits for a node: " + doctor
	case slices.Contains(pods.lost, pod):
		return f.deadToo(pod)
	case isReady(pod):
		return fmt.Sprintf("nothing: it runs on %s, and is ready", pod.Spec.NodeName)
	}
	return fmt.Sprintf("it is on %s, and not ready: %s", pod.Spec.NodeName, doctor)
}

// isReady reports whether a pod is ready, and not about to end.
func isReady(pod *v1.Pod) bool { return active.IsReady(pod) && pod.DeletionTimestamp == nil }
